import os
from collections import Counter
from pathlib import Path

import pytest

from universal_transformer.data.story_lines import parse
from universal_transformer.errors import UserError
from universal_transformer.files import read_lines
from universal_transformer.tasks.babi import TASK_NAMES, BabiData

REAL = os.environ.get("UT_DATA") or str(Path(__file__).parents[2] / "../shared/data")
needs_real_files = pytest.mark.skipif(
    not (Path(REAL) / "babi").is_dir(), reason=f"no bAbI files in {REAL}; name their folder with UT_DATA"
)


def story(person, place):
    lines = [
        f"1 {person} went to the {place}.",
        f"2 {person} sat down.",
        f"3 Where is {person}? \t{place}\t1",
    ]
    return [*lines, f"4 {person} stood up.", f"5 Where is {person}?\t{place}\t1"]


@pytest.fixture
def folder(tmp_path):
    """A data folder with made-up files for tasks 1 and 4: 20 training stories each, 2 test stories."""
    for size in ("en", "en-10k"):
        files = tmp_path / "babi" / "tasks_1-20_v1-2" / size
        files.mkdir(parents=True)
        for number in (1, 4):
            for part, count in (("train", 20), ("test", 2)):
                lines = [line for index in range(count) for line in story("Ada", ["mill", "barn", "yard"][index % 3])]
                text = "\n".join(lines) + "\n"
                (files / f"qa{number}_{TASK_NAMES[number]}_{part}.txt").write_text(text)
    return tmp_path


def test_the_last_tenth_of_the_training_stories_validates(folder):
    task = BabiData(task="1", data_dir=str(folder)).load()
    assert (len(task.train), len(task.validation), len(task.test["test"])) == (36, 4, 4)
    answers = [task.codec.render(example.target) for example in task.validation]
    assert answers == ["mill", "mill", "barn", "barn"]  # stories 18 and 19 of 0 to 19
    assert task.train[1].supports == (0,)
    assert task.codec.words(task.train[1]) == [
        "ada went to the mill",
        "ada sat down",
        "ada stood up",
        "where is ada",
    ]
    assert (task.metric, task.notes, task.name) == ("error", (), "babi 10k task 1")
    assert {example.group for example in task.train} == {"task 1 single-supporting-fact"}
    assert len(BabiData(task="1", data_dir=str(folder), validation=0.5).load().train) == 20


def test_several_tasks_share_vocabulary_and_answers(folder):
    task = BabiData(task=" 4,1", size="1k", data_dir=str(folder)).load()
    assert task.name == "babi 1k tasks 1,4"
    assert Counter(example.group for example in task.validation) == {
        "task 1 single-supporting-fact": 4,
        "task 4 two-arg-relations": 4,
    }
    assert task.codec.target.labels == ("barn", "mill", "yard")


def test_order_and_number_of_facts_are_fields(folder):
    task = BabiData(data_dir=str(folder), recent_first=True, max_facts=2).load()
    assert task.codec.words(task.train[1]) == ["ada stood up", "ada sat down", "where is ada"]
    assert task.train[1].supports == ()
    assert task.notes == ("the latest 2 facts of each story only",)


def test_a_task_may_be_trained_on_several_times_an_epoch(folder):
    once = BabiData(task="1,4", data_dir=str(folder)).load()
    often = BabiData(task="1,4", data_dir=str(folder), repeat="4:3").load()
    counts, more = Counter(once.train), Counter(often.train)
    assert {
        example: more[example] // count for example, count in counts.items() if example.group[:6] == "task 4"
    } == dict.fromkeys((example for example in counts if example.group[:6] == "task 4"), 3)
    assert all(more[example] == counts[example] for example in counts if example.group[:6] == "task 1")
    assert (often.validation, often.test, often.codec) == (once.validation, once.test, once.codec)
    assert often.notes == ("task 4: trained on 3 times an epoch",)


@pytest.mark.parametrize("repeat", ["4", "4:0", "4:-1", "2:3", "4:2,4:3", "4:2,", "4:2:2", "x:2", "4:100"])
def test_times_that_cannot_be_are_refused(repeat):
    with pytest.raises(UserError, match=r"^repeat must give tasks of '1,4', each once, and times from 1 to 99"):
        BabiData(task="1,4", repeat=repeat)


def test_the_folder_may_come_from_the_environment(folder, monkeypatch):
    monkeypatch.setenv("UT_DATA", str(folder))
    assert len(BabiData().load().train) == 36


def test_a_missing_file_is_named_with_where_it_was_looked_for_and_how_to_get_it(folder, tmp_path):
    with pytest.raises(UserError, match=r"qa2_two-supporting-facts_train.txt: no such file .* `ut data fetch babi`"):
        BabiData(task="2", data_dir=str(folder)).load()
    with pytest.raises(UserError, match=r"qa1_single-supporting-fact_train.txt: .*/nothing") as raised:
        BabiData(data_dir=str(tmp_path / "nothing")).load()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("place", ["babi/derived", "babi/tasks_1-20_v1-2/derived"])
