"""A wider model that computes what a trained one computes (`experiments/wider.py`)."""

import json

import pytest
import torch

import wider
from small_models import small
from universal_transformer.errors import UserError
from universal_transformer.nn.coordinates import sinusoid
from universal_transformer.registry import load_pretrained

FIELDS = {
    "transition": "separable_convolution",
    "norm": "pre",
    "width": 16,
    "separator_id": (4, 5),
    "scale_embeddings": True,
    "tie_output": True,
}
SOURCE, TARGET = torch.tensor([[3, 4, 6, 7, 5, 8], [6, 6, 3, 2, 0, 0]]), torch.tensor([[1, 3, 7], [1, 8, 8]])


def plain():
    """A model without coordinates, which alone differ between the copies."""
    return small(**FIELDS, position_coordinates="none", step_coordinates="none").float()


def logits(model):
    with torch.no_grad():
        return model(SOURCE, TARGET).logits.float()


def test_without_coordinates_and_noise_the_function_is_the_same():
    old = plain()
    new = wider.wider(old, noise=0.0).eval()
    assert new.config.sizes.width == 2 * old.config.sizes.width
    torch.testing.assert_close(logits(new), logits(old), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_noise_changes_what_the_second_copies_hold(noise):
    old = plain()
    table = wider.wider(old, noise=noise).tensors()["source.input.weight"]
    first, second = table[:, :2], table[:, 2:4]
    assert torch.equal(first, second) == (noise == 0.0)


def test_the_first_copies_have_the_coordinates_of_the_old_channels():
    index, widening = torch.arange(300), wider.Widening(16, noise=0.0)
    found = sinusoid(index, width=32)[:, widening.first]
    torch.testing.assert_close(found, sinusoid(index, width=16), rtol=0, atol=1e-4)


def test_a_tensor_without_a_rule_is_named():
    with pytest.raises(UserError, match=r"transition\.inner\.\w+: no rule for it"):
        wider.wider(small(norm="pre", transition="feed_forward", width=16, tie_output=True).float(), noise=0.0)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ({"norm": "post"}, "only models that normalise first"),
        ({"coordinate_layout": "split"}, "the layout 'split'"),
        ({"scale_embeddings": False}, "not multiplied by sqrt"),
        ({"tie_output": False}, "a table of their own"),
    ],
)
def test_a_choice_without_a_rule_is_refused(field, text):
    with pytest.raises(UserError, match=text):
        wider.wider(small(**FIELDS | field), noise=0.0)


def test_the_folder_is_one_that_training_starts_from(tmp_path):
    (run := tmp_path / "run").mkdir()
    small(**FIELDS).float().save_pretrained(run / "model")
    (run / "config.json").write_text(json.dumps({"model": {"sizes": {"width": 16}}}))
    wider.main(run, tmp_path / "new", 0.1)
    assert load_pretrained(tmp_path / "new" / "model").config.sizes.width == 32
    assert json.loads((tmp_path / "new" / "config.json").read_text())["model"]["sizes"]["width"] == 32
