"""The page: one valid file that asks for nothing, says everything in its tables, and works in a real browser.

The tests in a browser are skipped where no Chromium is installed; the others parse the page in Python.
"""

import base64
import io
import json
import re
from html.parser import HTMLParser

import pytest
from chromium import CHROMIUM, Browser
from PIL import Image
from pretended import pretended

from scorefold.app.bench.bench_page import bench_page
from scorefold.app.bench.points import pick, point
from scorefold.errors import ScorefoldError
from scorefold.report.comparison_page import comparison_page
from scorefold.report.demo_page import demo_page
from scorefold.report.diagnosis_page import diagnosis_page
from scorefold.report.infer_page import infer_page
from scorefold.report.page import LARGEST_PAGE

RUNS = [{"started": "2026-01-01T00:00:00Z", "preset": "quick", "only": "", "executor": "local", "missing": 3, "cells": 4}]
SUMMARY = {
    "settings": {"task": "sir", "method": "pf-npse", "budget": 10_000, "n": 8, "draws": 500, "seed": 0, "rule": None},
    "measures": {"squared MMD": 0.0012, "C2ST": 0.513, "mean shift, largest": 0.1, "sd ratio, mean": 0.99},
    "seconds": {"simulate": 0.5, "train": 20.0},
    "converged": True,
    "diverged": False,
    "given fewer": {"1": "not settled"},
    "sampler": {"r hat": 1.002},
}
DIAGNOSIS = {
    "settings": {"simulator": "epidemic:simulate", "method": "NPSE", "data sets": 300, "seed": 0},
    "n": 8,
    "data sets": {"simulated": 300, "used": 297, "failed": 2, "diverged": 1, "not converged": 0},
    "draws": 100,
    "good": False,
    "verdict": "NOT calibrated: beta over-confident by about 20%",
    "quantities": {
        "beta": {"verdict": "over-confident by about 20%", "good": False, "p": 0.001, "low by": 0.02, "sd ratio": 0.8},
        "gamma": {"verdict": "well calibrated", "good": True, "p": 0.4, "low by": -0.1, "sd ratio": 0.97},
        "fit to the data": {"verdict": "well calibrated", "good": True, "p": 0.6, "low by": 0.0, "sd ratio": 1.0},
    },
    "coverage of 90 % intervals": {"beta": 0.8, "gamma": 0.89, "all together": 0.82},
    "contraction": {"beta": 0.95, "gamma": 0.9},
    "p": {"SBC": 0.001, "coverage": 0.002, "highest density": 0.003, "TARP": 0.2},
    "seconds": 3.0,
    "observed": {
        "verdict": "like the simulated data sets",
        "p": {"misspecification": 0.3, "local C2ST": 0.01, "prior predictive": 0.4, "posterior predictive": 0.5},
        "unlike any simulated": [],
        "influence": [0.1, 0.7, 0.3, 0.2],
    },
}
NUMBER = {"mean": 0.5, "error": 0.01}
STANDING = {
    **dict.fromkeys(("energy score", "behind the best", "log ratio to the best", "50 % holds", "90 % holds"), NUMBER),
    "p": 0.4, "calibrated": True, "diverged": 0, "not converged": 0, "seconds": 0.3,
}  # fmt: skip
COMPARISON = {
    "n": 8, "data sets": {"simulated": 100, "used": 98, "failed": 2}, "draws": 200, "seed": 0, "take": "nle", "tied": ["nle"],
    "verdict": "take nle: its score is the lowest.",
    "posteriors": {"f<npse": {**STANDING, "p": 0.001, "calibrated": False, "energy score": {"mean": 0.9, "error": 0.1}},
                   "nle": STANDING},
    "refused": {"npe": "expected at most 4 observations"},
    "about": {"simulator": "epidemic:simulate"},
}  # fmt: skip
CHAPTER = {"label": "n = 1", "n": 1, "c2st": 0.6, "shift": 0.2, "width": 1.1, "sd": 0.4, "trust": "usable"}
DEMO = {
    "chapters": [CHAPTER, CHAPTER | {"label": "n = 8", "n": 8, "sd": 0.1, "trust": "not to be trusted"}],
    "settings": {"budget": 10_000, "why": "a likelihood, as they have one"}, "seconds": {"simulate": 1.2, "train": 60.0},
    "calibration words": "well calibrated.",
}  # fmt: skip
VOID = {"meta", "img", "br", "input", "link"}


