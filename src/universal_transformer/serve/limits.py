"""How much a server does at a time. Needs no torch."""

from dataclasses import dataclass
from typing import Annotated

from universal_transformer.typed import Positive, Range


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes and times that requests share; ``ut serve`` has them as options."""

    rows: Positive = 32
    """Sequences that are continued together."""
    capacity: Positive = 512
    """Positions of a sequence: prompt and new tokens."""
    prefill: Positive = 2048
    """Positions of new inputs that are computed in one go, while the other sequences wait, unless one input is
    longer."""
    longest: Positive = 2048
    """Tokens of the longest input."""
    queue: Positive = 64
    """Answers that may wait; further requests get status 503."""
    seconds: Annotated[float, Range(0, above=True)] = 300.0
    """The longest time of a request, and of the requests that are answered after a signal to end."""
