"use strict";
(() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  root.classList.add("js");

  // Light and dark: the system's choice until the button is used.
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const theme = byId("theme");
  const nameTheme = () => { theme.textContent = dark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Use the ${dark() ? "light" : "dark"} theme`); };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; nameTheme(); });
  nameTheme();
  const narrow = matchMedia("(max-width: 36rem)");
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  if (data.kind !== "bench") return;

  const at = Object.fromEntries([...data.names, "failed"].map((name, i) => [name, i]));
  const records = data.rows.map(([trained, ...own]) => [...data.trained[trained], ...own, null]);
  for (const [reason, which] of data.failed) for (const i of which) records[i][at.failed] = reason;
  const METHODS = ["f-npse", "pf-npse", "npse", "npe", "nle", "nre"];
  const AXES = { budget: "simulator budget", n: "observations, n", m: "observations in a set, m" };
  const SHAPES = ["circle", "square", "triangle", "diamond"];
  const STUDIES = { methods: "methods", m: "set size m", samplers: "samplers", conservative: "conservative networks" };
  const state = { study: "methods", task: 0, metric: Math.max(0, data.metrics.findIndex((m) => m.name === "c2st")), axis: "budget", facet: "all", off: new Set() };

  const of = (row, axis) => (axis === "m" ? data.lines[row[at.line]].m : row[at[axis]]);
  const number = (v) => (Number.isInteger(v) ? v.toLocaleString("en") : v.toPrecision(3));
  const unique = (list) => [...new Set(list)].sort((a, b) => a - b);
  const rowsOf = (study) => {
    const rows = records.filter((row) => row[at.task] === state.task && IN[study](data.lines[row[at.line]]));
    return study === "m" ? sized(rows) : rows;
  };
  const rowsOfTask = () => rowsOf(state.study);
  const linesOfTask = () => unique(records.filter((row) => row[at.task] === state.task).map((row) => row[at.line])).map((i) => data.lines[i]);
  // Each study shows some of the lines: all of them at once would hide each other.
  const BASE = (line) => line.method !== "pf-npse" || line.m === 6;
  const IN = {
    methods: (line) => BASE(line) && !line.sampler && !line.conservative,
    m: (line) => (line.method === "pf-npse" || line.method === "f-npse") && !line.sampler && !line.conservative,
    samplers: (line) => line.method === "pf-npse" && line.m === 6 && !line.conservative && line.setting === "paper",
    conservative: (line) => BASE(line) && !line.sampler && line.setting === "paper",
  };
  const there = { methods: () => true, m: () => rowsOf("m").length > 0,
    samplers: (lines) => lines.some((l) => l.sampler), conservative: (lines) => lines.some((l) => l.conservative) };
  const other = () => (state.axis === "budget" ? "n" : state.axis === "n" ? "budget" : "n");

  // Against m, a line is a setting: F-NPSE is m = 1.
  const lineKey = (line) => (state.axis === "m" ? ["pf-npse", line.setting, line.conservative, line.sampler].join() : line.label);
  const lineLabel = (line) => {
    if (state.study === "samplers" && !line.sampler) return `${line.label}, ${data.sampler}`;
    return state.axis === "m" ? line.label.replace(/^P?F-NPSE( \(m = \d+\))?/, "PF-NPSE") : line.label;
  };

  // The study of m has one budget, that with most values of m, and the n with three of them or more, as in the figures.
  function sized(rows) {
    const panels = new Map();
    for (const row of rows) {
      const key = `${row[at.budget]} ${row[at.n]}`;
      if (!panels.has(key)) panels.set(key, { budget: row[at.budget], sizes: new Set(), rows: [] });
      panels.get(key).sizes.add(of(row, "m"));
      panels.get(key).rows.push(row);
    }
    const kept = [...panels.values()].filter(({ sizes }) => sizes.size > 2).sort((a, b) => b.sizes.size - a.sizes.size);
    return kept.filter(({ budget }) => budget === kept[0].budget).flatMap((one) => one.rows);
  }

  function linesHere() {
    const found = new Map();
    for (const row of rowsOfTask()) {
      const line = data.lines[row[at.line]];
      const key = lineKey(line);
      if (!found.has(key)) found.set(key, { key, label: lineLabel(line), line, look: null, rows: [] });
      found.get(key).rows.push(row);
    }
    const apart = state.study === "samplers";
    [...found.values()].forEach((one, i) => {
      const method = METHODS.includes(one.line.method) ? METHODS.indexOf(one.line.method) : 6;
      const plain = apart ? !one.line.sampler : state.study === "conservative" ? !one.line.conservative : one.line.setting !== "paper";
      const hollow = !plain;
      one.look = { colour: `var(--c${apart ? i % 7 : method})`, dash: plain ? "" : "6 4", hollow, shape: SHAPES[(apart ? i : method) % SHAPES.length] };
    });
    return [...found.values()];
  }

  function summary(rows) {
    const metric = data.metrics[state.metric].name;
    const trainings = new Map();
    const all = [];
    for (const row of rows) {
      const value = row[at[metric]];
      if (value === null) continue;
      all.push(value);
      const seed = row[at.training];
      if (!trainings.has(seed)) trainings.set(seed, []);
      trainings.get(seed).push(value);
    }
    if (!all.length) return null;
    const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
    const means = [...trainings.values()].map(mean);
    const centre = mean(means);
    const spread = means.length > 1 ? Math.sqrt(means.reduce((s, v) => s + (v - centre) ** 2, 0) / (means.length - 1)) : null;
    return { mean: mean(all), spread, cells: all.length, trainings: means.length, rows };
  }

  function pointsOf(line, facet) {
    const groups = new Map();
    for (const row of line.rows) {
      if (facet && row[at[facet.axis]] !== facet.value) continue;
      const x = of(row, state.axis);
      if (!groups.has(x)) groups.set(x, []);
      groups.get(x).push(row);
    }
    return [...groups].map(([x, rows]) => ({ x, ...summary(rows) })).filter((p) => p.mean !== undefined).sort((a, b) => a.x - b.x);
  }

  function marker(look, x, y, size = 4.5) {
    const style = `fill="${look.hollow ? "var(--paper)" : look.colour}" stroke="${look.colour}" stroke-width="1.8"`;
    const s = size;
    if (look.shape === "square") return `<rect x="${x - s}" y="${y - s}" width="${2 * s}" height="${2 * s}" ${style}/>`;
    if (look.shape === "triangle") return `<path d="M${x} ${y - 1.2 * s}L${x + 1.15 * s} ${y + s}H${x - 1.15 * s}Z" ${style}/>`;
    if (look.shape === "diamond") return `<path d="M${x} ${y - 1.35 * s}L${x + 1.35 * s} ${y}L${x} ${y + 1.35 * s}L${x - 1.35 * s} ${y}Z" ${style}/>`;
    return `<circle cx="${x}" cy="${y}" r="${s}" ${style}/>`;
  }

  function ticks(low, high, count) {
    const raw = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
    const found = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * step; v += step) found.push(+v.toPrecision(10));
    return found;
  }

  // Squared MMD is drawn on a scale of square roots, as in the figures.
  const ROOTS = [0, 1, 0.8, 0.6, 0.4, 0.2, 0.1, 0.03, 0.01, 0.003, 0.001, -0.01, -0.05];
  const rooted = () => data.metrics[state.metric].name === "mmd2";
  const scaled = (y) => (rooted() ? Math.sign(y) * Math.sqrt(Math.abs(y)) : y);
  const unscaled = (y) => (rooted() ? Math.sign(y) * y * y : y);
  function rootTicks(low, high) {
    const kept = [];
    for (const tick of ROOTS) {
      const y = scaled(tick);
      if (y >= low && y <= high && kept.every((other) => Math.abs(y - scaled(other)) > (high - low) / 9)) kept.push(tick);
    }
    return kept;
  }

  function panel(facet, shown, range, xs, wide) {
    const W = wide ? 640 : 360, H = wide ? 360 : 260, left = 52, right = 14, top = 10, bottom = 44;
    const logs = xs.map(Math.log), a = Math.min(...logs), b = Math.max(...logs);
    const px = (x) => (a === b ? (left + W - right) / 2 : left + 12 + (Math.log(x) - a) / (b - a) * (W - left - right - 24));
    const py = (y) => top + (range[1] - scaled(y)) / (range[1] - range[0]) * (H - top - bottom);
    const r = (v) => v.toFixed(1);
    const metric = data.metrics[state.metric];
    let svg = "";
    for (const tick of rooted() ? rootTicks(...range) : ticks(range[0], range[1], 5)) {
      svg += `<line class="grid" x1="${left}" x2="${W - right}" y1="${r(py(tick))}" y2="${r(py(tick))}"/><text x="${left - 7}" y="${r(py(tick) + 4)}" text-anchor="end">${tick}</text>`;
    }
    let last = -1e9;
    for (const x of xs) {
      const label = number(x), half = 4 * label.length;
      svg += `<line class="axis" x1="${r(px(x))}" x2="${r(px(x))}" y1="${H - bottom}" y2="${H - bottom + 5}"/>`;
      if (px(x) - half < last) continue;
      last = px(x) + half;
      svg += `<text x="${r(px(x))}" y="${H - bottom + 19}" text-anchor="middle">${label}</text>`;
    }
    svg += `<line class="axis" x1="${left}" x2="${W - right}" y1="${H - bottom}" y2="${H - bottom}"/>`;
    svg += `<text x="${(left + W - right) / 2}" y="${H - 5}" text-anchor="middle">${AXES[state.axis]}</text>`;
    if (scaled(metric.perfect) >= range[0] && scaled(metric.perfect) <= range[1]) {
      svg += `<line class="perfect" x1="${left}" x2="${W - right}" y1="${r(py(metric.perfect))}" y2="${r(py(metric.perfect))}"/>`;
    }
    const most = metric.name === "c2st" ? 1 : unscaled(range[1]);
    const clip = (y) => Math.min(most, Math.max(unscaled(range[0]), y));
    const bands = [], paths = [], marks = [];
    for (const { line, points } of shown) {
      const look = line.look, banded = points.filter((p) => p.spread !== null);
      if (banded.length > 1) {
        const up = banded.map((p) => `${r(px(p.x))} ${r(py(clip(p.mean + p.spread)))}`);
        const down = banded.map((p) => `${r(px(p.x))} ${r(py(clip(p.mean - p.spread)))}`).reverse();
        bands.push(`<path d="M${up.concat(down).join("L")}Z" fill="${look.colour}" opacity=".13"/>`);
      } else if (banded.length === 1) {
        const p = banded[0];
        bands.push(`<line x1="${r(px(p.x))}" x2="${r(px(p.x))}" y1="${r(py(clip(p.mean - p.spread)))}" y2="${r(py(clip(p.mean + p.spread)))}" stroke="${look.colour}" stroke-width="5" opacity=".25"/>`);
      }
      paths.push(`<path d="M${points.map((p) => `${r(px(p.x))} ${r(py(p.mean))}`).join("L")}" fill="none" stroke="${look.colour}" stroke-width="2" stroke-dasharray="${look.dash}"/>`);
      points.forEach((p, i) => {
        const said = `${line.label}, ${AXES[state.axis]} ${number(p.x)}: ${metric.label} ${p.mean.toFixed(3)}${p.spread === null ? "" : ` ± ${p.spread.toFixed(3)}`}, ${p.cells} cells`;
        marks.push(`<g class="point" tabindex="${i ? -1 : 0}" role="button" aria-label="${escape(said)}" data-line="${escape(line.key)}" data-x="${p.x}" data-facet="${facet ? facet.value : ""}"><circle class="halo" cx="${r(px(p.x))}" cy="${r(py(p.mean))}" r="11"/>${marker(look, +r(px(p.x)), +r(py(p.mean)))}</g>`);
      });
    }
    const title = facet ? `${facet.axis === "n" ? "n" : "budget"} = ${number(facet.value)}` : "";
    return `<div class="panel"><h3>${title}</h3><svg viewBox="0 0 ${W} ${H}" role="group" aria-label="${escape(`${metric.label} against ${AXES[state.axis]}, ${title}`)}">${svg}${bands.join("")}${paths.join("")}${marks.join("")}</svg></div>`;
  }

  function limits(shown) {
    const metric = data.metrics[state.metric];
    const ends = shown.flat().flatMap(({ points }) => points.flatMap((p) => [p.mean - (p.spread || 0), p.mean + (p.spread || 0)]));
    let low = Math.min(metric.perfect, ...ends), high = Math.max(metric.perfect, ...ends);
    if (metric.name === "c2st") { low = Math.min(0.5, Math.min(...shown.flat().flatMap(({ points }) => points.map((p) => p.mean)))); high = Math.min(1, high); }
    [low, high] = [scaled(low), scaled(high)];
    const margin = 0.06 * (high - low || 0.1);
    return [low - margin, high + margin];
  }

  function control(name, label, options, selected) {
    const list = options.map(([value, text]) => `<option value="${escape(value)}"${String(value) === String(selected) ? " selected" : ""}>${escape(text)}</option>`);
    return `<label>${label}<select name="${name}">${list.join("")}</select></label>`;
  }

  function facets() {
    const special = { samplers: "sampler", conservative: "conservative" }[state.study];
    const budgets = new Set(rowsOfTask().filter((row) => special && data.lines[row[at.line]][special]).map((row) => row[at.budget]));
    const rows = rowsOfTask().filter((row) => !special || state.axis !== "n" || budgets.has(row[at.budget]));
    return unique(rows.map((row) => row[at[other()]])).map((value) => ({ axis: other(), value }));
  }

  function draw() {
    const studies = Object.entries(STUDIES).filter(([study]) => there[study](linesOfTask()));
    if (!studies.some(([study]) => study === state.study)) state.study = "methods";
    const axes = Object.entries(AXES).filter(([axis]) => (axis === "m") === (state.study === "m"));
    if (!axes.some(([axis]) => axis === state.axis)) state.axis = state.study === "methods" ? "budget" : axes[axes.length - 1][0];
    const choices = facets();
    if (state.facet !== "all" && !choices.some((f) => String(f.value) === state.facet)) state.facet = "all";
    const name = other() === "n" ? "Observations" : "Budget";
    const focused = document.activeElement && document.activeElement.name;
    byId("controls").innerHTML =
      control("task", "Task", data.tasks.map((task, i) => [i, task]), state.task) +
      (studies.length > 1 ? control("study", "Study of", studies, state.study) : "") +
      control("metric", "Measure", data.metrics.map((m, i) => [i, m.label]), state.metric) +
      control("axis", "Against", axes, state.axis) +
      control("facet", name, [["all", "each in a panel"], ...choices.map((f) => [f.value, `${f.axis === "n" ? "n = " : ""}${number(f.value)}`])], state.facet);
    if (focused) { const same = byId("controls").elements[focused]; if (same) same.focus(); }
    const lines = linesHere();
    byId("legend").innerHTML = lines.map((line) => {
      const key = `<svg width="34" height="14" aria-hidden="true"><line x1="0" x2="34" y1="7" y2="7" stroke="${line.look.colour}" stroke-width="2" stroke-dasharray="${line.look.dash}"/>${marker(line.look, 17, 7, 4)}</svg>`;
      return `<button type="button" data-line="${escape(line.key)}" aria-pressed="${!state.off.has(line.key)}">${key}${escape(line.label)}</button>`;
    }).join("");
    const panels = choices.filter((f) => state.facet === "all" || String(f.value) === state.facet);
    const visible = lines.filter((line) => !state.off.has(line.key));
    const shown = panels.map((facet) => visible.map((line) => ({ line, points: pointsOf(line, facet) })).filter(({ points }) => points.length));
    const any = shown.flat().length > 0;
    const xs = unique(shown.flat().flatMap(({ points }) => points.map((p) => p.x)));
    const range = any ? limits(shown) : [0, 1];
    byId("shown").textContent = `${data.tasks[state.task]}: ${data.metrics[state.metric].label} against ${AXES[state.axis]}`;
    byId("charts").className = panels.length === 1 ? "one" : "";
    byId("charts").innerHTML = any ? panels.map((facet, i) => panel(facet, shown[i], range, xs, panels.length === 1 && !narrow.matches)).join("") : "<p>No line is switched on.</p>";
    const metric = data.metrics[state.metric];
    byId("note").textContent = `Means over cells; bands are ± one standard deviation over trainings. Dotted: a perfect posterior (${metric.perfect}).${state.axis === "m" ? ` Budget ${number(rowsOfTask()[0][at.budget])}; m = 1 is F-NPSE.` : ""}${rooted() ? " The scale is one of square roots." : ""} Choose a point to see its records.`;
  }

  const found = (group) => {
    const line = linesHere().find((one) => one.key === group.dataset.line);
    const facet = group.dataset.facet === "" ? null : { axis: other(), value: +group.dataset.facet };
    return { line, facet, point: pointsOf(line, facet).find((p) => p.x === +group.dataset.x) };
  };

  function showTip(group) {
    const box = group.querySelector(".halo").getBoundingClientRect(), tip = byId("tip");
    tip.textContent = group.getAttribute("aria-label");
    tip.hidden = false;
    const wide = tip.offsetWidth, tall = tip.offsetHeight;
    tip.style.left = `${Math.max(8, Math.min(innerWidth - wide - 8, box.left + box.width / 2 - wide / 2))}px`;
    tip.style.top = `${box.top - tall - 6 > 0 ? box.top - tall - 6 : box.bottom + 6}px`;
  }
  const hideTip = () => { byId("tip").hidden = true; };

  function choose(group) {
    document.querySelectorAll(".point.chosen").forEach((one) => one.classList.remove("chosen"));
    group.classList.add("chosen");
    const { line, facet, point } = found(group);
    const given = (name) => point.rows.some((row) => row[at[name]] !== null);
    const columns = [["training", "training"], ["parameters", "parameters"], ...data.metrics.map((m) => [m.name, m.label.split(",")[0]]),
      ["converged", "sampler settled"], ["failed", "failed"], ["learning_rate", "learning rate"], ["validation", "validation loss"],
      ["seconds", "seconds to draw"], ["key", "key in records.jsonl"]].filter(([name]) => given(name));
    const kind = (name) => (name === "failed" ? ' class="words"' : "");
    const text = (row, name) => {
      const value = row[at[name]];
      if (value === null) return "–";
      if (name === "converged") return value ? "yes" : "no";
      return name === "key" ? `<code>${escape(value)}</code>` : escape(value);
    };
    const body = point.rows.map((row) => `<tr>${columns.map(([name]) => `<td${kind(name)}>${text(row, name)}</td>`).join("")}</tr>`).join("");
    const where = facet ? `, ${facet.axis} = ${number(facet.value)}` : "";
    byId("chosen").innerHTML = `<h3>${escape(line.label)}, ${state.axis} = ${number(point.x)}${where}: ${point.rows.length} records</h3><div class="scroll"><table><thead><tr>${columns.map(([name, label]) => `<th scope="col"${kind(name)}>${escape(label)}</th>`).join("")}</tr></thead><tbody>${body}</tbody></table></div>`;
  }

  byId("controls").addEventListener("change", (event) => {
    const { name, value } = event.target;
    state[name] = name === "task" || name === "metric" ? +value : value;
    if (name === "study" && value !== "m") state.axis = value === "methods" ? "budget" : "n";
    if (name === "task" || name === "axis" || name === "study") { state.facet = "all"; state.off.clear(); }
    byId("chosen").innerHTML = "";
    draw();
  });
  byId("legend").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const key = button.dataset.line;
    if (!state.off.delete(key)) state.off.add(key);
    draw();
    [...byId("legend").children].find((one) => one.dataset.line === key).focus();
  });
  const charts = byId("charts");
  const pointAt = (event) => event.target.closest && event.target.closest(".point");
  charts.addEventListener("pointerover", (event) => { const group = pointAt(event); if (group) showTip(group); });
  charts.addEventListener("pointerout", (event) => { if (pointAt(event)) hideTip(); });
  charts.addEventListener("focusin", (event) => { const group = pointAt(event); if (group && group.matches(":focus-visible")) showTip(group); });
  charts.addEventListener("focusout", hideTip);
  addEventListener("scroll", hideTip, { passive: true });
  charts.addEventListener("click", (event) => { const group = pointAt(event); if (group) choose(group); });
  charts.addEventListener("keydown", (event) => {
    const group = pointAt(event);
    if (!group) return;
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(group); return; }
    if (event.key === "Escape") { hideTip(); return; }
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const line = [...group.parentNode.querySelectorAll(".point")].filter((one) => one.dataset.line === group.dataset.line);
    const next = line[line.indexOf(group) + step];
    if (next) { event.preventDefault(); next.focus(); }
  });
  narrow.addEventListener("change", draw);
  if (unique(rowsOfTask().map((row) => row[at.budget])).length === 1) state.axis = "n";
  draw();
})();
