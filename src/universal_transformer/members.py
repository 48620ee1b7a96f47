"""Registries of the members of a kind, which are completed when they are asked for more than the library has."""

from collections import UserDict
from collections.abc import Callable, Iterator
from typing import TypeVar

Member = TypeVar("Member")

OTHERS: list[Callable[[], object]] = []
"""Functions that enter members of a clone, which the library lacks; each is called once, when one may be meant."""


def enter_others() -> bool:
    """Call what enters further members, and return whether there was any."""
    waiting = bool(OTHERS)
    while OTHERS:
        OTHERS.pop()()
    return waiting


class Members(UserDict[str, Member]):
    """Name -> member. A name that it lacks may be that of another member, and a list of the names has all of them."""

    def __missing__(self, name: str) -> Member:
        if not enter_others():
            raise KeyError(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self.data or (enter_others() and name in self.data)

    def __iter__(self) -> Iterator[str]:
        enter_others()
        return iter(self.data)
