"""Mistakes of a user at every command: exactly one line, exit code 2, and no files are left."""

import json
import os

import pytest

from universal_transformer.cli import main

MISTAKES = {
    "no such command": (["trian"], "did you mean train"),
    "no such option": (["--frobnicate"], "no option '--frobnicate'"),
    "no recipe": (["train"], "name a recipe first"),
    "no such recipe": (["train", "storis"], "did you mean stories"),
    "option before the recipe": (["train", "--max-steps", "3"], "name a recipe first"),
    "no such field": (["train", "stories", "--max-step", "8"], "did you mean --max-steps"),
    "no such value": (
        ["train", "stories", "--max-steps", "eight"],
        "expected a whole number, at least 1",
    ),
    "cannot work": (["train", "stories", "--num-heads", "7"], "num_heads=7: must divide width"),
    "second recipe": (["train", "stories", "babi"], "unexpected 'babi'"),
    "run without value": (["train", "stories", "--run"], "--run: expected one argument"),
    "flag with value": (["train", "stories", "--dry-run=yes"], "--dry-run: ignored explicit argument"),
    "no file": (["train", "pairs"], "--data.train is not set"),
    "no such file": (["train", "pairs", "--data.train", "none.tsv"], "none.tsv: no such file"),
    "no such file, dry": (
        ["train", "text", "--dry-run", "--data.train", "none.txt"],
        "none.txt: no such file",
    ),
    "a folder for a file": (["train", "labelled", "--data.train", "."], "this is a directory"),
    "columns": (["train", "pairs", "--data.train", "columns.tsv"], "columns.tsv:2: found 3 columns"),
    "bytes": (["train", "text", "--data.train", "bytes.txt"], "bytes.txt:1: byte 0xff"),
    "empty": (["train", "text", "--data.train", "empty.txt"], "the file is empty"),
    "no data": (["train", "babi", "--data-dir", "none"], "ut data fetch babi"),
    "no such task": (["train", "babi", "--task", "21"], "task must be a number from 1 to 20"),
    "no GPU": (
        ["train", "stories", "--train-stories", "9", "--device", "tpu"],
        "expected one of auto, cpu, cuda",
    ),
    "resume nothing": (["train", "--resume", "none"], "none: no such run folder"),
    "resume no run": (["train", "--resume", "folder"], "not a run folder"),
    "resume a file": (["train", "--resume", "empty.txt"], "a file; expected the folder of a run"),
    "resume elsewhere": (["train", "--resume", "begun", "--run", "other"], "leave --run out"),
    "resume with a recipe": (["train", "--resume", "begun", "stories"], "unexpected 'stories'"),
    "resume as another": (
        ["train", "--resume", "begun", "--max-steps", "3"],
        "model.depth.max_steps was 6, is now 3",
    ),
    "resume at another rate": (
        ["train", "--resume", "begun", "--learning-rate", "1"],
        "to change it deliberately: --accept-change training.learning_rate",
    ),
    "accept what cannot change": (
        ["train", "--resume", "begun", "--training.seed", "1", "--accept-change=training.seed"],
        "--accept-change training.seed: cannot change when a run continues",
    ),
    "accept for a new run": (
        ["train", "stories", "--accept-change", "training.learning-rate"],
        "--accept-change is for a run that continues",
    ),
    "accept nothing": (
        ["train", "--resume", "begun", "--accept-change"],
        "expected at least one argument",
    ),
    "train again": (["train", "stories", "--run", "begun"], "ut train --resume begun continues it"),
    "train over something": (["train", "stories", "--train-stories", "9", "--run", "folder"], "folder"),
    "damaged run": (["evaluate", "damaged"], "not valid JSON"),
    "config of another program": (["evaluate", "other"], "unknown: colour"),
    "model of a run": (["calibrate", "other/model", "--tolerance", "1%"], "the model of a run; name the run: other"),
    "evaluate nothing": (["evaluate"], "required: RUN"),
    "evaluate no run": (["evaluate", "folder"], "not a run folder"),
    "evaluate near a run": (["evaluate", "begin"], "did you mean begun"),
    "evaluate before a model": (["evaluate", "begun"], "no model in this run yet"),
    "predict before a model": (["predict", "begun", "empty.txt"], "no model in this run yet"),
    "plot before a model": (["plot", "begun"], "no model in this run yet"),
    "depth": (
        ["evaluate", "begun", "--max-steps", "0"],
        "--max-steps: expected a whole number, at least 1",
    ),
    "halting execution": (
        ["evaluate", "begun", "--halting-execution", "fast"],
        "expected one of auto, masked, found",
    ),
    "halting execution of a recipe": (
        ["train", "stories", "--halting-execution", "fast"],
        "expected one of auto, masked",
    ),
    "threshold": (["predict", "begun", "--halting-threshold", "2"], "more than 0 and at most 1"),
    "no depth": (
        ["predict", "begun", "--max-steps", "0"],
        "--max-steps: expected a whole number, at least 1",
    ),
    "a penalty of no search": (
        ["predict", "begun", "--length-penalty", "1"],
        "--length-penalty is for a beam search: give --beams too",
    ),
    "less depth": (["evaluate", "begun", "--max-steps", "-1"], "expected a whole number, at least 1, found"),
    "no threshold": (
        ["evaluate", "begun", "--halting-threshold", "0"],
        "expected a number, more than 0 and at most 1",
    ),
    "no batch": (["predict", "begun", "--batch-tokens", "0"], "--batch-tokens: expected a whole number"),
    "no output": (["predict", "begun", "--max-new-tokens", "0"], "--max-new-tokens: expected a whole"),
    "a text for a file": (["predict", "addition", "95+17"], "a text is given so: ut predict addition --text 95+17"),
    "option of predict": (["predict", "begun", "--beems", "3"], "did you mean --beams"),
    "nothing to sample": (["predict", "begun", "--top-k", "3"], "give --temperature too"),
    "nothing to choose from": (["predict", "begun", "--choices", "7"], "--choices is for --format jsonl"),
    "more choices than beams": (
        ["predict", "addition", "--choices", "3", "--beams", "2", "--format", "jsonl", "--text", "1+1"],
        "--choices 3: an answer of this model has as many as --beams, here 2",
    ),
    "data of a pretrained model": (["evaluate", "writer"], "Data of writer: 88 novels by 32 authors"),
    "nothing to seed": (["predict", "reverse", "--seed", "3", "--text", "12"], "--seed is for sampling: give --temp"),
    "record into a folder": (["evaluate", "begun", "--record", "folder"], "folder: this is a folder"),
    "record nowhere": (["evaluate", "begun", "--record", "none/a.json"], "there is no folder none"),
    "results in a file": (
        ["reproduce", "table4", "--results", "empty.txt", "--dry-run"],
        "empty.txt: a file",
    ),
    "no such table": (["reproduce", "tabel4"], "did you mean table4"),
    "set by the data": (
        ["train", "pairs", "--data.train", "pairs.tsv", "--model.vocabulary.size", "7", "--dry-run"],
        "--model.vocabulary.size: the tokenizer and the data determine it",
    ),
    "incomplete configuration": (
        ["evaluate", "incomplete"],
        "training: missing: schedule; written by another version?",
    ),
    "demo of another recipe": (
        ["demo", "--run", "pairs"],
        "a run of the recipe pairs; ut demo trains stories",
    ),
    "train over a file": (
        ["train", "stories", "--train-stories", "9", "--run", "empty.txt"],
        "and no run: choose another",
    ),
    "two searches": (["predict", "begun", "--beams", "3", "--temperature", "1"], "search or sample"),
    "data what": (["data", "chek"], "found 'chek' (did you mean check?)"),
    "data set": (["data", "check", "bab"], "did you mean babi"),
    "no data set": (["data", "fetch"], "name a data set"),
    "neither data set nor recipe": (
        ["data", "check", "pair", "--data.train", "none.tsv"],
        "no data set or recipe 'pair' (did you mean pairs",
    ),
    "too many": (["data", "list", "babi"], "takes no name"),
    "recipes of what": (["recipes", "stories"], "no table 'stories'"),
}


