"""Systematic damage to JSON: every value dropped, and replaced by values of every other type."""

import copy
from collections.abc import Iterator
from typing import Any

WRONG = (None, True, -1, 1.5, 10**30, "x", [], {}, [1], {"x": 1})


def places(value: Any) -> Iterator[tuple[str | int, ...]]:
    """Yield the keys and indices that lead to every value inside an object or a list."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in items:
        yield (key,)
        yield from ((key, *rest) for rest in places(inside))


def at(value: Any, place: tuple[str | int, ...]) -> Any:
    """Return the value at a place."""
    for key in place:
        value = value[key]
    return value


def damages(value: Any) -> Iterator[tuple[tuple[str | int, ...], str, Any]]:
    """Yield place, kind of damage and damaged copy: each value dropped, each replaced by every one of `WRONG`.

    A replacement that is equal to the value and of its type is left out.
    """
    for place in places(value):
        broken = copy.deepcopy(value)
        del at(broken, place[:-1])[place[-1]]
        yield place, "dropped", broken
        for wrong in WRONG:
            if type(at(value, place)) is type(wrong) and at(value, place) == wrong:
                continue
            broken = copy.deepcopy(value)
            at(broken, place[:-1])[place[-1]] = wrong
            yield place, repr(wrong), broken
