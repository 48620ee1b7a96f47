"""A folder of static files in which a model answers in a browser: any web server shows it, and nothing else computes.

Beside the graph (`interop.graph.TracedExportable`) and the drawing module it has ONNX Runtime for browsers, which is
too large for this package: it is copied from where the user has it.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Any

from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.calibration import calibrated
from universal_transformer.explore.page_model import page_model
from universal_transformer.explore.saved_page import ASSETS, SCRIPTS, TRACES, asset, page_without_traces
from universal_transformer.explore.story import choose_examples
from universal_transformer.files import show_path, write_json
from universal_transformer.manifest import MODEL
from universal_transformer.runs.opened import Run, load_task

VERSION = "1.30.0"
RUNTIME = {
    "ort.wasm.bundle.min.mjs": "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    "ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
"""Files of onnxruntime-web `VERSION`, and their SHA-256."""
FORMS = ("facts", "board")
"""The views whose texts the page turns into ids (`assets/graph_trace.js`)."""
PAGE = ("page.css", "page.js", "graph_trace.js", *SCRIPTS.values(), "d3.LICENSE", "plot.LICENSE")
COPIED = {name: name for name in PAGE} | {"graph_backend.js": "backend.js"}
"""File of the page -> its name in the folder."""
POLICY = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self'
 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src data: blob:; connect-src 'self'">
"""
EXITS = ("output_change", "confidence")
"""Exits that follow from the outputs of the graph where all positions stop together (`assets/graph_trace.js`)."""
EXAMPLES, SET = 6, "examples of the test"
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
    examples = _examples(run)
    shown, depth = _page_model(run)
    shown |= {"sets": {SET: len(examples)} if examples else {}, "first": (SET, 0) if examples else None}
    graph = {
        "labels": [codec.render([index]) for index in range(config.vocabulary.num_classes or 0)],
        "blocks": config.step.blocks,
        "longest": min(longest, LONGEST),
        "examples": examples,
        "calibrated": depth,
        "place": TRACES,
        "untested": f"Only in `ut explore {shown['name']}`.",
    }
    note = "The model runs in this browser. Nothing that you type leaves it."
    page = {"models": [shown], "graph": graph, "most_new": 1, "same_test": False, "note": note}
    write_json(folder / "page.json", page)
    html, mark = asset("page.html"), '<meta name="color-scheme"'
    (folder / "index.html").write_text(html.replace(mark, POLICY + mark), encoding="utf-8")
    (folder / "saved.html").write_text(page_without_traces(), encoding="utf-8")
    for name, written in COPIED.items():
        shutil.copyfile(ASSETS / name, folder / written)
    for path in runtime:  # not every server knows the ending mjs
        shutil.copyfile(path, (folder / path.name).with_suffix(".js" if path.suffix == ".mjs" else path.suffix))


def _page_model(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the page offers of the depth: what the outputs of the graph, which has made all steps, allow; and the depth
    that the run was calibrated to, if that is one of these.

    A position that stops changes what others read. A depth is exact, then, only where all positions stop together.
    """
    name, config = run.folder.resolve().name, run.model.config
    found, together = page_model(name, run.model, run.codec), config.architecture == "classifier" and not config.halts
    rules = {rule: found["rules"][rule] for rule in EXITS if together and rule in found["rules"]}
    if config.halts:
        missing = "another depth than that of training, with which a position halts at another step"
    elif together:
        missing = f"more than {config.max_steps} steps, and an exit by the change of states"
    else:
        missing = f"more than {config.max_steps} steps, and cells that stop alone"
    limits = f"Only in `ut explore {name}`: {missing}."
    least = config.max_steps if config.halts else 1
    options, _ = calibrated(run.folder, DecodingOptions(), model=run.folder / MODEL)
    depth: dict[str, Any] = {}
    if options.exit is not None and options.exit.kind in rules:
        depth = {"exit": str(options.exit)}
    elif options.max_steps is not None and not config.halts:
        depth = {"max_steps": options.max_steps}
    found |= {"rules": rules, "least_steps": least, "most_steps": config.max_steps, "limits": limits}
    return found | {"calibration": bool(depth), "obstacle": ""}, depth


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
