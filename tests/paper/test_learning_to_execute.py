import dataclasses
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.tasks import LearningToExecuteData
from paper.tasks.programs import KINDS
from python_oracle import execute_expression, execute_lines
from universal_transformer.errors import UserError
from universal_transformer.tasks import Codec

SMALL = LearningToExecuteData(train_examples=300, validation_examples=20, test_examples=30)
MEMORY = [dataclasses.replace(SMALL, problem=problem) for problem in ("copy", "double", "reverse")]
PROGRAMS = [
    dataclasses.replace(SMALL, problem=problem, form=form)
    for problem in ("program", "control", "addition")
    for form in ("expression", "lines")
]


def over(members):
    return pytest.mark.parametrize("data", members, ids=lambda data: f"{data.problem} {data.form}")


every = over([*MEMORY, *PROGRAMS])
every_program = over(PROGRAMS)
with_loops = over([data for data in PROGRAMS if "loop" in KINDS[data.problem]])
without_loops = over([data for data in [*MEMORY, *PROGRAMS] if "loop" not in KINDS.get(data.problem, ())])


def expected(data, source):
    """The oracle: Python's strings, and Python itself."""
    if data.problem == "copy":
        return source
    if data.problem == "double":
        return source * 2
    if data.problem == "reverse":
        return "".join(reversed(source))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lines = data.form == "lines"
        value = execute_lines(source.replace("|", "\n")) if lines else execute_expression(source)
    return str(value % 10 ** (digits(source) + 1))


def digits(source):
    """Digits of the literals: the longest run of them, as every program has one literal or more."""
    runs = "".join(letter if letter.isdigit() else " " for letter in source).split()
    return max(map(len, runs))


@pytest.mark.claim("table 5", "table 6")
@every
def test_every_target_is_what_python_computes(data):
    task = data.load()
    for example in [*task.train, *task.validation, *task.test["test"]]:
        source, target = task.codec.render(example.source), task.codec.render(example.target)
        assert target == expected(data, source)
        assert target.isdigit()
        assert example.target[-1] == 2
        assert example.target.count(2) == 1
        if data.runs:
            assert 0 <= int(target) < 10 ** (digits(source) + 1)
            assert target == str(int(target))
        assert min(example.source) >= 4
        assert max(*example.source, *example.target) < task.codec.model_fields["vocabulary.size"]


@every
def test_training_mixes_lengths_and_nestings_and_tests_have_the_largest(data):
    task = data.load()
    longest = 5 if data.runs else 55
    lengths = {digits(task.codec.render(example.source)) for example in task.train}
    assert max(lengths) == longest == data.length
    assert len(lengths) > 0.9 * longest
    for example in [*task.validation, *task.test["test"]]:
        assert digits(task.codec.render(example.source)) == longest
    if data.runs and data.form == "expression":
        nested = ["(" in task.codec.render(example.source) for example in task.train]
        assert 0.4 < sum(nested) / len(nested) < 0.6
        assert all("(" in task.codec.render(example.source) for example in task.test["test"])


MARKS = {"conditional": " if ", "loop": " for[", "sum": "+", "difference": "-", "product": "*"}


@every
def test_figures_are_grouped_by_the_operations_of_programs_and_the_length_of_numbers(data):
    task = dataclasses.replace(data, form="expression", test_examples=400).load()
    for example in task.test["test"]:
        if not data.runs:
            assert example.group == "length 55"
            continue
        inner, outer = re.fullmatch(r"(?:x=)?\((.*)\)(.*)", task.codec.render(example.source)).groups()
        found = [next(name for name, mark in MARKS.items() if mark in text) for text in (inner, outer)]
        assert example.group == ", then ".join(found)
    if data.runs:
        kinds = {"program": 5, "control": 2, "addition": 1}[data.problem]
        assert len({example.group for example in task.test["test"]}) == kinds**2


@every_program
def test_both_forms_of_a_program_have_the_same_group(data):
    forms = [dataclasses.replace(data, form=form).load().test["test"] for form in ("expression", "lines")]
    expressions, lines = ([example.group for example in examples] for examples in forms)
    assert expressions == lines


@every
def test_the_baseline_strategy_trains_on_the_largest_alone(data):
    task = dataclasses.replace(data, strategy="baseline").load()
    assert {digits(task.codec.render(example.source)) for example in task.train} == {data.length}


@every
def test_the_strategy_of_lengths_trains_on_all_lengths_of_the_largest_nesting(data):
    task = dataclasses.replace(data, strategy="lengths", max_nesting=2).load()
    sources = [task.codec.render(example.source) for example in task.train]
    assert len({digits(source) for source in sources}) > 0.9 * data.length
    if data.runs and data.form == "expression":
        assert all("(" in source for source in sources)


@without_loops
@pytest.mark.parametrize("strategy", ["rounds", "loops"])
def test_the_strategies_of_loops_are_refused_for_problems_without_loops(data, strategy):
    with pytest.raises(UserError, match=f"strategy {strategy} is for programs with loops"):
        dataclasses.replace(data, strategy=strategy)


