import dataclasses
import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.data.tokenizer import END, KINDS, UNKNOWN, until_end
from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics import metric_of
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.tasks import Codec
from universal_transformer.tasks.pairs import PairsData
from universal_transformer.training.data_lines import data_lines, unreachable
from universal_transformer.typed import replaced

BAD = Path(__file__).parents[1] / "fixtures" / "bad"
REAL = os.environ.get("UT_DATA") or str(Path(__file__).parents[2] / "../shared/data")
PAIRS = [(f"the {a} is {b}", f"das {b} ist {a}!") for a in "abcdefgh" for b in ("big", "red", "old")]
# Where the fault is in the line after two or one good ones, and where in the first.
LINES = {
    "empty.tsv": 1, "only_byte_order_mark.tsv": 1, "only_blank_lines.tsv": 3, "latin1.tsv": 3, "utf16.tsv": 1,
    "utf16_unmarked.tsv": 1, "surrogate_bytes.tsv": 3, "overlong.tsv": 1, "cut_character.tsv": 3, "nul.tsv": 3,
    "one_column.tsv": 3, "three_columns.tsv": 3, "all_same.tsv": 1, "not_gzip.tsv.gz": 1, "cut.tsv.gz": None,
    "flipped.tsv.gz": None, "gzip_without_name.tsv": 1, "not_json.jsonl": 2, "cut_json.jsonl": 2,
    "array.jsonl": 2, "missing_key.jsonl": 2, "repeated_key.jsonl": 2, "nan.jsonl": 2, "infinite.jsonl": 2,
    "digits.jsonl": 2, "null.jsonl": 2, "list_target.jsonl": 2, "half_surrogate.jsonl": 2, "deep.jsonl": 2,
}  # fmt: skip


def write_tsv(path, pairs=PAIRS, end="\n"):
    path.write_bytes("".join(f"{source}\t{target}{end}" for source, target in pairs).encode())
    return str(path)


def data(train, **changes):
    return PairsData(train=str(train), **({"tokenizer": "character"} | changes))


def test_the_table_of_bad_files_is_whole():
    assert LINES.keys() == {path.name for path in BAD.iterdir()}


@pytest.mark.parametrize("name", LINES)
def test_a_bad_file_is_refused_in_one_line_with_its_place(name):
    with pytest.raises(UserError) as caught:
        data(BAD / name).load()
    message = str(caught.value)
    place = f"{BAD / name}:" + (f"{LINES[name]}: " if LINES[name] else "")
    assert message.startswith(place)
    assert message.isprintable()
    assert any(remedy in message for remedy in ("expected", "name a file", "not valid JSON"))


@pytest.mark.parametrize("field", ["validation", "test"])
@pytest.mark.parametrize("name", ["latin1.tsv", "one_column.tsv", "nan.jsonl", "cut.tsv.gz", "empty.tsv"])
def test_every_file_is_read_as_strictly(tmp_path, field, name):
    with pytest.raises(UserError, match=rf"{name}:\d+: "):
        data(write_tsv(tmp_path / "a.tsv"), **{field: str(BAD / name)}).load()


def test_line_ends_and_format_do_not_matter(tmp_path):
    plain = write_tsv(tmp_path / "a.tsv")
    whole = Path(plain).read_bytes()
    (tmp_path / "mark.tsv").write_bytes(b"\xef\xbb\xbf" + whole)
    (tmp_path / "open.tsv").write_bytes(whole.removesuffix(b"\n"))
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(whole))
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"source": source, "target": target, "id": 1}) + "\n" for source, target in PAIRS)
    )
    (tmp_path / "a.en").write_text("".join(f"{source}\n" for source, _ in PAIRS))
    (tmp_path / "a.de").write_text("".join(f"{target}\r\n" for _, target in PAIRS))
    expected = data(plain, validation=plain).load()
    for name in ("crlf.tsv", "mark.tsv", "open.tsv", "a.tsv.gz", "a.jsonl"):
        path = write_tsv(tmp_path / name, end="\r\n") if name == "crlf.tsv" else str(tmp_path / name)
        task = data(path, validation=path).load()
        assert (task.train, task.validation) == (expected.train, expected.validation), name
    side = {"train_target": str(tmp_path / "a.de"), "validation_target": str(tmp_path / "a.de")}
    task = data(tmp_path / "a.en", validation=str(tmp_path / "a.en"), **side).load()
    assert task.train == expected.train


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [True, False])
def test_examples_codec_and_model_fields(tmp_path, kind, shared):
    path = write_tsv(tmp_path / "a.tsv")
    task = data(path, validation=path, tokenizer=kind, vocabulary_size=300, shared_vocabulary=shared).load()
    for (source, target), example in zip(PAIRS, task.train, strict=True):
        assert example.source[-1] == example.target[-1] == END
        assert END not in (*example.source[:-1], *example.target[:-1])
        assert task.codec.render(example.target) == target
        assert len(task.codec.words(example)) == len(example.source)
        assert "".join(task.codec.words(example)[:-1]).replace("␣", "") == source.replace(" ", "")
    config = task.configure(ModelConfig())
    assert config.architecture == "encoder_decoder"
    assert config.vocabulary.size == len(task.codec.source.tokenizer)
    assert config.vocabulary.target_size == (None if shared else len(task.codec.target.tokenizer))
    folder = tmp_path / "run"
    folder.mkdir()
    task.codec.save(folder)
    loaded = Codec.load(folder)
    lines = [(1, "the a is old"), (2, ""), (3, "unbekannt ☃")]
    assert list(loaded.read(lines, name="x")) == list(task.codec.read(lines, name="x"))
    assert [loaded.render(example.target) for example in task.train] == [
        task.codec.render(example.target) for example in task.train
    ]
    files = {"codec.json", "tokenizer.json"} | (set() if shared else {"target_tokenizer.json"})
    assert {child.name for child in folder.iterdir()} == files


