import contextlib
import dataclasses
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from training import tiny
from universal_transformer.data.batch import collate
from universal_transformer.errors import UserError
from universal_transformer.evaluation.tensors import emulates_bfloat16
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.manifest import MODEL
from universal_transformer.models.components import ENCODERS
from universal_transformer.models.pretrained import Pretrained
from universal_transformer.registry import load_pretrained
from universal_transformer.runs import trainer
from universal_transformer.runs.folder import CHECKPOINTS
from universal_transformer.runs.journal import ending, read_metrics
from universal_transformer.runs.trainer import train
from universal_transformer.training import batches as training_batches
from universal_transformer.training import interruption, watches
from universal_transformer.training import run as training_run
from universal_transformer.training import validation as validations
from universal_transformer.training.optimizer import NonFiniteError
from universal_transformer.training.run import RunState
from universal_transformer.training.run_config import TrainingConfig
from universal_transformer.typed import replaced

MODELS = [
    *((architecture, {"halting": halting}) for architecture in tiny.ARCHITECTURES for halting in (False, True)),
    ("encoder_decoder", {"position_offsets": "random", "norm": "pre"}),
]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_pretrained(folder / "model").tensors()


def same_weights(a: Path, b: Path) -> bool:
    first, second = weights(a), weights(b)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("architecture", "fields"), MODELS)
def test_n_updates_and_n_more_after_a_resume_are_2n_updates_bit_for_bit(tmp_path, architecture, fields):
    """With dropout, Adam, validation, averaging, a line of metrics every three updates, over several epochs."""
    task, model = tiny.task(architecture), tiny.model_config(**fields)
    # 5 is no multiple of validate_every, so the first half ends with a validation that the whole must not see
    whole, half = (
        tiny.run_config(model, max_updates=updates, average_checkpoints=2, label_smoothing=0.1) for updates in (10, 5)
    )
    uninterrupted = train(whole, tmp_path / "uninterrupted", task=task, quiet=True)
    train(half, tmp_path / "halves", task=task, quiet=True)
    resumed = train(whole, tmp_path / "halves", task=task, resume=True, quiet=True)
    assert len(tiny.losses(tmp_path / "uninterrupted")) == 10
    assert tiny.losses(tmp_path / "halves") == tiny.losses(tmp_path / "uninterrupted")
    assert same_weights(tmp_path / "uninterrupted", tmp_path / "halves")
    assert resumed.score == uninterrupted.score
    assert resumed.warnings[:1] == ("changed: training.max_updates was 5, is now 10",)  # another: no better than chance


def halting_unit(folder: Path) -> dict[str, torch.Tensor]:
    return {name: part for name, part in weights(folder).items() if "halting" in name}


def test_delayed_halting_sees_its_bias_alone_and_then_learns(tmp_path):
    task = dataclasses.replace(tiny.task("encoder_decoder"), validation=[])  # the last weights are kept
    for delay in (1.0, 0.5):
        config = tiny.run_config(tiny.model_config(halting=True), max_updates=8, ponder_weight=0.1, halting_delay=delay)
        train(config, tmp_path / str(delay), task=task, quiet=True)
    delayed, learned = halting_unit(tmp_path / "1.0"), halting_unit(tmp_path / "0.5")
    assert len(delayed) == 4
    for name, part in delayed.items():
        bias = -math.log(2 * config.model.max_steps - 1) if "bias" in name else 0.0
        assert part.flatten().tolist() == pytest.approx([bias] * part.numel())
    assert not any(torch.equal(delayed[name], learned[name]) for name in learned)
    lines = [line for line in read_metrics(tmp_path / "0.5" / "metrics.jsonl") if line["event"] == "update"]
    costs = [line["loss"] - line["cross_entropy"] for line in lines]
    assert costs[:4] == pytest.approx([0] * 4, abs=1e-6)
    assert min(costs[4:]) > 0.1


