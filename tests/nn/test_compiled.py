"""A compiled block is the eager block. Run without the shape checks, which the compiler cannot trace."""

import pytest
import torch
from torch._dynamo.utils import counters

from configs import config_of, with_fields
from universal_transformer.registry import build

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute"),  # the compiler's own
]
SMALL = config_of(
    architecture="classifier",
    vocabulary_size=11,
    num_classes=3,
    width=32,
    filter_width=64,
    num_heads=2,
    max_steps=3,
    dropout=0.0,
)


def padded(length):
    source = torch.randint(3, 11, (4, length))
    source[0, length // 2 :] = 0
    return source


@pytest.mark.parametrize("halting", [False, True])
def test_compiled_is_eager_in_outputs_and_gradients(halting):
    torch._dynamo.reset()
    counters.clear()  # exports count too
    eager = build(with_fields(SMALL, halting=halting))
    compiled = build(eager.config)
    compiled.load_state_dict(eager.state_dict())
    compiled.compile_blocks()
    for length in (7, 12):
        source, outputs = padded(length), []
        for model in (eager, compiled):
            model.zero_grad()
            output = model(source)
            (output.logits.logsumexp(-1).mean() + 0.1 * output.ponder_cost).backward()
            outputs.append(output)
        one, two = outputs
        torch.testing.assert_close(one.logits, two.logits, atol=1e-4, rtol=1e-4)
        assert torch.equal(one.encoder.steps, two.encoder.steps)
        for (name, a), (_, b) in zip(eager.named_parameters(), compiled.named_parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, atol=1e-4, rtol=1e-3, msg=name)
    # one program for all steps and lengths, halting or not
    assert counters["stats"]["unique_graphs"] == 1
    assert list(eager.state_dict()) == list(compiled.state_dict())
