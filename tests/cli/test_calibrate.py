"""`ut calibrate` on a small run, and the commands that use what it wrote."""

import json
import re
import shutil

import pytest

from universal_transformer.cli import main
from universal_transformer.cli.evaluate import Evaluate, evaluate_run
from universal_transformer.cli.parser import parse
from universal_transformer.evaluation.calibration import CALIBRATION, Calibration
from universal_transformer.runs.opened import open_with_task

SMALL = [
    "--width",
    "16",
    "--filter-width",
    "16",
    "--num-heads",
    "2",
    "--max-steps",
    "3",
    "--minutes",
    "None",
    "--quiet",
]
SMALL += ["--max-updates", "3", "--batch-tokens", "256", "--halting.side", "none"]
STORIES = ["--train-stories", "20", "--validation-stories", "100", "--test-stories", "10"]
QUESTION = "1 Clara went to the attic.\n2 Where is Clara?\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 3 updates on stories, of fixed depth."""
    folder = tmp_path_factory.mktemp("stories") / "run"
    assert main(["train", "stories", "--run", str(folder), *SMALL, *STORIES]) == 0
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """What is said of the time does not depend on the machine."""
    monkeypatch.setattr("universal_transformer.cli.calibrate.SOON", float("inf"))


def calibrate(run, *options, tolerance="50%"):
    return main(["calibrate", str(run), "--tolerance", tolerance, "--rule", "max_steps", *options])


