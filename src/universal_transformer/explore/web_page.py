"""A folder of static files in which a model answers in a browser: any web server shows it, and nothing else computes.

With the graph (`interop.graph.TracedExportable`) and the drawing module it has ONNX Runtime for browsers, which is
too large for this package: it is copied from where the user has it.
"""

import hashlib
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.calibration import calibrated
from universal_transformer.explore.page_model import CARD, brought_inputs, page_model
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


def write_web_page(folder: Path, run: Run, *, inputs: Collection[str], runtime: list[Path]) -> None:
    """Write what the page needs in addition to the graph, which is `model.onnx` and has these inputs, into `folder`."""
    config, codec = run.model.config, run.codec
    longest = config.coordinates.max_positions if config.coordinates.position == "learned" else LONGEST
    examples = _examples(run)
    shown, depth = _page_model(run, reads_depth="threshold" in inputs)
    sets = {name: len(some) for name, some in examples.items()}
    shown |= {"sets": sets, "first": next(((name, 0) for name in sets), None)}
    graph = {
        "labels": [codec.render([index]) for index in range(config.vocabulary.num_classes or 0)],
        "blocks": config.step.blocks,
        "longest": min(longest, LONGEST),
        "examples": examples,
        "inputs": sorted(inputs),
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


def _page_model(run: Run, *, reads_depth: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the page offers of the depth, and the depth that the run was calibrated to, if that is one of these.

    A position that stops changes what others read. The outputs of a graph that has made all steps give a smaller depth,
    then, only where all positions stop together; a graph ``reads_depth`` where they halt by themselves.
    """
    name, config = run.folder.resolve().name, run.model.config
    found, steps = page_model(name, run.model, run.codec), f"more than {config.max_steps} steps"
    fixed: tuple[tuple[str, ...], str] = ((), f"{steps}, and cells that stop alone")
    if config.architecture == "classifier":
        fixed = (EXITS, f"{steps}, and an exit by the change of states")
    halting = (("halting_threshold",), f"{steps}, and an exit in place of the halting unit")
    names, missing = fixed if not config.halts else halting if reads_depth else ((), "another depth than as trained")
    rules = {rule: found["rules"][rule] for rule in names if rule in found["rules"]}
    least = 1 if reads_depth or not config.halts else config.max_steps
    options, _ = calibrated(run.folder, DecodingOptions(), model=run.folder / MODEL)
    depth = options.depth.chosen
    rule = options.exit.kind if options.exit is not None else next(iter(depth), "")
    served = rule in rules or (rule == "max_steps" and least == 1)
    found |= {"rules": rules, "least_steps": least, "most_steps": config.max_steps, "calibration": served}
    found |= {"limits": f"Only in `ut explore {name}`: {missing}.", "obstacle": ""}
    return found, {name: value if name != "exit" else str(value) for name, value in depth.items()} if served else {}


def _examples(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Test examples of the run, as the page reads them; where its data are missing, those that the model brings."""
    try:
        task = load_task(run)
    except UserError:
        brought: list[dict[str, Any]] = [
            {"text": text, "right": None, "supports": []} for text in brought_inputs(run.folder)
        ]
        return {CARD: brought} if brought else {}
    codec, found = run.codec, []
    for example in choose_examples(run.model, task, count=EXAMPLES):
        order = codec.source.reading_order(len(example.source))
        supports = [place for place, row in enumerate(order) if row in example.supports]
        right = codec.render(example.target)
        found.append({"text": codec.source.input_text(example.source), "right": right, "supports": supports})
    return {SET: found}
