"""The second stage of halting: the unit alone, on the weights of a trained run."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch

from configs import with_fields
from universal_transformer.baselines.baseline_config import LstmConfig
from universal_transformer.cli import main
from universal_transformer.errors import UserError
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.pretrained_models import find
from universal_transformer.recipes.command import train_command
from universal_transformer.registry import load_pretrained
from universal_transformer.runs.journal import read_metrics
from universal_transformer.runs.trainer import train
from universal_transformer.tasks import StoriesData
from universal_transformer.tasks.sides import SIDES
from universal_transformer.training import run as training_run
from universal_transformer.training import watches
from universal_transformer.training.halting_schedule import halting_model, second_stage
from universal_transformer.training.run_config import RunConfig, TrainingConfig
from universal_transformer.typed import replaced

from . import tiny

SMALL = ["--max-updates", "2", "--minutes", "None", "--batch-tokens", "64", "--validate-every", "2", "--width", "8"]
FEW = ["--train-stories", "12", "--validation-stories", "4", "--test-stories", "4", "--filter-width", "8"]


def train_stories(run: Path, *options: str, side: str = "none") -> None:
    """Train a small model, of a fixed depth unless a side halts, on stories, as a user would."""
    fields = [*SMALL, *FEW, "--halting.side", side, *options]
    assert main(["train", "stories", "--run", str(run), *fields, "--quiet"]) == 0


@pytest.fixture(scope="module")
def stories(tmp_path_factory) -> Path:
    """A run that no test changes."""
    run = tmp_path_factory.mktemp("stories") / "run"
    train_stories(run)
    return run


def tensors(run: Path) -> dict[str, torch.Tensor]:
    return load_pretrained(run / "model").tensors()


@pytest.fixture
def staged(tmp_path, monkeypatch):
    """Makes a run with a loss after each step, and its second stage."""
    monkeypatch.setitem(SIDES, "tiny", tiny.TinySide)

    def make(architecture: str, *, updates: int, **fields) -> tuple[Path, Path, RunConfig]:
        first, second = tmp_path / "first", tmp_path / "second"
        model = tiny.model_config(max_steps=4, dropout=0.0, **fields)
        training = {
            "max_updates": updates,
            "learning_rate": 0.02,
            "warmup_updates": 1,
            "step_loss": "mean",
            "validate_every": updates,
        }
        config, task = tiny.run_config(model, **training), tiny.task(architecture)
        train(config, first, task=task, quiet=True)
        changes = {"training.max_updates": updates, "training.validate_every": updates}
        again = replaced(second_stage(config, first), changes)
        train(again, second, task=task, quiet=True)
        return first, second, again

    return make


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_the_unit_alone_is_trained_and_without_a_stop_the_model_is_that_of_the_first_stage(staged, architecture):
    first, second, _ = staged(architecture, updates=2)
    before, after = tensors(first), tensors(second)
    unit = {name for name in after if "halting" in name}
    assert after.keys() - unit == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(bool(after[name].any()) for name in unit), "the unit was not fitted"
    ends = [line for line in read_metrics(second / "metrics.jsonl") if line["event"] == "end"]
    assert ends[0]["chosen"] == "last"
    row = torch.tensor([[4, 5, 6, 7]])
    inputs = {"encoder_decoder": (row, row)}.get(architecture, (row,))
    fixed, halting = load_pretrained(first / "model"), load_pretrained(second / "model")
    torch.testing.assert_close(halting(*inputs, halting_threshold=1.0).logits, fixed(*inputs).logits)


def test_weights_that_stay_as_they_are_see_no_dropout_and_nothing_halts(staged, monkeypatch):
    seen = []

    objective = training_run.objective

    def seeing(model, *batch, **options):
        seen.append(model.training)
        return objective(model, *batch, **options)

    monkeypatch.setattr(training_run, "objective", seeing)
    monkeypatch.setattr(watches, "COLLAPSE_UPDATES", 2)
    _, second, _ = staged("classifier", updates=4)
    assert seen == [True] * 4 + [False] * 4
    warned = [line["text"] for line in read_metrics(second / "metrics.jsonl") if line["event"] == "warning"]
    assert not any("updates looked at" in text for text in warned)


def test_it_stops_early_where_later_steps_predict_no_better(staged):
    first, second, _ = staged("classifier", updates=40)
    test = {"test": tuple(tiny.examples("classifier", count=100, seed=9))}
    task = dataclasses.replace(tiny.task("classifier"), test=test)
    before, after = (evaluate(load_pretrained(run / "model"), task).totals[0] for run in (first, second))
    assert before.steps[0].mean == 4
    assert after.steps[0].mean < 3
    assert after.metrics["error"] <= before.metrics["error"] + 2


def test_a_second_stage_continues_bit_for_bit(tmp_path, staged):
    _, second, config = staged("language_model", updates=4)
    half = replaced(config, {"training.max_updates": 2})
    train(half, tmp_path / "halves", task=tiny.task("language_model"), quiet=True)
    train(config, tmp_path / "halves", task=tiny.task("language_model"), resume=True, quiet=True)
    assert tiny.losses(tmp_path / "halves") == tiny.losses(second)


def test_an_earlier_unit_is_fitted_anew(staged):
    _, second, config = staged("classifier", updates=1, halting=True)
    assert config.model.halting.rule == "ponder"
    unit = [value.abs().max() for name, value in tensors(second).items() if "halting" in name]
    assert torch.stack(unit).max() < 0.1


REFUSED = {
    "no states over depth": ({}, LstmConfig(width=8)),
    "take as many steps": ({"depth.max_steps": 1}, tiny.model_config()),
    "take as many steps, so": ({"depth.max_steps": 4, "depth.min_steps": 4}, tiny.model_config()),
    "plain layers follow": ({"tensor2tensor.plain_layers_after": 1}, tiny.model_config()),
    "the encoder of this run halts": ({"halting.side": "both"}, tiny.model_config()),
    r"each sequence makes as many steps as it has positions \(depth.max_steps=length\)": (
        {"architecture": "tagger", "depth.max_steps": "length"},
        tiny.model_config(),
    ),
    "this run halts by stick_breaking": (
        {"halting.side": "encoder", "halting.rule": "stick_breaking", "architecture": "tagger"},
        tiny.model_config(),
    ),
    "writes frames, which have no probabilities; an exit by state_change": (
        {"outputs.kind": "frames", "outputs.features": 4},
        tiny.model_config(),
    ),
}


@pytest.mark.parametrize(("message", "case"), REFUSED.items())
def test_a_model_that_cannot_have_a_second_stage_is_refused_in_a_line(message, case):
    changes, model = case
    with pytest.raises(UserError, match=f"^/somewhere/run: --stage halting: .*{message}"):
        halting_model(with_fields(model, **changes), run=Path("/somewhere/run"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--halting.rule", "act"],
            "model.halting.rule: the model is that of the run; it can change in model.halting.",
        ),
        (["--step.norm", "post"], "model.step.norm: the model is that of the run"),
        (["--width", "64"], "model.sizes.width: the model is that of the run"),
        (["--width", "7"], "model.sizes.width: the model is that of the run"),
        (["--max-steps", "1"], "all positions of this model take as many steps, so that there is nothing to decide"),
        (["--min-steps", "6"], "all positions of this model take as many steps"),
        (["--training.depth", "random"], "training.depth: without effect on a second stage"),
        (["--training.patience", "3"], "training.patience: without effect on a second stage"),
        (["--ponder-weight", "5"], "training.ponder_weight: without effect on a second stage"),
    ],
)
def test_changes_that_a_second_stage_cannot_fit_are_refused_before_it_begins(stories, capsys, arguments, message):
    assert main(["train", str(stories), "--stage", "halting", *arguments, "--quiet"]) == 2
    assert message in capsys.readouterr().err


def test_the_cap_of_a_run_with_deepnorm_cannot_change(tmp_path, capsys):
    train_stories(tmp_path / "run", "--step.norm", "deep")
    assert main(["train", str(tmp_path / "run"), "--stage", "halting", "--max-steps", "8", "--quiet"]) == 2
    assert "model.depth.max_steps: the residual scale of step.norm=deep follows from it" in capsys.readouterr().err


def test_a_run_whose_model_is_of_another_task_is_refused(stories, tmp_path, capsys):
    run = shutil.copytree(stories, tmp_path / "run")
    shutil.rmtree(run / "model")
    shutil.copytree(find("sudoku") / "model", run / "model")
    assert main(["train", str(run), "--stage", "halting"]) == 2
    assert capsys.readouterr().err == (
        f"ut: {run}: the codec in model is of kinds board and board; the data in config.json need facts and classes\n"
    )


def test_tensors_that_are_not_those_of_the_run_are_named(staged):
    first, _, config = staged("classifier", updates=1)
    other = replaced(config, {"model.sizes.filter_width": 8})
    with pytest.raises(UserError, match=r"tensors that are not those of .*: .*transition\.inner\.weight"):
        train(other, first.parent / "other", task=tiny.task("classifier"), quiet=True)


@pytest.mark.usefixtures("loaded_once")
@pytest.mark.parametrize("name", ["copy", "demo"])
def test_a_pretrained_model_has_a_second_stage_by_its_name(capsys, name):
    few = ["--max-updates", "1", "--batch-tokens", "256"]
    assert main(["train", name, "--stage", "halting", "--dry-run", *few]) == 0
    shown = capsys.readouterr()
    assert "nothing was trained" in shown.out
    assert "puts out the mean of its states" not in shown.err


def test_a_run_that_halts_is_told_that_its_output_changes(tmp_path, capsys):
    train_stories(tmp_path / "run", side="both")
    assert main(["train", str(tmp_path / "run"), "--stage", "halting", "--dry-run"]) == 0
    assert "(rule act) puts out the mean of its states" in capsys.readouterr().err


def test_a_decoder_halts_after_an_encoder_whose_steps_follow_from_its_length():
    lengths = {"depth.max_steps": "length", "depth.decoder_max_steps": 3, "architecture": "encoder_decoder"}
    model = halting_model(replaced(tiny.model_config(), lengths), run=Path("/somewhere/run"))
    assert (model.halting.side, model.halting.rule, model.by_length(decoder=False)) == ("decoder", "ponder", True)


def test_the_stage_belongs_to_a_run_that_was_trained():
    training = TrainingConfig(max_updates=1, stage="halting")
    with pytest.raises(UserError, match=r"training\.stage='halting': .*: ut train RUN --stage halting"):
        RunConfig(recipe="x", data=StoriesData(), model=tiny.model_config(halting=True), training=training)


def test_the_command_makes_a_run_that_can_be_scored_and_continued(tmp_path, capsys, monkeypatch):
    run, second = str(tmp_path / "run"), str(tmp_path / "run-halting")
    train_stories(Path(run))
    slash = f"{run}/"  # as the completion of a shell writes it
    assert main(["train", slash, "--stage", "halting", "--max-updates", "2", "--max-steps", "5", "--quiet"]) == 0
    assert f"ut evaluate {second}" in capsys.readouterr().out
    with monkeypatch.context() as patched:
        patched.chdir(run)
        assert main(["train", ".", "--stage", "halting", "--dry-run"]) == 0
    assert f"a run would be kept in {second}" in capsys.readouterr().out
    command = train_command(RunConfig.load(Path(second) / "config.json"))
    asked = "--model.depth.max-steps 5 --training.max-updates 2"
    assert command == f"ut train {run} --stage halting {asked}"
    assert main(["evaluate", second]) == 0
    assert main(["train", "--resume", second, "--max-updates", "3", "--quiet"]) == 0
    config = RunConfig.load(Path(second) / "config.json")
    assert (config.training.stage, config.model.max_steps, config.warm_start.run) == ("halting", 5, run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stories", "--stage", "halting"], "stories: no such run folder"),
        (["RUN", "--stage", "depth"], "--stage depth: no stage of this name; allowed: halting"),
        (["RUN", "--stage", "halting", "--from", "RUN"], "leave --from out"),
        (["--resume", "RUN", "--stage", "halting"], "leave --stage out"),
        (["RUN", "--stage", "halting"], "no model in this run yet"),
    ],
)
def test_a_wrong_command_gets_one_line(tmp_path, capsys, arguments, message):
    run = tmp_path / "run"
    config = tiny.run_config()
    run.mkdir()
    (run / "config.json").write_text(json.dumps(config.to_dict()))
    assert main(["train", *[str(run) if part == "RUN" else part for part in arguments]]) == 2
    assert message in capsys.readouterr().err