class Reader(HTMLParser):
    """Tags that close, what they refer to, and the text."""

    def __init__(self, page):
        super().__init__()
        self.open, self.refers, self.ids, self.text, self.tables, self.images = [], [], [], [], 0, []
        self.feed(page)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.refers += [found[name] for name in ("src", "href", "action", "data", "srcset") if name in found]
        self.ids += [found["id"]] if "id" in found else []
        self.tables += tag == "table"
        if tag == "img":
            self.images.append(found)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def picture(size=(300, 200)):
    target = io.BytesIO()
    Image.effect_noise(size, 40).convert("RGB").save(target, "PNG")
    return target.getvalue()


@pytest.fixture(scope="module")
def records():
    return pretended("quick")


@pytest.fixture(scope="module")
def pages(records):
    return {
        "bench": bench_page(records, RUNS),
        "infer": infer_page(SUMMARY, {"training": picture(), "corner": picture(), "own<1>": picture()}),
        "diagnosis": diagnosis_page(DIAGNOSIS, {"influence": picture(), "tarp": picture(), "ranks": picture()}),
        "comparison": comparison_page(COMPARISON, {}),
        "demo": demo_page(DEMO, dict.fromkeys(("sequence", "corner", "calibration", "training"), picture())),
    }


def test_the_demo_tells_a_story(pages):
    text = " ".join(Reader(pages["demo"]).text)
    assert "With 8 observations the posterior is 4.0 times narrower than with 1 observation" in text
    assert "a classifier can hardly tell the draws from the true posterior (C2ST 0.60, 0.60)" in text
    assert "sf.fit looked at the simulations and chose a likelihood, as they have one." in text
    assert "the mean of each rate is at most 0.20 posterior sd off, and the posterior is 10% too wide." in text
    assert "the draws given 8 called themselves not to be trusted" in text
    with pytest.raises(ScorefoldError, match="chapters"):
        demo_page({}, {})


def payload(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1], parse_constant=int)


@pytest.mark.parametrize("kind", ["bench", "infer", "diagnosis", "comparison", "demo"])
def test_it_is_one_whole_file_that_refers_to_nothing(pages, kind):
    page = pages[kind]
    reader = Reader(page)
    assert len(page.encode()) < LARGEST_PAGE
    assert "http://" not in page
    assert "https://" not in page
    assert all(reference.startswith("data:image/png;base64,") for reference in reader.refers)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", page)
    assert "default-src 'none'" in page
    assert len(set(reader.ids)) == len(reader.ids)
    assert payload(page)["kind"] == kind


def test_the_tables_say_it_without_javascript(pages, records):
    reader = Reader(pages["bench"])
    text = " ".join(reader.text)
    for words in ("Gaussian", "SIR", "F-NPSE, paper", "PF-NPSE (m = 6), default", "n = 30", "10,000", "quick", "Cells"):
        assert words in text
    one = point(pick(records, task="sir", method="pf-npse", setting="default", budget=10_000, n=30), "c2st")
    assert f"{one.mean:.3f} ± {one.spread:.3f}" in text
    assert reader.tables == 1 + 4 + 1


def test_the_data_are_the_records(pages, records):
    data = payload(pages["bench"])
    assert len(data["rows"]) == len(records)
    for (trained, *own), record in list(zip(data["rows"], records, strict=True))[::17]:
        found = dict(zip(data["names"], [*data["trained"][trained], *own], strict=True))
        assert data["tasks"][found["task"]] == {"gaussian": "Gaussian", "sir": "SIR"}[record["cell"]["task"]]
        assert record["key"] == found["key"]
        assert found["training"] == record["cell"]["training"]
        assert found["learning_rate"] == record["training"]["learning_rate"]
        assert found["validation"] == pytest.approx(record["training"]["validation"], rel=1e-3)
        assert found["c2st"] == pytest.approx(record["measures"]["c2st"], rel=1e-3)
        assert (found["budget"], found["n"]) == (record["cell"]["budget"], record["cell"]["n"])


def test_records_without_a_measure_or_times(records):
    failed = {**records[0], "failed": "not finite", "measures": {"c2st": 1.0, "mmd2": 0.79, "shift": None, "sd_ratio": None}}
    del failed["seconds"]
    page = bench_page([failed], [])
    Reader(page)
    assert "1 with refused draws" in page
    assert payload(page)["failed"] == [["not finite", [0]]]


def test_the_sliced_wasserstein_distance_is_shown_where_it_was_measured(pages, records):
    """Records of a version before it have none, and nothing is offered that there are no numbers for."""
    assert "sliced_wasserstein" not in [metric["name"] for metric in payload(pages["bench"])["metrics"]]
    page = bench_page(
        [{**r, "measures": {**r["measures"], "sliced_wasserstein": 0.25}} for r in records[:40]] + records[40:], []
    )
    assert payload(page)["metrics"][-1] == {
        "name": "sliced_wasserstein", "label": "sliced Wasserstein distance, posterior sd", "perfect": 0.0,
    }  # fmt: skip
    assert "0.250" in page
    Reader(page)


