import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.errors import UserError
from universal_transformer.tasks import Codec, load_codec
from universal_transformer.tasks.algorithmic import DIGITS, AlgorithmicData, CharacterCodec, add, solve

SMALL = AlgorithmicData(
    train_lengths=(1, 12), test_lengths=(12, 30), train_examples=300, validation_examples=20, test_examples=15
)
VARIANTS = [
    dataclasses.replace(SMALL, problem=problem, base=base, least_significant_first=reverse)
    for problem, base, reverse in [
        *(("copy", 10, False), ("reverse", 10, False), ("reverse", 2, False), ("addition", 10, False)),
        *(("addition", 10, True), ("addition", 2, True), ("addition", 36, False)),
    ]
]
VARIANTS = [
    dataclasses.replace(data, train_lengths=(1, 20), test_lengths=(20, 30)) if data.base == 2 else data
    for data in VARIANTS
]
ids = [f"{data.problem} {data.base} {data.least_significant_first}" for data in VARIANTS]


@given(first=st.integers(0, 10**30), second=st.integers(0, 10**9))
def test_addition_digit_by_digit_is_addition(first, second):
    assert add(str(first), str(second)) == str(first + second)
    assert add(f"{second:b}", f"{first:b}", base=2) == f"{first + second:b}"
    assert add(f"{first:x}", f"{second:x}", base=16) == f"{first + second:x}"


def test_numbers_longer_than_python_prints():
    assert add("9" * 6000, "1") == "1" + "0" * 6000


def test_hand_made_solutions():
    assert solve("4071", problem="copy") == "4071"
    assert solve("4071", problem="reverse") == "1704"
    assert solve("95+17", problem="addition") == "112"
    assert solve("59+71", problem="addition", least_significant_first=True) == "211"
    assert solve("0+0", problem="addition", least_significant_first=True) == "0"


def expected(data, source):
    """The oracle: Python's own integers."""
    if data.problem != "addition":
        return source if data.problem == "copy" else "".join(reversed(source))
    numbers = source.split("+")
    if data.least_significant_first:
        numbers = [number[::-1] for number in numbers]
    assert all(number == "0" or number[0] != "0" for number in numbers)
    total, digits = sum(int(number, data.base) for number in numbers), ""
    while total or not digits:
        total, digit = divmod(total, data.base)
        digits += DIGITS[digit]
    return digits if data.least_significant_first else digits[::-1]


@pytest.mark.parametrize("data", VARIANTS, ids=ids)
def test_every_example_is_solved_and_ends(data):
    task = data.load()
    for example in [*task.train, *task.validation, *task.test["test"]]:
        source = task.codec.render(example.source)
        assert task.codec.render(example.target) == expected(data, source)
        assert example.target[-1] == 2
        assert example.target.count(2) == 1
        assert min(example.source) >= 4
        assert max(*example.source, *example.target) < task.model_fields["vocabulary.size"]


@pytest.mark.parametrize("data", VARIANTS, ids=ids)
def test_training_validation_and_test_share_no_source(data):
    task = data.load()
    train = {example.source for example in task.train}
    validation = {example.source for example in task.validation}
    test = {example.source for example in task.test["test"]}
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert len(validation) == data.validation_examples
    assert len(test) == data.test_examples * len(data.test_lengths)


@pytest.mark.parametrize("data", VARIANTS, ids=ids)
def test_lengths_are_those_asked_for(data):
    task = data.load()
    shortest = 3 if data.problem == "addition" else 1
    assert {len(example.source) for example in task.train} == set(range(shortest, data.train_lengths[1] + 1))
    assert {example.group for example in task.test["test"]} == {f"length {length}" for length in data.test_lengths}
    for example in task.test["test"]:
        assert example.group == f"length {len(example.source)}"
    assert max(len(example.source) for example in task.validation) <= data.train_lengths[1]


