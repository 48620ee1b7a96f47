import random
from contextlib import nullcontext

import pytest
import torch

from universal_transformer.data.batch import collate
from universal_transformer.evaluation.measure import Selection, evaluate
from universal_transformer.registry import build
from universal_transformer.tasks import TextData
from universal_transformer.training.objective import objective
from universal_transformer.training.validation import BaselineComparison, Interrupted, Validation, ValidationScore
from universal_transformer.typed import replaced

from . import tiny


def validation(rows, *, batch_tokens, unknown_id=None):
    device = torch.device("cpu")
    return Validation(
        rows, batch_tokens=batch_tokens, device=device, precision=lambda: nullcontext(), unknown_id=unknown_id
    )


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
    few_errors, small_loss = ValidationScore(0.9, 0.1, 1.0), ValidationScore(0.5, 0.2, 1.0)
    assert few_errors.rank(classes=True) < small_loss.rank(classes=True)
    assert small_loss.rank(classes=False) < few_errors.rank(classes=False)


def test_an_unknown_token_is_never_right_as_in_an_evaluation(tmp_path):
    words = random.Random(0)
    lines = (" ".join(f"w{words.randrange(300)}" if word % 3 else "the" for word in range(9)) for _ in range(100))
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    task = TextData(train=str(path), tokenizer="whitespace", vocabulary_size=12, block_length=16).load()
    model = build(task.configure(tiny.model_config(architecture="language_model")))
    unknown = task.codec.target.unknown_id
    scored = validation(task.validation, batch_tokens=100, unknown_id=unknown)
    for preferred, some in ((" the", True), ("<unknown>", False)):
        torch.nn.init.zeros_(model.target.bias).data[task.codec.target.tokens.index(preferred)] = 100.0
        error = scored.score(model, stopped=lambda: False).error
        accuracy = evaluate(model, task, Selection("validation")).totals[0].metrics["accuracy"]
        assert error == pytest.approx(1 - accuracy)
        assert (accuracy > 0) == some
    baseline = BaselineComparison(task, model, metric=None)
    assert baseline.baseline.most_frequent == unknown
    assert baseline.score.error == 1.0
