"""Models as graphs that run without this package: `torch.export` programs and ONNX files.

An exported model is the forward pass with given targets. Its inputs are ids; its outputs are logits and the steps of
every position. Numbers of rows and positions are free.
"""

import copy
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from universal_transformer.axes import States, Tensor
from universal_transformer.errors import UserError, refusal
from universal_transformer.interop.depth_loop import graph_loop
from universal_transformer.models.model import Model
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.nn.context import NOTHING, Context, Kept
from universal_transformer.nn.halting import Progress
from universal_transformer.nn.recurrence import Recurrence, depth_loop
from universal_transformer.rules import Refusals, choices_of, stops_at

OPSET = 20
"""Version of the operators of an ONNX file."""
Axes = tuple[str | int, ...]
"""Shape of an input or output: names of free sizes, and fixed sizes."""
FREE = ("batch", "source", "target")
"""Names of the sizes that are free."""
Forward = Callable[..., tuple[Tensor, ...]]
"""An exported model: ids to logits and steps."""


class Comparison(NamedTuple):
    """An exported model compared with the model itself."""

    difference: float
    """The greatest difference of logits, divided by the largest logit if that is above 1, in rows of equal steps."""
    equal: int
    """Positions that take equal steps."""
    positions: int


class Exportable(nn.Module):
    """A copy of a model for tracing: its loop over depth is one operation, and it returns a tuple of tensors.

    The tuple: the logits, then the steps of each side of the model. UserError for a model that has no (ONNX) export.
    """

    keep: Kept = NOTHING

    def __init__(self, model: Model, *, onnx: bool = True) -> None:
        super().__init__()
        self.config: ModelConfig = model.config
        if self.config.kind != ModelConfig.kind:
            kind = f"model.kind={self.config.kind}"
            raise UserError(f"{kind}: only Universal Transformers and Transformers can be exported")
        for path, wrong, reason in _refusals(self.config, onnx=onnx):
            if wrong:
                raise refusal(f"model.{path}", attrgetter(path)(self.config), f"not exported: {reason}")
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        for module in self.model.modules():
            if isinstance(module, Recurrence):
                module.loop = self.loop

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        return self.read(self.model(*given[: len(self.sides)], keep=self.keep))

    def loop(self, recurrence: Recurrence, states: States, context: Context) -> Progress:
        return graph_loop(recurrence, states, context)

    def read(self, found: ModelOutput) -> tuple[Tensor, ...]:
        """The tensors of an output of the model, in the order of `outputs`."""
        return outputs(found)

    @property
    def inputs(self) -> dict[str, Axes]:
        """Names and shapes of the inputs."""
        return self.sides

    @property
    def sides(self) -> dict[str, Axes]:
        """Those of ids, as int64."""
        longest = self.config.vocabulary.max_fact_words
        words = (longest,) if longest is not None and self.config.inputs.kind == "facts" else ()
        sides = {"source": self.model.source, "target": self.model.target}
        return {name: ("batch", name, *words) for name, side in sides.items() if side is not None}

    @property
    def outputs(self) -> dict[str, Axes]:
        """Names and shapes of the outputs, float32."""
        sides = {"source": "encoder", "target": "decoder"}
        places = {"classifier": (), "tagger": ("source",)}.get(self.config.architecture, ("target",))
        vocabulary = self.config.vocabulary
        classes = vocabulary.written if "target" in self.sides else (vocabulary.num_classes or 0)
        steps: dict[str, Axes] = {f"{sides[name]}_steps": ("batch", name) for name in self.sides}
        return {"logits": ("batch", *places, classes), **steps}

    def examples(self, *, lengths: dict[str, int], rows: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Random ids for every input, every second row shorter by half and padded."""
        generator, vocabulary = torch.Generator().manual_seed(seed), self.config.vocabulary
        made = []
        for name, axes in self.sides.items():
            size = vocabulary.written if name == "target" else self.model.source.input.weight.shape[0]
            shape = (rows, lengths[name], *map(int, axes[2:]))
            ids = torch.randint(min(vocabulary.end_id + 1, size - 1), size, shape, generator=generator)
            ids[ids == vocabulary.padding_id] = int(vocabulary.padding_id == 0)  # another id
            ids[1::2, (lengths[name] + 1) // 2 :] = vocabulary.padding_id
            made.append(ids)
        return tuple(made)


class TracedExportable(Exportable):
    """A graph that also gives what happens at each step. It makes all T steps, where the other one ends with the last
    position: each step then has a place of its own in the outputs, and no number differs.

    Where positions halt it also reads at which depth: ``max_steps`` of each row, at most T, and ``threshold``.
    """

    keep = Kept(attention=True, states=True)

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.given = SimpleNamespace(depth=())  # tracing lets no attribute of a module change

    @property
    def reads_depth(self) -> bool:
        """Not where a position that takes no remainder runs on after its last step."""
        return self.config.halts and self.config.halting.remainder_at_cap

    @property
    def inputs(self) -> dict[str, Axes]:
        depth: dict[str, Axes] = {"max_steps": ("batch",), "threshold": ()}
        return self.sides | (depth if self.reads_depth else {})

    def examples(self, *, lengths: dict[str, int], rows: int, seed: int = 0) -> tuple[Tensor, ...]:
        """With the depth of training."""
        steps = max(self.config.max_steps_of(decoder=name == "target") for name in self.sides)
        depth = torch.full((rows,), steps), torch.tensor(stops_at(self.config.halting))
        return super().examples(lengths=lengths, rows=rows, seed=seed) + (depth if self.reads_depth else ())

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        self.given.depth = given[len(self.sides) :]
        return super().forward(*given)

    def loop(self, recurrence: Recurrence, states: States, context: Context) -> Progress:
        depth = context.depth
        if self.given.depth and depth.rule.stops:
            most, threshold = self.given.depth
            threshold = threshold.clamp(max=1.0 - torch.finfo(threshold.dtype).eps / 2)  # as Accumulating does
            depth, most = depth._replace(threshold=threshold), most.clamp(max=depth.max_steps)
            context = replace(context, depth=depth, lengths=most)
        return depth_loop(recurrence, states, context, runs=lambda _: True)

    @property
    def outputs(self) -> dict[str, Axes]:
        """Those of every export, then the logits after each step; then, of each side, the probabilities to halt and the
        remainder where it halts, and the attention of each application of a block. A target attends to a source too.
        """
        every, config = super().outputs, self.config
        made = {name: config.max_steps_of(decoder=name == "target") for name in self.sides}
        last = next(reversed(made))
        every["step_logits"] = (made[last], *every["logits"])
        for name, steps in made.items():
            side, layers = ("encoder", "decoder")[name == "target"], (steps * config.step.blocks, "batch")
            if config.halts_in(decoder=name == "target"):
                every |= {f"{side}_halting": (steps, "batch", name), f"{side}_remainder": ("batch", name)}
            every[f"{side}_attention"] = (*layers, config.sizes.num_heads, name, name)
            if name == "target" and "source" in made:
                every["cross_attention"] = (*layers, config.sizes.num_heads, name, "source")
        return every

    def read(self, found: ModelOutput) -> tuple[Tensor, ...]:
        read = [*outputs(found), found.step_logits]
        for trace in found.traces:
            halting = () if trace.probability is None else (trace.probability, trace.remainder)
            read += [*halting, trace.self_attention, trace.cross_attention]
        return tuple(tensor for tensor in read if tensor is not None)


def outputs(found: ModelOutput) -> tuple[Tensor, ...]:
    """Return the logits and the steps of each side, as an exported model returns them."""
    return (found.logits, *(trace.steps for trace in found.traces))


def _refusals(config: ModelConfig, *, onnx: bool) -> Refusals:
    pointer = onnx and config.architecture == "classifier" and config.outputs.pooling == "pointer"
    yield "outputs.pooling", pointer, "the ONNX optimizer drops its 1e-9; --format torch keeps it"
    yield "inputs.kind", config.inputs.kind in ("frames", "patches"), "only models that read tokens are"
    yield "outputs.kind", config.outputs.kind == "frames", "only logits of tokens and classes are"
    yield "vocabulary.separator_id", onnx and bool(config.vocabulary.separators), "ONNX: no cummax; try --format torch"
    weights = config.halts and choices_of(config.halting).keeps_weights
    yield "halting.rule", weights, "its cost needs the weights of all steps"
    yield "depth.max_steps", config.by_length(decoder=False), "only a depth that is a number is"
    previous = config.step.residual == "previous"
    yield "step.residual", previous, "the loop of a graph carries no A of the step before"
    untied = config.halts and not config.step.tied
    yield "step.tied", untied, "a loop that ends when positions halt needs one block for all steps"


@torch.no_grad()
def export_program(model: Exportable) -> ExportedProgram:
    """Trace ``model`` as a program whose numbers of rows and positions are free.

    What ``torch.compile`` keeps of earlier calls in this process is dropped, because its guards of another model's loop
    can fail with an IndexError (torch 2.13).
    """
    sizes = {name: Dim(name, min=1) for name in FREE}
    shapes = tuple(
        {place: sizes[str(axis)] for place, axis in enumerate(axes) if axis in FREE} for axes in model.inputs.values()
    )
    ids = model.examples(lengths={"source": 5, "target": 4}, rows=3)
    torch.compiler.reset()
    with _quiet():
        program = torch.export.export(model, ids, dynamic_shapes=(shapes,))
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, GraphModule) else ():
            node.meta.pop("stack_trace", None)  # names files of this machine
    return program


def save_torch(program: ExportedProgram, path: Path) -> Forward:
    """Write a ``.pt2`` file; return what the file computes when it is loaded."""
    with _quiet():
        torch.export.save(program, path)
        loaded: Forward = torch.export.load(path).module()
    return loaded


def save_onnx(program: ExportedProgram, path: Path, *, model: Exportable) -> Forward:
    """Write an ONNX file, in which a loop over depth is a Loop; return what ONNX Runtime computes with it."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch.onnx needs it
    except ImportError as error:
        raise UserError("ONNX needs more packages: run pip install 'universal-transformer[onnx]'") from error
    free = tuple({place: axis for place, axis in enumerate(axes) if axis in FREE} for axes in model.inputs.values())
    with _quiet():
        made = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=OPSET,
            input_names=list(model.inputs),
            output_names=list(model.outputs),
            dynamic_shapes=(free,),
            verbose=False,
        )
    assert made is not None
    for node in made.model.graph.all_nodes():
        node.metadata_props.clear()  # where the node came from: most of the file
    made.save(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def forward(*ids: Tensor) -> tuple[Tensor, ...]:
        given = {name: value.numpy() for name, value in zip(model.inputs, ids, strict=True)}
        return tuple(torch.from_numpy(found) for found in session.run(None, given))

    return forward


@torch.no_grad()
def compare(forward: Forward, model: Model, batches: Sequence[tuple[Tensor, ...]]) -> Comparison:
    """Compare an exported model with `model`. Logits are compared in rows whose positions take equal steps."""
    difference, equal, positions = 0.0, 0, 0
    sides = sum(side is not None for side in (model.source, model.target))
    for given in batches:
        found, expected = forward(*given), outputs(model(*given[:sides]))
        same = [one == other for one, other in zip(found[1 : len(expected)], expected[1:], strict=True)]
        rows = torch.cat(same, dim=1).all(dim=1)
        if bool(rows.any()):
            scale = max(1.0, float(expected[0].abs().max()))
            difference = max(difference, float((found[0] - expected[0])[rows].abs().max()) / scale)
        equal += sum(int(one.sum()) for one in same)
        positions += sum(one.numel() for one in same)
    return Comparison(difference, equal, positions)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out the messages of the exporter about optional packages and its own future versions."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