@with_loops
def test_the_strategy_of_loops_is_the_baseline_with_more_loops(data):
    baseline, loops = (dataclasses.replace(data, strategy=strategy).load() for strategy in ("baseline", "loops"))
    assert [one.source for one in loops.validation] == [one.source for one in baseline.validation]
    few, many = ([task.codec.render(example.source) for example in task.train] for task in (baseline, loops))
    assert {digits(source) for source in many} == {data.length}
    assert sum(source.count("for") for source in many) > 1.2 * sum(source.count("for") for source in few)


@with_loops
def test_the_strategy_of_rounds_begins_with_loops_of_one_round(data):
    task = dataclasses.replace(data, strategy="rounds", form="expression").load()
    mixed = dataclasses.replace(data, form="expression").load()

    def rounds(examples):
        return [int(found) for one in examples for found in re.findall(r"for\[(\d)\]", task.codec.render(one.source))]

    assert rounds(task.validation) == rounds(mixed.validation)
    assert len(rounds(task.train)) > 1.2 * len(rounds(mixed.train))
    for level in (1, 2, 9):
        assert {*rounds(task.train.at(level))} == {*range(1, level + 1)}
    assert [*task.train] == [*task.train.at(9)]


@every
def test_training_validation_and_test_share_nothing(data):
    small = dataclasses.replace(data, max_length=1 if data.runs else 4, strategy="baseline")
    small = dataclasses.replace(small, train_examples=3000, max_nesting=3)
    task = small.load()
    train, validation, test = (
        {canonical(task.codec.render(example.source)) for example in examples}
        for examples in (task.train, task.validation, task.test["test"])
    )
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert (len(validation), len(test)) == (20, 30)


def canonical(source):
    """The same for two ways of writing one program as lines: its names replaced by what they stand for."""
    text, values = source, {}
    for line in source.split("|"):
        name, equals, value = line.partition("=")
        if equals and len(name) == 1:
            values[name] = value
            text = text.replace(f"{line}|", "", 1)
    for name in reversed(values):
        text = "".join(values[name] if letter == name else letter for letter in text)
    return text


@given(
    seed=st.integers(0, 1000),
    index=st.integers(0, 299),
    problem=st.sampled_from(["program", "control", "addition", "copy", "double", "reverse"]),
)
def test_an_example_depends_on_seed_and_index_alone(seed, index, problem):
    data = dataclasses.replace(SMALL, seed=seed, problem=problem, test_examples=2, validation_examples=1)
    task, more = data.load(), dataclasses.replace(data, train_examples=400).load()
    assert task.train[index] == data.load().train[index - 300] == more.train[index]
    assert task.test == more.test
    assert task.validation == more.validation
    other = dataclasses.replace(data, seed=seed + 1).load()
    assert other.test != task.test


@pytest.mark.parametrize("problem", ["program", "control", "addition"])
def test_both_forms_ask_for_the_same_values(problem):
    one, two = (dataclasses.replace(SMALL, problem=problem, form=f).load() for f in ("expression", "lines"))
    for left, right in zip([*one.train, *one.test["test"]], [*two.train, *two.test["test"]], strict=True):
        assert one.codec.render(left.target) == two.codec.render(right.target)


def test_notes_of_the_task():
    assert dataclasses.replace(SMALL, form="lines").load().notes == ("programs written as lines of Python",)
    assert SMALL.load().notes == ()


def test_programs_can_be_typed_in(tmp_path):
    codec = dataclasses.replace(SMALL, form="lines").load().codec
    text = "j=85|for x in range(8):j+=92|print((j-10) if 2>1 else 7)"
    (example,) = codec.read([(1, f"{text}\n")], name="f.txt")
    assert codec.render(example.source) == text
    codec.save(tmp_path)
    assert Codec.load(tmp_path) == Codec.load(tmp_path) == codec
    with pytest.raises(UserError, match=r"^f.txt:3: expected symbols out of '.*', found '/'$"):
        list(codec.read([(3, "4/2")], name="f.txt"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"problem": "copy", "form": "lines"}, "form lines is for programs, found the problem 'copy'"),
        (
            {"max_length": -1},
            "data.max_length: expected a whole number, at least 0 and at most 1,000, found -1",
        ),
        ({"max_length": 1001}, "data.max_length: expected .* at most 1,000, found 1001"),
        ({"max_nesting": 0}, "data.max_nesting: expected a whole number, at least 1 and at most 25, found 0"),
        ({"max_nesting": 26}, "data.max_nesting: expected .* at most 25, found 26"),
        ({"test_examples": 0}, "data.test_examples: expected a whole number, at least 1, found 0"),
        ({"seed": -1}, "data.seed: expected a whole number, at least 0, found -1"),
        ({"problem": "copy", "max_length": 4}, "max_length 4 leaves too few different sources to hold 1500"),
        ({"max_length": 1, "max_nesting": 1}, "max_length 1 leaves too few different sources"),
    ],
)
def test_fields_that_cannot_work_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        LearningToExecuteData(**fields)


@pytest.mark.parametrize("field", ["problem", "form", "strategy"])
def test_names_that_do_not_exist_are_refused(field):
    with pytest.raises((UserError, TypeError), match="sort"):  # TypeError: the tests' type checker was faster
        LearningToExecuteData(**{field: "sort"})
