import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.tasks.digits import PROBLEMS, add, multiply, solve


@given(first=st.integers(0, 10**30), second=st.integers(0, 10**9))
def test_digit_by_digit_is_the_sum_and_the_product(first, second):
    assert add(str(first), str(second)) == str(first + second)
    assert add(f"{second:b}", f"{first:b}", base=2) == f"{first + second:b}"
    assert add(f"{first:x}", f"{second:x}", base=16) == f"{first + second:x}"
    assert multiply(str(first), str(second)) == str(first * second)
    assert multiply(f"{second:b}", f"{first:b}", base=2) == f"{first * second:b}"
    assert multiply(f"{first:x}", f"{second:x}", base=16) == f"{first * second:x}"


def test_numbers_longer_than_python_prints():
    assert add("9" * 6000, "1") == "1" + "0" * 6000
    assert multiply("9" * 6000, "9") == "8" + "9" * 5999 + "1"


@pytest.mark.parametrize(
    ("problem", "source", "answer"),
    [
        ("copy", "4071", "4071"),
        ("reverse", "4071", "1704"),
        ("sorting", "40710", "00147"),
        ("parity", "0111", "1"),
        ("prefix-parity", "0111", "0101"),
        ("addition", "95+17", "112"),
        ("addition", "0+0", "0"),
        ("multiplication", "95*7", "665"),
        ("multiplication", "95*0", "0"),
    ],
)
def test_solutions_made_by_hand(problem, source, answer):
    assert solve(source, problem=problem) == answer
    assert problem in PROBLEMS
