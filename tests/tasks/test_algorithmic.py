import dataclasses
import json
import re
from collections import Counter

import numpy as np
import pytest

from universal_transformer.errors import UserError
from universal_transformer.tasks import Codec
from universal_transformer.tasks.algorithmic import AlgorithmicData
from universal_transformer.tasks.sides.listed import Symbols

SMALL = AlgorithmicData(
    train_lengths=(1, 12), test_lengths=(12, 30), train_examples=300, validation_examples=20, test_examples=15
)
VARIANTS = [
    dataclasses.replace(SMALL, problem=problem, base=base, least_significant_first=reverse)
    for problem, base, reverse in [
        *(("copy", 10, False), ("reverse", 10, False), ("reverse", 2, False), ("addition", 10, False)),
        *(("addition", 10, True), ("addition", 2, True), ("addition", 36, False)),
        *(("parity", 2, False), ("prefix-parity", 2, False), ("sorting", 10, False), ("sorting", 36, False)),
        *(("multiplication", 10, True), ("multiplication", 10, False), ("multiplication", 2, True)),
    ]
]
VARIANTS = [
    dataclasses.replace(data, train_lengths=(1, 20), test_lengths=(20, 30)) if data.base == 2 else data
    for data in VARIANTS
]
VARIANTS += [
    dataclasses.replace(SMALL, problem="addition", least_significant_first=True, similar_numbers=0.5),
    dataclasses.replace(SMALL, problem="addition", test_up_to=9),
]
ids = [
    f"{data.problem} {data.base} {data.least_significant_first} {data.similar_numbers} {data.test_up_to}"
    for data in VARIANTS
]


def expected(data, source):
    """The oracle: Python's own integers and lists."""
    if data.problem in ("addition", "multiplication"):
        numbers = source.split("+" if data.problem == "addition" else "*")
        assert all(number == "0" or number[0] != "0" for number in numbers)
        first, second = (int(number, data.base) for number in numbers)
        return np.base_repr(first + second if data.problem == "addition" else first * second, data.base).lower()
    ones = [source[: end + 1].count("1") % 2 for end in range(len(source))]
    return {
        "copy": source,
        "reverse": "".join(reversed(source)),
        "sorting": "".join(sorted(source)),
        "parity": str(ones[-1]),
        "prefix-parity": "".join(map(str, ones)),
    }[data.problem]


@pytest.mark.parametrize("data", VARIANTS, ids=ids)
def test_every_example_is_solved_and_ends(data):
    task = data.load()
    for example in [*task.train, *task.validation, *task.test["test"]]:
        source = task.codec.render(example.source)
        assert task.codec.render(example.target) == expected(data, source)
        (read,) = task.codec.read([(1, source)], name="f.txt")
        assert read.source == example.source
        assert example.target[-1] == 2
        assert example.target.count(2) == 1
        assert min(example.source) >= 4
        assert max(*example.source, *example.target) < task.codec.model_fields["vocabulary.size"]


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
    groups = len(data.test_lengths) * (2 if data.similar_numbers else 1) + (1 if data.test_up_to else 0)
    assert len(test) == data.test_examples * groups


def test_sources_are_held_out_where_training_would_draw_them_again():
    """Of 1,000 sources, 2,000 training examples draw most."""
    task = AlgorithmicData(
        problem="copy",
        train_lengths=(3, 3),
        test_lengths=(3,),
        train_examples=2000,
        validation_examples=20,
        test_examples=15,
    ).load()
    train = {example.source for example in task.train}
    validation = {example.source for example in task.validation}
    test = {example.source for example in task.test["test"]}
    assert len(train) > 800
    assert (train & validation, train & test, validation & test) == (set(), set(), set())


