"""HTML files that show traces from a disk: the drawing module, its libraries and the traces are inside."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from universal_transformer.explore.input_trace import InputTrace
from universal_transformer.explore.page import POLICY

ASSETS = Path(__file__).parent / "assets"
TRACES = "TRACES_OF_THIS_PAGE"
"""What stands in the page without traces where these belong."""
SCRIPTS = {"d3": "d3.min.js", "plot": "plot.umd.min.js", "draw": "draw.js"}
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
%(policy)s
<meta name="color-scheme" content="light dark">
<title>Universal Transformer, step by step</title>
<link rel="icon" href="data:,">
<style>body { margin: 20px; background: Canvas; color: CanvasText; font-family: system-ui, sans-serif; }
main { display: flex; flex-wrap: wrap; gap: 32px; }</style>
</head>
<body>
<main></main>
%(scripts)s
</body>
</html>
"""
PLACES = """<script type="application/json" id="traces">%(traces)s</script>
<script>%(d3)s</script>
<script>%(plot)s</script>
<script type="module">%(draw)s
const places = document.querySelectorAll(".trace");
for (const [number, trace] of JSON.parse(document.getElementById("traces").textContent).entries()) {
  const place = places[number] ?? make("div");
  if (!places[number])
    document.querySelector("main").append(make("section", {}, make("h2", { textContent: trace.model }), place));
  draw(place, trace);
}
</script>"""
"""Each trace stands in an element of the class ``trace``, in their order, or in a section of its own."""


@cache
def asset(name: str) -> str:
    """The text of a file of the page."""
    return (ASSETS / name).read_text(encoding="utf-8")


@cache
def scripts_without_traces() -> str:
    """The scripts of a page, with `TRACES` in the place of JSON in which each ``<`` is escaped."""
    scripts = {name: asset(file) for name, file in SCRIPTS.items()}
    assert not any("</script" in text for text in scripts.values()), "a script cannot end itself"
    return PLACES % {**scripts, "traces": TRACES}


@cache
def page_without_traces() -> str:
    """The page, with the same in the place of its traces."""
    return PAGE % {"policy": POLICY, "scripts": scripts_without_traces()}


def scripts_of(traces: Sequence[InputTrace]) -> str:
    """The scripts that draw some traces. No text in a trace can end its script."""
    text = json.dumps([trace.to_dict() for trace in traces], ensure_ascii=False, allow_nan=False)
    return scripts_without_traces().replace(TRACES, text.replace("<", "\\u003c"))


def saved_page(traces: Sequence[InputTrace]) -> str:
    """The page of some traces, side by side."""
    return PAGE % {"policy": POLICY, "scripts": scripts_of(traces)}
