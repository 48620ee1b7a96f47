import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.tasks.words import Passage, Vocabulary, Words, last_sentence
from universal_transformer.data.example import NO_CLASS
from universal_transformer.data.tokenizer import END, START, UNKNOWN
from universal_transformer.errors import UserError
from universal_transformer.tasks import Codec

WORDS = ("the", "cat", "NN", "sat", ".", "on", "mat")


def test_the_most_frequent_words_are_kept():
    vocabulary = Vocabulary.of({"b": 2, "a": 2, "c": 3, "d": 1}, size=4 + 3)
    assert vocabulary.words == ("c", "a", "b")
    assert len(vocabulary) == 7
    assert Vocabulary.of({"b": 2, "d": 1}, size=10, least=2).words == ("b",)


def test_a_word_is_looked_up_as_written_then_in_lower_case():
    vocabulary = Vocabulary(WORDS)
    assert vocabulary.encode(["The", "the", "NN", "nn", "dog"]) == [4, 4, 6, UNKNOWN, UNKNOWN]


@pytest.mark.claim("US 3", "US 16")
@given(st.lists(st.sampled_from(["the", "cat", "sat", ".", "on", "mat"]), max_size=9))
def test_lines_come_back(words):
    codec = Codec.shared(Words(WORDS))
    (example,) = codec.read([(1, " ".join(words))], name="x")
    assert codec.render(example.target) == " ".join(words)
    assert codec.words(example) == words


@pytest.mark.parametrize("kind", [Words, Passage])
def test_words_never_seen_are_named(kind):
    (example,) = Codec.shared(kind(WORDS)).read([(1, "the dog sat . on a dog")], name="x")
    assert example.unknown == ("dog", "a")


@pytest.mark.parametrize("kind", [Words, Passage])
def test_saved_and_loaded_it_is_the_same(tmp_path, kind):
    codec = Codec.shared(kind(WORDS))
    codec.save(tmp_path)
    assert Codec.load(tmp_path) == codec
    fields = json.loads((tmp_path / "codec.json").read_text())
    (tmp_path / "codec.json").write_text(
        json.dumps({"source": fields["source"] | {"known": ["a", "a"]}, "target": None})
    )
    with pytest.raises(UserError, match=r"codec\.json: source: known: found .*different strings"):
        Codec.load(tmp_path)


def test_the_last_sentence_begins_after_the_closing_marks_of_the_one_before():
    assert last_sentence(["``", "a", ".", "''", "b", "c"]) == 4
    assert last_sentence(["a", "b", "c"]) == 0
    assert last_sentence(["a", ".", "b", "."]) == 2  # an end without words after it is not used
    assert last_sentence(["a", "?", "''", "-rrb-", "b"]) == 4


def test_a_passage_is_a_context_and_a_question():
    codec = Codec.shared(Passage(WORDS))
    (example,) = codec.read([(1, "The cat sat. On the")], name="x")
    assert example.source == (4, 5, 7, 8, START, 9, 4)
    assert example.target == NO_CLASS
    assert codec.render(codec.source.answer("mat")) == "mat"
    assert codec.source.answer("dog") == NO_CLASS
    assert codec.render(NO_CLASS) == "<unknown>"
    assert codec.words(example)[4] == "<start>"


def test_a_line_that_is_too_long_is_refused():
    with pytest.raises(UserError, match=r"x:7: a text of 5,000 words; expected at most 4,096"):
        list(Codec.shared(Words(WORDS)).read([(7, "cat " * 5000)], name="x"))


def test_the_end_of_a_text_is_a_line_break():
    codec = Codec.shared(Words(WORDS))
    assert codec.render([4, 5, END, 4]) == "the cat \n the"
    assert codec.render([4, END]) == "the"
