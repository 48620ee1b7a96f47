"""What a resume accepts, refuses and names, and what is kept of a run whose numbers are not finite."""

import dataclasses
import math
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from training import tiny
from universal_transformer.errors import UserError
from universal_transformer.files import write_json
from universal_transformer.runs.journal import read_metrics
from universal_transformer.runs.resume import configuration_changes
from universal_transformer.runs.trainer import train
from universal_transformer.tasks import PairsData
from universal_transformer.training import run as training_run
from universal_transformer.training import validation as validations
from universal_transformer.training.optimizer import NonFiniteError
from universal_transformer.training.run_config import RunConfig
from universal_transformer.training.validation import ValidationScore


def failing_at(monkeypatch, update: int) -> None:
    """Make the loss of an update NaN, as often as it is computed."""
    compute, made = training_run.objective, 0

    def poisoned(model, batch, **weights):
        nonlocal made
        loss = compute(model, batch, **weights)
        made += 1
        return dataclasses.replace(loss, total=loss.total * float("nan")) if made == update else loss

    monkeypatch.setattr(training_run, "objective", poisoned)


def test_after_a_loss_that_is_not_finite_it_says_what_is_kept_and_that_command_works(tmp_path, monkeypatch):
    task, run = tiny.task(), tmp_path / "run"
    with monkeypatch.context() as patch:
        failing_at(patch, 2)
        with pytest.raises(NonFiniteError, match=r"update 2: .*no checkpoint was saved yet: begin again with ut train"):
            train(tiny.run_config(), run, task=task, quiet=True)
    with monkeypatch.context() as patch:
        failing_at(patch, 5)
        kept = (
            r"update 5: .*the update was not made; checkpoint 000000003-000001, of update 3, is kept: continue from it"
        )
        with pytest.raises(NonFiniteError, match=kept) as caught:
            train(tiny.run_config(), run, task=task, resume=True, quiet=True)
    remedy = "--learning-rate 0.00025 --accept-change training.learning_rate"
    assert str(caught.value).endswith(f"ut train --resume {run} {remedy}")
    slower = tiny.run_config(learning_rate=0.00025)
    with pytest.raises(UserError, match=r"learning_rate was 0\.001, is now 0\.00025; to change .*--accept-change"):
        train(slower, run, task=task, resume=True, quiet=True)
    result = train(slower, run, task=task, resume=True, quiet=True, accept_changes=["training.learning_rate"])
    assert result.updates == 6
    assert result.warnings == ("changed: training.learning_rate was 0.001, is now 0.00025",)
    assert RunConfig.load(run / "config.json") == slower
    lines = read_metrics(run / "metrics.jsonl")
    assert [line["changes"] for line in lines if line["event"] == "resume"][-1] == result.warnings[0][9:]
    rates = {line["update"]: line["learning_rate"] for line in lines if line["event"] == "update"}
    assert rates[6] < 0.00025
    assert train(slower, run, task=task, resume=True, quiet=True).warnings == ()


def test_after_a_decay_that_makes_weights_grow_a_smaller_decay_is_advised(tmp_path):
    with pytest.raises(NonFiniteError, match=r"--weight-decay 0\.01 --accept-change training\.weight_decay$"):
        train(tiny.run_config(weight_decay=1e30, optimizer="adamw"), tmp_path / "run", task=tiny.task(), quiet=True)


class KilledRun(BaseException):
    """Stands for a process that ends here."""


def kill(*_arguments: object) -> None:
    raise KilledRun


def test_an_accepted_change_survives_a_kill_before_the_next_checkpoint(tmp_path, monkeypatch):
    task, run = tiny.task(), tmp_path / "run"
    train(tiny.run_config(max_updates=3), run, task=task, quiet=True)
    slower = tiny.run_config(learning_rate=0.00025)
    with monkeypatch.context() as patch:
        patch.setattr(training_run.TrainingRun, "run", kill)
        with pytest.raises(KilledRun):
            train(slower, run, task=task, resume=True, quiet=True, accept_changes=["training.learning_rate"])
    assert train(slower, run, task=task, resume=True, quiet=True).warnings == ()


def test_an_accepted_field_that_has_not_changed_is_named(tmp_path):
    train(tiny.run_config(), tmp_path / "run", task=tiny.task(), quiet=True)
    with pytest.raises(UserError, match=r"--accept-change training\.clip_norm: it has not changed"):
        train(tiny.run_config(), tmp_path / "run", task=tiny.task(), resume=True, accept_changes=["training.clip_norm"])
    with pytest.raises(UserError, match="for a run that continues, not for a new one"):
        train(tiny.run_config(), tmp_path / "new", task=tiny.task(), accept_changes=["training.clip_norm"])