def test_held_out_pairs(tmp_path):
    pairs = [*PAIRS, *((source, "wie bitte?") for source, _ in PAIRS)]
    path = write_tsv(tmp_path / "a.tsv", pairs)
    task = data(path, validation_fraction=0.25, seed=3).load()
    assert len(task.validation) == 2 * round(0.25 * len(PAIRS))
    assert len(task.train) + len(task.validation) == len(pairs)
    assert not {e.source for e in task.train} & {e.source for e in task.validation}
    assert task.test == {"validation": task.validation}
    assert any("held out by seed 3" in note for note in task.notes)
    assert any("no test file" in note for note in task.notes)
    again = data(path, validation_fraction=0.25, seed=3).load()
    assert (again.train, again.validation) == (task.train, task.validation)
    assert data(path, validation_fraction=0.25, seed=4).load().validation != task.validation


def test_sources_that_a_codec_reads_alike_are_in_one_part(tmp_path):
    pairs = [(form(f"word {n} and more"), "yes") for n in range(20) for form in (str, str.upper, str.title)]
    pairs += [(f"word  {n} and  more", "yes") for n in range(20)]
    path = write_tsv(tmp_path / "a.tsv", pairs)
    task = data(path, validation_fraction=0.3, lower_case=True).load()
    assert len(task.validation) == 4 * 6
    assert not {e.source for e in task.train} & {e.source for e in task.validation}


@given(st.lists(st.sampled_from(["good", "blank", "half", "long"]), min_size=4, max_size=12))
def test_lines_read_are_lines_used_and_reported(tmp_path_factory, kinds):
    lines = {"good": "a\tb", "blank": " ", "half": "a\t", "long": f"{'a' * 50}\tb"}
    kinds = ["good", *kinds]
    path = tmp_path_factory.mktemp("pairs") / "a.tsv"
    path.write_text("".join(lines[kind] + "\n" for kind in kinds))
    valid = write_tsv(path.parent / "valid.tsv")
    task = data(path, validation=valid, max_length=30).load()
    blank, long = kinds.count("blank") + kinds.count("half"), kinds.count("long")
    assert len(task.train) == kinds.count("good")
    notes = " ".join(task.notes)
    assert (f"{blank} of {len(kinds)} lines left out" in notes) == bool(blank)
    assert (f"{long} of {len(kinds) - blank} examples left out" in notes) == bool(long)


def test_nothing_but_long_pairs(tmp_path):
    with pytest.raises(UserError, match=r"a\.tsv:1: this and every other pair is longer than --data.max-length 4"):
        data(write_tsv(tmp_path / "a.tsv"), validation=write_tsv(tmp_path / "b.tsv"), max_length=4).load()


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    path = write_tsv(tmp_path_factory.mktemp("codec") / "a.tsv")
    return data(path, validation=path, tokenizer="bpe", vocabulary_size=280, max_length=100).load().codec


@given(lines=st.lists(st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=20)))
def test_as_many_examples_as_lines_that_are_not_blank(codec, lines):
    lines = [line for line in lines if line.strip()]
    examples = list(codec.read(enumerate([*lines, "", " "], start=1), name="x"))
    assert len(examples) == len(lines)
    for text, example in zip(lines, examples, strict=True):
        assert example.source
        assert example.target == ()
        assert codec.target.tokenizer.decode(example.source) == text
        assert "\n" not in codec.render(example.source)


@given(ids=st.lists(st.integers(0, 279), max_size=20))
def test_whatever_is_generated_is_one_line(codec, ids):
    assert "\n" not in codec.render(ids)


