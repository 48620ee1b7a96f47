"""The one model: a source side, a target side and a head, of which a model has those that its task needs.

========================== ====== ====== =========================================================================
model                      source target what is predicted
========================== ====== ====== =========================================================================
`EncoderDecoder`           yes    yes    every token of a target, given those to its left
`FrameGenerator`           yes    yes    every frame of a target, given those to its left
`LanguageModel`            no     yes    every token of a text, given those to its left
`Classifier`               yes    no     one class for a source
`MultiLabelClassifier`     yes    no     for each label, whether a source has it
`Tagger`                   yes    no     one class for each position of a source
========================== ====== ====== =========================================================================

Evaluation, decoding and training use models of every kind, baselines included, through :class:`Model` alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import resolve_name
from typing import Any, NamedTuple

import torch
from torch import nn

from universal_transformer.axes import Float, Int, Padding, Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.call import AS_TRAINED, GREEDY, DepthOptions, Generated, Sampling
from universal_transformer.models.initialise import initialise
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.models.outputs import FrameOutput, ModelOutput
from universal_transformer.models.positions.numbering import draw_positions
from universal_transformer.models.pretrained import Pretrained
from universal_transformer.nn.context import NOTHING, Kept
from universal_transformer.nn.trace import Trace
from universal_transformer.rules import Exit
from universal_transformer.rules.exits import Head

Output = ModelOutput | FrameOutput
DECODING = "universal_transformer.decoding"
"""Imports the models, and is imported when a model generates for the first time."""


@dataclass(frozen=True)
class Call:
    """What the sides of a model are called with besides their inputs.

    ``positions`` of source and target, None: 0, 1, 2 … (in training as ``coordinates.offsets`` says). ``read``: the
    logits of states of the source, where a head reads these; ``together``: whether it reads a whole sequence.
    """

    depth: DepthOptions = AS_TRAINED
    positions: tuple[Tensor | None, Tensor | None] = (None, None)
    keep: Kept = NOTHING
    read: Head | None = None
    together: bool = False


@dataclass
class EncodedSource:
    """The states of a source, its padding (None where there is none) and positions, and the trace over depth."""

    states: Float[Tensor, "batch source width"]
    padding: Padding | None
    positions: Int[Tensor, "#batch source"] | None = None
    trace: Trace | None = None


class Parts(NamedTuple):
    """What makes the sides and the head of a model from its configuration, which names them (`BaseConfig.parts`). A
    target is made with the source that it follows, if there is one.
    """

    source: Callable[[Any], nn.Module]
    target: Callable[[Any, Any], nn.Module]
    head: Any = None


class Model(Pretrained):
    """A model of any kind. ``source`` and ``target`` are None where it has no such side, and so is ``head``.

    A side of a source is called with ids and a :class:`Call` and returns :class:`EncodedSource`. A side of a target is
    called with targets, what was encoded and the call, and returns the output. Its ``start`` and ``advance`` give it
    token by token, up to its ``limit``: their state has the ``trace`` over depth of the last call, if there is one, and
    ``reorder(index)`` puts the rows ``index`` in place of the present ones. A head turns the states of a source into
    logits. A model whose configuration has ``max_steps=0`` has no depth: it takes no depth and returns no trace.
    """

    codec: Any = None
    """Turns texts into ids and back; `load` sets it. Without a codec `generate` takes ids alone."""
    config: Any
    source: Any
    target: Any
    head: Any

    def __init__(self, config: BaseConfig) -> None:
        super().__init__(config)
        config = self.config  # with the architecture of the class
        parts: Parts = resolve_name(config.parts)
        self.source = parts.source(config) if config.reads else None
        self.target = parts.target(config, self.source) if config.decodes else None
        self.head = None if config.decodes else parts.head(config)
        initialise(self)

    def forward(
        self,
        *inputs: Tensor,
        max_steps: int | None = None,
        min_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
        keep: Kept = NOTHING,
    ) -> Output:
        """The logits of every token of a target, given the tokens to its left (the shift happens inside), of the class
        of a source, or of the class of each of its positions.

        ``inputs``: source and target, of those that the model has. Targets have the end token and are padded on the
        right. With ``exit`` each position stops by itself (all of a sequence together, where a class is read from it);
        only states that a head reads can stop by what it predicts, and the encoder of an encoder-decoder then has its
        trained depth. With ``keep.states`` the output has the logits after each step too.

        UserError for shapes, types and options that do not fit, and on a CPU for ids outside of the vocabulary.
        """
        given = self.check_inputs(*inputs)
        depth = DepthOptions(max_steps=max_steps, min_steps=min_steps, halting_threshold=halting_threshold, exit=exit)
        depth.check(self.config)
        call = Call(depth, self.positions(given), keep)
        if self.target is not None:
            encoded = None if self.source is None else self.source(given["source"], call)
            return self.target(given["target"], encoded, call)
        source = given["source"]
        read, together = self.head.reader(source, padding=self.source.padding(source))
        encoded = self.source(source, replace(call, read=read, together=together))
        trace = encoded.trace
        every = None if trace is None or trace.states is None else torch.stack([read(each) for each in trace.states])
        return ModelOutput(read(encoded.states), trace, None, step_logits=every)

    def check_inputs(self, *inputs: Tensor) -> dict[str, Tensor]:
        """Source and target of a call, those that there are; UserError for those that do not fit."""
        names = [name for name in ("source", "target") if getattr(self, name) is not None]
        if len(inputs) != len(names):
            raise UserError(f"{len(inputs)} inputs: {type(self).__name__} takes {' and '.join(names)}")
        found = dict(zip(names, inputs, strict=True))
        for name, ids in found.items():
            getattr(self, name).check(ids)
        first, last = inputs[0].shape[0], inputs[-1].shape[0]
        if first != last:
            raise UserError(f"{first} sources, but {last} targets: row n of one belongs to row n")
        return found

    def positions(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor | None, Tensor | None]:
        """Positions of both sides to train on, of one draw, where ``coordinates.offsets`` draws them; else None."""
        if not (self.config.max_steps and self.training and self.config.coordinates.offsets != "none"):
            return None, None
        ids, lengths = next(iter(inputs.values())), {}
        for name, given in inputs.items():
            lengths[name] = getattr(self, name).length(given)
        drawn = draw_positions(self.config.coordinates, len(ids), max(lengths.values()), device=ids.device)
        source, target = (drawn[:, : lengths[name]] if name in lengths else None for name in ("source", "target"))
        return source, target

    def generate(
        self,
        source: Tensor | Sequence[Any],
        *,
        beams: Any = 1,
        sampling: Sampling = GREEDY,
        max_new_tokens: int | None = None,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
    ) -> list[Generated]:
        """Return the sequence that the model writes for each row of ``source``, as ``ut predict`` does.

        ``source`` holds the source ids of an encoder-decoder or the prompts of a language model: a tensor
        ``[batch, position]``, padded, or a list of ids for each row. A prompt gets the start token if it does not begin
        with it. A model with a codec takes a list of texts too. A sequence has at most ``max_new_tokens``, its end
        included (None: ``config.generation.limit`` of the length of its row). One beam and greedy ``sampling`` choose
        the likeliest token; several ``beams`` search for a sequence of high probability: their number, or
        ``Beams(number, length_penalty=…)``. ``max_steps`` and ``halting_threshold`` are the model's own where they are
        None. With ``exit`` each position stops by itself.

        Raises UserError for ids, shapes and options that do not fit the model.
        """
        decoding = import_module(DECODING)
        options = decoding.DecodingOptions(
            beams=beams,
            sampling=sampling,
            max_new_tokens=max_new_tokens,
            max_steps=max_steps,
            halting_threshold=halting_threshold,
            exit=exit,
        )
        return decoding.generate(self, source, options)

    def start(
        self, source: Tensor | None = None, *, batch: int = 1, capacity: int, depth: DepthOptions = AS_TRAINED
    ) -> Any:
        """Encode ``source``, or begin ``batch`` texts without one; the state for up to ``capacity`` positions of the
        target, the start token and a prompt included.

        UserError for a source of another type or shape than the model reads, for a depth that does not fit it, and
        where the decoder depends on later positions, so that it cannot generate.
        """
        depth.check(self.config)
        call = Call(depth)
        if source is None:
            return self.target.start(None, call, batch=batch, capacity=capacity)
        self.source.check(source)
        return self.target.start(self.source(source, call), call, batch=source.shape[0], capacity=capacity)