def test_weights_from_before_halting_was_learned_are_never_the_best(tmp_path):
    config = tiny.run_config(
        tiny.model_config(halting=True), max_updates=8, validate_every=2, patience=2, halting_delay=0.75
    )
    result = train(config, tmp_path / "run", task=tiny.task(), quiet=True)
    lines = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if line["event"] == "validation"]
    assert [line["best"] for line in lines] == [False, False, False, True], "6 of 8 updates come before halting"
    unit = [value for name, value in load_pretrained(tmp_path / "run" / "model").tensors().items() if "halting" in name]
    assert all(bool(value.any()) for value in unit), "the unit of the best weights was never trained"
    assert result.updates == 8, "patience begins with halting"


def test_a_run_that_another_process_has_made_meanwhile_is_kept(tmp_path, monkeypatch):
    folder, build = tmp_path / "run", trainer.build

    def slowly(config):
        monkeypatch.undo()
        train(tiny.run_config(max_updates=3), folder, task=tiny.task(), quiet=True)
        return build(config)

    monkeypatch.setattr(trainer, "build", slowly)
    with pytest.raises(UserError, match="run"):
        train(tiny.run_config(max_updates=2, seed=1), folder, task=tiny.task(), quiet=True)
    assert read_metrics(folder / "metrics.jsonl")[-1]["update"] == 3


def test_a_fixed_depth_knows_no_delay(tmp_path):
    plain, delayed = tmp_path / "plain", tmp_path / "delayed"
    for folder, delay in ((plain, 0.0), (delayed, 0.9)):
        config = tiny.run_config(tiny.model_config(halting=False), validate_every=2, halting_delay=delay)
        train(config, folder, task=tiny.task(), quiet=True)
    best = [
        [line["best"] for line in read_metrics(folder / "metrics.jsonl") if line["event"] == "validation"]
        for folder in (plain, delayed)
    ]
    assert best[0] == best[1]
    assert best[1][0]
    assert same_weights(plain, delayed)


def test_steps_of_encoder_and_decoder_are_recorded_apart(tmp_path, monkeypatch):
    """A side that has one step only does not count as collapsed."""
    monkeypatch.setattr(watches, "COLLAPSE_UPDATES", 4)
    model = replaced(tiny.model_config(halting=True, halting_bias=-1.0), {"depth.decoder_max_steps": 1})
    result = train(tiny.run_config(model), tmp_path / "run", task=tiny.task("encoder_decoder"), quiet=True)
    lines = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if "mean_steps" in line]
    assert {line["event"] for line in lines} == {"update", "validation", "end"}
    assert all(line["decoder_steps"] == 1 < line["mean_steps"] < line["encoder_steps"] <= 3 for line in lines)
    assert not any("collapsed" in text for text in result.warnings)


def test_a_collapsed_side_is_named_with_its_own_cap(tmp_path, monkeypatch):
    monkeypatch.setattr(watches, "COLLAPSE_UPDATES", 4)
    model = tiny.model_config(halting=True, halting_bias=-30.0)
    model = replaced(model, {"depth.decoder_max_steps": 2})
    result = train(tiny.run_config(model), tmp_path / "run", task=tiny.task("encoder_decoder"), quiet=True)
    collapsed = [text for text in result.warnings if "collapsed" in text]
    assert [text.split("all ")[1].split(":")[0] for text in collapsed] == [
        "encoder positions go on to the cap (steps 3.00 ± 0.00 of at most 3)",
        "decoder positions go on to the cap (steps 2.00 ± 0.00 of at most 2)",
    ]


@pytest.mark.parametrize(
    ("fields", "depth", "warned"),
    [
        ({}, "fixed", True),
        (
            {"halting.side": "decoder", "halting.rule": "ponder"},
            "fixed",
            False,
        ),  # makes all steps in training, whatever it does afterwards
        ({}, "random", False),
    ],
)
def test_steps_of_training_that_the_unit_does_not_decide_are_no_collapse(tmp_path, monkeypatch, fields, depth, warned):
    monkeypatch.setattr(watches, "COLLAPSE_UPDATES", 4)
    model = replaced(tiny.model_config(halting=True, halting_bias=-30.0), fields)
    config, task = tiny.run_config(model, depth=depth), tiny.task("encoder_decoder")
    result = train(config, tmp_path / "run", task=task, quiet=True)
    assert any("updates looked at" in text for text in result.warnings) == warned


