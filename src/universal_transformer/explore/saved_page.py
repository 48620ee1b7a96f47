"""One HTML file that shows traces from a disk: the drawing module, its libraries and the traces are inside."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from universal_transformer.explore.input_trace import InputTrace

ASSETS = Path(__file__).parent / "assets"
TRACES = "TRACES_OF_THIS_PAGE"
"""What stands in the page without traces where these belong."""
SCRIPTS = {"d3": "d3.min.js", "plot": "plot.umd.min.js", "draw": "draw.js"}
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline';
 style-src 'unsafe-inline'; img-src data: blob:">
<meta name="color-scheme" content="light dark">
<title>Universal Transformer, step by step</title>
<link rel="icon" href="data:,">
<style>body { margin: 20px; background: Canvas; color: CanvasText; font-family: system-ui, sans-serif; }
main { display: flex; flex-wrap: wrap; gap: 32px; }</style>
</head>
<body>
<main></main>
<script type="application/json" id="traces">%(traces)s</script>
<script>%(d3)s</script>
<script>%(plot)s</script>
<script type="module">%(draw)s
for (const trace of JSON.parse(document.getElementById("traces").textContent)) {
  const title = make("h2", { textContent: trace.model }), place = make("div");
  document.querySelector("main").append(make("section", {}, title, place));
  draw(place, trace);
}
</script>
</body>
</html>
"""


@cache
def asset(name: str) -> str:
    """The text of a file of the page."""
    return (ASSETS / name).read_text(encoding="utf-8")


@cache
def page_without_traces() -> str:
    """The page, with `TRACES` in the place of JSON in which each ``<`` is escaped."""
    scripts = {name: asset(file) for name, file in SCRIPTS.items()}
    assert not any("</script" in text for text in scripts.values()), "a script cannot end itself"
    return PAGE % {**scripts, "traces": TRACES}


def saved_page(traces: Sequence[InputTrace]) -> str:
    """The page of some traces, side by side. No text in a trace can end its script."""
    text = json.dumps([trace.to_dict() for trace in traces], ensure_ascii=False, allow_nan=False)
    return page_without_traces().replace(TRACES, text.replace("<", "\\u003c"))
