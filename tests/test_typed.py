"""JSON values to values of a type: what was written is read back, and all else is refused at its place."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.errors import UserError
from universal_transformer.typed import check_names, typed


@dataclasses.dataclass(frozen=True)
class Inner:
    side: Literal["left", "right"]
    size: int


@dataclasses.dataclass(frozen=True)
class Outer:
    name: str | None
    share: float
    pair: tuple[float, float]
    parts: tuple[Inner, ...]
    words: list[str]
    scores: dict[str, int | str]
    anything: Any
    done: bool
    derived: int = dataclasses.field(init=False, default=0)


inner = st.builds(Inner, side=st.sampled_from(["left", "right"]), size=st.integers())
numbers = st.floats(allow_nan=False, allow_infinity=False)
outer = st.builds(
    Outer,
    name=st.none() | st.text(),
    share=numbers,
    pair=st.tuples(numbers, numbers),
    parts=st.lists(inner, max_size=3).map(tuple),
    words=st.lists(st.text(), max_size=3),
    scores=st.dictionaries(st.text(), st.integers() | st.text(), max_size=3),
    anything=st.none() | st.integers() | st.lists(st.booleans(), max_size=2),
    done=st.booleans(),
)
ONE = Outer(None, 1.0, (0.5, 2.0), (Inner("left", 3),), ["a"], {"b": 1}, None, True)


def as_json(value: Outer) -> dict[str, Any]:
    fields = dataclasses.asdict(value)
    del fields["derived"]
    found: dict[str, Any] = json.loads(json.dumps(fields))
    return found


@given(outer)
def test_what_was_written_is_read_back(value):
    assert typed(as_json(value), Outer, where="file") == value


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", 1, "file: name: expected text or None, found 1"),
        ("share", "1", "file: share: expected a number, found '1'"),
        ("share", True, "file: share: expected a number, found True"),
        ("share", 10**400, "file: share: expected a number, found 1000"),
        ("pair", [1.0], "file: pair: expected 2 values"),
        ("pair", [1.0, None], "file: pair[1]: expected a number, found None"),
        ("parts", [{"side": "left"}], "file: parts[0]: missing: size; fields: side, size"),
        (
            "parts",
            [{"side": "up", "size": 1}],
            "file: parts[0].side: expected one of left, right, found 'up'",
        ),
        ("parts", [{"side": "left", "size": 1.0}], "file: parts[0].size: expected a whole number, found 1.0"),
        ("parts", [7], "file: parts[0]: expected an object, found 7"),
        ("parts", {}, "file: parts: expected one or more values"),
        ("words", "ab", "file: words: expected a list"),
        ("scores", {"a": None}, "file: scores.a: expected a whole number or text, found None"),
        ("done", 1, "file: done: expected true or false, found 1"),
        ("derived", 1, "file: unknown: derived; fields: "),
        ("two\nlines", 1, r"file: unknown: 'two\nlines'; fields: "),
    ],
)
def test_what_is_of_another_type_is_refused_at_its_place(field, value, message):
    with pytest.raises(UserError) as caught:
        typed({**as_json(ONE), field: value}, Outer, where="file")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_whole_number_becomes_a_float_and_a_text_a_path():
    assert repr(typed(3, float, where="file")) == "3.0"
    assert typed("a/b", Path, where="file") == Path("a/b")


def test_of_many_fields_only_the_wrong_ones_are_listed():
    names = set("abcdefghijklmnop")
    with pytest.raises(UserError, match=r"^file: part: missing: a, b; written by another version\?$"):
        check_names(dict.fromkeys("cdefghijklmnop"), expected=names, where="file", field="part")
