"""How a model is run: the depth of a call, and how output is generated."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.models.call import AS_TRAINED, DepthOptions, check_threshold
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.generated import GREEDY, LENGTH_PENALTY, Sampling
from universal_transformer.models.model import Model
from universal_transformer.rules import Exit
from universal_transformer.rules.choices import stops_at
from universal_transformer.rules.exits import check_exit
from universal_transformer.typed import AtLeastOne, Range, check


@dataclass(frozen=True)
class Beams:
    """A beam search: ``Beams(4)``, ``Beams(4, length_penalty=1.0)``."""

    number: AtLeastOne
    """Sequences that are continued at a time."""
    length_penalty: Annotated[float, Range(0, 10)] = LENGTH_PENALTY
    """Exponent α of the length penalty; 0 ranks by probability alone."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, init=False)
class DecodingOptions:
    """Depth and search of a call. The depth is the model's own where its fields are None.

    One beam and the greedy `sampling` choose the likeliest token; several beams and sampling exclude each other.

    >>> DecodingOptions(beams=4, max_steps=3) == DecodingOptions(beams=4, depth=DepthOptions(max_steps=3))
    True
    """

    beams: AtLeastOne | Beams
    sampling: Sampling
    max_new_tokens: AtLeastOne | None
    """Most tokens (or frames) of an answer, its end included. None: `config.generation.limit` of its source."""
    depth: DepthOptions

    def __init__(
        self,
        *,
        beams: int | Beams = 1,
        sampling: Sampling = GREEDY,
        max_new_tokens: int | None = None,
        depth: DepthOptions = AS_TRAINED,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
    ) -> None:
        chosen = {"max_steps": max_steps, "halting_threshold": halting_threshold, "exit": exit}
        if chosen := {name: value for name, value in chosen.items() if value is not None}:
            depth = dataclasses.replace(depth, **chosen)  # type: ignore[arg-type]
        fields = {"beams": beams, "sampling": sampling, "max_new_tokens": max_new_tokens, "depth": depth}
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check_fields()

    def _check_fields(self) -> None:
        """UserError for values of other types and ranges, and for two that exclude each other."""
        if not isinstance(self.sampling, Sampling):
            raise UserError(f"sampling={show(self.sampling)}: expected Sampling(temperature=…), or GREEDY")
        depth = self.depth
        if depth.exit is not None:
            check_exit(depth.exit)
        if isinstance(depth.halting_threshold, int | float):  # before the types: it names the range, of NaN too
            check_threshold(depth.halting_threshold)
        check(depth)
        check(self)
        if self.num_beams > 1 and self.sampling.temperature > 0:
            raise UserError(
                f"beams={self.num_beams} and temperature={self.sampling.temperature}: choose beams or sampling"
            )
        if depth.halting_threshold is not None and depth.exit is not None:
            raise UserError(
                f"exit {depth.exit} and halting_threshold={depth.halting_threshold:g}: an exit replaces the halting "
                "unit, so that its threshold changes nothing; choose one of them"
            )
        if depth.max_steps is not None and depth.max_steps < 1:
            raise UserError(f"max_steps={depth.max_steps}: a whole number of at least 1 step")

    @property
    def num_beams(self) -> int:
        return self.beams.number if isinstance(self.beams, Beams) else self.beams

    @property
    def length_penalty(self) -> float:
        """Exponent α of the length penalty of a beam search."""
        return self.beams.length_penalty if isinstance(self.beams, Beams) else LENGTH_PENALTY

    @property
    def search_name(self) -> str:
        if self.sampling.temperature > 0:
            return "sampling"
        return "greedy" if self.num_beams == 1 else f"{self.num_beams} beams, length penalty {self.length_penalty:g}"

    @property
    def is_greedy(self) -> bool:
        """Whether each token is the likeliest one."""
        return self.num_beams == 1 and self.sampling.temperature == 0

    @property
    def has_depth(self) -> bool:
        """Whether a depth was chosen that may differ from the model's own."""
        return self.depth != AS_TRAINED

    def step_limit(self, model: Model) -> int:
        return self.depth.max_steps or model.config.max_steps

    def check(self, model: Model) -> None:
        """UserError for a depth that the model has not or that changes nothing, and for a search that it cannot do."""
        config, generation = model.config, model.config.generation
        self.depth.check(config, name=type(model).__name__)
        if model.writes == "frames" and not self.is_greedy:
            raise UserError(
                f"beams={self.num_beams}, temperature={self.sampling.temperature:g}: this model writes frames, which "
                "are not searched or sampled; leave them out"
            )
        if self.max_new_tokens is None:
            return
        if model.writes == "classes":
            raise UserError(
                f"max_new_tokens={self.max_new_tokens}: a {config.architecture} writes no text; leave it out"
            )
        if generation.fixed_length:
            raise UserError(
                f"max_new_tokens={self.max_new_tokens}: every answer of this model has {generation.max_new_tokens} "
                "tokens; leave it out"
            )

    def notes(self, model: Model) -> list[str]:
        """Say where the depth differs from the model's own."""
        config, depth, notes = model.config, self.depth, []
        if depth.exit is not None:
            notes.append(f"evaluated with the exit {depth.exit}")
        encoder, decoder = (config.max_steps_of(decoder=side) for side in (False, True))
        if depth.max_steps is not None and {encoder, decoder} != {depth.max_steps}:
            own = '"length"' if config.by_length(decoder=False) else str(encoder)
            if encoder != decoder:
                own += f" (encoder) and {decoder} (decoder)"
            notes.append(f"evaluated with max_steps={depth.max_steps} instead of the model's {own}")
        own_threshold = stops_at(config.halting) if isinstance(config, ModelConfig) else None
        if depth.halting_threshold not in (None, own_threshold):
            notes.append(
                f"evaluated with halting_threshold={depth.halting_threshold:g} instead of the model's {own_threshold:g}"
            )
        return notes

    def longer_answers(self, model: Model) -> str:
        """Say how to raise the limit of answers, which is part of a model that writes all tokens at once."""
        if model.at_once and self.max_new_tokens is None:
            return "train with a larger model.output_ratio or model.output_extra, which are its limit"
        return "raise the limit with --max-new-tokens"

    def run(self, model: Model, *inputs: Tensor) -> Any:
        """The output of a call with this depth."""
        return model(*inputs, **vars(self.depth))


DEFAULTS = DecodingOptions()
"""Greedy, with the depth of training."""