def test_text_is_text(records):
    odd = [{**r, "cell": {**r["cell"], "method": "<script>alert(1)</script>"}} for r in records[:2]]
    page = bench_page(odd, [])
    Reader(page)
    assert "<script>alert" not in page
    assert payload(page)["lines"][0]["method"] == "<script>alert(1)</script>"


@pytest.mark.full
def test_the_page_of_the_whole_paper_is_small_enough(figure):
    planned = pretended("paper")
    assert len(planned) == 31_530
    size = len(bench_page(planned, RUNS).encode())
    figure(f"{size / 2**20:.2f} MB")
    assert size < LARGEST_PAGE


def test_pictures_are_in_the_page_and_in_order(pages):
    reader = Reader(pages["infer"])
    assert [image["alt"].split(":")[0] for image in reader.images] == ["corner", "training", "own<1>"]
    for image in reader.images:
        png = base64.b64decode(image["src"].split(",")[1])
        assert Image.open(io.BytesIO(png)).size == (300, 200)
        assert len(png) < len(picture())
    text = " ".join(reader.text)
    said = ("0.513", "settled", "pf-npse", "10,000", "seconds", "given only 1", "not settled", "r hat", "1.002")
    for words in (*said, "training began again from its best weights"):
        assert words in text


def test_a_wide_picture_has_a_row_of_its_own():
    target = io.BytesIO()
    Image.new("RGB", (900, 300)).save(target, "PNG")
    assert '<figure class="wide">' in diagnosis_page(DIAGNOSIS, {"ranks": target.getvalue()})
    assert '<figure class="wide">' not in diagnosis_page(DIAGNOSIS, {"ranks": picture()})


def test_a_diagnosis_in_words(pages):
    reader = Reader(pages["diagnosis"])
    text = " ".join(reader.text)
    for words in (
        "NOT calibrated: beta over-confident by about 20%.", "297 data sets of 8 observations, 100 draws each",
        "2 with failed simulations were left out", "0.80", "-0.02", "+0.10", "fit to the data", "FAILED", "passed",
        "WRONG here", "297 data sets notice at least what 100 do, a width 1.7 times",
        "1 (0.70 sd), 2 (0.30 sd), 3 (0.20 sd)", "epidemic:simulate",
    ):  # fmt: skip
        assert words in text
    assert [image["alt"].split(":")[0] for image in reader.images] == ["influence", "ranks", "tarp"]
    assert pages["diagnosis"].count('class="words bad"') == 1 + 3 + 1


def test_a_good_diagnosis_does_not_hide_a_test_that_failed():
    good = {**DIAGNOSIS, "good": True, "verdict": "well calibrated", "p": {**DIAGNOSIS["p"], "SBC": 0.5, "coverage": 0.5}}
    del good["observed"]
    text = " ".join(Reader(diagnosis_page(good, {})).text)
    assert "But highest-density regions and ellipsoid failed" in text
    assert "The observed data set" not in text


def test_a_comparison_says_which_to_take_and_lists_all(pages):
    text = " ".join(Reader(pages["comparison"]).text)
    for words in ("Take nle: its score", "98 data sets of 8", "f<npse", "worse; not calibrated", "npe", "not compared",
                  "take it: best score", "0.900 ± 0.100", "epidemic:simulate"):  # fmt: skip
        assert words in text
    assert text.index("take it: best score") < text.index("worse; not calibrated")
    assert pages["comparison"].count('class="words bad"') == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bench_page([], []), "expected records"),
        (lambda: infer_page({"settings": {}}, {}), "measures"),
        (lambda: diagnosis_page({"settings": {}}, {}), "scorefold diagnose"),
        (lambda: comparison_page({"n": 3}, {}), "scorefold compare"),
        (lambda: infer_page(SUMMARY, {"corner": b"no picture"}), "PNG"),
    ],
)
def test_what_is_no_report_is_refused(call, words):
    with pytest.raises(ScorefoldError, match=words):
        call()


# In a browser