def test_a_training_example_depends_on_seed_and_index_alone():
    task, again = SMALL.load(), SMALL.load()
    assert again.train[299] == task.train[-1]
    assert again.train[10:13] == [task.train[10], task.train[11], task.train[12]]
    assert list(task.train) == list(again.train)
    assert (task.validation, task.test) == (again.validation, again.test)
    other = dataclasses.replace(SMALL, seed=1).load()
    assert other.train[5] != task.train[5]
    assert other.test != task.test
    with pytest.raises(IndexError):
        task.train[300]


def test_more_training_examples_change_no_other():
    more = dataclasses.replace(SMALL, train_examples=400).load()
    assert list(more.train)[:300] == list(SMALL.load().train)


def test_short_test_lengths_outside_the_training_lengths_need_few_sources():
    task = dataclasses.replace(SMALL, train_lengths=(8, 12), test_lengths=(1,)).load()
    assert len(task.test["test"]) == 15


def test_notes_of_the_task():
    assert dataclasses.replace(SMALL, problem="addition", least_significant_first=True).load().notes == (
        "least significant digit first",
    )
    assert SMALL.load().notes == ()


def test_reading_lines_for_prediction(tmp_path):
    codec = SMALL.load().codec
    assert isinstance(codec, Codec)
    examples = list(codec.read([(1, " 123 "), (2, ""), (3, "9")], name="f.txt"))
    assert [codec.render(example.source) for example in examples] == ["123", "9"]
    assert [example.target for example in examples] == [(), ()]
    assert codec.words(examples[0]) == ["1", "2", "3"]
    with pytest.raises(UserError, match=r"^f.txt:7: expected symbols out of '0123456789', found '\+'$"):
        list(codec.read([(7, "1+2")], name="f.txt"))
    codec.save(tmp_path)
    assert CharacterCodec.load(tmp_path) == load_codec(tmp_path) == codec


def test_any_output_of_a_model_is_rendered():
    codec = CharacterCodec(symbols="01")
    assert codec.render([5, 4, 3, 9, 2, 4]) == "10\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"


def test_a_broken_codec_is_refused(tmp_path):
    (tmp_path / "codec.json").write_text('{"kind": "characters", "symbols": 3}')
    with pytest.raises(UserError, match=r"codec.json: symbols: expected text, found 3"):
        load_codec(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"base": 1}, "data.base: expected a whole number, at least 2 and at most 36, found 1"),
        ({"train_lengths": (5, 4)}, r"train_lengths must be \(shortest, longest\) from 1 on, found \(5, 4\)"),
        ({"train_lengths": (0, 4)}, r"train_lengths must be .* found \(0, 4\)"),
        ({"train_lengths": (1, 2)}, r"train_lengths end too early \(2\) to hold 1300 sources out"),
        ({"test_lengths": ()}, r"test_lengths must be different lengths, found \(\)"),
        ({"test_lengths": (4, 4)}, r"test_lengths must be different lengths, found \(4, 4\)"),
        ({"test_lengths": (2,)}, "test length 2 is a training length with too few different sources"),
        ({"test_lengths": (0,)}, "copy needs a length of at least 1, found 0"),
        ({"problem": "addition", "test_lengths": (2,)}, "addition needs a length of at least 3, found 2"),
        ({"problem": "addition", "train_lengths": (1, 2)}, "addition needs a length of at least 3, found 2"),
        ({"train_examples": 0}, "data.train_examples: expected a whole number, at least 1, found 0"),
        ({"least_significant_first": True}, "is for addition, found the problem 'copy'"),
        ({"seed": -1}, "data.seed: expected a whole number, at least 0, found -1"),
    ],
)
def test_fields_that_cannot_work_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        AlgorithmicData(**fields)


def test_a_problem_that_does_not_exist_is_refused():
    with pytest.raises((UserError, TypeError), match="sort"):  # TypeError: the tests' type checker was faster
        AlgorithmicData(problem="sort")