@pytest.fixture
def somewhere(tmp_path, monkeypatch):
    """A folder with invalid files, a run that was only started, and folders that are no run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UT_DATA", raising=False)
    (tmp_path / "columns.tsv").write_text("a\tb\na\tb\tc\n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "pairs.tsv").write_text("".join(f"a {n}\tb {n}\n" for n in range(9)))
    for folder in ("folder", "begun", "damaged", "other", "incomplete", "pairs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "folder" / "something").write_text("else")
    from universal_transformer.recipes import RECIPES

    config = RECIPES["stories"]().to_dict()
    (tmp_path / "begun" / "config.json").write_text(json.dumps(config))
    (tmp_path / "damaged" / "config.json").write_text("{")
    (tmp_path / "other" / "config.json").write_text(json.dumps(config | {"colour": "red"}))
    (tmp_path / "other" / "model").mkdir()
    (tmp_path / "other" / "model" / "config.json").write_text("{}")
    (tmp_path / "pairs" / "config.json").write_text(json.dumps(RECIPES["pairs"]().to_dict()))
    del config["training"]["schedule"]
    (tmp_path / "incomplete" / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_line_and_exit_code_2(mistake, somewhere, capsys):
    arguments, expected = MISTAKES[mistake]
    before = sorted(path.relative_to(somewhere) for path in somewhere.rglob("*"))
    assert main(arguments) == 2
    shown = capsys.readouterr()
    lines = [line for line in shown.err.split("\n") if line and not line.startswith("note: ")]
    assert len(lines) == 1, shown.err
    assert lines[0].startswith("ut: ")
    assert expected in lines[0]
    assert sorted(path.relative_to(somewhere) for path in somewhere.rglob("*")) == before


def test_an_unreadable_folder_does_not_hide_a_mistyped_run(somewhere, capsys, monkeypatch):
    stat = os.stat

    def closed(path, *arguments, **named):
        if str(path).endswith(os.path.join("folder", "config.json")):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *arguments, **named)

    monkeypatch.setattr(os, "stat", closed)
    assert main(["evaluate", "begin"]) == 2
    assert capsys.readouterr().err.startswith(
        "ut: begin: no such run folder (did you mean begun?); pretrained models: "
    )
