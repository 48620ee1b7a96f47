import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from small_task_models import model_for
from universal_transformer.data.batch import collate
from universal_transformer.data.example import NO_CLASS
from universal_transformer.data.tokenizer import END, KINDS
from universal_transformer.errors import UserError
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.tasks import Codec
from universal_transformer.tasks.labelled import LabelledData
from universal_transformer.training.objective import objective

BAD = Path(__file__).parents[1] / "fixtures" / "bad"
ROWS = [(f"text {number} is {'very ' * (number % 3)}{word}", word) for number in range(8) for word in ("good", "bad")]


def write(path, rows=ROWS, end="\n"):
    path.write_bytes("".join(f"{text}\t{label}{end}" for text, label in rows).encode())
    return str(path)


def test_examples_and_model_fields(tmp_path):
    path = write(tmp_path / "a.tsv")
    task = LabelledData(train=path, validation=path, test=path).load()
    assert task.codec.target.labels == ("bad", "good")
    assert [task.codec.render(example.target) for example in task.train] == [label for _, label in ROWS]
    assert all(example.source[-1] == END for example in task.train)
    assert list(task.test["test"]) == list(task.validation) == list(task.train)
    assert collate(task.train, indices=range(len(task.train))).target.tolist() == [1, 0] * 8
    config = task.configure(ModelConfig())
    assert (config.architecture, config.vocabulary.num_classes) == ("classifier", 2)
    assert config.vocabulary.size == len(task.codec.source.tokenizer)
    assert task.codec.words(task.train[0]) == ["text", "0", "is", "good", "<end>"]
    assert task.metric == "classes"


def test_line_ends_and_format_do_not_matter(tmp_path):
    path = write(tmp_path / "a.tsv")
    rows = [json.dumps({"label": label, "text": text, "more": [1]}) + "\r\n" for text, label in ROWS]
    (tmp_path / "a.jsonl").write_text("".join(rows), newline="")
    (tmp_path / "mark.tsv").write_bytes(b"\xef\xbb\xbf" + Path(path).read_bytes().removesuffix(b"\n"))
    expected = LabelledData(train=path).load()
    for other in (tmp_path / "a.jsonl", tmp_path / "mark.tsv", write(tmp_path / "crlf.tsv", end="\r\n")):
        task = LabelledData(train=str(other)).load()
        assert (task.train, task.validation) == (expected.train, expected.validation)


def test_number_labels_of_json_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "t{n}", "label": {n % 3}}}\n' for n in range(9)))
    assert LabelledData(train=str(tmp_path / "a.jsonl")).load().codec.target.labels == ("0", "1", "2")
    (tmp_path / "b.jsonl").write_text('{"text": "t", "label": true}\n')
    with pytest.raises(UserError, match=r'b\.jsonl:1: "label" is True; expected a string or a whole number$'):
        LabelledData(train=str(tmp_path / "b.jsonl")).load()


@pytest.mark.parametrize("field", ["validation", "test"])
def test_an_unknown_label_is_named_with_those_allowed(tmp_path, field):
    other = write(tmp_path / "b.tsv", [*ROWS[:2], ("a text", "mixed")])
    remedy = "leave its example out, or train with an example of it"
    with pytest.raises(UserError, match=rf"b\.tsv:3: unknown label 'mixed'; .* 'bad', 'good'; {remedy}$"):
        LabelledData(train=write(tmp_path / "a.tsv"), **{field: other}).load()


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
def test_rows_without_a_group_have_one_of_their_own(tmp_path, name):
    rows = [("a text", "x", "new"), ("b text", "y", ""), ("c text", "x", "")]
    lines = ["\t".join(row) for row in rows]
    if name == "a.jsonl":
        lines = [json.dumps(dict(zip(("text", "label", "kind"), row, strict=True))) for row in rows]
    (tmp_path / name).write_text("\n".join(lines))
    path = str(tmp_path / name)
    task = LabelledData(train=path, validation=path, group="3" if name == "a.tsv" else "kind").load()
    assert [example.group for example in task.validation] == ["new", "(empty)", "(empty)"]


def test_labels_that_cannot_be_learned(tmp_path):
    with pytest.raises(UserError, match=r"a\.tsv:2: .*one label only, 'x'"):
        LabelledData(train=write(tmp_path / "a.tsv", [("a", "x"), ("b", " x ")])).load()
    valid = write(tmp_path / "valid.tsv")
    with pytest.raises(UserError, match=r"only, 'x'; .*a\.tsv: 2 of 3 lines left out: blank .*; expected at least two"):
        LabelledData(train=write(tmp_path / "a.tsv", [("a", "x"), ("", "y"), ("b", "")]), validation=valid).load()
    with pytest.raises(UserError, match=r"10,001 different labels .* \(--data\.columns names another column\)"):
        LabelledData(train=write(tmp_path / "a.tsv", [("x", str(n)) for n in range(10_001)]), validation=valid).load()


