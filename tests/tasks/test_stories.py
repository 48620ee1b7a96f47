import dataclasses
import re
from collections import Counter

import pytest

from small_stories import write_stories
from universal_transformer.data.story_lines import parse
from universal_transformer.errors import UserError
from universal_transformer.files import read_lines
from universal_transformer.tasks.facts import encode_question
from universal_transformer.tasks.stories import OBJECTS, PEOPLE, PLACES, StoriesData

SMALL = StoriesData(train_stories=60, validation_stories=10, test_stories=20)
VARIANTS = [
    SMALL,
    dataclasses.replace(SMALL, synonyms=False, recent_first=True, seed=3),
    dataclasses.replace(SMALL, num_people=1, num_places=2, num_objects=1, statements=(10, 30), questions=1),
    dataclasses.replace(SMALL, num_people=12, num_places=12, num_objects=12, statements=(30, 60), questions=9),
    dataclasses.replace(SMALL, num_objects=0, facts=(1,), statements=(1, 9), questions=1),
    dataclasses.replace(SMALL, facts=(3,), statements=(5, 5), questions=1),
]
ids = [f"variant {index}" for index in range(len(VARIANTS))]


def places_over_time(facts, thing):
    """Brute force: simulate a story from its text; return (place, statements that put the thing there) over time."""
    place, moved, holder, taken, history = {}, {}, None, None, []
    for now, fact in enumerate(facts):
        person, _, rest = fact.removesuffix(".").partition(" ")
        what = rest.split()[-1]
        assert person in PEOPLE
        if what in PLACES:
            if holder == person:
                history.append((what, {moved[person], taken, now}, {taken, now}))
            place[person], moved[person] = what, now
        elif what == thing and holder is None:
            holder, taken = person, now
            history.append((place[person], None, {moved[person], now}))
        elif what == thing:
            assert holder == person, "only who holds a thing puts it down"
            history.append((place[person], None, {moved[person], now}))
            holder = None
    return place, moved, history


def oracle(facts, text):
    """Return (answer, supports) of a question by brute force over the story's text."""
    if asked := re.fullmatch(r"Where was the (\w+) before the (\w+)\?", text):
        thing, target = asked.groups()
        history = places_over_time(facts, thing)[2]
        index = max(index for index, (where, three, _) in enumerate(history) if where == target and three)
        return history[index - 1][0], history[index][1]
    if asked := re.fullmatch(r"Where is the (\w+)\?", text):
        where, _, two = places_over_time(facts, asked.group(1))[2][-1]
        return where, two
    (person,) = re.fullmatch(r"Where is (\w+)\?", text).groups()
    place, moved, _ = places_over_time(facts, OBJECTS[0])
    return place[person], {moved[person]}


def questions(stories):
    return list(parse(enumerate((line for story in stories for line in story), start=1), name="stories"))


@pytest.mark.parametrize("data", VARIANTS, ids=ids)
def test_answers_and_supports_follow_from_the_text(data):
    for split, stories in data.stories().items():
        asked = questions(stories)
        assert len(stories) == getattr(data, f"{split}_stories")
        assert len(asked) == len(stories) * data.questions
        for question in asked:
            answer, supports = oracle(question.facts, question.text)
            assert (question.answer, question.supports) == (answer, tuple(sorted(supports))), question
            assert len(supports) in data.facts


def test_people_move_to_other_places_and_pick_up_things_of_their_place():
    for question in questions(VARIANTS[3].stories()["train"])[-1:]:
        place, lying, held = {}, {}, {}
        for fact in question.facts:
            person, what = fact.split()[0], fact.removesuffix(".").split()[-1]
            if what in PLACES:
                assert place.get(person) != what
                place[person] = what
            elif what in held:
                assert held.pop(what) == person
                lying[what] = place[person]
            else:
                assert lying.get(what, place[person]) == place[person]
                held[what] = person


@pytest.mark.parametrize("data", VARIANTS, ids=ids)
def test_no_story_occurs_twice_in_any_split(data):
    stories = [
        tuple(map(_statement, filter(_is_statement, story))) for split in data.stories().values() for story in split
    ]
    assert len(stories) == len(set(stories))


@pytest.mark.parametrize("data", VARIANTS, ids=ids)
def test_no_question_that_is_tested_is_asked_in_training_after_the_same_statements(data):
    asked = {split: {(q.facts, q.text) for q in questions(stories)} for split, stories in data.stories().items()}
    assert not asked["train"] & (asked["validation"] | asked["test"])