in_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def browser():
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def files(pages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for kind, page in pages.items():
        (folder / f"{kind}.html").write_text(page, encoding="utf-8")
    study = pretended("paper", "task=gaussian,training=0,parameters=1000,budget=10000,budget=1000")
    (folder / "paper.html").write_text(bench_page(study, []), encoding="utf-8")
    return folder


def no_trouble(browser, asked=1):
    assert browser.said("Runtime.exceptionThrown") == []
    assert [e for e in browser.said("Runtime.consoleAPICalled") if e["type"] in ("error", "warning")] == []
    assert browser.said("Log.entryAdded") == []
    urls = [e["request"]["url"] for e in browser.said("Network.requestWillBeSent")]
    outside = [url for url in urls if not url.startswith(("file:", "data:"))]
    assert outside == []
    assert sum(url.startswith("file:") for url in urls) == asked, "nothing but the page itself"


COUNT = "document.querySelectorAll('{}').length"


@in_chromium
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, False), (390, True)])
@pytest.mark.parametrize("kind", ["bench", "infer", "diagnosis", "comparison", "demo"])
def test_it_renders_within_its_width(browser, files, kind, width, dark):
    browser.open(files / f"{kind}.html", width=width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) == dark
    if kind == "bench":
        assert browser.run(COUNT.format(".panel svg")) == 3
        assert browser.run(COUNT.format(".point")) == 3 * 4 * 2
        inside = "[...document.querySelectorAll('.panel svg')].every(s => s.getBoundingClientRect().right <= innerWidth)"
        assert browser.run(inside)
    else:
        assert browser.run("[...document.images].every(i => i.complete && i.naturalWidth === 300)")
    no_trouble(browser)


@in_chromium
def test_one_panel_can_be_read_on_a_phone(browser, files):
    sizes = "[...document.querySelectorAll('.panel text')].map(t => 12 * t.getScreenCTM().d)"
    drawn = "document.querySelector('.panel svg').getAttribute('viewBox')"
    browser.open(files / "bench.html", width=390)
    several = browser.run(sizes)
    browser.choose("facet", 8)
    assert browser.run(COUNT.format(".panel")) == 1
    assert min(browser.run(sizes)) >= 11
    assert browser.run(sizes)[0] == pytest.approx(several[0])
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.resize(1280)
    assert browser.run(drawn) == "0 0 640 360"
    assert min(browser.run(sizes)) >= 11
    browser.resize(390)
    assert browser.run(drawn) == "0 0 360 260"
    no_trouble(browser)


@in_chromium
def test_the_controls_work(browser, files):
    browser.open(files / "bench.html")
    title = "document.getElementById('shown').textContent"
    assert browser.run(title) == "Gaussian: C2ST against simulator budget"
    browser.choose("task", 1)
    browser.choose("metric", 0)
    browser.choose("axis", "n")
    assert browser.run(title) == "SIR: squared MMD against observations, n"
    assert browser.run(COUNT.format(".panel")) == 2
    browser.choose("facet", 10_000)
    assert browser.run(COUNT.format(".panel")) == 1
    assert browser.run(COUNT.format(".point")) == 4 * 3
    browser.run("document.querySelector('#legend button').click()")
    assert browser.run("document.querySelector('#legend button').getAttribute('aria-pressed')") == "false"
    assert browser.run(COUNT.format(".point")) == 3 * 3
    before = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.run("document.getElementById('theme').click()")
    assert browser.run("getComputedStyle(document.body).backgroundColor") != before
    no_trouble(browser)


@in_chromium
def test_squared_mmd_is_on_a_scale_of_roots(browser, files):
    browser.open(files / "bench.html")
    browser.choose("metric", 0)
    labels = "[...document.querySelectorAll('.panel')[0].querySelectorAll('text[text-anchor=end]')]"
    ticks = dict(browser.run(f"{labels}.map(t => [t.textContent, +t.getAttribute('y')])"))
    heights = {float(text): ticks["0"] - y for text, y in ticks.items()}
    assert len(heights) >= 3
    unit = max(heights.values()) / max(heights) ** 0.5
    assert all(height == pytest.approx(unit * tick**0.5, abs=0.2) for tick, height in heights.items() if tick >= 0)
    assert "square roots" in browser.run("document.getElementById('note').textContent")