@pytest.mark.parametrize("data", VARIANTS, ids=ids)
def test_lengths_are_those_asked_for(data):
    task = data.load()
    shortest = 3 if data.problem in ("addition", "multiplication") else 1
    assert {len(example.source) for example in task.train} == set(range(shortest, data.train_lengths[1] + 1))
    kinds = ("", ", similar numbers") if data.similar_numbers else ("",)
    groups = {f"length {length}{kind}": length for kind in kinds for length in data.test_lengths}
    tests = [example for example in task.test["test"] if not example.group.startswith("length up to ")]
    assert {example.group for example in tests} == set(groups)
    for example in tests:
        assert len(example.source) == groups[example.group]
    assert max(len(example.source) for example in task.validation) <= data.train_lengths[1]


def test_a_test_of_all_lengths_has_each_as_often_from_the_first_with_enough_sources_and_changes_no_other():
    data = dataclasses.replace(SMALL, test_examples=500, test_up_to=40)
    tests = data.load().test["test"]
    lengths = Counter(len(example.source) for example in tests if example.group == "length up to 40")
    # 10 ** 5 sources of 5 symbols are the first that are ten for each of 1,520
    assert (min(lengths), max(lengths), lengths.total()) == (5, 40, 500)
    assert all(2 <= count <= 30 for count in lengths.values())  # 14 are expected
    without = dataclasses.replace(data, test_up_to=None).load().test["test"]
    assert [example for example in tests if example.group != "length up to 40"] == without


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
    assert Codec.load(tmp_path) == Codec.load(tmp_path) == codec


def test_a_model_reads_and_writes_numbers_from_their_last_digit_where_that_is_chosen(tmp_path):
    data = dataclasses.replace(SMALL, problem="addition", least_significant_first=True)
    codec = data.load().codec
    (example,) = codec.read([(1, "95+17")], name="f.txt")
    assert codec.words(example) == ["5", "9", "+", "7", "1"]
    assert example.source == dataclasses.replace(codec.source, operator="").encode("59+71")
    assert codec.render([4 + 2, 4 + 1, 4 + 1, 2]) == "112"
    assert codec.source.example("95+17", "112").target == (4 + 2, 4 + 1, 4 + 1, 2)
    for line in ("12+", "+", "1234", "1+2+3", "1++2"):
        with pytest.raises(UserError, match=rf"^f.txt:3: found '{re.escape(line)}'; expected two numbers with \+"):
            list(codec.read([(3, line)], name="f.txt"))
    with pytest.raises(UserError, match=r"found 'a'$"):  # the first of them, as it was typed
        list(codec.read([(3, "95+abc")], name="f.txt"))
    codec.save(tmp_path)
    assert Codec.load(tmp_path) == codec


def test_the_second_factor_has_the_digits_asked_for():
    data = dataclasses.replace(SMALL, problem="multiplication", factor_digits=3)
    task = data.load()
    for example in task.train:
        first, second = task.codec.render(example.source).split("*")
        assert (len(second), len(first)) == (3, len(example.source) - 4)
    with pytest.raises(UserError, match="multiplication needs a length of at least 5, found 4"):
        dataclasses.replace(data, test_lengths=(4,))


def same_places(source):
    """Return the places, from the last digit on, at which two numbers have the same digit, and the places of both."""
    first, second = source.split("+")
    pairs = list(zip(reversed(first), reversed(second), strict=False))
    return sum(one == other for one, other in pairs), len(pairs)


