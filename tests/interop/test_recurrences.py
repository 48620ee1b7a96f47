"""The other recurrences of the authors' code in models of ours: what they refuse, and their files.

`test_tensor2tensor.py` holds them to an oracle, and the laws of models run over them (`small_models.variants`).
"""

import pytest
import torch

from small_models import small
from universal_transformer.errors import UserError
from universal_transformer.interop.recurrences import CARRIES
from universal_transformer.registry import load_pretrained
from universal_transformer.rules import Exit
from universal_transformer.typed import replaced

SOURCE, LABELS = torch.tensor([[3, 4, 5], [4, 5, 0]]), torch.tensor([[4, 2, 0], [5, 6, 2]])
kinds = pytest.mark.parametrize("kind", CARRIES)


def model(kind, **fields):
    return small(**{"tensor2tensor.recurrence": kind, "step_coordinates": "none", **fields})


@kinds
def test_a_model_comes_back_from_its_folder(kind, tmp_path):
    made = model(kind).float()
    made.save_pretrained(tmp_path)
    again = load_pretrained(tmp_path)
    assert again.config == made.config
    torch.testing.assert_close(again(SOURCE, LABELS).logits, made(SOURCE, LABELS).logits, rtol=0, atol=0)


@kinds
def test_gradients_are_those_of_finite_differences(kind):
    made = model(kind, architecture="classifier", num_classes=2)
    parameters = dict(made.named_parameters())

    def run(*values):
        return torch.func.functional_call(made, dict(zip(parameters, values, strict=True)), (SOURCE,)).logits

    assert torch.autograd.gradcheck(run, tuple(parameters.values()), fast_mode=True, atol=1e-5)


@kinds
def test_halting_and_exits_and_checkpoints_are_refused(kind):
    made = model(kind)
    for field, value in (("halting.side", "both"), ("execution.activation_checkpointing", True)):
        with pytest.raises(UserError, match="recurrence"):
            replaced(made.config, {field: value})
    with pytest.raises(UserError, match=f"recurrence {kind}: positions do not stop early"):
        made(SOURCE, LABELS, exit=Exit("state_change", 0.5))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"recurrence": "gru", "step_coordinates": "learned"}, "count their steps themselves"),
        ({"recurrence": "highway", "gates_inputs": "x"}, 'letters of "sti"'),
        ({"recurrence": "skip", "coupled_gates": False, "zero_padding": True}, "fails with the pad remover"),
    ],
    ids=lambda value: value.get("recurrence") if isinstance(value, dict) else "",
)
def test_what_the_code_of_the_authors_has_not_is_refused(fields, message):
    named = {"step_coordinates": "none"} | {
        name if name == "step_coordinates" else f"tensor2tensor.{name}": value for name, value in fields.items()
    }
    with pytest.raises(UserError, match=message):
        small(**named)


def test_a_recurrent_unit_over_positions_scores_and_does_not_generate():
    made = small(**{"tensor2tensor.sru": True})
    changed = LABELS.clone()
    changed[:, 1] = 7  # of a later position
    torch.testing.assert_close(made(SOURCE, LABELS).logits[:, :2], made(SOURCE, changed).logits[:, :2])
    with pytest.raises(UserError, match="reads more than its cache holds"):
        made.start(SOURCE, capacity=3)


def test_a_unit_over_depth_between_plain_layers_with_convolutions_generates():
    fields = {"transition": "separable_convolution", "plain_layers_before": 1, "step_coordinates": "none"}
    made = small(**fields, **{"tensor2tensor.recurrence": "gru"})
    labels = LABELS.clamp(min=3)
    state, logits = made.start(SOURCE, capacity=labels.shape[1]), made(SOURCE, labels).logits
    tokens = torch.cat([torch.full_like(labels[:, :1], made.config.start_id), labels[:, :-1]], dim=1)
    torch.testing.assert_close(made.target.advance(tokens, state), logits)


def test_attention_over_depth_names_its_largest_depth():
    made = small(max_steps=2, **{"tensor2tensor.recurrence": "dwa"})
    with pytest.raises(UserError, match="the depth embedding of dwa has 3 rows; run fewer steps"):
        made(SOURCE, LABELS, max_steps=6)
