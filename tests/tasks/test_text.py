import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.data.batch import collate
from universal_transformer.data.tokenizer import END, KINDS
from universal_transformer.errors import UserError
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.tasks import Codec
from universal_transformer.tasks.text import TextData

BAD = Path(__file__).parents[1] / "fixtures" / "bad"
VERSES = [f"line {number} of {'abc'[number % 3] * (number % 7)}, or so" for number in range(40)]
VERSES[5] = ""


def write(path, lines=VERSES, end="\n"):
    path.write_bytes("".join(line + end for line in lines).encode())
    return str(path)


def text(examples, codec):
    return codec.render([index for example in examples for index in example.target])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block_length", [2, 7, 10_000])
def test_blocks_are_the_text_cut_into_pieces(tmp_path, kind, block_length):
    path = write(tmp_path / "a.txt")
    task = TextData(train=path, validation=path, test=path, tokenizer=kind, block_length=block_length).load()
    lengths = [len(example.target) for example in task.train]
    assert all(length == block_length for length in lengths[:-1])
    assert 0 < lengths[-1] <= block_length
    assert all(example.source == () for example in task.train)
    spaced = [" ".join(line.split()) if kind == "whitespace" else line for line in VERSES]
    assert text(task.train, task.codec).split("\n") == spaced
    ends = sum(index == END for example in task.train for index in example.target)
    assert ends == len(VERSES)
    assert task.train[-1] == task.train[len(task.train) - 1] == list(task.train)[-1]
    assert task.train[:2] == list(task.train)[:2]
    with pytest.raises(IndexError):
        task.train[len(task.train)]
    assert collate(task.train[:1], indices=[0]).source is None
    config = task.configure(ModelConfig())
    assert (config.architecture, config.vocabulary.size) == ("language_model", len(task.codec.source.tokenizer))
    assert task.metric == "perplexity"


def test_line_ends_do_not_matter(tmp_path):
    plain = write(tmp_path / "a.txt")
    content = Path(plain).read_bytes()
    (tmp_path / "mark.txt").write_bytes(b"\xef\xbb\xbf" + content)
    (tmp_path / "open.txt").write_bytes(content.removesuffix(b"\n"))
    expected = TextData(train=plain).load()
    for path in (write(tmp_path / "crlf.txt", end="\r\n"), tmp_path / "mark.txt", tmp_path / "open.txt"):
        task = TextData(train=str(path)).load()
        assert list(task.train) == list(expected.train)
        assert list(task.test["test"]) == list(expected.test["test"])


def test_what_is_held_out_is_the_end_of_the_text(tmp_path):
    path = write(tmp_path / "a.txt")
    held = TextData(train=path, validation_fraction=0.1, test_fraction=0.2).load()
    assert text(held.train, held.codec).split("\n") == VERSES[:28]
    assert text(held.validation, held.codec).split("\n") == VERSES[28:32]
    assert text(held.test["test"], held.codec).split("\n") == VERSES[32:]
    assert held.notes[0].startswith("test: the last 8 lines of ")
    assert held.notes[1] == "validation: the last 4 lines before those of the test"
    named = TextData(train=path, test=write(tmp_path / "b.txt", VERSES[:3])).load()
    assert text(named.validation, named.codec).split("\n") == VERSES[-2:]
    assert text(named.test["test"], named.codec).split("\n") == VERSES[:3]


def test_prompts(tmp_path):
    path = write(tmp_path / "a.txt")
    codec = TextData(train=path, block_length=20).load().codec
    examples = list(codec.read([(1, "line 1"), (2, "")], name="x"))
    assert [codec.render(example.target) for example in examples] == ["line 1", ""]
    assert END not in examples[0].target
    assert codec.words(examples[0]) == ["l", "i", "n", "e", "␣", "1"]
    with pytest.raises(UserError, match="x:3: a prompt of 20 tokens; this run takes at most 19"):
        list(codec.read([(3, "l" * 20)], name="x"))


@given(lines=st.lists(st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=9)))
def test_as_many_examples_as_lines(tmp_path_factory, lines):
    codec = TextData(train=write(tmp_path_factory.mktemp("text") / "a.txt"), tokenizer="bpe").load().codec
    examples = list(codec.read(enumerate(lines, start=1), name="x"))
    assert [codec.render(example.target) for example in examples] == lines


def test_saved_and_loaded_it_is_the_same(tmp_path):
    codec = TextData(train=write(tmp_path / "a.txt"), tokenizer="word", block_length=9).load().codec
    (tmp_path / "run").mkdir()
    codec.save(tmp_path / "run")
    assert {child.name for child in (tmp_path / "run").iterdir()} == {"codec.json", "tokenizer.json"}
    loaded = Codec.load(tmp_path / "run")
    assert loaded.source.block_length == 9
    lines = list(enumerate(VERSES, start=1))
    assert list(loaded.read(lines, name="x")) == list(codec.read(lines, name="x"))
    (tmp_path / "run/codec.json").write_text(
        json.dumps({"source": {"kind": "continuation", "block_length": "9"}, "target": None})
    )
    with pytest.raises(UserError, match=r"codec\.json: source\.block_length: expected .*at least 2, found '9'"):
        Codec.load(tmp_path / "run")


@pytest.mark.parametrize(
    "name",
    ["empty.tsv", "only_blank_lines.tsv", "latin1.tsv", "utf16.tsv", "nul.tsv", "cut.tsv.gz", "overlong.tsv"],
)
@pytest.mark.parametrize("field", ["train", "validation", "test"])
def test_a_bad_file_is_refused_in_one_line_with_its_place(tmp_path, name, field):
    files = {"train": write(tmp_path / "a.txt")} | {field: str(BAD / name)}
    with pytest.raises(UserError, match=rf"{name}:\d+: ") as caught:
        TextData(**files).load()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_length": 1}, "data.block_length: expected .*at least 2, found 1"),
        ({"validation_fraction": 0.5, "test_fraction": 0.5}, "leave nothing to train on"),
        ({"test_fraction": 0.0}, "data.test_fraction: expected a number, more than 0 and below 1, found 0.0"),
        ({"vocabulary_size": 3}, "--data.vocabulary-size 3: expected 5 to"),
    ],
)
def test_fields_that_cannot_work(changes, message):
    with pytest.raises(UserError, match=message):
        TextData(**changes)


def test_blank_lines_are_not_all_that_is_held_out(tmp_path):
    ended = TextData(train=write(tmp_path / "a.txt", [*VERSES, "", " "])).load()
    assert ended.held_out == TextData(train=write(tmp_path / "b.txt")).load().held_out
    path = write(tmp_path / "c.txt", [*VERSES[:20], *[""] * 19, VERSES[20]])
    with pytest.raises(
        UserError, match=r"c\.txt:38: .* held out for validation are blank: name a file with --data\.val"
    ):
        TextData(train=path, validation_fraction=0.05, test_fraction=0.02).load()


def test_too_little_text(tmp_path):
    with pytest.raises(UserError, match=r"a\.txt:2: .*--data\.validation and --data\.test"):
        TextData(train=write(tmp_path / "a.txt", ["one", "two"])).load()
    with pytest.raises(UserError, match=r"--data\.train is not set"):
        TextData().load()
