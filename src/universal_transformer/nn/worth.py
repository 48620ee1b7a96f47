"""When leaving out halted positions, or computing norms again, is worth its operations: measured, not derived.

Nothing here changes a number, only which of two ways to it is taken.
"""

from typing import Literal

Form = Literal["auto", "masked", "flex"]
"""Whether halted positions are left out where that pays, or never; ``flex``: where it pays, and a GPU then attends with
FlexAttention (``nn/flex.py``) rather than pads sequences to the one with most running positions. Not measured on a GPU
yet (``ut bench gpu`` compares), so that ``auto`` pads."""

COMPACT_BELOW = 0.75
"""Share of running positions under which halted ones are left out; above, moving rows costs what it saves."""
INFER_BELOW = 0.95
"""The same where neither gradients nor a cache are kept."""
RENEWED_BELOW = 0.85
"""The same again where halted positions differ from step to step (pre-norm), which costs about a tenth of a step."""
WORTH = 2**17
"""And the least of halted positions times squared width: below, a step costs what starting its operations costs."""
DEARER = 4
"""As many times as much where gradients are kept, and where halted positions differ from step to step (pre-norm)."""

RECALLS = 256
"""Width from which norms, sums and choices of rows are made again on the way back: products are then far dearer."""


def pays(running: int, *, positions: int, width: int, learns: bool, plain: bool, renews: bool) -> bool:
    """Whether leaving out all but ``running`` of ``positions`` saves more than it costs.

    ``learns``: gradients are kept. ``plain``: neither they nor a cache are, and each position decides for itself.
    ``renews``: halted positions differ from step to step.
    """
    below = COMPACT_BELOW
    if plain:
        below = RENEWED_BELOW if renews else INFER_BELOW
    least = WORTH * DEARER ** (int(renews) + int(learns))
    return 0 < running < below * positions and (positions - running) * width**2 >= least


def recalls(width: int) -> bool:
    """Whether states of ``width`` are wide enough to compute again on the way back what is no product."""
    return width >= RECALLS