def test_a_long_source_is_named(codec):
    with pytest.raises(UserError, match=r"in\.txt:7: a text of 121 tokens; this run takes at most 100"):
        list(codec.read([(6, "a"), (7, "☃" * 40)], name="in.txt"))


def test_tabs_in_one_of_two_files_are_noted(tmp_path):
    (tmp_path / "a.en").write_text("a\tx\nb\nc\n")
    (tmp_path / "a.de").write_text("a\nb\nc\n")
    notes = data(tmp_path / "a.en", train_target=str(tmp_path / "a.de")).load().notes
    assert any("a.en: 1 of 3 rows have a tab in the text, which belongs to it" in note for note in notes)
    assert not any("a tab" in note for note in data(write_tsv(tmp_path / "a.tsv")).load().notes)


def test_parallel_files_of_different_length(tmp_path):
    (tmp_path / "a.en").write_text("a\nb\nc\n")
    (tmp_path / "a.de").write_text("a\nb\n")
    for first, second in (("a.en", "a.de"), ("a.de", "a.en")):
        with pytest.raises(UserError, match=r"a\.en:3: no line 3 in .*a\.de, which ends after 2 lines"):
            data(tmp_path / first, train_target=str(tmp_path / second)).load()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": "bpe", "vocabulary_size": 100}, "expected 260 to 1,000,000 for bpe tokens"),
        (
            {"validation_fraction": 1.0},
            "data.validation_fraction: expected a number, more than 0 and below 1, found 1.0",
        ),
        ({"max_length": 1}, "data.max_length: expected a whole number, at least 2, found 1"),
        ({"test_target": "b.de"}, "--data.test-target is set without --data.test"),
    ],
)
def test_fields_that_cannot_work(changes, message):
    with pytest.raises(UserError, match=message):
        PairsData(**changes)


def test_no_file_named():
    with pytest.raises(UserError, match=r"--data\.train is not set"):
        PairsData().load()


def test_notes_on_bleu(tmp_path):
    path = write_tsv(tmp_path / "a.tsv")
    assert any("answers are in lower case" in note for note in data(path, lower_case=True).load().notes)
    assert not any("lower case" in note for note in data(path, tokenizer="word").load().notes)
    exact = data(path, metric="sequence", tokenizer="whitespace", lower_case=True).load().notes
    assert [note.split(",")[0].split(":")[0] for note in exact[-2:]] == [
        "character accuracy is over tokens",
        "targets are turned into lower case",
    ]


@pytest.mark.parametrize("metric", ["sequence", "bleu", "rouge"])
def test_what_the_vocabulary_lacks_is_never_right(tmp_path, metric):
    rows = [("a", "pink x"), ("b", "blue"), ("c", "green")]
    task = data(write_tsv(tmp_path / "a.tsv", PAIRS), test=write_tsv(tmp_path / "b.tsv", rows), metric=metric)
    task = dataclasses.replace(task, tokenizer="whitespace").load()
    assert any("b.tsv: 3 of 3 targets have parts that are not in the vocabulary" in note for note in task.notes)
    for example in task.test["test"]:
        tokens = until_end(example.target)
        assert set(tokens) == {UNKNOWN}
        scored = metric_of(task)
        assert all(value == 0 for value in scored.scores(scored.sums(tokens, example)).values())
        if metric != "sequence":
            assert scored.text(tokens).strip() == ""


def test_names_of_files_and_first_lines_that_were_not_meant(tmp_path, monkeypatch):
    monkeypatch.setenv("UT_DATA", str(tmp_path / "data"))
    upper = tmp_path / "A.JSONL"
    upper.write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in PAIRS))
    assert len(data(upper).load().train) > 0
    with pytest.raises(UserError, match=r"the name of a file of JSON lines ends in \.jsonl"):
        data(upper.rename(tmp_path / "a.json")).load()
    headed = write_tsv(tmp_path / "a.tsv", [("Source", "target"), *PAIRS])
    headed, plain = (data(path, validation=path).load() for path in (headed, write_tsv(tmp_path / "b.tsv")))
    assert headed.train == plain.train, "the names of the columns are no row"
    (tmp_path / "c.TSV.GZ").write_bytes(gzip.compress((tmp_path / "a.tsv").read_bytes()))
    assert len(data(tmp_path / "c.TSV.GZ").load().train) > 0
    folder = tmp_path / "folder"
    folder.mkdir()
    write_tsv(folder / "a.tsv")
    write_tsv(folder / "b.tsv", [("source", "target"), *PAIRS])
    for memory in (64, 0):
        task = data(folder, tokenizer="whitespace", memory_mb=memory).load()
        assert len(task.train) + len(task.validation) == 2 * len(PAIRS)
    (folder / "c.tsv").symlink_to(tmp_path / "none")
    with pytest.raises(UserError, match=r"c\.tsv: no such file"):
        data(folder).load()
    (folder / "c.tsv").unlink()
    (folder / "more").mkdir()
    with pytest.raises(UserError, match="more: this is a directory; expected a text file"):
        data(folder).load()


