"""A new rule, exit, position encoding, norm or transition is one class and one line of a registry."""

import pytest
import torch

from small_models import small
from universal_transformer.decoding import DecodingOptions, generate
from universal_transformer.errors import UserError
from universal_transformer.execution import policy
from universal_transformer.execution.compaction import CompactLoop
from universal_transformer.models.components import NORMS, POSITIONS, TRANSITIONS
from universal_transformer.rules import EXITS, HALTING_RULES, Exit

HURRIED = '''
import torch
from universal_transformer.nn.halting import ACT

class Hurried(ACT):
    """Twice the logit of adaptive computation time."""

    def probability(self, was, step):
        return torch.sigmoid(2 * self.logit(step.timed) + 1), ()
'''
PARABOLA = '''
import torch
from torch import nn
from universal_transformer.nn.context import PositionEncoding
from universal_transformer.nn.coordinates import PositionEncoder

class Parabola(PositionEncoder):
    """A learned vector times the square of the position."""

    def __init__(self, width):
        super().__init__()
        self.direction = nn.Parameter(torch.empty(width))

    @classmethod
    def build(cls, config, *, decoder):
        return cls(config.sizes.width)

    def forward(self, positions, *, padding=None):
        return PositionEncoding(positions, (positions / 10).square().unsqueeze(-1) * self.direction)

    def initialise(self):
        nn.init.normal_(self.direction)
'''
HALVED = '''
from universal_transformer.nn.block import PostNorm

class Halved(PostNorm):
    """Half of the change is added."""

    by_rows = True

    def forward(self, states, change):
        return self.norm(states + 0.5 * self.dropout(change))
'''
GATED = '''
import torch
from torch import nn

class Gated(nn.Module):
    """``(x V) sigmoid(x W) U``."""

    pointwise = True

    def __init__(self, sizes, config, *, causal=False):
        super().__init__()
        self.inner = nn.Linear(sizes.width, 2 * sizes.filter_width)
        self.outer = nn.Linear(sizes.filter_width, sizes.width)

    def forward(self, states, context, *, slot=0):
        value, gate = self.inner(states).chunk(2, dim=-1)
        return self.outer(value * torch.sigmoid(gate))
'''
MARGIN = '''
from universal_transformer.rules.exits import ExitRule

class Margin(ExitRule):
    """The difference of the two largest probabilities."""

    reads_output, most = True, 1.0

    def holds(self, states, memory, context):
        largest, second = self.distribution(states, context).exp().topk(2).values.unbind(-1)
        return largest - second > self.criterion, ()
'''
MEMBERS = {
    "halting rule": (HALTING_RULES, HURRIED, "Hurried", "halting.rule"),
    "position encoding": (POSITIONS, PARABOLA, "Parabola", "coordinates.position"),
    "norm": (NORMS, HALVED, "Halved", "step.norm"),
    "transition": (TRANSITIONS, GATED, "Gated", "transition.kind"),
}
SOURCE, TARGET = torch.tensor([[3, 4, 5, 6, 7, 8], [5, 3, 8, 4, 0, 0]]), torch.tensor([[4, 6, 7, 2], [8, 2, 0, 0]])


@pytest.mark.parametrize("name", MEMBERS)
def test_one_class_and_one_line_make_a_model(name, tmp_path, monkeypatch):
    registry, text, kind, field = MEMBERS[name]
    module = f"member_{kind.lower()}"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry, "new", f"{module}:{kind}")
    monkeypatch.setattr(policy, "COMPACT_BELOW", 1.0)
    ran, run = [], CompactLoop.run
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    model, found = small(halting=True, max_steps=5, dropout=0.0, **{"halting.side": "both", field: "new"}), []
    assert any(type(part).__name__ == kind for part in model.modules())
    for form in ("auto", "masked"):
        model.use_halting_execution(form)
        model.zero_grad()
        output = model(SOURCE, TARGET)
        (output.logits.sin().sum() + output.ponder_cost).backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        written = generate(model, SOURCE, DecodingOptions(max_new_tokens=3))
        found.append([output.logits.detach(), *gradients, *(torch.tensor(one.token_scores) for one in written)])
        assert bool(ran) == (form == "auto") or form == "masked"
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
    usual = small(halting=True, max_steps=5, dropout=0.0, **{"halting.side": "both"})
    assert (usual(SOURCE, TARGET).logits - found[0][0]).abs().max() > 1e-3


@torch.no_grad()
def test_one_class_and_one_line_make_an_exit(tmp_path, monkeypatch):
    (tmp_path / "member_margin.py").write_text(MARGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(EXITS, "margin", "member_margin:Margin")
    model, found = small(architecture="language_model", max_steps=5, dropout=0.0), []
    largest, second = model(SOURCE, max_steps=1).logits.softmax(-1).topk(2).values.unbind(-1)
    margin, real = largest - second, SOURCE != 0
    chosen = Exit.parse(f"margin:{margin[real].median().item():.6f}")
    for form in ("auto", "masked"):
        model.use_halting_execution(form)
        output = model(SOURCE, exit=chosen)
        (written,) = generate(model, SOURCE[:1], DecodingOptions(max_new_tokens=3, exit=chosen))
        found.append([output.logits, output.decoder.steps, torch.tensor(written.token_scores)])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
    stopped = found[0][1][real] == 1
    assert torch.equal(stopped, (margin > chosen.threshold)[real])
    assert 0 < stopped.sum() < real.sum()
    with pytest.raises(UserError, match=r"exit margin:1\.5: the threshold of margin is at most 1"):
        Exit("margin", 1.5)
