"""``ut export``: a trained model as a graph, as a folder for transformers, or as a page for any web server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from universal_transformer.cli.output import note
from universal_transformer.cli.shared_options import Folder, OfRun
from universal_transformer.errors import UserError
from universal_transformer.files import new_folder, show_path, write_json

if TYPE_CHECKING:
    from universal_transformer.interop.graph import Comparison, Exportable
    from universal_transformer.runs.opened import Run

Format = Literal["onnx", "torch", "transformers", "web"]
FILES = {"onnx": "model.onnx", "torch": "model.pt2"}
"""Format -> name of the file of the model."""
DESCRIPTION = "model.json"
TYPES = {"threshold": "float32"}
"""Of inputs that are no whole numbers."""
MOST_DIFFERENT = 1e-4
"""An export whose logits differ by more is not kept. Rounding gives about 1e-6."""


@dataclass(frozen=True, kw_only=True)
class Export(OfRun):
    """Write a trained model in another form, with its tokenizer.

    onnx and torch are graphs that run without this package: inputs are ids, outputs are logits and the steps of every
    position.
    """

    format: Format = "onnx"
    """onnx: for ONNX Runtime, opset 20; torch: for torch.export.load; transformers: a folder for from_pretrained;
    web: a page that answers stories or boards in a browser, and draws each step."""
    out: Folder = ""
    """A new folder (default: RUN/export/FORMAT, which is replaced)."""
    runtime: Folder = "node_modules/onnxruntime-web/dist"
    """For web: the files of onnxruntime-web 1.30.0, which are copied."""

    def __call__(self) -> int:
        """Export, compare with the model itself, and write the folder whole or not at all."""
        folder = Path(self.run)
        target = Path(self.out) if self.out else folder / "export" / self.format
        _check_target(target, ours=not self.out)
        from universal_transformer.evaluation.calibration import CALIBRATION
        from universal_transformer.runs.opened import open_run

        run = open_run(folder)
        if self.format != "web" and (run.folder / CALIBRATION).is_file():
            note(f"the export has the depth of training: {CALIBRATION} is for ut evaluate, ut predict and load")
        write = _writer(run, format=self.format, runtime=Path(self.runtime))
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(target) as staging:
            line = write(staging)
        print(line)
        print(f"written to {target}: {', '.join(sorted(path.name for path in target.iterdir()))}")
        return 0


def _check_target(target: Path, *, ours: bool) -> None:
    if not ours and (target.exists() or target.is_symlink()):
        raise UserError(f"--out {show_path(target)}: there already; name a new folder")


def _writer(run: Run, *, format: Format, runtime: Path) -> Callable[[Path], str]:  # noqa: A002 - the option's name
    """Return what writes a folder and says how exact it is; UserError for a run that has no such form."""
    if format == "transformers":
        return partial(_write_transformers, run=run)
    from universal_transformer.interop.graph import Exportable, TracedExportable

    if format == "web":
        from universal_transformer.explore.web_page import check_form, runtime_files

        check_form(run)
        return partial(_write_web, run=run, model=TracedExportable(run.model), runtime=runtime_files(runtime))
    return partial(_write_graph, run=run, model=Exportable(run.model, onnx=format == "onnx"), format=format)


def _write_transformers(folder: Path, *, run: Run) -> str:
    """Write the folder; a note says what tokenizer it lacks."""
    try:
        from universal_transformer.interop.transformers.model_folder import Exchanged, write_folder
    except ImportError as error:
        need = "run pip install 'universal-transformer[transformers]'"
        raise UserError(f"--format transformers needs more packages: {need}") from error
    source, target = run.codec.source, run.codec.target
    own = target is not source and run.model.config.decodes
    for side in (source, *[target] * own):
        if side.exchanged is None:
            note(f"without a tokenizer of {side.kind}: its ids need more than a tokenizer; give ids")
    labels = run.codec.tokens_by_side.get("classes", ())
    weight = run.config.training.ponder_weight
    what = Exchanged(
        source=source.exchanged, target=target.exchanged if own else None, labels=labels, ponder_weight=weight
    )
    return write_folder(folder, run.model, what)


def _write_graph(folder: Path, *, run: Run, model: Exportable, format: str) -> str:  # noqa: A002
    """Write model, description and codec into `folder`; return a line that says how exact the export is."""
    from universal_transformer.interop.graph import compare, export_program, save_onnx, save_torch

    note("tracing the model, which takes up to a minute")
    program, path = export_program(model), folder / FILES[format]
    forward = save_onnx(program, path, model=model) if format == "onnx" else save_torch(program, path)
    lengths = [(4, 9, 7), (2, 1, 1), (1, 6, 5)]
    batches = [model.examples(lengths={"source": one, "target": two}, rows=rows) for rows, one, two in lengths]
    found = compare(forward, run.model, batches)
    if found.difference > MOST_DIFFERENT:
        raise UserError(
            f"the exported model gives other logits than the model itself (by {found.difference:.1e}); nothing is kept"
        )
    write_json(folder / DESCRIPTION, _description(run, model, found, format=format))
    run.codec.save(folder)
    return (
        f"compared with PyTorch on {len(batches)} random batches: greatest difference of logits "
        f"{found.difference:.1e}, equal steps at {found.equal} of {found.positions} positions"
    )


def _write_web(folder: Path, *, run: Run, model: Exportable, runtime: list[Path]) -> str:
    """Write a graph that gives what happens at each step, and the page that shows it."""
    from universal_transformer.explore.web_page import write_web_page

    line = _write_graph(folder, run=run, model=model, format="onnx")
    write_web_page(folder, run, inputs=[*model.inputs], runtime=runtime)
    return line


def _description(run: Run, model: Exportable, found: Comparison, *, format: str) -> dict[str, Any]:  # noqa: A002
    """Return what a program that runs the exported model must know."""
    from universal_transformer.interop.graph import OPSET
    from universal_transformer.manifest import MODEL, entry_of
    from universal_transformer.models.pretrained import WEIGHTS
    from universal_transformer.rules import stops_at
    from universal_transformer.training.provenance import versions

    config, sides = model.config, {"source": "encoder", "target": "decoder"}
    return {
        "format": format,
        "file": FILES[format],
        **({"opset": OPSET} if format == "onnx" else {}),
        "architecture": config.architecture,
        "inputs": {name: {"type": TYPES.get(name, "int64"), "shape": axes} for name, axes in model.inputs.items()},
        "outputs": {name: {"type": "float32", "shape": shape} for name, shape in model.outputs.items()},
        "ids": {"padding": config.vocabulary.padding_id, "start": config.start_id, "end": config.vocabulary.end_id},
        "max_new_tokens": config.generation.max_new_tokens,
        "max_steps": {sides[name]: config.max_steps_of(decoder=name == "target") for name in model.sides},
        "halts": {sides[name]: config.halts_in(decoder=name == "target") for name in model.sides},
        "halting_threshold": stops_at(config.halting),
        "compared": found._asdict(),
        "weights": entry_of((run.folder / MODEL / WEIGHTS).read_bytes()).sha256,
        "versions": versions(),
    }
