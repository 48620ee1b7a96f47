import pytest
import torch
from torch import nn

from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import NO_CLASS, PADDING, Example
from universal_transformer.nn.context import Kept
from universal_transformer.registry import build
from universal_transformer.training.batches import Part, counts_of
from universal_transformer.training.objective import NEVER, cross_entropies, objective, stop_loss
from universal_transformer.training.processes import ALONE
from universal_transformer.typed import replaced

from . import tiny


def made(architecture: str, **fields):
    torch.manual_seed(0)
    model = build(tiny.task(architecture).configure(tiny.model_config(**fields))).eval()
    rows = tiny.examples(architecture, count=7, seed=3)
    return model, collate(rows, indices=range(7))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_it_is_the_mean_over_real_targets_of_a_naive_loop(architecture, smoothing):
    model, batch = made(architecture)
    loss = objective(model, batch, label_smoothing=smoothing, ponder_weight=0.0)
    inputs = {"encoder_decoder": (batch.source, batch.target), "language_model": (batch.target,)}
    probabilities = model(*inputs.get(architecture, (batch.source,))).logits.log_softmax(-1)
    terms, correct = [], 0
    rows = probabilities.unsqueeze(1) if batch.target.ndim == 1 else probabilities
    targets = batch.target.reshape(len(rows), -1)
    for row in range(len(rows)):
        for place, answer in enumerate(targets[row].tolist()):
            if batch.target.ndim == 2 and answer == 0:
                continue
            line = rows[row, place]
            terms.append(-(1 - smoothing) * line[answer] - smoothing * line.mean())
            correct += int(line.argmax() == answer)
    torch.testing.assert_close(loss.cross_entropy, torch.stack(terms).mean().detach())
    assert loss.num_targets == len(terms)
    assert loss.right.sum() == correct
    assert loss.ponder == 0
    assert loss.mean_steps == 3


@pytest.mark.parametrize("halting", [False, True])
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_more_padding_changes_nothing(architecture, halting):
    model, batch = made(architecture, halting=halting)

    def widened(ids):
        return ids if ids is None or ids.ndim == 1 else nn.functional.pad(ids, (0, 4))

    wide = Batch(source=widened(batch.source), target=widened(batch.target), indices=batch.indices)
    narrow, padded = (objective(model, b, label_smoothing=0.1, ponder_weight=0.5) for b in (batch, wide))
    torch.testing.assert_close(narrow.total, padded.total, rtol=1e-5, atol=1e-6)
    assert narrow.num_targets == padded.num_targets


def test_the_ponder_cost_is_weighed_in_and_reaches_the_halting_unit():
    model, batch = made("classifier", halting=True)
    loss = objective(model, batch, label_smoothing=0.0, ponder_weight=0.25)
    torch.testing.assert_close(loss.total.detach(), loss.cross_entropy + 0.25 * loss.ponder)
    assert loss.ponder > 1
    assert not loss.ponder.requires_grad
    loss.total.backward()
    grads = [p.grad for name, p in model.named_parameters() if "halting" in name]
    assert grads
    assert any(grad.abs().sum() > 0 for grad in grads)


def test_an_unknown_class_counts_for_nothing():
    model, _ = made("classifier")
    rows = tiny.examples("classifier", count=7, seed=3)
    asked = [*rows[:4], *(Example(source=row.source, target=NO_CLASS) for row in rows[4:])]
    some = objective(model, collate(asked, indices=range(7)), label_smoothing=0.0, ponder_weight=0.0)
    few = objective(model, collate(rows[:4], indices=range(4)), label_smoothing=0.0, ponder_weight=0.0)
    assert some.num_targets == 4
    torch.testing.assert_close(some.cross_entropy, few.cross_entropy)


def inputs(architecture: str, batch: Batch) -> tuple:
    given = {"encoder_decoder": (batch.source, batch.target), "language_model": (batch.target,)}
    return given.get(architecture, (batch.source,))


def nats(logits, batch: Batch):
    """Mean cross-entropy over real targets."""
    ignored = NO_CLASS if batch.target.ndim == 1 else 0
    return nn.functional.cross_entropy(logits.flatten(0, -2), batch.target.flatten(), ignore_index=ignored)


@pytest.mark.parametrize(("step_loss", "weights"), [("mean", [1, 1, 1]), ("increasing", [1, 2, 3])])
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_a_loss_after_each_step_is_the_weighted_mean_over_the_steps_made(architecture, step_loss, weights):
    model, batch = made(architecture)
    each = [nats(logits, batch) for logits in model(*inputs(architecture, batch), keep=Kept(states=True)).step_logits]
    loss = objective(model, batch, label_smoothing=0.0, ponder_weight=0.0, step_loss=step_loss)
    expected = sum(weight * one for weight, one in zip(weights, each, strict=True)) / sum(weights)
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(loss.cross_entropy, each[-1].detach())  # what is reported stays that of the output