@pytest.mark.false_failure(0)
@in_chromium
def test_a_point_shows_its_records(browser, files, records):
    browser.open(files / "bench.html")
    browser.run("document.querySelector('.point').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    shown = browser.run("[...document.querySelectorAll('#chosen tbody tr')].map(r => r.lastChild.textContent)")
    own = pick(records, task="gaussian", method="f-npse", setting="paper", budget=1_000, n=1)
    assert shown == [record["key"] for record in own]
    heads = browser.run("[...document.querySelectorAll('#chosen th')].map(h => h.textContent)")
    first = browser.run("[...document.querySelectorAll('#chosen tbody tr')[0].children].map(c => c.textContent)")
    found = dict(zip(heads, first, strict=True))
    assert found["learning rate"] == "0.001"
    assert float(found["validation loss"]) == pytest.approx(own[0]["training"]["validation"], rel=1e-3)
    assert "failed" not in found
    browser.run("document.querySelector('.point').dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))")
    assert browser.run("!document.getElementById('tip').hidden")
    mean = point(own, "c2st").mean
    said = browser.run("document.getElementById('tip').textContent")
    assert f"C2ST {mean:.3f}" in said
    assert "4 cells" in said


@in_chromium
def test_a_point_shows_why_a_record_failed(browser, tmp_path):
    first, *others = pretended("quick", "task=sir,setting=paper,method=f-npse,budget=1000,n=8")
    bare = [{**r, "training": {}} for r in others]
    (tmp_path / "page.html").write_text(bench_page([{**first, "training": {}, "failed": "<b>not finite"}, *bare], []))
    browser.open(tmp_path / "page.html")
    browser.run("document.querySelector('.point').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    heads = browser.run("[...document.querySelectorAll('#chosen th')].map(h => h.textContent)")
    assert "learning rate" not in heads
    cells = f"[...document.querySelectorAll('#chosen tbody tr')].map(r => r.children[{heads.index('failed')}].textContent)"
    assert browser.run(cells) == ["<b>not finite"] + ["–"] * len(others)
    no_trouble(browser)


@in_chromium
def test_the_keyboard_is_enough(browser, files):
    browser.open(files / "bench.html")
    browser.run("[...document.querySelectorAll('#legend button')].pop().focus()")
    browser.key("Tab")
    assert browser.run("document.activeElement.classList.contains('point')")
    first = browser.run("document.activeElement.dataset.x")
    browser.key("ArrowRight")
    assert browser.run("document.activeElement.dataset.x") != first
    browser.key("Enter")
    assert "budget = 10,000" in browser.run("document.querySelector('#chosen h3').textContent")


@in_chromium
def test_the_studies_of_the_paper(browser, files):
    browser.open(files / "paper.html")
    legend = "[...document.querySelectorAll('#legend button')].map(b => b.textContent)"
    found = {}
    for study in ("methods", "m", "samplers", "conservative"):
        browser.choose("study", study)
        found[study] = browser.run(legend)
    assert {"F-NPSE, paper", "F-NPSE, default", "NPE", "NLE", "NRE"} <= set(found["methods"])
    assert found["m"] == ["PF-NPSE, paper", "PF-NPSE, default"]
    assert found["samplers"][0] == "PF-NPSE (m = 6), paper, Algorithm 1, a = 0.3, L = 5"
    assert "PF-NPSE (m = 6), paper, Algorithm 2" in found["samplers"]
    assert sum("conservative" in label for label in found["conservative"]) == 3
    no_trouble(browser)


@in_chromium
def test_set_sizes_are_shown_where_there_are_three_or_more(browser, tmp_path):
    at = "training=0,parameters=1000,setting=paper,sampler=,conservative=False"
    records = pretended("paper", f"task=gaussian,task=mixture,method=f-npse,method=pf-npse,{at}")
    kept = [r for r in records if r["cell"]["m"] in (1, 6) or (r["cell"]["n"] == 22 and r["cell"]["task"] == "gaussian")]
    (tmp_path / "page.html").write_text(bench_page(kept, []), encoding="utf-8")
    browser.open(tmp_path / "page.html")
    browser.choose("study", "m")
    assert browser.run("[...document.querySelectorAll('.panel h3')].map(h => h.textContent)") == ["n = 22"]
    assert browser.run("[...document.querySelectorAll('.point')].map(p => +p.dataset.x)") == [1, 3, 6, 12, 18, 30]
    assert "Budget 10,000" in browser.run("document.getElementById('note').textContent")
    browser.choose("task", 1)
    assert browser.run("document.querySelector('select[name=study]')") is None
    assert browser.run("document.getElementById('shown').textContent") == "Gaussian mixture: C2ST against simulator budget"
    no_trouble(browser)


@in_chromium
def test_without_javascript_and_in_print(browser, files):
    browser.open(files / "bench.html")
    pdf = browser.pdf()
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 8
    browser.open(files / "bench.html", script=False)
    # The test's own questions still run; the page's script has not.
    assert browser.run("document.documentElement.classList.contains('js')") is False
    assert browser.run("getComputedStyle(document.getElementById('explore')).display") == "none"
    assert browser.run(COUNT.format("table")) == 6
    assert browser.run(
        "[...document.querySelectorAll('table')].every(t => t.closest('details:not([open])') || t.offsetHeight > 20)"
    )
