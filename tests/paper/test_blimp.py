import json
import zipfile

import pytest

from paper.tasks import blimp
from paper.tasks.blimp import SETS, load_blimp, read_pairs
from paper.tasks.words import Words
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.errors import UserError
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.sides.listed import Classes
from universal_transformer.tasks.sides.tokenized import Text

GROUPS = [group for groups in SETS.values() for group in groups]
PAIRS = [("The keys are here.", "The keys is here."), ("A zebra runs.", "A zebra run.")]
CODEC = Codec.shared(Words(("the", "keys", "are", "is", "here", ".", "a")))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "blimp").mkdir()
    write(tmp_path / "blimp/BLiMP.zip", dict.fromkeys(GROUPS, PAIRS))
    return tmp_path


def write(path, sets):
    with zipfile.ZipFile(path, "w") as archive:
        for group, pairs in sets.items():
            lines = [json.dumps({"sentence_good": good, "sentence_bad": bad}) for good, bad in pairs]
            archive.writestr(f"data/{group}.jsonl", "\n".join(lines) + "\n")


def test_pairs_are_whole_sentences(folder):
    task = load_blimp(CODEC, data_dir=str(folder))
    assert task.metric == "ranking"
    assert {name: [example.group for example in examples[::2]] for name, examples in task.test.items()} == {
        name: list(groups) for name, groups in SETS.items()
    }
    example = task.test["with distractors"][0]
    assert CODEC.render(example.target) == "the keys are here ."
    assert CODEC.render(example.source) == "the keys is here ."


def test_unknown_words_are_noted(folder):
    task = load_blimp(CODEC, data_dir=str(folder))
    assert task.notes == (
        "trained on other text: 22.2% of the words are not in the vocabulary",
        "6 of 12 pairs count as wrong: the words that differ are not in the vocabulary",
    )


def test_a_codec_of_another_kind_is_refused(folder):
    tokenizer = Tokenizer.train(["a b"], kind="word", vocabulary_size=10)
    codec = Codec(Text(tokenizer, 50), Classes(("x", "y")))
    with pytest.raises(UserError, match="it needs the run of a language model"):
        load_blimp(codec, data_dir=str(folder))


def test_bad_archives(tmp_path, folder):
    with pytest.raises(UserError, match=r"BLiMP\.zip: no such file in the data folder .*ut data fetch blimp"):
        load_blimp(CODEC, data_dir=str(tmp_path / "nowhere"))
    path = tmp_path / "a.zip"
    path.write_bytes(b"not a zip")
    with pytest.raises(UserError, match=r"a\.zip: data/x\.jsonl: cannot be read"):
        list(read_pairs(path, "x"))
    write(path, {"x": PAIRS})
    with pytest.raises(UserError, match=r"a\.zip: data/y\.jsonl is not in it"):
        list(read_pairs(path, "y"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data/x.jsonl", '{"sentence_good": "a"}\n')
    with pytest.raises(UserError, match=r'x\.jsonl:1: found .*expected "sentence_good"'):
        list(read_pairs(path, "x"))


def test_a_damaged_stream_in_a_whole_archive(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/x.jsonl", "word " * 1000)
    content = bytearray(path.read_bytes())
    start = content.index(b"data/x.jsonl") + len("data/x.jsonl")
    content[start] = 0xFF  # a kind of block that deflate does not have
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.zip: data/x\.jsonl: cannot be read \(.*invalid block type"):
        list(read_pairs(path, "x"))


def test_too_large_a_set_is_refused(folder, monkeypatch):
    monkeypatch.setattr(blimp, "MAX_BYTES", 10)
    with pytest.raises(UserError, match=r"bytes; expected at most 10"):
        load_blimp(CODEC, data_dir=str(folder))


@pytest.mark.slow
def test_published_counts(shared_data):
    if not (shared_data / "blimp/BLiMP.zip").is_file():
        pytest.skip(f"no BLiMP in {shared_data}")
    task = load_blimp(CODEC)
    groups = [example.group for examples in task.test.values() for example in examples]
    assert {group: groups.count(group) for group in groups} == dict.fromkeys(GROUPS, 1000)