@pytest.mark.parametrize(("expected", "warned"), [(-1.0, True), (99.0, False)])
def test_an_exit_that_is_worse_than_expected_is_warned_about_at_the_end(tmp_path, monkeypatch, expected, warned):
    monkeypatch.setattr(validations.Validation, "expected_loss", lambda *_: expected)
    model = replaced(tiny.model_config(), {"halting.side": "decoder", "halting.rule": "ponder"})
    result = train(tiny.run_config(model), tmp_path / "run", task=tiny.task("encoder_decoder"), quiet=True)
    assert any("collapsed (fake)" in text for text in result.warnings) == warned


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_the_baseline_is_kept_and_a_run_that_does_not_beat_it_warns(tmp_path, capsys, architecture):
    classes, rows = architecture in ENCODERS, tiny.examples(architecture, count=1, seed=0)
    alike = dataclasses.replace(tiny.task(architecture), train=rows * 40, validation=rows * 12)
    poor = train(tiny.run_config(learning_rate=1e-9), tmp_path / "poor", task=alike)
    said = capsys.readouterr().out.replace("\n", "")
    measure, how = ("error", "always '") if classes else ("loss", "frequency of each token) loss ")
    assert poor.baseline.startswith(f"baseline ({how}")
    assert poor.baseline in said
    start = read_metrics(tmp_path / "poor" / "metrics.jsonl")[0]
    value = start["baseline_error"] if classes else start["baseline_cross_entropy"]
    assert f"{measure} {value:.2%}" in poor.baseline if classes else f"{measure} {value:.4f}" in poor.baseline
    (warning,) = poor.warnings
    assert warning.startswith(f"validation {measure} ")
    assert warning.endswith(f"is not better than the {poor.baseline}")
    task = tiny.task(architecture, count=200) if classes else alike
    good = train(tiny.run_config(max_updates=40, learning_rate=0.02), tmp_path / "good", task=task, quiet=True)
    assert good.warnings == ()
    model = load_pretrained(tmp_path / "good" / "model")
    kept = TrivialBaseline.load(tmp_path / "good" / "baseline.json", model.config)
    assert kept == TrivialBaseline.learn(task.train, model.config)


