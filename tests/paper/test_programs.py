"""Programs are executed by Python itself: whatever they say, their values are what it computes."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.tasks.programs import (
    EXPRESSION_SYMBOLS,
    KINDS,
    LINES_SYMBOLS,
    Arithmetic,
    Conditional,
    Loop,
    Program,
    draw,
    literal,
)
from python_oracle import execute_expression, execute_lines

programs = given(
    seed=st.integers(0, 2**32),
    problem=st.sampled_from(sorted(KINDS)),
    length=st.integers(1, 12),
    nesting=st.integers(1, 6),
)


@programs
def test_both_forms_compute_the_value(seed, problem, length, nesting):
    program = draw(Random(seed), problem=problem, length=length, nesting=nesting)
    assert execute_expression(program.expression) == program.value
    assert execute_lines(program.lines(Random(seed))) == program.value


@programs
def test_literals_nesting_and_alphabet_are_those_asked_for(seed, problem, length, nesting):
    program = draw(Random(seed), problem=problem, length=length, nesting=nesting)
    assert len(program.operations) == nesting
    assert program.expression.count("(") == program.expression.count(")") == nesting - 1
    lines = program.lines(Random(seed))
    assert lines.count("\n") <= 2 * nesting
    for text, symbols, rounds in (
        (program.expression, EXPRESSION_SYMBOLS, r"for\[(\d+)\]"),
        (lines, LINES_SYMBOLS + "\n", r"range\((\d+)\)"),
    ):
        assert set(text) <= set(symbols)
        assert all(1 <= int(k) <= 9 for k in re.findall(rounds, text))
        literals = re.findall(r"\d+", re.sub(rounds, "", text))
        assert {len(number) for number in literals} == {length}
        assert not any(number.startswith("0") for number in literals)
        signs = set(re.sub(rounds + r"|\+=", "", text)) & set("+-*")
        assert signs <= {"program": set("+-*"), "control": set(), "addition": {"+"}}[problem]
        assert problem != "addition" or not set("xi<") & set(program.expression)


@given(length=st.integers(1, 30), seed=st.integers(0, 2**32))
def test_a_literal_has_its_digits(length, seed):
    assert 10 ** (length - 1) <= literal(Random(seed), length=length) <= 10**length - 1


def test_literals_are_uniform_up_to_both_ends():
    random = Random(0)
    counts = [0] * 10
    for _ in range(9000):
        counts[literal(random, length=1)] += 1
    assert counts[0] == 0
    assert all(abs(count - 1000) < 150 for count in counts[1:])


@pytest.mark.parametrize("problem", KINDS)
def test_all_operations_of_a_problem_are_equally_frequent(problem):
    random, counts = Random(1), dict.fromkeys(KINDS[problem], 0)
    rounds, comparisons = set(), set()
    for _ in range(2000):
        for operation in draw(random, problem=problem, length=2, nesting=2).operations:
            match operation:
                case Arithmetic(sign):
                    counts[sign] += 1
                case Conditional(_, comparison):
                    comparisons.add(comparison)
                    counts["conditional"] += 1
                case Loop(times):
                    rounds.add(times)
                    counts["loop"] += 1
    expected = 4000 / len(counts)
    assert all(abs(count - expected) < 0.15 * expected for count in counts.values())
    if problem != "addition":
        assert rounds == set(range(1, 10))
        assert comparisons == {"<", ">"}


def test_hand_made_programs():
    program = Program(37, (Conditional(41, ">", 78, 66), Arithmetic("*", 52), Loop(4, 10)))
    assert program.value == 66 * 52 + 40
    assert program.expression == "x=((37 if 41>78 else 66)*52) for[4] x+=10"
    assert Program(12, (Loop(3, 45), Arithmetic("-", 99))).expression == "(x=12 for[3] x+=45)-99"
    written = {Program(37, (Arithmetic("+", 52), Loop(4, 10))).lines(Random(seed)) for seed in range(200)}
    shapes = {re.sub(r"\b[a-z]\b", "v", text) for text in written}
    assert shapes == {
        "v=(37+52)\nfor v in range(4):v+=10\nprint(v)",
        "v=37\nv=(v+52)\nfor v in range(4):v+=10\nprint(v)",
    }
    assert not any(text.startswith("x") for text in written)
