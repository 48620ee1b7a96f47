"""Further forms of bAbI questions: names change places everywhere, and nothing else changes."""

from collections import Counter

import pytest

from universal_transformer.data.story_lines import parse
from universal_transformer.tasks.exchange import CLASSES, ExchangedExamples
from universal_transformer.tasks.facts import encode_question, fact_codec

STORY = """\
1 Mary got the milk there.
2 John moved to the kitchen.
3 Mary and Sandra went to the office.
4 Where is Mary?\toffice\t3
5 What is Mary carrying?\tmilk,apple\t1
6 Who is in the kitchen?\tjohn\t2
7 Where is Sandra?\tkitchen\t3
"""


def forms_of(task, *, count=200):
    questions = list(parse(enumerate(STORY.splitlines(), 1), name="story.txt"))
    codec = fact_codec(questions)
    given = tuple(encode_question(codec, question) for question in questions)
    return codec, given, ExchangedExamples({task: given}, codec=codec, forms=count)


def test_the_given_examples_come_first_and_forms_follow():
    _, given, examples = forms_of(2)
    assert len(examples) == 201 * len(given)
    assert tuple(examples[: len(given)]) == given
    assert [examples[i] for i in range(len(given), 99)] == examples[len(given) : 99]  # a function of the index


def test_a_form_exchanges_names_of_one_class_everywhere():
    codec, given, examples = forms_of(2)
    for index, form in enumerate(examples):
        example, names = given[index % len(given)], {}
        for old, new in zip(codec.words(example), codec.words(form), strict=True):
            for word, other in zip(old.split(), new.split(), strict=True):
                assert names.setdefault(word, other) == other, "a name changes into one other name"
                assert word == other or any(word in own and other in own for own in CLASSES[2])
        assert len(set(names.values())) == len(names), "and no two names into the same"
        old, new = codec.render(example.target), codec.render(form.target)
        assert new == ",".join(names.get(word, word) for word in old.split(","))
        assert form.supports == example.supports


def test_all_forms_are_equally_frequent():
    codec, given, examples = forms_of(2, count=3000)
    asked = Counter(codec.words(form)[-1] for form in examples[0 :: len(given)])
    assert len(asked) == 3
    assert all(count == pytest.approx(1000, abs=120) for count in asked.values())


def test_a_form_whose_answer_is_no_known_class_is_the_given_example():
    codec, given, examples = forms_of(2)
    lists = list(examples)[1 :: len(given)]
    assert {codec.render(form.target) for form in lists} == {"milk,apple"}
    assert codec.words(lists[-1])[0].split()[-2] == "milk"


def test_an_answer_is_exchanged_however_it_is_spelled():
    given = ["1 Fred gave the football to Jeff there.", "2 Who gave the football to Jeff?\tFred\t1"]
    given += ["3 Bill gave the milk to Mary there.", "4 Who did Bill give the milk to?\tMary\t3"]
    given += ["5 Who gave the milk?\tBill\t3", "6 Who received the football?\tJeff\t1"]
    questions = list(parse(enumerate(given, 1), name="story.txt"))
    codec = fact_codec(questions)
    assert set(codec.target.labels) == {"Fred", "Mary", "Bill", "Jeff"}
    found = Counter()
    for form in ExchangedExamples({5: [encode_question(codec, questions[0])]}, codec=codec, forms=50):
        giver = codec.words(form)[0].split()[0]
        assert codec.render(form.target) == giver.capitalize()
        found[giver] += 1
    assert set(found) == {"bill", "fred", "jeff", "mary"}


def test_a_task_without_classes_keeps_its_examples():
    _, given, examples = forms_of(18)
    assert 18 not in CLASSES
    assert all(form == given[index % len(given)] for index, form in enumerate(examples))
