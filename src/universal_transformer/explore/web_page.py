"""A folder of static files in which a model answers in a browser: any web server shows it, and nothing else computes.

Beside the graph (`interop.graph.TracedExportable`) and the drawing module it has ONNX Runtime for browsers, which is
too large for this package: it is copied from where the user has it.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Any

from universal_transformer.errors import UserError
from universal_transformer.explore.saved_page import ASSETS, SCRIPTS
from universal_transformer.explore.story import choose_examples
from universal_transformer.files import show_path, write_json
from universal_transformer.rules import stops_at
from universal_transformer.runs.opened import Run, load_task

VERSION = "1.30.0"
RUNTIME = {
    "ort.wasm.bundle.min.mjs": "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    "ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
"""Files of onnxruntime-web `VERSION`, and their SHA-256."""
FORMS = ("facts", "board")
"""The views whose texts the page turns into ids (`assets/graph_trace.js`)."""
PAGE = ("web_page.js", "graph_trace.js", *SCRIPTS.values(), "d3.LICENSE", "plot.LICENSE")
EXAMPLES = 6
LONGEST = 400
"""Positions of a story where the model sets no limit: their attention is what a browser can hold."""


def check_form(run: Run) -> None:
    """UserError for a run whose texts the page does not read."""
    if run.codec.source.view["form"] not in FORMS or run.model.config.architecture not in ("classifier", "tagger"):
        raise UserError(f"{show_path(run.folder)}: --format web is for stories and boards; others: ut explore")


def runtime_files(folder: Path) -> list[Path]:
    """The files of the runtime in `folder`; UserError where one is missing or of another version."""
    found = [folder / name for name in RUNTIME]
    need = f"expected those of onnxruntime-web {VERSION}: run npm install onnxruntime-web@{VERSION} and give "
    need += "--runtime node_modules/onnxruntime-web/dist"
    for path in found:
        if not path.is_file():
            raise UserError(f"{show_path(path)}: no such file; {need}")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != RUNTIME[path.name]:
                raise UserError(f"{show_path(path)}: another file; {need}")
    return found


def write_web_page(folder: Path, run: Run, *, runtime: list[Path]) -> None:
    """Write what the page needs beside the graph, which is `model.onnx`, into `folder`."""
    config, codec = run.model.config, run.codec
    longest = config.coordinates.max_positions if config.coordinates.position == "learned" else LONGEST
    about = {
        "model": run.folder.resolve().name,
        "view": codec.source.view,
        "labels": [codec.render([index]) for index in range(config.vocabulary.num_classes or 0)],
        "max_steps": config.max_steps,
        "halting": config.halts,
        "threshold": stops_at(config.halting) if config.halts else None,
        "blocks": config.step.blocks,
        "longest": min(longest, LONGEST),
        "examples": _examples(run),
    }
    write_json(folder / "page.json", about)
    shutil.copyfile(ASSETS / "web_page.html", folder / "index.html")
    for name in PAGE:
        shutil.copyfile(ASSETS / name, folder / name)
    for path in runtime:  # not every server knows the ending mjs
        shutil.copyfile(path, (folder / path.name).with_suffix(".js" if path.suffix == ".mjs" else path.suffix))


def _examples(run: Run) -> list[dict[str, Any]]:
    """Test examples of the run, as the page reads them; none where its data are not here."""
    try:
        task = load_task(run)
    except UserError:
        return []
    codec, found = run.codec, []
    for example in choose_examples(run.model, task, count=EXAMPLES):
        order = codec.source.reading_order(len(example.source))
        supports = [place for place, row in enumerate(order) if row in example.supports]
        right = codec.render(example.target)
        found.append({"text": codec.source.input_text(example.source), "right": right, "supports": supports})
    return found
