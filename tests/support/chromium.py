"""A real Chromium for tests of the page, where one is installed: spoken to over a pipe, with the standard library alone."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-default-apps", "--disable-extensions", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--remote-debugging-pipe",
]  # fmt: skip

# Chromium reads from descriptor 3 and writes to 4; either of ours may have one of these numbers already.
CONNECT = """
import fcntl, os, sys
theirs = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]
os.dup2(theirs[0], 3), os.dup2(theirs[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page in one headless Chromium."""

    def __init__(self, timeout=120):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._timeout, self._count, self._session, self.events, self._buffer = timeout, 0, None, [], b""
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONNECT, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._to)
        self._process.kill()
        self._process.wait()
        os.close(self._from)
        self._profile.cleanup()

    def call(self, method, **params):
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self._timeout
        while time.monotonic() < end:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)
        raise TimeoutError(method)

    def _next(self):
        while b"\0" not in self._buffer:
            part = os.read(self._from, 1 << 16)
            assert part, "Chromium has gone"
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def open(self, path, width=1280, height=900, dark=False, script=True):
        self._resize(width, height)
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        )
        self.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        end = time.monotonic() + self._timeout
        while time.monotonic() < end:
            if self.call("Runtime.evaluate", expression="1") and self.said("Page.loadEventFired"):
                return
        raise TimeoutError("load")

    def resize(self, width, height=900):
        """As a person would, until the page has heard of it."""
        self._resize(width, height)
        heard = f"const wait = () => innerWidth === {width} ? requestAnimationFrame(done) : requestAnimationFrame(wait)"
        promise = f"new Promise(done => {{ {heard}; requestAnimationFrame(wait); }})"
        self.call("Runtime.evaluate", expression=promise, awaitPromise=True)

    def _resize(self, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def said(self, method):
        return [event["params"] for event in self.events if event.get("method") == method]

    def run(self, expression):
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def choose(self, name, value):
        """Choose in one of the page's lists, as a person would."""
        self.run(
            f"(() => {{ const list = document.querySelector('select[name={name}]'); list.value = {json.dumps(str(value))};"
            " list.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def key(self, key, code=None):
        text = {"Enter": "\r"}.get(key)
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            number = {"Enter": 13, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37}[key]
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, windowsVirtualKeyCode=number, **extra)

    def screenshot(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        Path(path).write_bytes(base64.b64decode(found["data"]))

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])
