"""The decoder alone."""

import pytest
import torch

from small_models import small, variants
from universal_transformer.nn.context import Kept

VARIANTS = variants()


def labels():
    tokens = torch.randint(2, 9, (3, 6))
    tokens[1, 4:] = 0
    return tokens


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS.keys())
@torch.no_grad()
def test_the_future_the_neighbours_and_padding_change_nothing(fields):
    model, tokens = small(architecture="language_model", **fields), labels()
    real, whole = tokens != 0, model(tokens)
    prefix = model(tokens[:, :3])
    torch.testing.assert_close(prefix.logits, whole.logits[:, :3], rtol=0, atol=1e-10)
    assert torch.equal(prefix.decoder.steps, whole.decoder.steps[:, :3])
    padded = model(torch.nn.functional.pad(tokens, (2, 1)))
    torch.testing.assert_close(padded.logits[:, 2:8][real], whole.logits[real], rtol=0, atol=1e-10)
    torch.testing.assert_close(padded.ponder_cost, whole.ponder_cost)
    alone = model(tokens[1:2, :4])
    torch.testing.assert_close(alone.logits[0], whole.logits[1, :4], rtol=0, atol=1e-10)


@pytest.mark.parametrize("offsets", ["random", "scattered"])
@torch.no_grad()
def test_positions_are_drawn_while_training_and_only_then(offsets):
    model, tokens = small(architecture="language_model", position_offsets=offsets, dropout=0.0), labels()
    usual = model(tokens).logits
    assert torch.equal(model(tokens).logits, usual)
    model.train()
    assert bool((model(tokens).logits - usual).abs().max() > 1e-8)


@torch.no_grad()
def test_there_is_no_source_and_so_no_trace_of_one():
    output = small(architecture="language_model", halting=True)(labels(), keep=Kept(attention=True))
    assert output.encoder is None
    assert output.decoder.cross_attention is None
    torch.testing.assert_close(output.ponder_cost, output.decoder.ponder_cost)
    torch.testing.assert_close(output.mean_steps, output.decoder.mean_steps())
    padding = small(architecture="language_model", halting=True)(torch.zeros(1, 2, dtype=torch.long))
    assert (padding.mean_steps, padding.ponder_cost) == (0, 0), "no position is real"
