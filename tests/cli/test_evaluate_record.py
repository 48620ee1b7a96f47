"""``--record`` writes a figure with everything it depends on."""

import json

import pytest

from universal_transformer.cli import main
from universal_transformer.cli.evaluate import Evaluate
from universal_transformer.cli.parser import parse


def test_a_record_names_what_the_figure_depends_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ("--width", "16", "--filter-width", "16", "--num-heads", "2", "--train-stories", "20")
    few = ("--validation-stories", "5", "--test-stories", "5", "--max-updates", "3", "--minutes", "None")
    linear = ("--schedule", "constant", "--run", "a", "--quiet")
    assert main(["train", "stories", *small, *few, *linear]) == 0
    assert main(["evaluate", "a", "--record", "kept.json"]) == 0
    stories = tmp_path / "stories.txt"
    stories.write_text("1 Mary went to the kitchen.\n2 Where is Mary?\n")
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert kept["train"].startswith("ut train stories")
    assert kept["evaluate"] == "ut evaluate a --record kept.json"
    assert "--training.max-updates 3" in kept["train"]
    assert kept["ended"]["update"] == 3
    assert "folder" not in kept["started"], "where the run was changes no figure"
    assert kept["hardware"]["threads"] >= 1
    assert kept["versions"]["torch"]
    assert kept["report"] == json.loads((tmp_path / "a" / "report.json").read_text())
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    (tmp_path / "a" / "config.json").write_text(json.dumps({**config, "recipe": "mine"}))
    assert main(["evaluate", "a", "--limit", "1", "--record", "mine.json"]) == 0
    assert json.loads((tmp_path / "mine.json").read_text())["train"] is None
    (tmp_path / "a" / "metrics.jsonl").rename("metrics.jsonl")
    (tmp_path / "a" / "report.json").unlink()
    capsys.readouterr()
    assert main(["evaluate", "a", "--record", "kept.json"]) == 2
    assert "--record kept.json: a has no metrics.jsonl" in capsys.readouterr().err
    assert not (tmp_path / "a" / "report.json").exists()
    texts = []
    for form in ("auto", "masked"):
        assert main(["predict", "a", str(stories), "--halting-execution", form]) == 0
        assert main(["evaluate", "a", "--halting-execution", form, "--limit", "2"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ([], "report.json"),
        (["--beams", "4"], "report-beams-4.json"),
        (["--beams", "4", "--length-penalty", "0.6"], "report-beams-4.json"),
        (["--beams", "4", "--length-penalty", "0"], "report-beams-4-penalty-0.0.json"),
        (["--beams", "4", "--length-penalty", "1"], "report-beams-4-penalty-1.0.json"),
        (["--split", "validation"], "report-validation.json"),
        (["--split", "../length 400/x"], "report-..-length-400-x.json"),
    ],
)
def test_another_search_or_split_has_a_report_of_its_own(arguments, name):
    assert parse(Evaluate, ["a", *arguments], name="evaluate").file_name(calibrated=False) == name


def test_an_input_is_written_as_it_is_read(tmp_path, capsys):
    file = tmp_path / "answers.jsonl"
    given = ["--split", "length 40", "--limit", "1", "--report", str(tmp_path), "--predictions", str(file)]
    assert main(["evaluate", "addition", *given]) == 0
    (row,) = map(json.loads, file.read_text().splitlines())
    assert str(sum(map(int, row["source"].split("+")))) == row["target"]
    capsys.readouterr()
    assert main(["predict", "addition", "--text", row["source"]]) == 0
    assert capsys.readouterr().out.strip() == row["answer"]


def test_a_file_as_the_folder_of_reports_is_refused_before_the_evaluation(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("of the user")
    assert main(["evaluate", "demo", "--report", str(tmp_path / "notes.txt")]) == 2
    said = capsys.readouterr()
    assert said.err == f"ut: --report {tmp_path / 'notes.txt'}: this is a file; expected a folder\n"
    assert not said.out