def test_the_calibration_is_written_and_used(run, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert calibrate(run) == 0
    shown = capsys.readouterr()
    assert "chosen: max_steps 1: 1.00 steps instead of 3.00" in shown.out
    assert shown.out.endswith(f"written to {run / CALIBRATION}, {run / 'plots' / 'calibration.svg'}\n")
    assert (run / "plots" / "calibration.svg").read_bytes().startswith(b"<?xml")
    assert shown.err == ""
    assert main(["plot", str(run)]) == 0
    assert "chosen: max_steps 1: 1.00 steps" in (run / "report.html").read_text()
    capsys.readouterr()

    assert main(["evaluate", str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["max_steps"] == 1
    assert report["notes"][-1].startswith(
        f"max_steps 1 by {run / CALIBRATION}: on data like stories · validation, at most 50 % of the answers"
    )
    assert json.loads((run / "report-calibrated.json").read_text()) == report
    for options, steps, name in ((["--no-calibration"], 3, "report"), (["--max-steps", "2"], 2, "report-steps-2")):
        assert main(["evaluate", str(run), "--json", *options]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["max_steps"], json.loads((run / f"{name}.json").read_text())) == (steps, report)
        assert "calibration" not in "".join(report["notes"])

    (tmp_path / "story.txt").write_text(QUESTION)
    for options, steps in (([], 1), (["--no-calibration"], 3), (["--max-steps", "2"], 2)):
        assert main(["predict", str(run), str(tmp_path / "story.txt"), "--format=jsonl", *options]) == 0
        shown = capsys.readouterr()
        assert {token["steps"] for token in json.loads(shown.out)["tokens"]} == {steps}
        assert (f"ut: max_steps 1 by {run / CALIBRATION}" in shown.err) == (not options)


def test_an_exit_by_hand_replaces_the_calibration(run, tmp_path, capsys):
    assert calibrate(run) == 0
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json", "--exit", "confidence:0.0001"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["totals"][0]["steps"][0]["counts"][1:] == [0, 0]  # all stop after the first step
    assert (report["halting"], report["max_steps"]) == (True, 3)
    assert "collapsed" not in "".join(report["warnings"])
    assert report["notes"][-1] == "evaluated with the exit confidence:0.0001"
    assert json.loads((run / "report-exit-confidence-0.0001.json").read_text()) == report
    (tmp_path / "story.txt").write_text(QUESTION)
    for given, steps in (("state_change:1e6", 2), ("output_change:1e-9", 3)):
        assert main(["predict", str(run), str(tmp_path / "story.txt"), "--format=jsonl", "--exit", given]) == 0
        shown = capsys.readouterr()
        assert {token["steps"] for token in json.loads(shown.out)["tokens"]} == {steps}
        assert shown.err == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--exit", "0.9"], "exit '0.9': expected KIND:THRESHOLD, for instance confidence:0.9"),
        (["--exit", "luck:0.9"], "expected one of state_change, output_change, confidence"),
        (["--exit", "confidence:1.5"], "the threshold of confidence is at most 1"),
        (["--exit", "state_change:0"], "more than 0"),
        (["--exit", "confidence:0.9", "--halting-threshold", "0.5"], "trained without halting and has no threshold"),
    ],
)
def test_wrong_exits_are_one_line(trained, capsys, options, message):
    for command in ("evaluate", "predict"):
        assert main([command, str(trained), *options]) == 2
        shown = capsys.readouterr().err
        assert message in shown
        assert shown.count("\n") == 1


def test_weights_that_changed_make_it_stale(run, capsys):
    assert calibrate(run) == 0
    assert main(["train", "--resume", str(run), "--quiet", "--max-updates", "5"]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["max_steps"] == 3
    assert "is of other weights and is not used: run ut calibrate" in report["notes"][-1]
    assert (run / "report.json").exists()


def test_it_does_not_cover_the_data_of_another_task(run):
    assert calibrate(run) == 0
    opened, task = open_with_task(run, device="cpu")
    for options, steps in (([], 1), (["--data", "blimp"], 3)):
        report, _ = evaluate_run(opened, task, parse(Evaluate, [str(run), *options], name="evaluate"))
        assert report.max_steps == steps
        assert ("does not cover --data blimp" in report.notes[-1]) == (steps == 3)


def test_json_has_the_whole_curve(run, capsys):
    assert calibrate(run, "--json", "--limit", "50", "--confidence", "90%", "--loss", "changed", tolerance="0.9") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((run / CALIBRATION).read_text())
    assert (printed["count"], printed["goal"]) == (
        50, {"tolerance": 0.9, "confidence": 0.9, "loss": "changed", "cheapest": "steps", "rule": "max_steps",
             "quick": False}
    )  # fmt: skip
    assert [point["setting"]["value"] for point in printed["points"]] == [2, 1]


def test_a_long_calibration_says_how_long_it_takes_and_how_to_take_less(run, capsys, monkeypatch):
    monkeypatch.setattr("universal_transformer.cli.calibrate.SOON", 0.0)
    monkeypatch.setattr("universal_transformer.cli.calibrate.LONG", 0.0)
    assert calibrate(run) == 0
    said = r"ut: all settings take at most [0-9]+ s; --quick tests fewer settings\n"
    assert re.fullmatch(said, capsys.readouterr().err)
    assert calibrate(run, "--quick", "--json") == 0
    assert json.loads(capsys.readouterr().out)["goal"]["quick"]


def test_a_tolerance_that_no_setting_meets_is_one_line(run, capsys, monkeypatch):
    monkeypatch.setattr("universal_transformer.evaluation.depth_curves.p_value", lambda *_, **__: 1.0)
    assert calibrate(run) == 1
    said = "no setting with fewer steps is within 50 % with confidence 95 %: the run keeps the depth of training"
    shown = capsys.readouterr()
    assert (shown.out.count(said), shown.err) == (1, "")
    assert Calibration.load(run).chosen is None
    assert main(["evaluate", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["max_steps"] == 3


def test_the_last_call_counts_also_where_it_chooses_nothing(run, capsys, monkeypatch):
    assert calibrate(run) == 0
    with monkeypatch.context() as patched:
        patched.setattr("universal_transformer.evaluation.depth_curves.p_value", lambda *_, **__: 1.0)
        assert calibrate(run, tolerance="40%") == 1
    shown = capsys.readouterr()
    assert f"the earlier {run / CALIBRATION} (max_steps 1, tolerance 50 %) is replaced" in shown.err
    assert "the run keeps the depth of training" in shown.out
    assert Calibration.load(run).chosen is None
    assert calibrate(run) == 0  # another attempt on the same examples
    assert "(no setting, tolerance 40 %) is replaced; the confidence is that of one call" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tolerance", "0.5", "--split", "train"], "--split train: errors on what a model was trained on"),
        ([], "--tolerance"),
        (["--tolerance", "0.1%"], "300 examples are too few for a tolerance of 0.1 % with confidence 95 %: at least 4"),
        (["--tolerance", "5"], "--tolerance: '5': expected a share between 0 and 1, such as 0.5% or 0.005"),
        (["--tolerance", "0%"], "expected a share"),
        (["--tolerance", "a little"], "expected a share"),
        (["--tolerance", "5%", "--confidence", "1"], "--confidence: '1': expected a share"),
        (["--tolerance", "5%", "--rule", "max_step"], "--rule: expected one of max_steps, halting_threshold"),
        (["--tolerance", "5%", "--rule", "halting_threshold"], "nothing to calibrate: halting_threshold="),
        (["--tolerance", "5%", "--split", "dev"], "split 'dev': allowed for task stories are"),
        (["--tolerance", "5%", "--data.test", "a.tsv"], "--data.test: the data of this run, task stories, have no"),
        (["--tolerance", "5%", "--data.test", "a.tsv", "--split", "validation"], "the split is validation: leave one"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(trained, capsys, options, message):
    assert main(["calibrate", str(trained), *options]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert not (trained / CALIBRATION).exists()


def test_a_damaged_calibration_is_one_line_that_names_it(run, tmp_path, capsys):
    (run / CALIBRATION).write_text('{"weights": 3}')
    (tmp_path / "story.txt").write_text(QUESTION)
    for command in (["evaluate", str(run)], ["predict", str(run), str(tmp_path / "story.txt")]):
        assert main(command) == 2
        assert f"{run / CALIBRATION}: missing:" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--no-calibration"]) == 0


def test_plots_have_the_depth_that_evaluate_uses(run, monkeypatch):
    drawn = []

    def draw(*given, count, options):
        drawn.append((given[2].max_steps, count, options.max_steps))
        return run

    monkeypatch.setattr("universal_transformer.cli.plot.draw", draw)
    assert main(["plot", str(run)]) == 0
    assert calibrate(run) == 0
    assert main(["plot", str(run), "--stories", "2"]) == 0
    assert drawn == [(3, 1, None), (1, 2, 1)]
    assert json.loads((run / "report.json").read_text())["max_steps"] == 3
    assert json.loads((run / "report-calibrated.json").read_text())["max_steps"] == 1


def test_a_report_of_an_earlier_calibration_is_not_drawn(run, capsys, monkeypatch):
    monkeypatch.setattr("universal_transformer.cli.plot.draw", lambda *_, **__: run)
    for tolerance in ("0.5", "0.6", "0.6"):
        assert calibrate(run, tolerance=tolerance) == 0
        assert main(["plot", str(run)]) == 0
    assert capsys.readouterr().err.count("evaluating first") == 2


@pytest.mark.parametrize(("form", "said"), [("onnx", True), ("transformers", True), ("web", False)])
@pytest.mark.parametrize("name", ["run", "demo"])
def test_an_export_that_has_the_depth_of_training_says_so(name, form, said, run, capsys, monkeypatch, tmp_path):
    assert calibrate(run) == 0

    class StopError(Exception):
        """The note comes first; the export itself takes long, and is tested in test_export.py."""

    def stop(*_, **__):
        raise StopError

    monkeypatch.setattr("universal_transformer.cli.export._writer", stop)
    with pytest.raises(StopError):
        main(["export", str(run) if name == "run" else name, "--format", form, "--out", str(tmp_path / "out")])
    assert ("the export has the depth of training: calibration.json is for" in capsys.readouterr().err) == said


def test_a_larger_validation_set_is_drawn_where_the_one_of_training_is_too_small(run, capsys):
    assert main(["calibrate", str(run), "--tolerance", "0.1%", "--rule", "max_steps"]) == 2
    assert "300 examples are too few" in capsys.readouterr().err
    assert calibrate(run, "--validation-size", "200", "--json") == 0
    assert json.loads(capsys.readouterr().out)["count"] == 600  # three questions a story
    assert main(["calibrate", str(run), "--tolerance", "5%", "--split", "test", "--validation-size", "9"]) == 2
    assert "--validation-size is for the validation data, and the split is test" in capsys.readouterr().err


def test_another_calibration_of_the_same_weights_is_replaced_with_a_note(run, capsys):
    assert calibrate(run) == 0
    assert calibrate(run) == 0
    assert capsys.readouterr().err == ""  # the same setting
    assert main(["calibrate", str(run), "--tolerance", "50%", "--rule", "confidence"]) == 0
    assert "(max_steps 1, tolerance 50 %) is replaced; the confidence is that of one call" in capsys.readouterr().err
    assert main(["train", "--resume", str(run), "--quiet", "--max-updates", "5"]) == 0
    capsys.readouterr()
    assert calibrate(run) == 0
    assert capsys.readouterr().err == ""  # of other weights


def test_files_of_your_own_have_no_number_of_validation_examples(tmp_path, capsys):
    (tmp_path / "own.tsv").write_text("".join(f"{n}\t{n}\n" for n in range(100)))
    own = ["train", "pairs", "--run", str(tmp_path / "run"), "--data.train", str(tmp_path / "own.tsv"), *SMALL]
    assert main(own) == 0
    capsys.readouterr()
    assert main(["calibrate", str(tmp_path / "run"), "--tolerance", "50%", "--validation-size", "9"]) == 2
    assert "the validation examples of this run are a part of its files" in capsys.readouterr().err


def test_what_is_no_run_is_named_before_a_calibration_is_looked_for(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["calibrate", str(tmp_path / "file"), "--tolerance", "1%"]) == 2
    assert "a file; expected the folder of a run" in capsys.readouterr().err


def test_the_earlier_calibration_is_not_said_to_be_replaced_where_it_stays(run, capsys, monkeypatch):
    assert calibrate(run) == 0
    capsys.readouterr()

    def save(*_):
        raise OSError(28, "No space left on device", "calibration.json")

    monkeypatch.setattr(Calibration, "save", save)
    assert main(["calibrate", str(run), "--tolerance", "50%", "--rule", "confidence"]) == 2
    assert capsys.readouterr().err == "ut: calibration.json: No space left on device\n"


def test_a_calibration_counts_also_where_its_plot_cannot_be_written(run, capsys):
    pytest.importorskip("matplotlib")
    (run / "plots").write_text("a file")
    assert calibrate(run) == 0
    assert f"written to {run / CALIBRATION} (not drawn: {run / 'plots'}: File exists)" in capsys.readouterr().out
