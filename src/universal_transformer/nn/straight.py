"""Computing without looking at what is computed: what transforms such as ``torch.func.vmap`` ask for.

Models look at their data here and there to save work: is there any padding, does any position still run. Inside
`straight` they do not: they make every step and mask what halted or is padding, which gives the same numbers. Ids are
not checked, and padding stands on the right (``data.batch.collate`` puts it there).
"""

from collections.abc import Iterator
from contextlib import contextmanager

_STATE = {"straight": False}


@contextmanager
def straight() -> Iterator[None]:
    """Inside, what is computed depends on shapes alone."""
    before = _STATE["straight"]
    _STATE["straight"] = True
    try:
        yield
    finally:
        _STATE["straight"] = before


def is_straight() -> bool:
    """Whether data must not be looked at."""
    return _STATE["straight"]
