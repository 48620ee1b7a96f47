from itertools import pairwise

import numpy as np
import pytest

from paper.tasks.lambada import (
    HELD_OUT,
    SETS,
    LambadaData,
    ReadingData,
    find_questions,
    novel_words,
    number_novels,
    read_corpus,
)
from paper.tasks.novels import read_novels
from paper.tasks.words import Passage, Vocabulary
from universal_transformer.data.example import NO_CLASS
from universal_transformer.data.tokenizer import END, START, UNKNOWN
from universal_transformer.errors import UserError
from universal_transformer.tasks.codec import Codec

NAMES = ["anna", "boris", "clara", "david", "emil", "frieda", "greta"]


def novel(seed):
    """Sentences that end, one in two, with a name from the sentence before."""
    generator = np.random.default_rng(seed)
    sentences = []
    for number in range(120):
        one, two = generator.choice(NAMES, 2, replace=False)
        sentences.append(
            f"Then {one} went out to see {two} in the old garden" + (f" with {one}." if number % 2 else ".")
        )
    return " ".join(sentences)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("UT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "novels/corpus").mkdir(parents=True)
    for name, seed in (("Anon_Clara_1864.txt", 0), ("b.txt", 1)):
        (tmp_path / "novels/corpus" / name).write_text(novel(seed))
    (tmp_path / "lambada").mkdir()
    passages = "then anna went out . with anna\nthen boris went out . with zorro\n"
    for name in ("development", "test"):
        (tmp_path / "lambada" / SETS[name]).write_text(passages)
    return tmp_path


def test_a_language_model_on_novels_is_tested_on_last_words(folder):
    task = LambadaData(data_dir=str(folder), block_length=16).load()
    assert task.metric == "last_word"
    assert list(task.test) == ["control", "development", "test"]
    vocabulary = task.codec.source.vocabulary
    first, second = task.test["test"]
    assert task.codec.render(first.target) == "then anna went out . with anna"
    assert second.target[-1] == UNKNOWN
    row = [index for example in task.train for index in example.target]
    novels, held_out = read_novels(folder).split(HELD_OUT)
    assert (novels.count, held_out.count) == (1, 1)
    words = [word or "\n" for word in (novels.types[index] for index in novels.tokens)]
    assert [vocabulary.word(index) if index != END else "\n" for index in row] == words
    assert row.count(END) == 1
    assert all(type(index) is int for index in task.train[0].target)
    for text in (
        "a stand-in: 1 novels",
        "passages at random places of 1 novels that are not trained on; the official set",
        "test: 1 of 2 last words are not in the vocabulary",
    ):
        assert any(text in note for note in task.notes)


def test_the_control_set_is_tested_where_it_is_there(folder):
    (folder / "lambada" / SETS["control"]).write_text("a b c\n")
    task = LambadaData(data_dir=str(folder)).load()
    assert list(task.test) == ["control", "development", "test"]
    assert not any("not trained on" in note for note in task.notes)
    assert any("a stand-in: 2 novels" in note for note in task.notes)


def test_the_control_set_is_cut_from_novels_that_are_not_trained_on(folder):
    for number in range(2, 30):
        (folder / "novels/corpus" / f"{number}.txt").write_text(f"In place {number} it began. {novel(number)}")
    passages, novels, notes = read_corpus(str(folder))
    whole = read_novels(folder)
    (_, held_out) = whole.split(HELD_OUT)
    assert sorted([*novels.names, *held_out.names]) == sorted(whole.names)
    assert held_out.count == round(HELD_OUT * whole.count) == 2
    assert read_corpus(str(folder))[0] == passages
    text = [" ".join(whole.types[index] for index in one.tokens.tolist()) for one in (held_out, novels)]
    control = passages["control"]
    assert 2 * 114 < len(control) < 2 * 120  # all sentences but those with too little text before them
    for words in control:
        assert " ".join(words) in text[0]
        assert " ".join(words) not in text[1]
        assert len(words) > 50
        assert (words[0], words[-1].isalpha()) == ("then", True)
    assert notes[1].startswith(f"control: {len(control)} passages at random places of 2 novels")


def test_one_novel_is_trained_on_and_gives_no_control_set(folder):
    (folder / "novels/corpus/b.txt").unlink()
    task = LambadaData(data_dir=str(folder)).load()
    assert list(task.test) == ["development", "test"]
    assert any(note.startswith("control: none") for note in task.notes)


def test_questions_are_like_the_passages(folder):
    task = ReadingData(data_dir=str(folder), max_length=80).load()
    codec = task.codec
    assert task.metric == "accuracy"
    assert len(task.train) > 20
    for example in task.train:
        cut = example.source.index(START)
        context, question = example.source[:cut], example.source[cut + 1 :]
        assert 50 <= len(context) <= 80 - len(question)
        assert example.target in context
        assert codec.source.vocabulary.word(context[-1]) == "."
        assert "." not in codec.words(example)[cut:]
        assert codec.render(example.target) in (*NAMES, "garden")
        assert END not in example.source
        assert context[0] == codec.source.vocabulary.ids["then"]
    first, second = task.test["development"]
    assert codec.words(first) == ["then", "anna", "went", "out", ".", "<start>", "with"]
    assert codec.render(first.target) == "anna"
    assert codec.render(second.target) == "zorro"  # a word of the passages, which the novels lack
    assert any("in 50.0% of the passages" in note for note in task.notes)
    strict = ReadingData(data_dir=str(folder), passage_words=False).load()
    assert strict.test["development"][1].target == NO_CLASS
    assert any("1 answers are not in the vocabulary" in note for note in strict.notes)


def test_questions_found_are_those_of_a_naive_search(folder):
    vocabulary = novel_words(read_novels(folder), size=1000)
    tokens = number_novels(read_novels(folder), vocabulary)
    words = [vocabulary.word(index) for index in tokens.tolist()]
    bounds = [0] + [place + 1 for place, word in enumerate(words) if word in (".", "<end>")]
    expected = []
    for number, cut in enumerate(bounds[:-1]):
        end = bounds[number + 1] - 2
        starts = [start for start in bounds if cut - start >= 50]
        if not starts or end <= cut or not words[end].isalpha() or end - starts[-1] > 90:
            continue
        start = starts[-1]
        if words[end] in words[start:cut] and "<end>" not in words[start:end]:
            expected.append((*words[start:cut], "<start>", *words[cut:end], words[end]))
    codec = Codec.shared(Passage(vocabulary.words))
    found = find_questions(tokens, vocabulary, max_length=90, limit=10_000)
    assert [(*codec.words(e), codec.render(e.target)) for e in found] == expected
    assert len(expected) > 20
    fewer = find_questions(tokens, vocabulary, max_length=90, limit=7)
    assert len(fewer) == 7
    assert [found[len(found) * place // 7] for place in range(7)] == fewer[:]


@pytest.mark.parametrize("frequent", [0, 3])
def test_each_word_that_stands_before_its_sentence_can_be_asked_for(folder, frequent):
    vocabulary = novel_words(read_novels(folder), size=1000)
    tokens = number_novels(read_novels(folder), vocabulary)
    words = [vocabulary.word(index) for index in tokens.tolist()]
    bounds = [0] + [place + 1 for place, word in enumerate(words) if word in (".", "<end>")]
    expected = []
    for cut, after in pairwise(bounds):
        starts = [start for start in bounds if cut - start >= 50]
        for end in range(cut + 1, after - 1):
            if not starts or words[end] in vocabulary.words[:frequent] or end - starts[-1] > 70:
                continue
            start = starts[-1]
            if words[end] in words[start:cut] and "<end>" not in words[start:end]:
                expected.append((*words[start:cut], "<start>", *words[cut:end], words[end]))
    codec = Codec.shared(Passage(vocabulary.words))
    found = find_questions(tokens, vocabulary, max_length=70, limit=10_000, answers="all", frequent=frequent)
    assert [(*codec.words(e), codec.render(e.target)) for e in found] == expected
    assert len(expected) > 500


def test_novels_without_questions_are_refused():
    vocabulary = Vocabulary((".", "a"))
    with pytest.raises(UserError, match="no passage whose answer"):
        find_questions(np.array([5, 4, 5, 4, END], dtype=np.int32), vocabulary, max_length=80, limit=5)


def test_missing_and_bad_files(folder, tmp_path):
    with pytest.raises(UserError, match=r"development.*: no such file in .*ut data fetch lambada"):
        LambadaData(data_dir=str(tmp_path / "nowhere")).load()
    (folder / "lambada" / SETS["test"]).write_text("two words\none\n")
    with pytest.raises(UserError, match=r"test_plain_text\.txt:2: found .*expected a passage"):
        ReadingData(data_dir=str(folder)).load()


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (LambadaData, {"vocabulary_size": 2}, "data.vocabulary_size: expected .*, found 2"),
        (LambadaData, {"block_length": 1}, "data.block_length: expected .*, found 1"),
        (LambadaData, {"validation_passages": 0}, "data.validation_passages: expected .*, found 0"),
        (ReadingData, {"train_examples": 0}, "data.train_examples: expected .*, found 0"),
        (ReadingData, {"max_length": 50}, "data.max_length: expected .*, found 50"),
    ],
)
def test_fields_that_cannot_work(kind, changes, message):
    with pytest.raises(UserError, match=message):
        kind(**changes)


def test_published_counts(shared_data):
    """SOURCE.txt: 4,869 and 5,153 passages; the test's have 58 to 203 words, 82.7 % of them the answer before."""
    path = shared_data / "lambada" / SETS["test"]
    if not path.is_file():
        pytest.skip(f"no LAMBADA in {shared_data}")
    from paper.tasks.lambada import read_passages

    passages = read_passages("")
    assert list(passages) == ["development", "test"]
    assert {name: len(found) for name, found in passages.items()} == {"development": 4869, "test": 5153}
    lengths = [len(words) for words in passages["test"]]
    assert (min(lengths), max(lengths)) == (58, 203)
    assert np.mean(lengths) == pytest.approx(73.7, abs=0.1)
    assert np.mean([words[-1] in words[:-1] for words in passages["test"]]) == pytest.approx(0.827, abs=0.001)