def test_the_same_seed_gives_the_same_run_and_another_does_not(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(tiny.run_config(seed=seed), tmp_path / name, task=tiny.task(), quiet=True)
    assert tiny.losses(tmp_path / "a") == tiny.losses(tmp_path / "b")
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert tiny.losses(tmp_path / "a") != tiny.losses(tmp_path / "c")


def test_sums_between_two_lines_of_metrics_survive_a_resume(tmp_path):
    config = tiny.run_config(max_updates=9, log_every=3)
    train(config, tmp_path / "uninterrupted", task=tiny.task(), quiet=True)
    short = dataclasses.replace(config, training=dataclasses.replace(config.training, max_updates=4))
    train(short, tmp_path / "halves", task=tiny.task(), quiet=True)
    train(config, tmp_path / "halves", task=tiny.task(), resume=True, quiet=True)
    assert tiny.losses(tmp_path / "halves") == tiny.losses(tmp_path / "uninterrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("validating", [False, True])
def test_a_signal_saves_says_how_to_go_on_and_loses_nothing(tmp_path, capsys, monkeypatch, number, validating):
    task, config = tiny.task(), tiny.run_config()
    train(config, tmp_path / "uninterrupted", task=task, quiet=True)
    before, batches = signal.getsignal(number), 0

    def ringing(examples, *, indices):
        nonlocal batches
        batches += 1
        if batches == 2:
            os.kill(os.getpid(), number)
        return collate(examples, indices=indices)

    with monkeypatch.context() as patch:
        patch.setattr(validations if validating else training_batches, "collate", ringing)
        stopped = train(config, tmp_path / "run", task=task)
    assert signal.getsignal(number) == before
    assert stopped.stopped == "interrupted"
    assert 0 < stopped.updates < 6
    said = capsys.readouterr().out.replace("\n", "")
    assert f"stopped by {signal.Signals(number).name} after update {stopped.updates}" in said
    assert f"ut train --resume {tmp_path / 'run'}" in said
    assert isinstance(load_pretrained(tmp_path / "run" / "model"), Pretrained)
    finished = train(config, tmp_path / "run", task=task, resume=True, quiet=True)
    assert finished.stopped == "max_updates"
    assert tiny.losses(tmp_path / "run") == tiny.losses(tmp_path / "uninterrupted")
    assert same_weights(tmp_path / "run", tmp_path / "uninterrupted")


@pytest.mark.parametrize("why", ["SIGTERM", "its deadline"])
def test_what_stops_the_last_choice_leaves_it_to_a_resume(tmp_path, capsys, monkeypatch, why):
    task, config = tiny.task(), tiny.run_config(validate_every=100)
    uninterrupted = train(config, tmp_path / "uninterrupted", task=task, quiet=True)

    def ringing(examples, *, indices):
        if why == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            patch.setattr(interruption, "time", SimpleNamespace(monotonic=lambda: math.inf))
        return collate(examples, indices=indices)

    deadline = time.monotonic() + (math.inf if why == "SIGTERM" else 3600.0)
    with monkeypatch.context() as patch:
        patch.setattr(validations, "collate", ringing)
        stopped = train(config, tmp_path / "run", task=task, deadline=deadline)
    assert (stopped.stopped, stopped.updates, stopped.score) == ("interrupted", 6, None)
    assert f"stopped by {why} after update 6" in capsys.readouterr().out.replace("\n", "")
    assert ending(tmp_path / "run") is None
    resumed = train(config, tmp_path / "run", task=task, resume=True, quiet=True)
    assert (resumed.stopped, resumed.score) == ("max_updates", uninterrupted.score)
    assert same_weights(tmp_path / "run", tmp_path / "uninterrupted")


def test_reports_on_another_model_are_deleted_with_it(tmp_path):
    task = dataclasses.replace(tiny.task(), validation=[])  # the last weights are kept
    train(tiny.run_config(), tmp_path / "run", task=task, quiet=True)
    stale, kept = ("report.json", "report-steps-2.json", "report.html"), ("reported.json", "my report.html")
    for name in (*stale, *kept):
        (tmp_path / "run" / name).write_text("{}")
    train(tiny.run_config(), tmp_path / "run", task=task, resume=True, quiet=True)
    assert all((tmp_path / "run" / name).exists() for name in (*stale, *kept))  # no update was left to make
    train(tiny.run_config(max_updates=7), tmp_path / "run", task=task, resume=True, quiet=True)
    assert not any((tmp_path / "run" / name).exists() for name in stale)
    assert all((tmp_path / "run" / name).exists() for name in kept)


def test_a_trained_model_without_its_checkpoints_is_not_trained_again(tmp_path):
    train(tiny.run_config(), tmp_path / "run", task=tiny.task(), quiet=True)
    shutil.rmtree(tmp_path / "run" / CHECKPOINTS)
    before = (tmp_path / "run" / MODEL / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match=r"no checkpoint, and .*model would be overwritten; ut train .*--from .*run"):
        train(tiny.run_config(max_updates=7), tmp_path / "run", task=tiny.task(), resume=True, quiet=True)
    assert (tmp_path / "run" / MODEL / "model.safetensors").read_bytes() == before


def test_a_second_signal_says_what_is_kept(tmp_path, capfd, monkeypatch):
    def ringing(examples, *, indices):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        return collate(examples, indices=indices)

    monkeypatch.setattr(training_batches, "collate", ringing)
    with pytest.raises(KeyboardInterrupt):
        train(tiny.run_config(), tmp_path / "run", task=tiny.task())
    said = capfd.readouterr()
    assert "a second signal stops without saving" in said.err
    assert "not saved: no checkpoint was saved yet; continue with: ut train --resume" in said.out.replace("\n", "")


def test_training_whose_output_is_closed_is_saved_as_on_a_signal(tmp_path):
    """As ``ut train ... | head -1``: the reader ends after a line."""
    script = (
        "import sys; from training import tiny; from universal_transformer.runs.trainer import train; "
        "from universal_transformer.training import display; display.LINE_SECONDS = 0.0; "
        f"result = train(tiny.run_config(max_updates=100000), __import__('pathlib').Path({str(tmp_path / 'run')!r}), "
        "task=tiny.task()); sys.exit(result.stopped != 'interrupted')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert process.wait(timeout=100) == 0, said
    assert "stopping and saving" in said
    assert (tmp_path / "run" / MODEL).is_dir()


class Killed(BaseException):
    """Stands for a process that ends here."""


@pytest.mark.parametrize("call", [1, 2, 5, 12, 14, 22, 24, 27, 30, 40])
def test_a_run_killed_around_a_write_goes_on_as_if_nothing_had_been(tmp_path, monkeypatch, call):
    task, config = tiny.task(), tiny.run_config()
    train(config, tmp_path / "uninterrupted", task=task, quiet=True)
    sync, left = os.fsync, call

    def deadly(descriptor):
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", deadly)
        with contextlib.suppress(Killed):
            train(config, tmp_path / "run", task=task, quiet=True)
    fresh = not (tmp_path / "run" / "config.json").exists()
    train(config, tmp_path / "run", task=task, resume=not fresh, quiet=True)
    assert tiny.losses(tmp_path / "run") == tiny.losses(tmp_path / "uninterrupted")
    assert same_weights(tmp_path / "run", tmp_path / "uninterrupted")
    assert not list((tmp_path / "run").rglob("*.partial"))


def test_an_ending_that_is_made_again_after_a_kill_is_written_once(tmp_path):
    task, config = tiny.task(), tiny.run_config(max_updates=5, average_checkpoints=2)
    train(config, tmp_path / "run", task=task, quiet=True)

    def lines():
        found = read_metrics(tmp_path / "run" / "metrics.jsonl")
        return [(line["event"], line["update"], line.get("error")) for line in found if line["event"] != "resume"]

    before = lines()
    assert [event for event, _, _ in before[-3:]] == ["validation", "validation", "end"]
    train(config, tmp_path / "run", task=task, resume=True, quiet=True)
    assert lines() == before


def validations_of(*, minutes, update, validation):
    """How often a run is validated before its end, and the part of its time that this takes."""
    training, state = TrainingConfig(minutes=minutes, validate_every=1000), RunState()
    count, seconds = 0, 0.0
    while seconds < 60 * minutes:
        seconds += update
        state.update += 1
        if seconds < 60 * minutes and training_run.validation_due(training, state, seconds=seconds):
            count, seconds = count + 1, seconds + validation
            state.validation_ended, state.validation_took = seconds, validation
    return count, count * validation / seconds


@pytest.mark.parametrize("update", [0.01, 0.5, 5.0, 60.0])
def test_a_run_limited_by_minutes_is_validated_eight_times_whatever_an_update_costs(update):
    count, _ = validations_of(minutes=10.0, update=update, validation=1.0)
    assert count + 1 >= 8  # and once at its end


def test_validations_that_are_due_by_the_time_do_not_take_most_of_it():
    count, share = validations_of(minutes=10.0, update=1.0, validation=60.0)
    assert count > 0
    assert share < 0.25


def test_the_model_in_the_folder_is_the_best_on_validation(tmp_path):
    config = tiny.run_config(max_updates=60, validate_every=5, learning_rate=0.02, average_checkpoints=3)
    result = train(config, tmp_path / "run", task=tiny.task(count=200), quiet=True)
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    found = [(line["error"], line["cross_entropy"]) for line in lines if line["event"] == "validation"]
    assert min(found) == (result.score.error, result.score.cross_entropy)
    assert result.score.error < 0.2
    model = load_pretrained(tmp_path / "run" / "model").train(False)
    rows = tiny.task(count=200).validation
    wrong = sum(
        int(model(torch.tensor([row.source])).logits.argmax()) != row.target for row in rows
    )  # fmt: skip
    assert wrong / len(rows) == pytest.approx(result.score.error)
    assert (tmp_path / "run" / "model" / "codec.json").exists()


def test_it_stops_early_when_validation_improves_no_more(tmp_path):
    config = tiny.run_config(max_updates=500, validate_every=2, patience=2, learning_rate=1e-9)
    result = train(config, tmp_path / "run", task=tiny.task(), quiet=True)
    assert (result.stopped, result.updates) == ("patience", 6)


def test_it_stops_on_time_and_time_counts_over_resumes(tmp_path):
    config = tiny.run_config(max_updates=None, minutes=0.5 / 60)
    result = train(config, tmp_path / "run", task=tiny.task(), quiet=True)
    assert result.stopped == "minutes"
    assert result.seconds >= 0.5
    again = train(config, tmp_path / "run", task=tiny.task(), resume=True, quiet=True)
    assert again.updates == result.updates
    assert again.seconds >= result.seconds


def test_without_validation_the_last_weights_are_kept(tmp_path):
    task = dataclasses.replace(tiny.task(), validation=[])
    result = train(tiny.run_config(), tmp_path / "run", task=task, quiet=True)
    assert (result.chosen, result.score) == ("last", None)
    assert weights(tmp_path / "run")


def test_a_loss_that_is_not_finite_stops_with_the_weights_unchanged(tmp_path, monkeypatch):
    kept = {}
    objective = training_run.objective

    def poisoned(model, batch, **weights):
        loss = objective(model, batch, **weights)
        if len(kept) < 3:
            kept[len(kept)] = None
            return loss
        kept["before"] = {name: value.detach().clone() for name, value in model.tensors().items()}
        kept["model"] = model
        return dataclasses.replace(loss, total=loss.total * float("nan"))

    monkeypatch.setattr(training_run, "objective", poisoned)
    with pytest.raises(NonFiniteError, match=r"update 4: .*first gradient that is not finite"):
        train(tiny.run_config(validate_every=100), tmp_path / "run", task=tiny.task(), quiet=True)
    for name, value in kept["model"].tensors().items():
        assert torch.equal(value, kept["before"][name])


def test_what_differs_on_a_resume_is_named(tmp_path):
    config = tiny.run_config()
    train(config, tmp_path / "run", task=tiny.task(), quiet=True)
    with pytest.raises(UserError, match="is there already"):
        train(config, tmp_path / "run", task=tiny.task(), quiet=True)
    with pytest.raises(UserError, match="data have changed"):
        train(config, tmp_path / "run", task=tiny.task(seed=1), resume=True, quiet=True)
    with pytest.raises(UserError, match=r"training\.seed was 0, is now 1"):
        train(tiny.run_config(seed=1), tmp_path / "run", task=tiny.task(), resume=True, quiet=True)


def test_a_limit_below_the_updates_made_is_refused_and_changes_nothing(tmp_path):
    train(tiny.run_config(max_updates=4), tmp_path / "run", task=tiny.task(), quiet=True)
    before = (tmp_path / "run" / "config.json").read_text()
    with pytest.raises(UserError, match=r"training\.max_updates=3: this run has 4 updates already"):
        train(tiny.run_config(max_updates=3), tmp_path / "run", task=tiny.task(), resume=True, quiet=True)
    assert (tmp_path / "run" / "config.json").read_text() == before
    assert (
        train(tiny.run_config(max_updates=4), tmp_path / "run", task=tiny.task(), resume=True, quiet=True).updates == 4
    )


def test_another_number_of_threads_is_named(tmp_path):
    config = tiny.run_config(threads=None, max_updates=2)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        train(config, tmp_path / "run", task=tiny.task(), quiet=True)
        torch.set_num_threads(1)
        result = train(config, tmp_path / "run", task=tiny.task(), resume=True, quiet=True)
    finally:
        torch.set_num_threads(threads)
    assert any("threads was 2, is now 1" in text for text in result.warnings)


def test_a_damaged_checkpoint_is_named_and_costs_one_interval(tmp_path):
    config = tiny.run_config()
    train(config, tmp_path / "uninterrupted", task=tiny.task(), quiet=True)
    train(config, tmp_path / "run", task=tiny.task(), quiet=True)
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    (newest / "model.safetensors").write_bytes(b"")
    result = train(config, tmp_path / "run", task=tiny.task(), resume=True, quiet=True)
    assert any("damaged" in text for text in result.warnings)
    assert tiny.losses(tmp_path / "run") == tiny.losses(tmp_path / "uninterrupted")


def test_bad_surroundings_are_refused_before_anything_is_written(tmp_path):
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="no GPU"):
            train(tiny.run_config(device="cuda"), tmp_path / "run", task=tiny.task(), quiet=True)
    with pytest.raises(UserError, match="no examples"):
        train(tiny.run_config(), tmp_path / "run", task=dataclasses.replace(tiny.task(), train=[]), quiet=True)
    assert not (tmp_path / "run").exists()


def test_bfloat16_and_tensorboard_run(tmp_path):
    pytest.importorskip("tensorboard")
    config = tiny.run_config(tiny.model_config(halting=True), precision="bfloat16", tracker="tensorboard")
    result = train(config, tmp_path / "run", task=tiny.task(), quiet=True)
    assert result.updates == 6
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    assert all(value.dtype == torch.float32 for value in weights(tmp_path / "run").values())


@pytest.mark.parametrize(
    ("capabilities", "slow"),
    [
        ({"avx512_bf16": False, "amx_bf16": False, "avx512_f": True}, True),
        ({"avx512_bf16": True, "amx_bf16": False}, False),
        ({"bf16": False, "neon": True}, True),
        ({"bf16": True, "neon": True}, False),
        ({}, False),  # nothing is known
    ],
)
def test_a_cpu_without_bfloat16_instructions_is_named(tmp_path, capsys, monkeypatch, capabilities, slow):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    train(tiny.run_config(precision="bfloat16", max_updates=1), tmp_path / "run", task=tiny.task())
    shown = capsys.readouterr()
    assert ("this CPU has no bfloat16 instructions" in shown.out + shown.err) == slow
    assert not emulates_bfloat16(torch.device("cuda"))


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")  # the compiler warns about its own insides
def test_a_compiled_block_trains_like_an_eager_one(tmp_path, monkeypatch):
    """Without the C++ compiler, whose numbers nn/test_compiled.py compares."""
    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(torch.nn.Module.compile, backend="aot_eager"))
    model = tiny.model_config(dropout=0.0)
    for compiled in (False, True):
        config = tiny.run_config(model, max_updates=3, compile=compiled)
        train(config, tmp_path / str(compiled), task=tiny.task(), quiet=True)
    eager, compiled = (
        [line["loss"] for line in read_metrics(tmp_path / name / "metrics.jsonl") if line["event"] == "update"]
        for name in ("False", "True")
    )
    assert compiled == pytest.approx(eager, rel=1e-4)


def test_a_finished_cosine_that_goes_on_says_how_far_its_rate_goes_back_up(tmp_path):
    fields = {"schedule": "cosine", "warmup_updates": 0, "learning_rate": 0.01}
    train(tiny.run_config(max_updates=6, **fields), tmp_path / "run", task=tiny.task(), quiet=True)
    again = train(
        tiny.run_config(max_updates=12, **fields), tmp_path / "run", task=tiny.task(), resume=True, quiet=True
    )
    last, first = (0.01 * (1 + math.cos(math.pi * done)) / 2 for done in (5 / 6, 6 / 12))
    rise = f"the learning rate goes back up: it was {last:.3g} in update 6, and is {first:.3g} in the next"
    assert rise in again.warnings
    constant = {"schedule": "constant", "learning_rate": 0.01}
    train(tiny.run_config(max_updates=2, **constant), tmp_path / "other", task=tiny.task(), quiet=True)
    again = train(
        tiny.run_config(max_updates=4, **constant), tmp_path / "other", task=tiny.task(), resume=True, quiet=True
    )
    assert not any("learning rate" in text for text in again.warnings)