@pytest.mark.parametrize("data", VARIANTS, ids=ids)
def test_stories_have_the_sizes_asked_for(data):
    for story in (story for split in data.stories().values() for story in split):
        statements = [_statement(line) for line in story if _is_statement(line)]
        assert data.statements[0] <= len(statements) <= data.statements[1]
        ends = {statement.removesuffix(".").split()[-1] for statement in statements}
        assert {statement.split()[0] for statement in statements} <= set(PEOPLE[: data.num_people])
        assert ends <= set(PLACES[: data.num_places]) | set(OBJECTS[: data.num_objects])
        verbs = {" ".join(statement.split()[1:-2]) for statement in statements}
        assert data.synonyms or verbs <= {"went to", "picked up", "put down"}


def test_stories_are_a_function_of_the_seed():
    assert SMALL.stories() == dataclasses.replace(SMALL).stories()
    assert SMALL.stories() != dataclasses.replace(SMALL, seed=1).stories()


def test_more_training_stories_do_not_change_the_test_stories():
    more = dataclasses.replace(SMALL, train_stories=90).stories()
    assert more["test"] == SMALL.stories()["test"]
    assert more["validation"] == SMALL.stories()["validation"]


def test_each_number_of_facts_is_asked_equally_often():
    task = StoriesData(train_stories=1000, validation_stories=1, test_stories=1).load()
    counts = Counter(example.group for example in task.train)
    assert set(counts) == {"1 fact", "2 facts", "3 facts"}
    assert all(900 < count < 1100 for count in counts.values())
    for example in task.train:
        assert example.group.startswith(str(len(example.supports)))


def test_what_is_written_is_what_is_loaded(tmp_path):
    task = SMALL.load()
    paths = write_stories(SMALL, tmp_path / "new")
    assert [path.name for path in paths] == ["test.txt", "validation.txt", "train.txt"]
    for path, examples in zip(paths, [task.test["test"], task.validation, task.train], strict=True):
        read = [encode_question(task.codec, question) for question in parse(read_lines(path), name=path.name)]
        assert [(item.source, item.target, item.supports) for item in read] == [
            (item.source, item.target, item.supports) for item in examples
        ]


@pytest.mark.usefixtures("loaded_once")
def test_the_default_is_whole(loaded_once):
    task = StoriesData().load()
    assert len(task.train) == 24_000
    assert (task.metric, task.notes) == ("error", ())
    assert task.codec.model_fields["vocabulary.num_classes"] == 6
    assert all(example.target >= 0 for example in task.test["test"])
    assert not any(1 in fact for example in task.test["test"] for fact in example.source)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_people": 0}, "data.num_people: expected a whole number, at least 1 and at most 12, found 0"),
        ({"num_places": 1}, "data.num_places: expected a whole number, at least 2 and at most 12, found 1"),
        (
            {"num_objects": 13},
            "data.num_objects: expected a whole number, at least 0 and at most 12, found 13",
        ),
        ({"train_stories": 0}, "data.train_stories: expected a whole number, at least 1, found 0"),
        ({"questions": 0}, "data.questions: expected a whole number, at least 1, found 0"),
        ({"facts": ()}, r"facts must be different numbers out of 1, 2 and 3, found \(\)"),
        ({"facts": (1, 4)}, r"facts must be .* found \(1, 4\)"),
        ({"facts": (1, 1)}, r"facts must be .* found \(1, 1\)"),
        ({"num_objects": 0}, "questions of 3 facts are about things: num_objects must not be 0"),
        ({"statements": (2, 5)}, r"statements must be \(fewest, most\) from 3 on, found \(2, 5\)"),
        ({"statements": (5, 4)}, r"statements must be .* found \(5, 4\)"),
        ({"seed": -1}, "data.seed: expected a whole number, at least 0, found -1"),
    ],
)
def test_fields_that_cannot_work_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        StoriesData(**fields)


def test_asking_for_more_stories_than_there_are_ends_with_a_message():
    data = StoriesData(
        num_people=1, num_places=2, num_objects=0, facts=(1,), statements=(1, 2), questions=1, synonyms=False
    )
    with pytest.raises(UserError, match=r"found no further story of 1 to 2 statements .* differs from 4 others"):
        data.load()


def _is_statement(line):
    return "\t" not in line


def _statement(line):
    return line.partition(" ")[2]