def test_a_part_of_a_training_file_is_used_and_noted(folder, place):
    (folder / place).mkdir()
    lines = [line for _ in range(3) for line in story("Ada", "mill")]
    name = "three-supporting-facts"
    (folder / place / f"qa3_{name}_train_10k-partial.txt").write_text("\n".join(lines))
    for size in ("en", "en-10k"):
        (folder / f"babi/tasks_1-20_v1-2/{size}/qa3_{name}_test.txt").write_text("\n".join(lines))
    task = BabiData(task="1,3", data_dir=str(folder)).load()
    assert task.notes == ("task 3: 6 of 10,000 training questions",)
    with pytest.raises(UserError, match=r"en/qa3_three-supporting-facts_train.txt: no such file"):
        BabiData(task="3", size="1k", data_dir=str(folder)).load()


def test_an_answer_never_trained_on_is_an_error_and_no_crash(folder):
    path = folder / "babi/tasks_1-20_v1-2/en-10k/qa1_single-supporting-fact_test.txt"
    path.write_text("\n".join(story("Zoe", "moon")))
    task = BabiData(data_dir=str(folder)).load()
    assert [example.target for example in task.test["test"]] == [-100, -100]


def test_a_broken_file_is_named_with_its_line(folder):
    path = folder / "babi/tasks_1-20_v1-2/en-10k/qa1_single-supporting-fact_test.txt"
    path.write_text("1 Ada left.\n2 Where is Ada?\n")
    with pytest.raises(UserError, match=r"qa1_single-supporting-fact_test.txt:2: question without an answer"):
        BabiData(data_dir=str(folder)).load()
    train = folder / "babi/tasks_1-20_v1-2/en-10k/qa4_two-arg-relations_train.txt"
    train.write_text("\n".join(story("Ada", "mill")))
    with pytest.raises(UserError, match=r"qa4_two-arg-relations_train.txt:3: one story only"):
        BabiData(task="4", data_dir=str(folder)).load()


@pytest.mark.parametrize("task", ["0", "21", "", "1,,2", "1,1", "one", "1-4", "joint,1", "²", "99999999999999999999"])
def test_tasks_that_do_not_exist_are_refused(task):
    with pytest.raises(UserError, match=r"^task must be a number from 1 to 20, several .* or joint, found "):
        BabiData(task=task)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"validation": 0.0}, "data.validation: expected a number, more than 0 and below 1, found 0.0"),
        ({"validation": 1.0}, "data.validation: expected .* below 1, found 1.0"),
        ({"max_facts": -1}, "data.max_facts: expected a whole number, at least 0, found -1"),
    ],
)
def test_fields_that_cannot_work_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        BabiData(**fields)


def test_a_size_that_does_not_exist_is_refused():
    with pytest.raises((UserError, TypeError), match="5k"):  # TypeError: the tests' type checker was faster
        BabiData(size="5k")


def _questions(number, part, folder="en-10k"):
    path = Path(REAL) / f"babi/tasks_1-20_v1-2/{folder}/qa{number}_{TASK_NAMES[number]}_{part}.txt"
    if not path.is_file():
        path = Path(REAL) / f"babi/derived/qa{number}_{TASK_NAMES[number]}_train_10k-partial.txt"
    return list(parse(read_lines(path), name=path.name))


@needs_real_files
@pytest.mark.sample(3)
@pytest.mark.parametrize("number", TASK_NAMES)
def test_the_published_files_parse_whole(number):
    train, test = _questions(number, "train"), _questions(number, "test")
    assert len(train) in ((10_000,) if number != 3 else (10_000, 1_925))
    assert len(test) == len(_questions(number, "train", "en")) == 1_000
    longest = max(len(question.facts) for question in train + test)
    known = {3: 228, 5: 126, 2: 88}
    assert longest == known[number] if number in known else longest <= 58
    assert all(question.supports for question in train + test)
    assert {question.answer for question in test} <= {question.answer for question in train}


@needs_real_files
def test_the_small_joint_set_loads():
    task = BabiData(task="joint", size="1k", data_dir=REAL).load()
    assert task.name == "babi 1k joint"
    assert len(task.train) + len(task.validation) == 20_000
    assert 1_900 <= len(task.validation) <= 2_100
    assert len(task.test["test"]) == 20_000
    assert len({example.group for example in task.test["test"]}) == 20
    # one answer of task 8's test file is in no training file of this size: it counts as an error
    assert sum(example.target == -100 for example in task.test["test"]) == 1
    assert not any(1 in fact for example in task.test["test"] for fact in example.source)


@needs_real_files
def test_the_large_set_has_every_answer_and_notes_missing_questions():
    task = BabiData(task="3,8", data_dir=REAL).load()
    assert all(example.target >= 0 for example in task.test["test"])
    assert task.notes in ((), ("task 3: 1,925 of 10,000 training questions",))
    assert max(len(example.source) for example in task.test["test"]) == 229
