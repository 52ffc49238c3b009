"""Model folders that somebody has changed, by accident or on purpose.

`mutated(folder, model, rng)` writes one; a clever one has the right size and SHA-256 again. As a program,

    python hostile_folders.py MODEL COUNT SEED

loads so many of them and prints what came of it as JSON: how many were refused and how many loaded (a changed number may be a
valid one), the longest time, how far the memory rose, and anything that a loader has no business doing.
"""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

CONFIG, WEIGHTS = "config.json", "weights.safetensors"
GARBAGE = [
    None, True, False, 0, 1, -1, 2, 3, 64, 2**31, 2**63, 10**30, 10**39, 0.5, -0.0, 1e308, 5e-324, "", "x", "norm", "draws",
    "NPSE", "Gauss", "function", "../../etc/passwd", "__import__('os').system('true')", "é\u0000", "x" * 10_000, [], {}, [[]],
    [1], [1] * 1_000, {"is": "NPSE"}, {"is": "function", "name": "f"}, {"is": "SelfTuned"}, {"x": 1},
]  # fmt: skip
FORBIDDEN = {
    "os.system",
    "subprocess.Popen",
    "pickle.find_class",
    "ctypes.dlopen",
    "os.exec",
    "os.posix_spawn",
    "socket.connect",
}


class Bomb:
    """What a pickle would run."""

    def __reduce__(self):
        return os.system, ("true",)


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in items:
        yield from places(inside, (*path, key))


def changed(value, rng):
    """The value with one place of it replaced, removed, renamed or added to."""
    value = json.loads(json.dumps(value))
    paths = [path for path in places(value) if path]
    path = paths[rng.integers(len(paths))]
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    last, what = path[-1], rng.integers(6)
    new = GARBAGE[rng.integers(len(GARBAGE))]
    if what == 0:
        del holder[last]
    elif what == 1 and isinstance(holder, dict):
        holder[str(rng.integers(100))] = new
    elif what == 2 and isinstance(holder, dict):
        holder[f"{last} "] = holder.pop(last)
    elif what == 3 and isinstance(holder[last], int | float) and not isinstance(holder[last], bool):
        holder[last] = [holder[last] + 1, holder[last] - 1, -holder[last], holder[last] * 1000, str(holder[last])][
            rng.integers(5)
        ]
    elif what == 4 and isinstance(holder[last], list) and holder[last]:
        holder[last] = holder[last][: rng.integers(len(holder[last]))] + [new] * rng.integers(3)
    else:
        holder[last] = new
    return value


def text_changed(content, rng):
    """The same for the text: a key twice, constants that are not JSON, a value that is deep or long."""
    text = content.decode()
    start = rng.integers(len(text))
    colon = text.find(": ", start)
    if colon < 0:
        colon = text.find(": ")
    odd = [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "0x10",
        "01",
        "'a'",
        "[" * 100_000,
        "9" * 100_000,
        '"\\ud800"',
        "/* */ 1",
        "",
    ]
    if rng.integers(3) == 0:
        begin = text.find('"', start)
        end = text.find(",\n", begin)
        line = text[begin : end + 1] if 0 < begin < end else '"version": 2,'
        return text.replace("{", "{" + line, 1).encode()
    return (text[: colon + 2] + odd[rng.integers(len(odd))] + text[text.find("\n", colon) :]).encode()


def bytes_changed(content, rng):
    """Some bytes replaced, cut off, doubled or added."""
    data, what = bytearray(content), rng.integers(5)
    at = int(rng.integers(len(data))) if rng.integers(2) else int(rng.integers(min(len(data), 64)))
    if what == 0:
        data[at] ^= 1 << int(rng.integers(8))
    elif what == 1:
        del data[at:]
    elif what == 2:
        data += rng.bytes(int(rng.integers(1, 100)))
    elif what == 3:
        data[at : at + 8] = rng.bytes(8)
    else:
        data[at:at] = data[at : at + 50]
    return bytes(data)


