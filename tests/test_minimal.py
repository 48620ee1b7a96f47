"""`examples/minimal.py` is the library's encoder-decoder: the same logits, ponder cost, steps and gradients."""

import runpy
from pathlib import Path

import pytest
import torch

import universal_transformer as ut

EXAMPLE = runpy.run_path(str(Path(__file__).parent.parent / "examples" / "minimal.py"))
WIDTH, VOCABULARY = 16, 11


def parameters_of_minimal(model):
    """The parameters of an encoder-decoder by their names in the example."""
    renamed = {}
    for name, tensor in model.state_dict().items():
        if name.endswith("attention.query_key_value.weight"):
            start = name.removesuffix("query_key_value.weight")
            renamed[f"{start}query.weight"], renamed[f"{start}key_value.weight"] = tensor.split((WIDTH, 2 * WIDTH))
        else:
            renamed[name.replace("transition.inner", "transition.0").replace("transition.outer", "transition.2")] = (
                tensor
            )
    own = {"source.input.weight": "embedding.weight", "target.bias": "bias"}
    sides = {"source.recurrence.": "encoder.", "target.recurrence.": "decoder."}
    shown = {own[name]: renamed.pop(name) for name in own}
    renamed.pop("target.embedding.weight", None)  # the table of the source
    for name, tensor in renamed.items():
        side = next(side for side in sides if name.startswith(side))
        shown[sides[side] + name.removeprefix(side)] = tensor
    return shown


@pytest.mark.parametrize("bias", [-2.0, -1.0, 1.0])
def test_the_example_computes_what_the_library_computes(bias):
    torch.manual_seed(0)
    config = ut.ModelConfig(
        vocabulary=ut.VocabularyConfig(size=VOCABULARY),
        sizes=ut.Sizes(width=WIDTH, filter_width=32, num_heads=4),
        depth=ut.DepthConfig(max_steps=5),
        halting=ut.HaltingConfig(side="both", bias=bias),
    )
    model = ut.EncoderDecoder(config).double().eval()
    minimal = (
        EXAMPLE["UniversalTransformer"](VOCABULARY, width=WIDTH, filter_width=32, heads=4, steps=5).double().eval()
    )
    minimal.load_state_dict(parameters_of_minimal(model))
    source, target = torch.randint(3, VOCABULARY, (4, 7)), torch.randint(3, VOCABULARY, (4, 6))
    source[1, 4:], target[2, 3:] = 0, 0

    output, (logits, cost) = model(source, target), minimal(source, target)
    real = target.ne(0)
    torch.testing.assert_close(logits[real], output.logits[real], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(cost, output.ponder_cost.double(), rtol=1e-6, atol=1e-6)
    steps = minimal.encoder(minimal.embed(source), source.ne(0)[:, None, None])[1]
    assert torch.equal(steps[source.ne(0)], output.encoder.steps[source.ne(0)].double())
    assert len(steps[source.ne(0)].unique()) > 1 or bias != 0.0, (
        "positions should differ in the case that is to show it"
    )

    (logits[real].square().mean() + cost).backward()
    (output.logits[real].square().mean() + output.ponder_cost).backward()
    expected = gradients(model)
    for name, parameter in minimal.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-5, atol=1e-7)


def gradients(model):
    """The gradients of an encoder-decoder by the names of the example."""
    copy = ut.EncoderDecoder(model.config).double()
    with torch.no_grad():
        for mine, theirs in zip(copy.parameters(), model.parameters(), strict=True):
            mine.copy_(theirs.grad)
    return parameters_of_minimal(copy)
