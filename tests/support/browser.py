"""A real browser without a window, driven over the DevTools protocol: the pages that rlkit writes
are opened, pointed at and looked at in it. Chromium or Chrome, if one is on the PATH.
"""

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# The browser reads from 3 and writes to 4. A process of its own arranges that: `preexec_fn` would
# fork this one, which JAX warns of.
CONNECT = """
import fcntl, os, sys
low, high = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(low, 3)
os.dup2(high, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
TIMEOUT = 60.0  # seconds for one answer, on a machine that is busy with other tests


def find_browser() -> str | None:
    """The program; None: there is none on the PATH."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A page of a browser."""

    def __init__(self, read: int, write: int):
        self._read, self._write = read, write
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method of the protocol."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Opens a file, in a window of that size; returns once it has loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(name == "Page.loadEventFired" for name, _ in self.events):
            self._next()

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Moves, presses or releases the mouse ("Moved", "Pressed", "Released")."""
        button = {} if kind == "Moved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **button)

    def press(self, key: str) -> None:
        """Presses and releases a key, such as "ArrowRight"."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Writes what is seen as a PNG; of the whole page, or of the window."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    @property
    def complaints(self) -> list[str]:
        """Errors of scripts, and what the browser refused to do."""
        found = []
        for name, event in self.events:
            if name == "Runtime.exceptionThrown":
                found.append(str(event["exceptionDetails"]))
            elif name == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
                found.append(event["entry"]["text"])
        return found

    @property
    def requests(self) -> list[str]:
        """The addresses of all that was asked for, other than data in the page itself."""
        sent = [event for name, event in self.events if name == "Network.requestWillBeSent"]
        urls = [event["request"]["url"] for event in sent]
        return [url for url in urls if not url.startswith("data:")]

    def _next(self) -> dict[str, Any]:
        """The next message; events are kept."""
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            left = max(0.0, end - time.monotonic())
            assert select.select([self._read], [], [], left)[0], "the browser does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append((message["method"], message["params"]))
        return message


@contextlib.contextmanager
def open_browser(program: str) -> Iterator[Page]:
    """Starts a browser with an empty page, which ends with the block."""
    theirs, ours = os.pipe()  # commands
    answers, their_answers = os.pipe()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        command += ["--disable-gpu", "--no-first-run", "--hide-scrollbars", "--mute-audio"]
        command += ["--no-sandbox"] if os.getuid() == 0 else []  # which root cannot have
        process = subprocess.Popen(
            [sys.executable, "-c", CONNECT, str(theirs), str(their_answers), *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs, their_answers),
        )
        os.close(theirs)
        os.close(their_answers)
        try:
            yield Page(answers, ours)
        finally:
            os.close(ours)
            process.kill()
            process.wait()
            os.close(answers)