def header_changed(content, rng):
    """Another header before the same data, or other data behind the same header."""
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    what, names = rng.integers(8), list(header)
    one, other = (names[i] for i in rng.permutation(len(names))[:2])
    raw = None
    if what == 0:
        header = changed(header, rng)
    elif what == 1:
        header[one]["data_offsets"] = header[other]["data_offsets"]
    elif what == 2:
        raw = json.dumps(header)[:-1] + ", " + json.dumps({one: header[one]})[1:]
    elif what == 3:
        header["__metadata__"] = {"a": "b"}
    elif what == 4:
        values = np.frombuffer(data, "<f4").copy()
        values[rng.integers(len(values))] = [np.nan, np.inf, -np.inf][rng.integers(3)]
        data = values.tobytes()
    elif what == 5:
        header[one], header[other] = header[other], header[one]
    elif what == 6:
        header[one]["shape"] = header[one]["shape"][::-1] + [1] * int(rng.integers(3))
    else:
        return int(rng.integers(2**63)).to_bytes(8, "little") + content[8:]
    raw = (raw or json.dumps(header)).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def entry_changed(folder, rng):
    """Links, pipes, folders, pickles, other files."""
    name = [CONFIG, WEIGHTS][rng.integers(2)]
    path, what = folder / name, rng.integers(9)
    if what == 0:
        (folder / ["model.pkl", ".hidden", "README", "Config.json"][rng.integers(4)]).write_bytes(pickle.dumps(Bomb()))
        return
    if what == 1:
        path.rename(folder.parent / "elsewhere")
        path.symlink_to(folder.parent / "elsewhere")
        return
    path.unlink()
    if what == 2:
        os.mkfifo(path)
    elif what == 3:
        path.mkdir()
    elif what == 4:
        path.symlink_to(["/dev/zero", "/dev/stdin", name, "/nowhere"][rng.integers(4)])
    elif what == 5:
        path.write_bytes(pickle.dumps(Bomb()))
    elif what == 6:
        path.write_bytes(b"")
    elif what == 7:
        with open(path, "wb") as file:
            file.truncate(2**34)


def mutated(folder, model, rng):
    """Write a changed copy of `model` (a dictionary of its files) to `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder.parent / "elsewhere").unlink(missing_ok=True)
    folder.mkdir()
    config, weights = model[CONFIG], model[WEIGHTS]
    what = rng.integers(12)
    if what < 4:
        config = json.dumps(changed(json.loads(config), rng)).encode()
    elif what == 4:
        config = text_changed(config, rng)
    elif what == 5:
        config = bytes_changed(config, rng)
    elif what == 6:
        weights = bytes_changed(weights, rng)
    elif what < 11:
        weights = header_changed(weights, rng) if what < 10 else bytes_changed(weights, rng)
        about = {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()}
        config = json.dumps({**json.loads(config), "weights": about}).encode()
    (folder / CONFIG).write_bytes(config)
    (folder / WEIGHTS).write_bytes(weights)
    if what == 11:
        entry_changed(folder, rng)


def memory():
    """The most that this process has had, in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def attack(model, count, seed):
    """Load changed copies of a model."""
    import scorefold as sf

    rng = np.random.default_rng(seed)
    outcome = {"refused": 0, "loaded": 0, "longest": 0.0, "forbidden": [], "untyped": [], "messages": set()}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        for number in range(count):
            mutated(folder, model, rng)
            started = time.process_time()  # of a machine that is busy with other things, too
            try:
                sf.load(folder)
                outcome["loaded"] += 1
            except sf.errors.ModelError as error:
                outcome["refused"] += 1
                outcome["messages"].add(str(error).split(": ", 1)[1][:40])
            except sf.errors.ScorefoldWarning:  # it is said to be of a training that was stopped
                outcome["loaded"] += 1
            except BaseException as error:
                outcome["untyped"].append(f"{number}: {type(error).__name__}: {error}"[:300])
            outcome["longest"] = max(outcome["longest"], time.process_time() - started)
    return outcome


def assert_harmless(folder, count):
    """Attack the loader of the model in this folder, in a process of its own."""
    size = sum(path.stat().st_size for path in folder.iterdir())
    done = subprocess.run([sys.executable, __file__, str(folder), str(count), "1"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2_000:]
    outcome = json.loads(done.stdout)
    print(folder, outcome)
    assert outcome["untyped"] == []
    assert outcome["forbidden"] == []
    assert outcome["refused"] + outcome["loaded"] == count
    assert outcome["refused"] > 0.85 * count
    assert outcome["longest"] < 2
    assert outcome["rose"] < 2 * size + 64 * 2**20


if __name__ == "__main__":
    import scorefold as sf

    warnings.simplefilter("error")
    source = Path(sys.argv[1])
    sf.load(source)  # warm
    files = {name: (source / name).read_bytes() for name in (CONFIG, WEIGHTS)}
    seen: list[str] = []
    sys.addaudithook(lambda event, args: seen.append(event) if event in FORBIDDEN else None)
    before = memory()
    outcome = attack(files, int(sys.argv[2]), int(sys.argv[3]))
    outcome["rose"] = memory() - before
    outcome["forbidden"] = sorted(set(seen))
    outcome["messages"] = len(outcome["messages"])
    print(json.dumps(outcome))