def test_similar_numbers_share_digits_at_their_places():
    data = dataclasses.replace(SMALL, problem="addition", base=10, similar_numbers=1.0, train_examples=1000)
    sources = [example.source for example in data.load().train]
    sources = [data.load().codec.render(source) for source in sources if len(source) == 12]
    equal, places = map(sum, zip(*map(same_places, sources), strict=True))
    # half of the places are copied, and of the others 0.29 are equal by chance: the mean of 1/k for k of 1 to 10
    assert 0.55 < equal / places < 0.75
    assert {len(source.split("+")[0]) for source in sources} == {5, 6}
    assert sum(same_places(source)[0] == 5 for source in sources) > len(sources) / 10, "all digits the same"


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0.08, 0.13), (0.5, 0.38, 0.5)])
def test_a_share_of_the_training_has_similar_numbers_and_the_tests_say_which_they_have(share, least, most):
    task = dataclasses.replace(SMALL, problem="addition", similar_numbers=share, train_examples=2000).load()

    def equal(examples):
        found = [same_places(task.codec.render(example.source)) for example in examples if len(example.source) >= 12]
        equal, places = map(sum, zip(*found, strict=True))
        return equal / places

    assert least < equal(task.train) < most
    assert equal(e for e in task.test["test"] if e.group == "length 30") < 0.2
    if share:
        assert equal(e for e in task.test["test"] if e.group == "length 30, similar numbers") > 0.5


def test_any_output_of_a_model_is_rendered():
    codec = Codec.shared(Symbols(symbols="01"))
    assert codec.render([5, 4, 3, 9, 2, 4]) == "10\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"


def test_a_broken_codec_is_refused(tmp_path):
    Codec.shared(Symbols(symbols="01")).save(tmp_path)
    fields = json.loads((tmp_path / "codec.json").read_text())
    (tmp_path / "codec.json").write_text(json.dumps({"source": {**fields["source"], "symbols": 3}, "target": None}))
    with pytest.raises(UserError, match=r"codec.json: source.symbols: expected text, found 3"):
        Codec.load(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"base": 1}, "data.base: expected a whole number, at least 2 and at most 36, found 1"),
        ({"train_lengths": (5, 4)}, r"train_lengths must be \(shortest, longest\) from 1 on, found \(5, 4\)"),
        (
            {"train_lengths": (0, 4)},
            r"train_lengths\[0\]: expected .*at least 1 and at most 100,000, found 0",
        ),
        ({"train_lengths": (1, 2)}, r"train_lengths ends too early \(2\) to hold 1300 sources out"),
        ({"problem": "addition", "test_up_to": 2}, "addition needs a length of at least 3, found 2"),
        ({"test_up_to": 3}, r"test_up_to ends too early \(3\) to hold 1500 sources out"),
        ({"test_lengths": ()}, r"test_lengths must be different lengths, found \(\)"),
        ({"test_lengths": (4, 4)}, r"test_lengths must be different lengths, found \(4, 4\)"),
        ({"test_lengths": (2,)}, "test length 2 is a training length with too few different sources"),
        ({"test_lengths": (0,)}, r"test_lengths\[0\]: expected .*at least 1 and at most 100,000, found 0"),
        ({"train_lengths": (1, 2**31)}, r"train_lengths\[1\]: expected .*at most 100,000, found 2147483648"),
        ({"problem": "addition", "test_lengths": (2,)}, "addition needs a length of at least 3, found 2"),
        ({"problem": "addition", "train_lengths": (1, 2)}, "addition needs a length of at least 3, found 2"),
        ({"train_examples": 0}, "data.train_examples: expected a whole number, at least 1, found 0"),
        ({"least_significant_first": True}, "is for numbers, found the problem 'copy'"),
        ({"factor_digits": 2}, "factor_digits is for multiplication, found the problem 'copy'"),
        ({"similar_numbers": 0.5}, "similar_numbers is for addition, found the problem 'copy'"),
        ({"problem": "addition", "similar_numbers": 2.0}, "data.similar_numbers: expected"),
        ({"problem": "parity"}, "parity is of binary digits: base must be 2, found 10"),
        ({"seed": -1}, "data.seed: expected a whole number, at least 0, found -1"),
    ],
)
def test_fields_that_cannot_work_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        AlgorithmicData(**fields)


def test_a_problem_that_does_not_exist_is_refused():
    with pytest.raises((UserError, TypeError), match="sort"):  # TypeError: the tests' type checker was faster
        AlgorithmicData(problem="sort")