def test_the_updates_of_a_line_of_metrics_change_only_without_a_curriculum():
    for curriculum, refused in ((None, False), (1.0, True)):
        before, now = (tiny.run_config(curriculum=curriculum, log_every=every) for every in (1, 2))
        with pytest.raises(UserError, match=r"log_every was 1, is now 2$") if refused else nullcontext():
            assert configuration_changes(before, now, accepted=(), where="run")


def test_a_configuration_that_was_edited_by_hand_is_compared_with_the_checkpoint(tmp_path):
    train(tiny.run_config(), tmp_path / "run", task=tiny.task(), quiet=True)
    write_json(tmp_path / "run" / "config.json", tiny.run_config(learning_rate=0.5).to_dict())
    before = files(tmp_path)
    edited = RunConfig.load(tmp_path / "run" / "config.json")
    with pytest.raises(UserError, match=r"checkpoints/0.* and config\.json: .*learning_rate was 0\.001, is now 0\.5"):
        train(edited, tmp_path / "run", task=tiny.task(), resume=True, quiet=True)
    assert files(tmp_path) == before


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def huge(model: torch.nn.Module) -> None:
    with torch.no_grad():
        next(model.parameters()).fill_(float("inf"))


def test_weights_that_an_update_made_infinite_are_never_saved(tmp_path, monkeypatch):
    """The loss and the gradients of the update were finite, and the next loss comes after a save."""
    update = training_run.TrainingRun.update

    def overflowing(run):
        update(run)
        if run.state.update == 5:
            huge(run.model)

    monkeypatch.setattr(training_run.TrainingRun, "update", overflowing)
    config = tiny.run_config(max_updates=5)
    message = r"update 5: model: .* not finite: no checkpoint of it is saved; checkpoint 000000003-000001, of update 3"
    with pytest.raises(NonFiniteError, match=message):
        train(config, tmp_path / "run", task=tiny.task(), quiet=True)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["000000003-000001"]
    assert not (tmp_path / "run" / "model").exists()


def test_a_validation_that_is_not_finite_is_not_the_best(tmp_path, monkeypatch):
    score = ValidationScore(cross_entropy=math.inf, error=0.0, mean_steps=0.0)
    monkeypatch.setattr(validations.Validation, "score", lambda *_arguments, **_named: score)
    result = train(tiny.run_config(max_updates=3), tmp_path / "run", task=tiny.task(), quiet=True)
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["best"] for line in lines if "best" in line] == [False]
    assert result.updates == 3


def pairs_config(path: Path) -> RunConfig:
    return dataclasses.replace(tiny.run_config(), data=PairsData(train=str(path), validation_fraction=0.2))


def test_a_resume_names_the_file_that_has_changed(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"a {number}\tb {number}\n" for number in range(40)))
    config = pairs_config(path)
    train(config, tmp_path / "run", quiet=True)
    (moved := tmp_path / "moved.tsv").write_bytes(path.read_bytes())
    result = train(pairs_config(moved), tmp_path / "run", resume=True, quiet=True)
    assert [text for text in result.warnings if "data.fields.train was" in text]
    with moved.open("a") as file:
        file.write("a 99\tb 99\n")
    before = files(tmp_path / "run")
    with pytest.raises(
        UserError, match=r"the data have changed: the file of data\.train was 380 bytes, is now 390 bytes"
    ):
        train(pairs_config(moved), tmp_path / "run", resume=True, quiet=True)
    assert files(tmp_path / "run") == before


@pytest.mark.parametrize("content", [b"\xff\xfe\x00binary\n", b"[1]\n{}\n", b"x" * 5_000_000 + b"\n", b""])
def test_damaged_metrics_are_one_line_and_nothing_is_changed(tmp_path, content):
    train(tiny.run_config(), tmp_path / "run", task=tiny.task(), quiet=True)
    (tmp_path / "run" / "metrics.jsonl").write_bytes(content)
    before = files(tmp_path)
    with pytest.raises(UserError, match=r"metrics\.jsonl(:1)?: "):
        train(tiny.run_config(max_updates=7), tmp_path / "run", task=tiny.task(), resume=True, quiet=True)
    assert files(tmp_path) == before
