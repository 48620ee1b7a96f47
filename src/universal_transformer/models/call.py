"""What a caller chooses of a call: how deep it goes, and how the next token is chosen; and what is generated.

Importing this module needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from universal_transformer.errors import UserError
from universal_transformer.models.components import MOST_STEPS
from universal_transformer.rules import Exit, Refusals
from universal_transformer.typed import NonNegative, Positive, Range, check

if TYPE_CHECKING:
    from universal_transformer.models.model_config import BaseConfig
    from universal_transformer.nn.context import Depth
    from universal_transformer.nn.recurrence import Recurrence
    from universal_transformer.rules.exits import Head

Steps = Annotated[int, Range(1, MOST_STEPS)]


@dataclass(frozen=True, kw_only=True)
class DepthOptions:
    """How deep a call goes: what is None is as trained. ``exit`` stops positions in place of the trained halting."""

    max_steps: Steps | None = None
    min_steps: Steps | None = None
    halting_threshold: Annotated[float, Range(0, 1, above=True)] | None = None
    exit: Exit | None = None

    @property
    def chosen(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def of(self, recurrence: Recurrence, *, head: Head | None, scope: str = "position") -> Depth:
        """The depth of a side whose states ``head`` reads, which positions of a ``scope`` stop at together.

        An exit that reads the output does not concern states that no head reads.
        """
        rule = None
        if self.exit is not None and (head is not None or not self.exit.rule.reads_output):
            rule = self.exit.rule(self.exit.threshold, head, scope=scope)
        return recurrence.depth(
            max_steps=self.max_steps, min_steps=self.min_steps, threshold=self.halting_threshold, exit=rule
        )

    def check(self, config: BaseConfig) -> None:
        """UserError for what would change nothing, or what a model of this configuration cannot do."""
        if not self.chosen:
            return
        check(self)
        for option, wrong, remedy in self._refusals(config):
            if wrong:
                raise UserError(f"{option}={getattr(self, option)}: {remedy}")
        if self.exit is not None:
            self._check_exit(self.exit, config)

    def _refusals(self, config: Any) -> Refusals:
        for option in self.chosen:
            yield option, not config.max_steps, f"a model of kind {config.kind} has no depth to choose; leave it out"
        if self.halting_threshold is not None:
            never = "this model was trained without halting and has no threshold; leave it out"
            yield "halting_threshold", not config.halts, never
            yield "halting_threshold", self.exit is not None, f"{self.exit} replaces the halting unit; choose one"
        earlier = self.min_steps is not None and not config.halts and self.exit is None
        yield "min_steps", earlier, "this model was trained without halting, and stops early only by an exit"
        own = min(config.max_steps_of(decoder=decoder) for decoder in (False, True))
        more = not config.step.tied and self.max_steps is not None and self.max_steps > own
        yield "max_steps", more, f"an untied model has one block a step, and this one has {own}"

    def _check_exit(self, exit: Exit, config: Any) -> None:
        """UserError for an exit that needs what the model has not, or decides on no side before the last step."""
        rule = exit.rule
        if rule.reads_output and (reason := config.unread_states):
            raise UserError(f"exit {exit}: {reason}; use state_change")
        first = max(rule.first_step, self.min_steps or config.depth.min_steps)
        sides = (True,) if rule.reads_output else (False, True)  # an encoder has no output to read
        steps = max(self.max_steps or config.max_steps_of(decoder=decoder) for decoder in sides)
        if first >= steps:
            cause = " (min_steps)" if first > rule.first_step else ""
            raise UserError(
                f"exit {exit}: it decides first after step {first}{cause}, so that it needs at least {first + 1} steps "
                f"to stop a position early; there {'is' if steps == 1 else 'are'} {steps}"
            )


AS_TRAINED = DepthOptions()


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen. A value that is not allowed raises a UserError."""

    temperature: NonNegative = 0.0
    """0 takes the likeliest token; 1 draws from the model's distribution; larger values flatten the distribution."""
    top_k: Positive | None = None
    """Draw from this number of likeliest tokens; None: from all tokens."""
    top_p: Annotated[float, Range(0, 1, above=True)] = 1.0
    """Draw from the smallest set of likeliest tokens whose probability is at least this; 1: from all tokens."""
    seed: Annotated[int, Range(0)] = 0
    """The seed and the number of a row determine all draws of that row."""

    def __post_init__(self) -> None:
        check(self)
        for name, none in (("top_k", None), ("top_p", 1.0)):
            if self.temperature == 0.0 and (value := getattr(self, name)) != none:
                raise UserError(f"{name}={value}: it is for sampling: give a temperature too, 1 for the model's own")


GREEDY = Sampling()

LENGTH_PENALTY = 0.6
"""Default exponent α of the length penalty of a beam search (Wu et al. 2016, section 7)."""


def score_divisor(length: int, *, length_penalty: float) -> float:
    """``lp(y) = ((5 + length) / 6)^length_penalty``; the end token counts."""
    return ((5 + length) / 6) ** length_penalty


@dataclass(kw_only=True)
class Generated:
    """One generated sequence. ``token_scores`` and ``token_steps`` have one value more than ``tokens`` if it ended."""

    source_steps: list[float]
    """Depth steps of the encoder for each source position; empty without an encoder, and without depth."""
    tokens: list[int] = field(default_factory=list)
    """Token ids, without the end token."""
    finished: bool = False
    """Whether it ended with the end token; False for a sequence that was cut at its limit."""
    token_scores: list[float] = field(default_factory=list)
    """Log-probability of each token, and of the end token when ``finished``."""
    token_steps: list[float] = field(default_factory=list)
    """Depth steps that the decoder made to predict each of them; 0 for a model without depth."""
    text: str | None = None
    """The sequence as text, where the source was text."""
    length_penalty: float = 0.0
    """Exponent α of the length penalty of a beam search."""

    @property
    def score(self) -> float:
        """Natural logarithm of the probability that the model gives to the sequence: the sum of ``token_scores``."""
        return sum(self.token_scores)

    @property
    def penalised_score(self) -> float:
        """What sequences are ranked by: ``log p(y | x) / lp(y)``."""
        return self.score / score_divisor(len(self.token_scores), length_penalty=self.length_penalty)

    @property
    def steps(self) -> float:
        return sum(self.token_steps) / len(self.token_steps)
