import pytest

from universal_transformer import members
from universal_transformer.members import Members


@pytest.fixture
def kinds(monkeypatch):
    kinds = Members({"own": 1})
    monkeypatch.setattr(members, "OTHERS", [lambda: kinds.update(other=2)])
    return kinds


def test_what_the_library_has_needs_nothing_beside_it(kinds):
    assert kinds["own"] == 1
    assert "own" in kinds
    assert members.OTHERS


@pytest.mark.parametrize("ask", [lambda kinds: kinds["other"], lambda kinds: "other" in kinds, list, dict, sorted])
def test_others_are_entered_once_they_may_be_meant(kinds, ask):
    assert ask(kinds)
    assert dict(kinds) == {"own": 1, "other": 2}
    assert not members.OTHERS


def test_a_name_that_nobody_enters_is_missing(kinds):
    assert "third" not in kinds
    with pytest.raises(KeyError):
        kinds["third"]
