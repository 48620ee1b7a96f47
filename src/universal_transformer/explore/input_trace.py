"""What a model does with one input, as plain JSON: the one description that the page, a saved file and a notebook draw.

`assets/draw.js` reads it. All of it comes from the outputs of the model: one call for a class or tags, and for what is
written one call after it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import exp, isqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from universal_transformer.axes import Float, Tensor
from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import SPECIAL, START
from universal_transformer.decoding.generation import evaluating
from universal_transformer.decoding.options import DEFAULTS, DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.prediction import MOST_WEIGHTS, OneAnswer, answers_of
from universal_transformer.models.call import Generated
from universal_transformer.models.model import Model
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.trace import Trace
from universal_transformer.rules import stops_at
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Prediction

DIGITS = 6
"""Decimals of a probability."""


@dataclass(frozen=True, kw_only=True)
class AttentionBytes:
    """Attention weights as bytes, ``round(255 a)``, in base64."""

    data: str
    shape: tuple[int, int, int, int]
    """Applications of a block, heads, rows (which look) and columns (at which they look)."""
    blocks: int
    """Applications in one step; 0 where layers stand before or after the recurrence."""

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.frombuffer(base64.b64decode(self.data), np.uint8).reshape(self.shape) / 255


@dataclass(frozen=True, kw_only=True)
class SideTrace:
    """The positions of one side, in reading order."""

    side: str
    """encoder or decoder."""
    tokens: tuple[str, ...]
    """What a position reads, or of a decoder what it predicts."""
    columns: tuple[str, ...]
    """What stands at a position that is looked at: of a decoder the token before the one that it predicts."""
    steps: tuple[float, ...]
    """N of each position."""
    remainders: tuple[float, ...]
    halting: list[list[float]] | None
    """Halting probability [step][position]; 0 after a position has halted. None without a halting unit."""
    self_attention: AttentionBytes
    cross_attention: AttentionBytes | None = None
    """Of a decoder: to the positions of the encoder."""
    supports: tuple[int, ...] = ()
    """Positions of the supporting facts, where the file names them."""

    def to_dict(self) -> dict[str, Any]:
        cross = None if self.cross_attention is None else asdict(self.cross_attention)
        return vars(self) | {"self_attention": asdict(self.self_attention), "cross_attention": cross}


@dataclass(frozen=True, kw_only=True)
class InputTrace:
    """A model on one input."""

    model: str
    view: Mapping[str, Any]
    """How the source is shown: its ``form`` (tokens, facts, board) and what this needs."""
    max_steps: int
    """The largest number of steps of a position."""
    halting: bool
    """Whether positions stop by themselves."""
    threshold: float | None
    """Cumulative probability at which a position halts; None without a halting unit."""
    sides: tuple[SideTrace, ...]
    """Encoder, decoder, or both."""
    answer: str
    probability: float
    """Of the answer: of all its tokens or tags together."""
    finished: bool
    right: str | None
    """The right answer, if it is known."""
    choices: tuple[OneAnswer, ...]
    """The best answers, each with its probability."""
    output: tuple[OneAnswer, ...]
    """The tokens or tags of the answer, each with its probability; none of a class."""
    places: tuple[int, ...]
    """The positions of the last side that these stand at."""
    after_steps: list[list[OneAnswer]]
    """The best answer of the states after each step: one, or one at each position of the last side."""
    unknown: tuple[str, ...]
    """Parts of the input that the model does not know."""
    cut: tuple[str, ...]
    """What is left out, one sentence each."""

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"sides": [side.to_dict() for side in self.sides]}


@dataclass(frozen=True, kw_only=True)
class _Packer:
    """Writes matrices of attention, each in at most ``most`` bytes, and notes in ``cut`` what it leaves out: first the
    ``heads`` are averaged, then later positions are left out.

    ``blocks``: applications in one step; 0 where layers stand before or after the recurrence.
    """

    most: int
    heads: int
    blocks: int = 1
    cut: list[str] = field(default_factory=list)

    def of(self, recurrence: Recurrence) -> _Packer:
        """The packer of a side; what is cut is noted in one place."""
        alone = recurrence.tied and len(recurrence.layers) > len(recurrence.blocks)
        return replace(self, blocks=0 if alone else recurrence.blocks_per_step)

    def __call__(
        self, weights: Float[Tensor, "layer batch heads query key"], rows: Sequence[int], columns: Sequence[int]
    ) -> AttentionBytes:
        kept = weights[:, 0]
        if kept.numel() > self.most:
            kept = kept.mean(1, keepdim=True)
        if kept.shape[1] < self.heads:
            self.cut.append(f"attention is the mean over {self.heads} heads")
        if kept.numel() > self.most:
            longest = isqrt(self.most // kept.shape[0])
            self.cut.append(f"attention is that of the first {longest} positions")
            rows, columns = rows[:longest], columns[:longest]
        kept = kept.index_select(2, torch.tensor(rows, device=kept.device))
        whole = (kept.float() * 255).round_().to(torch.uint8).cpu().numpy().take(columns, 3)
        return AttentionBytes(data=base64.b64encode(whole.tobytes()).decode(), shape=whole.shape, blocks=self.blocks)


def trace_input(
    model: Model,
    codec: Codec[Any, Any],
    example: Example,
    *,
    options: DecodingOptions = DEFAULTS,
    name: str = "",
    right: str | None = None,
    made: Generated | None = None,
) -> InputTrace:
    """Run `model`, called `name` in the trace, on an example without an answer, as `Codec.read` gives it, at the depth
    of `options`. `right`: the right answer; `made`: what the model wrote for it already.

    UserError for a model without depth, and for options that do not fit it.
    """
    trace, _ = traced(model, codec, example, options=options, made=made)
    return replace(trace, model=name, right=right)


def traced(
    model: Model,
    codec: Codec[Any, Any],
    example: Example,
    *,
    options: DecodingOptions,
    made: Generated | None = None,
    most_weights: int = MOST_WEIGHTS,
) -> tuple[InputTrace, Prediction]:
    """The same without a name, and the answer. ``most_weights``: of all attention in the trace."""
    config = model.config
    if not config.max_steps:
        raise UserError(f"a model of kind {config.kind} has no depth: there are no steps to show")
    asked = answers_of(model, codec, options)
    with evaluating(model):
        found, called, places = asked.watched(example, made)
        after = asked.after_steps(called)
    encoder, decoder = called.output.encoder, called.output.decoder
    most = most_weights // (1 if encoder is None or decoder is None else 3)
    pack = _Packer(most=most, heads=config.sizes.num_heads)
    sides, rows = list[SideTrace](), list[int]()
    if encoder is not None:
        real = (~model.source.input.padding(called.batch.source)[0]).nonzero().flatten().tolist()
        rows = [real[place] for place in codec.source.reading_order(len(real))]
        names = tuple(token.text for token in found.tokens)
        side = _side("encoder", encoder, rows, names=(names, names), pack=pack.of(model.source.recurrence))
        supports = tuple(place for place, row in enumerate(rows) if row in example.supports)
        sides.append(replace(side, supports=supports))
    if decoder is not None:
        prompt = () if config.reads else found.tokens
        names = tuple(token.text for token in (*prompt, *found.output))
        every, pack_here = range(len(names)), pack.of(model.target.recurrence)
        side = _side("decoder", decoder, every, names=(names, (SPECIAL[START], *names[:-1])), pack=pack_here)
        if decoder.cross_attention is not None:
            side = replace(side, cross_attention=pack_here(decoder.cross_attention, every, rows))
        sides.append(side)
    deepest = max(max(side.steps, default=0.0) for side in sides)
    trace = InputTrace(
        model="",
        view={"form": "tokens"} if encoder is None else codec.source.view,
        max_steps=int(deepest) if config.by_length(decoder=False) else options.step_limit(model),
        halting=config.halts or options.exit is not None,
        threshold=None if options.exit is not None or not config.halts else _threshold(config, options),
        sides=tuple(sides),
        answer=found.text,
        probability=_probability(found.score),
        finished=found.finished,
        right=None,
        choices=tuple((text, _probability(score)) for text, score in found.choices),
        output=tuple((token.text, _probability(token.score or 0.0)) for token in found.output),
        places=tuple(places),
        after_steps=[[(text, round(value, DIGITS)) for text, value in step] for step in after],
        unknown=tuple(example.unknown),
        cut=tuple(dict.fromkeys(pack.cut)),
    )
    return trace, found


def _side(
    name: str, trace: Trace, rows: Sequence[int], *, names: tuple[tuple[str, ...], tuple[str, ...]], pack: _Packer
) -> SideTrace:
    """The positions ``rows`` of the only sequence of a trace; ``names``: what they are, and what is looked at there."""
    assert trace.self_attention is not None
    at = list(rows)
    halting = None if trace.probability is None else _rounded(trace.probability[:, 0][:, at])
    tokens, columns = names
    return SideTrace(
        side=name,
        tokens=tokens,
        columns=columns,
        steps=tuple(trace.steps[0, at].tolist()),
        remainders=tuple(_rounded(trace.remainder[0, at])),
        halting=halting,
        self_attention=pack(trace.self_attention, at, at),
    )


def _rounded(values: Tensor) -> Any:
    return (values.double() * 10**DIGITS).round().div(10**DIGITS).tolist()


def _probability(score: float) -> float:
    return round(exp(score), DIGITS)


def _threshold(config: Any, options: DecodingOptions) -> float:
    return stops_at(config.halting) if options.halting_threshold is None else options.halting_threshold