@pytest.mark.parametrize("name", [path.name for path in sorted(BAD.iterdir())])
def test_a_bad_file_is_refused_in_one_line_with_its_place(name):
    with pytest.raises(UserError, match=rf"{name}:\d+: ") as caught:
        LabelledData(train=str(BAD / name)).load()
    assert str(caught.value).isprintable()


def test_long_texts_are_counted_in_training_and_named_in_prediction(tmp_path):
    path = write(tmp_path / "a.tsv", [*ROWS, ("long " * 20, "good")])
    task = LabelledData(train=path, validation=path, max_length=10).load()
    assert len(task.train) == len(ROWS)
    assert any("1 of 17 examples left out" in note for note in task.notes)
    with pytest.raises(UserError, match="x:2: a text of 22 tokens; this run takes at most 10"):
        list(task.codec.read([(1, "a"), (2, "long " * 20)], name="x"))


@pytest.fixture(scope="module")
def codecs(tmp_path_factory):
    path = write(tmp_path_factory.mktemp("codec") / "a.tsv")
    return {kind: LabelledData(train=path, validation=path, tokenizer=kind).load().codec for kind in KINDS}


@given(
    kind=st.sampled_from(KINDS),
    lines=st.lists(st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=20)),
)
def test_as_many_examples_as_lines_that_are_not_blank(codecs, kind, lines):
    examples = list(codecs[kind].read(enumerate(lines, start=1), name="x"))
    assert len(examples) == sum(bool(line.strip()) for line in lines)
    assert all(example.source and example.target == NO_CLASS for example in examples)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_is_the_same(tmp_path, codecs, kind):
    codecs[kind].save(tmp_path)
    loaded = Codec.load(tmp_path)
    assert loaded == codecs[kind]
    lines = list(enumerate((text for text, _ in ROWS), start=1))
    assert list(loaded.read(lines, name="x")) == list(codecs[kind].read(lines, name="x"))
    assert loaded.render(NO_CLASS) == "<unknown>"
    (tmp_path / "codec.json").write_text(
        json.dumps(
            {
                "source": {"kind": "text", "max_length": 3, "segments": 1, "after": 0},
                "target": {"kind": "classes", "labels": ["b", "b"]},
            }
        )
    )
    with pytest.raises(UserError, match=r"codec\.json: target: labels: found .*different"):
        Codec.load(tmp_path)


@pytest.mark.parametrize(
    ("choice", "weights"), [("balanced", (0.625, 2.5)), ("yes=3", (5 / 7, 15 / 7)), ("yes=1", (1, 1))]
)
def test_classes_have_weights_in_the_loss_of_training_alone(tmp_path, choice, weights):
    rows = [(f"text {number}", "yes" if number < 2 else "no") for number in range(10)]
    path = write(tmp_path / "a.tsv", rows)
    task = LabelledData(train=path, validation=path, class_weights=choice).load()
    assert [example.weight for example in task.train] == pytest.approx([weights[1]] * 2 + [weights[0]] * 8)
    assert {example.weight for example in task.validation} == {1.0}
    model = model_for(task).eval()
    batch = collate(task.train, indices=range(10))
    with torch.no_grad():
        loss = objective(model, batch, label_smoothing=0.1, ponder_weight=0.0)
        each = cross_entropy(model(batch.source).logits, batch.target, label_smoothing=0.1, reduction="none")
        plain = objective(model, collate(task.validation, indices=range(10)), label_smoothing=0.1, ponder_weight=0.0)
    expected = sum(weights[target == 1] * float(term) for target, term in zip(batch.target, each, strict=True)) / 10
    assert float(loss.total) == pytest.approx(expected, rel=1e-5)
    assert float(plain.total) == pytest.approx(float(each.mean()), rel=1e-5)
    for wrong, message in (
        ("maybe=2", "unknown label 'maybe'; those of the training file are 'no', 'yes'$"),
        ("yes=0", "'yes=0'; expected balanced, or LABEL=WEIGHT"),
        ("yes", "'yes'; expected balanced, or LABEL=WEIGHT"),
        ("yes=1,yes=2,no=0", "'no=0'; expected balanced, or LABEL=WEIGHT"),
    ):
        with pytest.raises(UserError, match=f"--data.class-weights: {message}"):
            LabelledData(train=path, validation=path, class_weights=wrong).load()


def test_a_label_that_no_held_out_row_has_is_named(tmp_path):
    lines = [f"good film {n}\tyes\n" for n in range(40)] + ["bad film 1\tno\n", "bad film 2\tno\n"]
    (tmp_path / "a.tsv").write_text("".join(lines))
    (tmp_path / "b.tsv").write_text("good film\tyes\nbad film\tno\n")
    named = (
        "validation: 1 of 2 labels are in none of its rows, such as 'no'; --data.validation names a file of your own"
    )
    assert named in LabelledData(train=str(tmp_path / "a.tsv")).load().notes
    with_file = LabelledData(train=str(tmp_path / "a.tsv"), validation=str(tmp_path / "b.tsv")).load()
    assert not [note for note in with_file.notes if "labels are in none" in note]
