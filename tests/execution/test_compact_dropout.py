"""With dropout the two forms draw other numbers, from the same distribution: their means and spreads agree."""

import pytest
import torch

from configs import config_of
from universal_transformer.execution.compaction import CompactLoop
from universal_transformer.models.universal import Classifier

ROWS = 6000


def drawn(form, *, dropouts, norm):
    """Outputs of one sequence, `ROWS` times with dropout of their own, and how often the compact loop ran."""
    torch.manual_seed(1)
    config = config_of(
        architecture="classifier", vocabulary_size=9, num_classes=3, width=8, filter_width=8, num_heads=2,
        max_steps=5, halting=True, halting_bias=-0.5, norm=norm, **({"dropout": 0.0} | dropouts),
    )  # fmt: skip
    model = Classifier(config).train()
    model.use_halting_execution(form)
    with torch.no_grad():
        model.source.recurrence.halting.weight.mul_(4.0)
    source = torch.tensor([[3, 4, 5, 6, 7, 8]]).expand(ROWS, -1)
    return model(source).logits.detach()


@pytest.mark.cover(1)
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    "dropouts",
    [
        {"attention_dropout": 0.4},
        {"dropout": 0.3},
        {"transition_dropout": 0.4},
        {"attention_dropout": 0.4, "layers_per_step": 2},
        {"attention_dropout": 0.4, "position_coordinates": "rotary"},
    ],
    ids=lambda chosen: "-".join(chosen),
)
def test_same_distribution(dropouts, norm, monkeypatch):
    ran = []
    run = CompactLoop.run
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    masked = drawn("masked", dropouts=dropouts, norm=norm)
    assert not ran
    left_out = drawn("auto", dropouts=dropouts, norm=norm)
    assert ran
    noise = ((masked.var(0) + left_out.var(0)) / ROWS).sqrt()
    assert ((masked.mean(0) - left_out.mean(0)).abs() < 4.5 * noise).all()
    assert (masked.std(0) / left_out.std(0)).sub(1).abs().max() < 0.1
    assert masked.std(0).min() > 0.01  # there is something to compare