@pytest.mark.parametrize("parallel", [False, True])
def test_the_character_that_stands_between_two_texts_is_refused(tmp_path, parallel):
    if parallel:
        (tmp_path / "a").write_text("x\ny\n")
        (tmp_path / "b").write_text("x\ny\x1f\n")
        broken = data(tmp_path / "a", train_target=str(tmp_path / "b"))
    else:
        broken = data(write_tsv(tmp_path / "b", [("x", "x"), ("\x1fy", "y")]))
    with pytest.raises(UserError, match=r"b:2: the control character 0x1f in "):
        broken.load()


@pytest.mark.parametrize(
    "content",
    ["{}", '{"source": {"kind": "pairs"}, "target": null}', '{"source": 1, "target": null}', "[1]", "{"],
)
def test_a_damaged_codec(tmp_path, codec, content):
    codec.save(tmp_path)
    (tmp_path / "codec.json").write_text(content)
    with pytest.raises(UserError, match=r"codec\.json: "):
        Codec.load(tmp_path)
    codec.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer\.json: no such file"):
        Codec.load(tmp_path)


@pytest.mark.skipif(
    not (Path(REAL) / "multi30k").is_dir(),
    reason=f"no Multi30k files in {REAL}; name their folder with UT_DATA",
)
def test_the_real_files():
    folder = Path(REAL) / "multi30k"
    task = data(
        folder / "val.en.gz", train_target=str(folder / "val.de.gz"), tokenizer="bpe", vocabulary_size=2000
    ).load()
    assert len(task.train) + len(task.validation) == 1014
    assert task.codec.render(task.train[0].target) == "Eine Gruppe von Männern lädt Baumwolle auf einen Lastwagen"


def test_a_tokenizer_of_bleu_without_bleu_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\nc\td\ne\tf\n")
    path = str(tmp_path / "a.tsv")
    assert PairsData(train=path, bleu_tokenizer="zh").load().bleu_tokenizer == "zh"
    with pytest.raises(UserError, match=r"^--data.bleu-tokenizer zh changes nothing with --data.metric sequence"):
        PairsData(train=path, bleu_tokenizer="zh", metric="sequence")


def test_targets_that_are_longer_than_an_answer_may_be_are_counted(tmp_path):
    """The longest training target has 4 tokens with its end, so that an answer has at most 4 + 1 + 10."""
    (tmp_path / "train").write_text("".join(f"go {n}\ta b c\n" for n in range(20)))
    (tmp_path / "test").write_text(f"go\t{'a ' * 14}\ngo\t{'a ' * 15}\n{'go ' * 9}\t{'a ' * 15}\n")
    files = {
        part: str(tmp_path / name) for part, name in (("train", "train"), ("validation", "train"), ("test", "test"))
    }
    task = PairsData(tokenizer="whitespace", **files).load()
    (line,) = [line for line in data_lines(task, ModelConfig()) if line.startswith("too long")]
    assert "1 of 3 test targets are longer" in line
    assert not unreachable(task, replaced(ModelConfig(), {"generation.max_new_tokens": 16}))


def test_each_side_may_have_its_own_tokenizer(tmp_path):
    path = write_tsv(tmp_path / "a.tsv", [("hej", "h e j"), ("haj", "h a j")])
    task = data(path, validation=path, tokenizer="character", target_tokenizer="whitespace").load()
    assert [task.codec.pieces(example) for example in task.train][:1] == [
        (["h", "e", "j", "<end>"], ["▁h", "▁e", "▁j", "<end>"])
    ]
    assert task.codec.model_fields["vocabulary.target_size"] == 4 + 4
    task.codec.save(tmp_path)
    again = data(path, validation=path, tokenizer=str(tmp_path / "tokenizer.json")).load()
    assert again.codec.source == task.codec.source, "a vocabulary of a run keeps its ids"
    again = data(path, target_tokenizer=str(tmp_path / "target_tokenizer.json"), validation=path).load()
    assert again.codec == task.codec
    with pytest.raises(UserError, match="expected one of character, whitespace"):
        data(path, target_tokenizer="letters")


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokenizer_of_a_run_is_taken_with_its_ids(tmp_path, kind):
    path = write_tsv(tmp_path / "a.tsv")
    codec = data(path, validation=path, tokenizer=kind, vocabulary_size=300).load().codec
    codec.save(tmp_path)
    again = data(path, validation=path, tokenizer=str(tmp_path / "tokenizer.json")).load().codec
    assert again.source.tokens == codec.source.tokens
    assert again == codec
