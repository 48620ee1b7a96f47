from contextlib import nullcontext

import pytest
import torch

from universal_transformer.data.batch import collate
from universal_transformer.nn.trace import Trace
from universal_transformer.registry import build
from universal_transformer.training.objective import objective
from universal_transformer.training.validation import (
    COLLAPSE_LOOKS,
    COLLAPSE_UPDATES,
    Averager,
    CollapseWatch,
    Interrupted,
    Score,
    Validation,
)
from universal_transformer.typed import replaced

from . import tiny


def validation(rows, *, batch_tokens):
    return Validation(rows, batch_tokens=batch_tokens, device=torch.device("cpu"), precision=lambda: nullcontext())


@pytest.mark.parametrize("halting", [False, True])
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_the_score_does_not_depend_on_the_batches_nor_touch_the_run(architecture, halting):
    torch.manual_seed(0)
    model = build(tiny.task(architecture).configure(tiny.model_config(halting=halting))).train()
    rows = tiny.examples(architecture, count=20, seed=2)
    before = torch.get_rng_state()
    scores = [validation(rows, batch_tokens=size).score(model, stopped=lambda: False) for size in (1, 17, 10_000)]
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    for score in scores[1:]:
        assert score.error == pytest.approx(scores[0].error)
        assert score.cross_entropy == pytest.approx(scores[0].cross_entropy, rel=1e-5)
        assert score.mean_steps == pytest.approx(scores[0].mean_steps, rel=1e-5)


def test_steps_of_encoder_and_decoder_are_scored_apart():
    torch.manual_seed(0)
    config = replaced(tiny.model_config(halting=True), {"depth.decoder_max_steps": 2})
    model = build(tiny.task("encoder_decoder").configure(config))
    rows = tiny.examples("encoder_decoder", count=6, seed=2)
    score = validation(rows, batch_tokens=17).score(model, stopped=lambda: False)
    batch = collate(rows, indices=range(6))
    with torch.no_grad():
        output = model.eval()(batch.source, batch.target)
    for side, trace in (("encoder", output.encoder), ("decoder", output.decoder)):
        assert score.steps[side] == pytest.approx(float(trace.mean_steps()))
    assert score.mean_steps == pytest.approx(float(output.mean_steps))
    assert score.steps["decoder"] <= 2 < score.steps["encoder"] <= 3


def test_it_gives_up_when_asked_to():
    model = build(tiny.task().configure(tiny.model_config()))
    asked = iter([False, True])
    with pytest.raises(Interrupted):
        validation(tiny.task().train, batch_tokens=20).score(model, stopped=lambda: next(asked))
    assert model.training


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_the_expected_loss_is_the_one_that_training_lowers(architecture):
    """Without dropout; training freezes nothing, and so it makes the same steps."""
    side = "decoder" if architecture in ("language_model", "encoder_decoder") else "encoder"
    config = tiny.task(architecture).configure(tiny.model_config(dropout=0.0))
    model = build(replaced(config, {"halting.side": side, "halting.rule": "ponder"}))
    rows = tiny.examples(architecture, count=9, seed=2)
    with torch.no_grad():
        trained = objective(model, collate(rows, indices=range(9)), label_smoothing=0.0, ponder_weight=0.0)
    found = validation(rows, batch_tokens=20).expected_loss(model)
    assert found == pytest.approx(float(trained.total), rel=1e-5)
    assert model.training


def test_classes_are_ranked_by_error_and_tokens_by_cross_entropy():
    few_errors, small_loss = Score(0.9, 0.1, 1.0), Score(0.5, 0.2, 1.0)
    assert few_errors.rank(classes=True) < small_loss.rank(classes=True)
    assert small_loss.rank(classes=False) < few_errors.rank(classes=False)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_average_is_the_mean_of_the_last_few(count):
    averager = Averager(count)
    weights = [{"a": torch.randn(3), "b": torch.randn(2, 2)} for _ in range(5)]
    for added in weights:
        averager.add(added)
    average = averager.average()
    if count < 2:
        assert average is None
        return
    for name in ("a", "b"):
        expected = torch.stack([kept[name] for kept in weights[-count:]]).mean(0)
        torch.testing.assert_close(average[name], expected)
    again = Averager(count)
    again.load(averager.tensors())
    for name, value in again.average().items():
        assert torch.equal(value, average[name])


def trace(steps, *, halting=True):
    values = torch.as_tensor(steps, dtype=torch.float32)
    padding = values == 0
    probability = torch.zeros(1, *values.shape) if halting else None
    return Trace(values, torch.zeros_like(values), padding, probability=probability)


def warnings_after(seen, *, looks):
    watch = CollapseWatch()
    found = (watch.look(seen, side="decoder", max_steps=8, updates=20) for _ in range(looks))
    return [text for text in found if text]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [([[1, 1, 0], [1, 1, 1]], "at once"), ([[8, 8, 0], [8, 8, 8]], "to the cap"), ([[3, 3, 3, 0, 0]], "same step")],
)  # fmt: skip
def test_collapsed_halting_is_reported_once_and_only_after_long(steps, reason):
    looks = COLLAPSE_UPDATES // 20
    assert warnings_after(trace(steps), looks=looks - 1) == []
    (text,) = warnings_after(trace(steps), looks=3 * looks)
    assert reason in text
    assert "all decoder positions" in text


@pytest.mark.parametrize("seen", [trace([[1, 2, 5, 0]]), trace([[8, 8]], halting=False), None])
def test_halting_that_decides_is_not(seen):
    assert warnings_after(seen, looks=COLLAPSE_UPDATES) == []


def test_one_look_is_not_long_however_many_updates_it_stands_for():
    watch = CollapseWatch()
    found = [
        watch.look(trace([[1, 1]]), side="encoder", max_steps=8, updates=COLLAPSE_UPDATES)
        for _ in range(COLLAPSE_LOOKS)
    ]
    assert found[:-1] == [None] * (COLLAPSE_LOOKS - 1)
    assert "at once" in found[-1]
    assert COLLAPSE_LOOKS > 1


def test_a_single_step_is_no_collapse():
    watch = CollapseWatch()
    looks = [watch.look(trace([[1, 1]]), side="encoder", max_steps=1, updates=COLLAPSE_UPDATES) for _ in range(5)]
    assert not any(looks)


def test_a_short_recovery_starts_the_count_anew():
    watch = CollapseWatch()
    for _ in range(10):
        for steps, updates in (([[1, 1]], COLLAPSE_UPDATES - 1), ([[1, 4]], 1)):
            assert watch.look(trace(steps), side="encoder", max_steps=8, updates=updates) is None
