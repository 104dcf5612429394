"""A real headless Chromium for tests, driven over its DevTools pipe: no driver program, no package.

with Browser() as browser:
    page = browser.open("http://127.0.0.1:8470/")
    page.wait("document.querySelector('table')")
    page.click("nav a"); page.type("#where", "speed > 300"); page.screenshot(path)
    assert page.console == []
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 40.0
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(
    PROGRAM is None, reason="NOT SHOWN: no chromium is installed (apt-get install chromium; make setup tries)"
)
FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"),
    *("--disable-dev-shm-usage", "--disable-extensions", "--hide-scrollbars", "--window-size=1280,900"),
    "--disable-features=Translate,OptimizationHints,MediaRouter",
)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.console: list[str] = []
        """Warnings, errors and refusals that the browser has noted."""

    def call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, params, self._session)

    def goto(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        made = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in made:
            raise AssertionError(made["exceptionDetails"].get("exception", made["exceptionDetails"]))
        return made["result"].get("value")

    def wait(self, script: str, limit: float = LIMIT) -> Any:
        """Wait until it is true; what it is then."""
        deadline = time.monotonic() + limit
        while True:
            with contextlib.suppress(AssertionError):
                if value := self.evaluate(f"(() => {{ const found = {script}; return found && true; }})()"):
                    return value
            if time.monotonic() > deadline:
                shown = self.evaluate("document.body.innerText")
                raise AssertionError(f"not within {limit:g} s: {script}\n{self.console}\n{shown}")
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        found: str = self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return found

    def click(self, selector: str) -> None:
        self.wait(f"document.querySelector({json.dumps(selector)})")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def type(self, selector: str, text: str) -> None:
        named = json.dumps(selector)
        self.wait(f"document.querySelector({named})")
        self.evaluate(f"(() => {{ const e = document.querySelector({named}); e.focus(); e.select(); }})()")
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path) -> None:
        made = self.call("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(made["data"]))

    def hear(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.consoleAPICalled" and params["type"] in ("warning", "error", "assert"):
            self.console.append(" ".join(str(arg.get("value", arg)) for arg in params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
            self.console.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")


class Browser:
    """See the module."""

    def __init__(self) -> None:
        assert PROGRAM is not None
        self._folder = tempfile.TemporaryDirectory(prefix="helio-chromium-", ignore_cleanup_errors=True)
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        self._process = self._started(commands, answers)
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._lock = threading.Condition()
        self._answered: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _started(self, commands: int, answers: int) -> subprocess.Popen[bytes]:
        """It reads commands from descriptor 3 and writes answers to 4; a shell puts them there."""
        script = f'exec 3<&{commands} 4>&{answers}; exec "$@"'
        return subprocess.Popen(
            ["/bin/bash", "-c", script, "bash", str(PROGRAM), *FLAGS, f"--user-data-dir={self._folder.name}"],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def call(self, method: str, params: dict[str, Any] | None = None, session: str | None = None) -> Any:
        with self._lock:
            self._number += 1
            number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        with self._lock:
            if not self._lock.wait_for(lambda: number in self._answered, LIMIT):
                raise AssertionError(f"chromium did not answer {method}")
            answer = self._answered.pop(number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _read(self) -> None:
        rest = b""
        while data := os.read(self._answers, 1 << 16):
            *whole, rest = (rest + data).split(b"\0")
            for one in whole:
                message = json.loads(one)
                with self._lock:
                    if "id" in message:
                        self._answered[message["id"]] = message
                        self._lock.notify_all()
                    elif page := self._pages.get(message.get("sessionId", "")):
                        page.hear(message["method"], message["params"])

    def open(self, url: str = "about:blank") -> Page:
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        if url != "about:blank":
            page.goto(url)
        return page

    def close(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(10)
        os.close(self._commands)
        os.close(self._answers)
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