def test_the_second_stage_asks_from_the_fewest_steps_on():
    model, batch = made("language_model", halting=True)
    model = build(replaced(model.config, {"depth.min_steps": 2})).eval()
    nn.init.normal_(model.target.recurrence.halting.weight)
    output = model(batch.target, halting_threshold=NEVER, keep=Kept(states=True))
    each = cross_entropies(output.step_logits, batch.target, ignored=PADDING)
    real = (batch.target != PADDING).flatten()
    from_first, from_second = (stop_loss(each, output.decoder, real=real, min_steps=least) for least in (1, 2))
    loss = objective(model, batch, label_smoothing=0.0, ponder_weight=0.0, step_loss="stop")
    torch.testing.assert_close(loss.total, from_second)
    assert abs(from_first.item() - from_second.item()) > 1e-3


def test_the_output_of_a_halting_model_counts_as_much_as_all_its_steps():
    model, batch = made("language_model", halting=True)
    nn.init.normal_(model.target.recurrence.halting.weight, std=2.0)
    output = model(batch.target, keep=Kept(states=True))
    each = []
    for row, answer in enumerate(batch.target.tolist()):
        for place, token in enumerate(answer):
            if token != PADDING:
                steps = output.step_logits[: int(output.decoder.steps[row, place])]
                each.append(-torch.stack([logits[row, place].log_softmax(-1)[token] for logits in steps]).mean())
    assert len(set(output.decoder.steps[batch.target != PADDING].tolist())) > 1
    loss = objective(model, batch, label_smoothing=0.0, ponder_weight=0.5, step_loss="mean")
    expected = (sum(each) / len(each) + nats(output.logits, batch)) / 2 + 0.5 * output.ponder_cost
    torch.testing.assert_close(loss.total, expected)


@pytest.mark.parametrize("step_loss", ["last", "mean", "increasing"])
@pytest.mark.parametrize("rule", ["act", "ponder", "stick_breaking"])
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_the_losses_of_parts_add_up_to_that_of_the_whole_batch(architecture, rule, step_loss):
    side = "decoder" if architecture in ("language_model", "encoder_decoder") else "encoder"
    config = tiny.task(architecture).configure(tiny.model_config(dropout=0.0))
    model = build(replaced(config, {"halting.side": side, "halting.rule": rule, "halting.bias": 0.0})).double().train()
    nn.init.normal_((model.target if side == "decoder" else model.source).recurrence.halting.weight)
    rows = sorted(tiny.examples(architecture, count=7, seed=3), key=lambda row: len(row.source))
    options = {"label_smoothing": 0.1, "ponder_weight": 0.7, "step_loss": "last" if rule == "ponder" else step_loss}
    whole = objective(model, collate(rows, indices=range(7)), **options)
    parts = [collate(rows[:3], indices=range(3)), collate(rows[3:], indices=range(4))]
    counts = counts_of(model, [Part(part) for part in parts], processes=ALONE)
    found = [objective(model, part, counts=counts, **options) for part in parts]
    for name in ("total", "cross_entropy", "ponder", "mean_steps"):
        torch.testing.assert_close(sum(getattr(part, name) for part in found), getattr(whole, name), check_dtype=False)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_the_loss_of_ponder_is_the_expectation_over_the_last_step(architecture):
    side = "decoder" if architecture in ("language_model", "encoder_decoder") else "encoder"
    config = tiny.task(architecture).configure(tiny.model_config(dropout=0.0))
    model = build(replaced(config, {"halting.side": side, "halting.rule": "ponder"})).train()
    batch = collate(tiny.examples(architecture, count=7, seed=3), indices=range(7))
    nn.init.normal_((model.target if side == "decoder" else model.source).recurrence.halting.weight)
    found = objective(model, batch, label_smoothing=0.1, ponder_weight=0.3)
    output = model(*inputs(architecture, batch), keep=Kept(states=True))
    trace = output.decoder or output.encoder
    total, count = 0.0, 0
    for row, answer in enumerate(batch.target.view(len(batch.target), -1).tolist()):
        for place, label in enumerate(answer):
            if label == (NO_CLASS if batch.target.ndim == 1 else 0):
                continue
            count += 1
            for step, logits in enumerate(output.step_logits):
                one = logits[row] if batch.target.ndim == 1 else logits[row, place]
                nats = nn.functional.cross_entropy(one, torch.tensor(label), label_smoothing=0.1)
                total += trace.weight[step, row, place] * nats
    wanted = total / count + 0.3 * output.ponder_cost
    torch.testing.assert_close(found.total, wanted)
    assert len(output.step_logits) == 3
    assert found.total.requires_grad
    model.eval()
    assert objective(model, batch, label_smoothing=0.1, ponder_weight=0.0).mean_steps <= 3
