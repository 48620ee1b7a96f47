"""The main laws with the policy as users have it: batches large enough that it leaves out halted positions."""

import pytest
import torch

from small_models import small
from universal_transformer.execution.compaction import CompactLoop

pytestmark = pytest.mark.default_policy
SIZES = {"width": 128, "filter_width": 128, "num_heads": 4, "max_steps": 6, "halting": True}
KINDS = {
    "encoder": {"architecture": "classifier", "num_classes": 3, "pooling": "last"},
    "decoder": {"architecture": "language_model"},
}
NEAR = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture
def runs(monkeypatch):
    """One entry for each call that left out halted positions."""
    ran, run = [], CompactLoop.run
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    return ran


def model_of(kind, norm):
    model = small(**SIZES, **KINDS[kind], norm=norm, dropout=0.0)
    side = model.source if kind == "encoder" else model.target
    with torch.no_grad():
        side.recurrence.halting.weight.mul_(0.1)
        side.recurrence.halting.bias.fill_(-0.5)
    return model


def batch(rows=16, length=24):
    ids = torch.randint(3, 9, (rows, length))
    for row in range(0, rows, 3):
        ids[row, length - 2 - row % 5 :] = 0
    return ids


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_compacted_is_masked(kind, norm, train, runs):
    model, ids, found = model_of(kind, norm), batch(), []
    for choice in ("auto", "masked"):
        model.use_halting_execution(choice)
        model.zero_grad()
        with torch.set_grad_enabled(train):
            output = model(ids)
        trace = output.encoder or output.decoder
        parts = [output.logits.detach(), trace.steps, trace.remainder.detach()]
        if train:
            (output.logits.sin().mean() + output.ponder_cost).backward()
            parts += [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        found.append(parts)
    assert len(runs) == 1
    assert len(found[0]) == len(found[1])
    torch.testing.assert_close(*found, **NEAR)
    assert len(found[0][1].unique()) > 2


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_padding_and_the_order_of_rows_change_nothing(norm, runs):
    model, ids = model_of("encoder", norm), batch()
    whole = model(ids).logits
    order = torch.randperm(len(ids))
    longer = torch.cat((ids, torch.zeros(len(ids), 7, dtype=torch.long)), dim=1)
    torch.testing.assert_close(model(ids[order]).logits, whole[order], **NEAR)
    torch.testing.assert_close(model(longer).logits, whole, **NEAR)
    assert len(runs) == 3


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_the_future_changes_nothing(norm, runs):
    model, ids = model_of("decoder", norm), batch()[1::3]
    whole = model(ids).logits
    changed = ids.clone()
    changed[:, 12:] = torch.randint(3, 9, changed[:, 12:].shape)
    other = model(changed).logits
    torch.testing.assert_close(other[:, :13], whole[:, :13], **NEAR)
    assert (other[:, 13:] - whole[:, 13:]).abs().max() > 1e-6
    assert len(runs) == 2


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_token_by_token_is_all_at_once(norm, runs):
    model = model_of("decoder", norm)
    ids = torch.randint(3, 9, (64, 8))
    whole = model(ids).logits
    runs.clear()
    state = model.start(batch=len(ids), capacity=8)
    fed = torch.cat((torch.full_like(ids[:, :1], 1), ids[:, :-1]), dim=1)
    pieces = [model.target.advance(part, state) for part in (fed[:, :3], *fed[:, 3:].split(1, dim=1))]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, **NEAR)
    assert runs


def test_the_policy_is_not_forced_here():
    from universal_transformer.execution import policy

    assert policy.LEAST_SAVED == 2**17
