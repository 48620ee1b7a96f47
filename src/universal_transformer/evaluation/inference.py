"""How a model is run: the depth of a call, and how output is generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from universal_transformer.axes import Tensor
from universal_transformer.decoding import GREEDY, DecodingOptions, Generated, Sampling, search
from universal_transformer.decoding.frame_generation import GeneratedFrames, generate_frames
from universal_transformer.decoding.generation import Source
from universal_transformer.errors import UserError
from universal_transformer.models.components import ENCODERS
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.generated import LENGTH_PENALTY
from universal_transformer.models.roles import (
    AnyEncoderDecoder,
    AnyFrameGenerator,
    AnyLanguageModel,
    NonAutoregressive,
    check_exit_applies,
    check_threshold_applies,
)
from universal_transformer.nn.config import Exit
from universal_transformer.nn.halting import check_threshold
from universal_transformer.registry import Model
from universal_transformer.typed import AtLeastOne, check


@dataclass(frozen=True, kw_only=True)
class InferenceOptions:
    """Depth and search of a call. The depth is the model's own where its fields are None.

    One beam and the greedy `sampling` choose the likeliest token; several beams and sampling exclude each other.
    """

    beams: AtLeastOne = 1
    length_penalty: float = LENGTH_PENALTY
    """Exponent α of the length penalty of a beam search."""
    sampling: Sampling = GREEDY
    max_new_tokens: AtLeastOne | None = None
    max_steps: int | None = None
    halting_threshold: float | None = None
    exit: Exit | None = None
    """Stops positions in place of the model's own halting."""

    def __post_init__(self) -> None:
        if isinstance(self.halting_threshold, int | float):  # before the types: its message names the range, NaN too
            check_threshold(self.halting_threshold)
        check(self)
        if self.beams > 1 and self.sampling.temperature > 0:
            raise UserError(f"beams={self.beams} and temperature={self.sampling.temperature}: choose beams or sampling")
        if self.halting_threshold is not None and self.exit is not None:
            raise UserError(
                f"exit {self.exit} and halting_threshold={self.halting_threshold:g}: an exit replaces the halting "
                "unit, so that its threshold changes nothing; choose one of them"
            )
        if self.max_steps is not None and self.max_steps < 1:
            raise UserError(f"max_steps={self.max_steps}: a whole number of at least 1 step")

    @property
    def search_name(self) -> str:
        if self.sampling.temperature > 0:
            return "sampling"
        return "greedy" if self.beams == 1 else f"{self.beams} beams, length penalty {self.length_penalty:g}"

    @property
    def is_greedy(self) -> bool:
        """Whether each token is the likeliest one."""
        return self.beams == 1 and self.sampling.temperature == 0

    @property
    def has_depth(self) -> bool:
        """Whether a depth was chosen that may differ from the model's own."""
        return (self.max_steps, self.halting_threshold, self.exit) != (None, None, None)

    def step_limit(self, model: Model) -> int:
        return self.max_steps or model.config.max_steps

    def check(self, model: Model) -> None:
        """Refuse a threshold of a model without halting, where it changes nothing, and an exit that is not served."""
        check_threshold_applies(self.halting_threshold, config=model.config)
        check_exit_applies(self.exit, max_steps=self.max_steps, model=model)
        if isinstance(model, AnyFrameGenerator) and not self.is_greedy:
            raise UserError(
                f"beams={self.beams}, temperature={self.sampling.temperature:g}: this model writes frames, which are "
                "not searched or sampled; leave them out"
            )
        if model.config.architecture in ENCODERS and self.max_new_tokens is not None:
            raise UserError(
                f"max_new_tokens={self.max_new_tokens}: a {model.config.architecture} writes no text; leave it out"
            )
        generation = model.config.generation
        if generation.fixed_length and self.max_new_tokens is not None:
            raise UserError(
                f"max_new_tokens={self.max_new_tokens}: every answer of this model has {generation.max_new_tokens} "
                "tokens; leave it out"
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
        own_threshold = config.halting.stops_at if isinstance(config, ModelConfig) else None
        if self.halting_threshold not in (None, own_threshold):
            notes.append(
                f"evaluated with halting_threshold={self.halting_threshold:g} instead of the model's {own_threshold:g}"
            )
        return notes

    def longer_answers(self, model: Model) -> str:
        """Say how to raise the limit of answers, which is part of a model that writes all tokens at once."""
        if isinstance(model, NonAutoregressive) and self.max_new_tokens is None:
            return "train with a larger model.output_ratio or model.output_extra, which are its limit"
        return "raise the limit with --max-new-tokens"

    def run(self, model: Model, *inputs: Tensor) -> Any:
        return model(*inputs, max_steps=self.max_steps, halting_threshold=self.halting_threshold, exit=self.exit)

    def generate(
        self,
        model: AnyEncoderDecoder | AnyLanguageModel | NonAutoregressive,
        source: Source,
        *,
        indices: Sequence[int] | None = None,
        num_results: int = 1,
    ) -> list[list[Generated]]:
        """Return the sequences found for each row, best first; `indices` number the rows for sampling."""
        return search(
            model,
            source,
            beams=self.beams,
            length_penalty=self.length_penalty,
            num_results=num_results,
            indices=indices,
            options=self.decoding,
        )

    def generate_frames(self, model: AnyFrameGenerator, source: Source) -> list[GeneratedFrames]:
        """Return the frames written for each row."""
        return generate_frames(
            model,
            source,
            max_new_frames=self.max_new_tokens,
            max_steps=self.max_steps,
            halting_threshold=self.halting_threshold,
            exit=self.exit,
        )

    @property
    def decoding(self) -> DecodingOptions:
        return DecodingOptions(
            sampling=self.sampling,
            max_new_tokens=self.max_new_tokens,
            max_steps=self.max_steps,
            halting_threshold=self.halting_threshold,
            exit=self.exit,
        )
