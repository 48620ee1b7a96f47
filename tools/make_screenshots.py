"""Pictures of the page of `ut explore` from models of the package, by a browser without a window.

    python tools/make_screenshots.py [FOLDER] [--browser chromium]

Needs the extra `serve` and Chromium. Each picture is looked at before it replaces one of `docs/images`.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

STORY = """1 Mary moved to the bathroom
2 John went to the hallway
3 Daniel travelled to the office
4 Mary got the football
5 John moved to the garden
6 Mary went to the kitchen
7 Sandra journeyed to the bedroom
8 Where is the football?\t\t4 6"""
PICTURES = {
    "explore_story": (["babi-halting"], {"text": STORY, "step": 3}, (1280, 1160)),
    "explore_board": (["sudoku"], {"set": "test", "number": 3, "step": 3}, (1280, 1010)),
    "explore_output": (["addition"], {"text": "409677+102455"}, (1280, 800)),
    "explore_test": (["demo"], {"view": "test", "rule": "calibrated"}, (1280, 790)),
    "explore_two": (["babi", "--compare", "babi-halting"], {"text": STORY, "rule2": "trained"}, (1280, 1250)),
}
"""Name -> arguments of the command, state of the page, width and height."""
READY = """/ ms$/.test(document.getElementById("status").textContent) &&
(document.getElementById("view-test").hidden || document.querySelector("#test svg") !== null)"""
PATIENCE = 60.0
"""Seconds."""


class Browser:
    """A browser that is told what to do through a pipe: JSON objects with a zero byte after each."""

    def __init__(self, out: int, back: int) -> None:
        self.out, self.back, self.numbers, self.rest = out, back, count(1), b""

    def ask(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                self.rest += os.read(self.back, 2**16)
            text, _, self.rest = self.rest.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def picture(self, address: str, size: tuple[int, int]) -> bytes:
        """A picture of a page when it has its answers."""
        target = self.ask("Target.createTarget", url="about:blank")
        session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        shape = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", session, **shape)
        self.ask("Page.navigate", session, url=address)
        until = time.monotonic() + PATIENCE
        while not self.ask("Runtime.evaluate", session, expression=READY)["result"].get("value"):
            assert time.monotonic() < until, f"{address}: no answer"
            time.sleep(0.2)
        return base64.b64decode(self.ask("Page.captureScreenshot", session)["data"])


@contextmanager
def browsing(name: str) -> Iterator[Browser]:
    """A browser, until the end of the block."""
    (read, out), (back, write) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--remote-debugging-pipe"]
        shell = ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "bash", name, *options, f"--user-data-dir={home}"]
        with subprocess.Popen(shell, pass_fds=(read, write), stderr=subprocess.DEVNULL) as process:
            try:
                yield Browser(out, back)
            finally:
                process.terminate()


@contextmanager
def page_of(models: list[str]) -> Iterator[str]:
    """The address of a page, until the end of the block."""
    command = [sys.executable, "-m", "universal_transformer", "explore", *models, "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield next(line for line in server.stdout if "http://" in line).split()[1].rstrip(";")
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="docs/images", type=Path)
    parser.add_argument("--browser", default="chromium")
    parser.add_argument("--only", choices=PICTURES)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with browsing(given.browser) as browser:
        for name in [given.only] if given.only else PICTURES:
            models, state, size = PICTURES[name]
            with page_of(models) as address:
                picture = browser.picture(f"{address}#{urlencode(state)}", size)
            (given.folder / f"{name}.png").write_bytes(picture)
            print(f"{name}.png: {len(picture) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
