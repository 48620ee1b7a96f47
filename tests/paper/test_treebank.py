import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.tasks.treebank import split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"I don\'t know," said Mr. Smith.', "`` i do n't know , '' said mr. smith ."),
        ("“No!” he’d cried—“Go...”", "`` no ! '' he 'd cried -- `` go ... ''"),
        ("'Well,' it's John's (off-world)", "` well , ' it 's john 's -lrb- off-world -rrb-"),
        ("At 10 o'clock, 1,000 can't; won't.", "at 10 o'clock , 1,000 ca n't ; wo n't ."),
        ("'tis _so_", "'tis so"),
        ('go--"what?"', "go -- `` what ? ''"),
    ],
)
def test_words_are_split_as_in_the_treebank(text, words):
    assert split_words(text) == words.split()


@given(st.text())
def test_splitting_twice_is_splitting_once(text):
    words = split_words(text)
    assert all(words)
    again = split_words(" ".join(words))
    assert split_words(" ".join(again)) == again


@given(st.lists(st.text("abcxyzäß", min_size=1, max_size=8)))
def test_plain_words_are_unchanged(words):
    assert split_words(" ".join(words)) == " ".join(words).lower().split()


def test_published_passages_are_split_already(shared_data):
    path = shared_data / "lambada/lambada_development_plain_text.txt"
    if not path.is_file():
        pytest.skip(f"no LAMBADA in {shared_data}")
    words = path.read_text().split()
    same = sum(split_words(word) == [word] for word in words)
    assert same / len(words) > 0.999
