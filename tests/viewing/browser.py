"""A headless Chromium, driven over a pipe by the DevTools protocol: JSON that ends in NUL."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Chromium reads commands from descriptor 3 and answers on 4; they are moved there in a process of
# its own, first out of each other's way.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab. Errors of its scripts and refused loads are kept in `complaints`."""

    def __init__(self, commands: int, answers: int) -> None:
        self.complaints: list[str] = []
        self._commands, self._answers = commands, answers
        self._rest, self._number, self._session = b"", 0, ""

    @classmethod
    @contextmanager
    def open(cls, program: str, profile: Path, *, width: int, height: int) -> Iterator[Self]:
        their_input, commands = os.pipe()
        answers, their_output = os.pipe()
        arguments = [
            *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
            *(f"--user-data-dir={profile}", f"--window-size={width},{height}"),
            *("--no-first-run", "--disable-extensions", "--hide-scrollbars", "about:blank"),
        ]
        ends = (their_input, their_output)
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *map(str, ends), program, *arguments],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in ends:
            os.close(end)
        browser = cls(commands, answers)
        try:
            browser._attach(width, height)
            yield browser
            browser._send("Browser.close", {}, "")
            process.wait(20)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            os.close(commands)
            os.close(answers)

    def go(self, page: Path) -> None:
        self._call("Page.navigate", url=page.as_uri())
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression; a promise's result."""
        found = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def wait(self, script: str, *, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.02)

    def centre(self, selector: str) -> tuple[float, float]:
        x, y = self.run(
            f"(async () => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'nearest'});"
            # A page may be scrolled back to where it was while it is first drawn.
            " for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);"
            " const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return x, y

    def move(self, x: float, y: float) -> None:
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def hover(self, selector: str) -> None:
        self.move(*self.centre(selector))

    def click(self, selector: str) -> None:
        x, y = self.centre(selector)
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, *, code: int, text: str = "") -> None:
        """A key by its DOM name and the number that Windows gives it."""
        common: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        for event in (down, {"type": "keyUp"}):
            self._send("Input.dispatchKeyEvent", {**common, **event}, self._session)

    def prefer(self, scheme: str) -> None:
        """The colour scheme that the page is told of: "light" or "dark"."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def accessible(self) -> list[dict[str, Any]]:
        """What a screen reader is given: role, name and states of each node that it is told of."""
        nodes = self._call("Accessibility.getFullAXTree")["nodes"]
        return [
            {
                "role": node["role"]["value"],
                "name": node.get("name", {}).get("value", ""),
                **{each["name"]: each["value"].get("value") for each in node.get("properties", [])},
            }
            for node in nodes
            if not node["ignored"]
        ]

    def screenshot(self, path: Path) -> None:
        shot = self._call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def resize(self, width: int, height: int) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def _attach(self, width: int, height: int) -> None:
        targets = self._send("Target.getTargets", {}, "")["targetInfos"]
        (page,) = [target for target in targets if target["type"] == "page"]
        wanted = {"targetId": page["targetId"], "flatten": True}
        attached = self._send("Target.attachToTarget", wanted, "")
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self.resize(width, height)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._send(method, parameters, self._session)

    def _send(self, method: str, parameters: dict[str, Any], session: str) -> dict[str, Any]:
        """To the tab of that session, or to the browser when it is empty."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._note(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._answers], [], [], 150)[0], "Chromium does not answer"
            data = os.read(self._answers, 1 << 20)
            assert data, "Chromium has ended"
            self._rest += data
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file:", "data:")):
                self.complaints.append(f"asked for {url}")
