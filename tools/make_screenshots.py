"""Pictures of the page of `ut explore` from models of the package, by a browser without a window.

    python tools/make_screenshots.py [FOLDER] [--browser chromium]

Needs the extra `serve` and Chromium. Each picture is looked at before it replaces one of `docs/images`.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from universal_transformer.evaluation.pipeline import load
from universal_transformer.explore.input_trace import trace_input
from universal_transformer.explore.saved_page import saved_page

STORY = """1 Mary moved to the bathroom
2 John went to the hallway
3 Daniel travelled to the office
4 Mary got the football
5 John moved to the garden
6 Mary went to the kitchen
7 Sandra journeyed to the bedroom
8 Where is the football?\t\t4 6"""
PICTURES = {
    "explore_story": (["babi-halting"], {"text": STORY, "step": 3}, (1090, 960)),
    "explore_board": (["sudoku"], {"set": "test", "number": 3, "step": 4}, (1240, 1010)),
    "explore_output": (["addition"], {"text": "409677+102455"}, (1120, 840)),
    "explore_test": (["demo"], {"view": "test", "rule": "calibrated"}, (1060, 760)),
    "explore_two": (
        ["demo", "--compare", "babi-halting"],
        {"set": "test", "number": 5},
        (1270, 930),
    ),
}
"""Name -> arguments of the command, state of the page, width and height."""
WAIT = 20_000
"""Milliseconds of the clock of the page, which waits for answers."""


def saved(name: str, folder: Path, browser: str) -> Path:
    """Take a picture of the saved page of a model that writes: a browser without a clock does not wait for a stream."""
    (model,), state, _ = PICTURES[name]
    pipeline, file = load(model), folder.absolute() / f"{name}.html"
    trace = trace_input(pipeline.model, pipeline.codec, pipeline.example(state["text"], 1), name=model)
    file.write_text(saved_page([trace]), encoding="utf-8")
    try:
        return taken(name, folder, browser, file.as_uri())
    finally:
        file.unlink()


def taken(name: str, folder: Path, browser: str, address: str) -> Path:
    """Let a browser take a picture of an address."""
    width, height = PICTURES[name][2]
    out = (folder / f"{name}.png").absolute()
    with tempfile.TemporaryDirectory() as home:
        options = [f"--screenshot={out}", f"--window-size={width},{height}", f"--virtual-time-budget={WAIT}"]
        options += ["--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={home}"]
        subprocess.run([browser, *options, address], check=True, stderr=subprocess.DEVNULL)
    return out


def picture(name: str, folder: Path, browser: str) -> Path:
    """Start the page, take one picture of it, and end it."""
    models, state, _ = PICTURES[name]
    command = [sys.executable, "-m", "universal_transformer", "explore", *models, "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = next(line for line in server.stdout if "http://" in line).split()[1].rstrip(";")
            return taken(name, folder, browser, f"{address}#{urlencode(state)}")
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="docs/images", type=Path)
    parser.add_argument("--browser", default="chromium")
    parser.add_argument("--only", choices=PICTURES)
    given = parser.parse_args()
    for name in [given.only] if given.only else PICTURES:
        out = (saved if name == "explore_output" else picture)(name, given.folder, given.browser)
        print(f"{out}: {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
