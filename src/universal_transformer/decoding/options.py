"""How a model is run: the depth of a call, and how output is generated."""

from dataclasses import dataclass
from typing import Annotated, Any

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError, refuse
from universal_transformer.files import show
from universal_transformer.models.call import GREEDY, LENGTH_PENALTY, DepthOptions, Sampling
from universal_transformer.models.model import Model
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.nn.context import NOTHING, Kept
from universal_transformer.rules import Exit, stops_at
from universal_transformer.typed import Positive, Range, check


@dataclass(frozen=True)
class Beams:
    """A beam search: ``Beams(4)``, ``Beams(4, length_penalty=1.0)``."""

    number: Positive
    """Sequences that are continued at a time."""
    length_penalty: Annotated[float, Range(0, 10)] = LENGTH_PENALTY
    """Exponent α of the length penalty; 0 ranks by probability alone."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """Depth and search of a call. The depth is the model's own where its fields are None.

    One beam and the greedy `sampling` choose the likeliest token; several beams and sampling exclude each other.
    """

    beams: Positive | Beams = 1
    sampling: Sampling = GREEDY
    max_new_tokens: Positive | None = None
    """Most tokens (or frames) of an answer, its end included. None: `config.generation.limit` of its source."""
    lines: Positive = 1
    """Lines that a language model writes for a prompt; what it ends without writing is none."""
    max_steps: Positive | None = None
    halting_threshold: Annotated[float, Range(0, 1, above=True)] | None = None
    exit: Exit | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sampling, Sampling):
            raise UserError(f"sampling={show(self.sampling)}: expected Sampling(temperature=…), or GREEDY")
        check(self)
        if self.num_beams > 1 and self.sampling.temperature > 0:
            raise UserError(
                f"beams={self.num_beams} and temperature={self.sampling.temperature}: choose beams or sampling"
            )

    @property
    def depth(self) -> DepthOptions:
        return DepthOptions(max_steps=self.max_steps, halting_threshold=self.halting_threshold, exit=self.exit)

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
        return self.num_beams == 1 and self.sampling.temperature == 0

    def step_limit(self, model: Model) -> int:
        return self.max_steps or model.config.max_steps

    def check(self, model: Model) -> None:
        """UserError for a depth that the model has not or that changes nothing, and for a search that it cannot do."""
        config, generation = model.config, model.config.generation
        self.depth.check(config)
        limited, given = self.max_new_tokens is not None, f"max_new_tokens={self.max_new_tokens}"
        search = f"beams={self.num_beams}, temperature={self.sampling.temperature:g}"
        fixed = f"every answer of this model has {generation.max_new_tokens} tokens"
        refuse(
            (
                model.writes != "tokens" and not self.is_greedy,
                f"{search}: this model writes {model.writes}, which are not searched or sampled; leave them out",
            ),
            (
                limited and not config.decodes,
                f"{given}: a {config.architecture} writes no text; leave it out",
            ),
            (self.lines > 1 and self.num_beams > 1, f"lines={self.lines} and beams={self.num_beams}: choose one"),
            (self.lines > 1 and config.reads, f"lines={self.lines}: this model writes one answer; leave it out"),
            (limited and generation.fixed_length, f"{given}: {fixed}; leave it out"),
        )

    def notes(self, model: Model) -> list[str]:
        """Say where the depth differs from the model's own."""
        config, notes = model.config, []
        if self.exit is not None:
            notes.append(f"evaluated with the exit {self.exit}")
        encoder, decoder = (config.max_steps_of(decoder=side) for side in (False, True))
        if self.max_steps is not None and {encoder, decoder} != {self.max_steps}:
            own = '"length"' if config.by_length(decoder=False) else str(encoder)
            if encoder != decoder:
                own += f" (encoder) and {decoder} (decoder)"
            notes.append(f"evaluated with max_steps={self.max_steps} instead of the model's {own}")
        if self.halting_threshold is not None and self.halting_threshold != (threshold := stops_at(config.halting)):
            notes.append(
                f"evaluated with halting_threshold={self.halting_threshold:g} instead of the model's {threshold:g}"
            )
        return notes

    def longer_answers(self, model: Model) -> str:
        return model.config.longer_answers if self.max_new_tokens is None else BaseConfig.longer_answers

    def run(self, model: Model, *inputs: Tensor, keep: Kept = NOTHING) -> Any:
        return model(*inputs, keep=keep, **vars(self.depth))


DEFAULTS = DecodingOptions()
"""Greedy, with the depth of training."""
