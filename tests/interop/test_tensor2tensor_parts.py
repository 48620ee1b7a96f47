"""The choices of official checkpoints, each by itself, and the configurations and files that have them."""

import json

import pytest
import torch
from torch import nn

from configs import config_of, with_fields
from small import FILTER, WIDTH, context, right_padding, stir
from small_models import SIZES, small
from universal_transformer.errors import UserError
from universal_transformer.execution.policy import changed_module, row_obstacle
from universal_transformer.interop.tensor2tensor_config import (
    PRESET,
    OfficialConfig,
    Tensor2TensorConfig,
)
from universal_transformer.interop.tensor2tensor_parts import OfficialBuilder, OfficialSource, PadRemover
from universal_transformer.models.model_config import ModelConfig, config_from_dict
from universal_transformer.models.universal import EncoderDecoder
from universal_transformer.nn.context import Kept
from universal_transformer.nn.coordinates import sinusoid
from universal_transformer.nn.halting import FixedDepth
from universal_transformer.nn.step_config import Sizes as ModelSizes
from universal_transformer.nn.step_config import TransitionConfig
from universal_transformer.nn.transition import FeedForward
from universal_transformer.registry import build, load_pretrained
from universal_transformer.rules import Exit
from universal_transformer.typed import replaced

CLASSIFIER = {"architecture": "classifier", "num_classes": 4}
TOKENS = torch.tensor([[3, 4, 5, 6, 7], [4, 5, 0, 0, 0], [5, 6, 7, 8, 0]])
LABELS = torch.tensor([[4, 2, 0], [5, 6, 2], [3, 2, 0]])


def official_coordinates(*, max_steps=3, **fields):
    config = config_of(**{**SIZES, **CLASSIFIER, "max_steps": max_steps, **fields})
    return OfficialBuilder(config, decoder=False).coordinates()


def timed(module, states, *, step, num_steps):
    encoding = module.position(torch.arange(states.shape[1]).unsqueeze(0))
    return module(states, encoding, step=step, signals=module.signals(num_steps, like=states))


def test_a_start_that_moves_with_the_step():
    module = official_coordinates(coordinate_layout="split", step_coordinates="none", position_start="step")
    for step, shift in ((0, 0), (1, 1), (2, 3)):  # trunc(5 * step / 3)
        added = timed(module, torch.zeros(1, 5, 8), step=step, num_steps=3)
        torch.testing.assert_close(added[0], sinusoid(torch.arange(5) + shift, width=8, layout="split"))


def test_a_start_that_moves_leaves_the_step_signal():
    module = official_coordinates(coordinate_layout="split", position_start="step")
    added = timed(module, torch.zeros(1, 5, 8), step=2, num_steps=3)
    step = sinusoid(torch.tensor(2), width=8, layout="split")
    torch.testing.assert_close(added[0], sinusoid(torch.arange(5) + 3, width=8, layout="split") + step)


def test_a_start_that_moves_ends_with_a_learned_table():
    fields = {"position_coordinates": "learned", "position_start": "step", "max_positions": 6}
    module = official_coordinates(**fields)
    stir(module)
    with pytest.raises(UserError, match="position 8 lies beyond the learned table of 6 positions"):
        timed(module, torch.zeros(1, 5, 8), step=2, num_steps=3)


@pytest.mark.parametrize("position", ["sinusoidal", "none"])
def test_concatenated_coordinates_are_one_matrix_over_the_parts(position):
    module = official_coordinates(position_coordinates=position, combine_coordinates="concatenate")
    states = torch.randn(2, 3, 8)
    encoding = module.position(torch.arange(3).unsqueeze(0))
    moment = module.signals(2, like=states)[1].expand(2, 3, -1)
    parts = [states, moment] if position == "none" else [states, encoding.signal.expand(2, 3, 8), moment]
    wanted = torch.cat(parts, dim=-1) @ module.join.weight.T
    torch.testing.assert_close(timed(module, states, step=1, num_steps=2), wanted)


def test_a_learned_step_table_is_scaled_by_the_square_root_of_its_channels():
    for fields, channels in (({}, 8), ({"combine_coordinates": "concatenate"}, 16)):
        module = stir(official_coordinates(step_coordinates="learned", zero_padding=True, **fields))
        table = module.step.weight
        assert table.shape == (3, channels)
        torch.testing.assert_close(module.signals(3, like=torch.zeros(1)), table * channels**0.5)


@pytest.mark.parametrize("concatenate", [False, True])
def test_learned_coordinates_learn(concatenate):
    fields = {"combine_coordinates": "concatenate"} if concatenate else {}
    learned = {"position_coordinates": "learned", "step_coordinates": "learned"}
    model = small(**CLASSIFIER, **learned, **fields)
    tables = [model.source.recurrence.coordinates.position.weight, model.source.recurrence.coordinates.step.weight]
    model(TOKENS[:1]).logits.sin().sum().backward()
    assert (tables[0].grad[:5].abs().sum(1) > 0).all()
    assert (tables[0].grad[5:] == 0).all()
    assert (tables[1].grad.abs().sum(1) > 0).all()


def test_the_transition_gives_nothing_at_padding():
    sizes, padding = ModelSizes(width=WIDTH, filter_width=FILTER, num_heads=2), right_padding([3, 1], 3)
    zeroed, plain = (stir(kind(sizes, TransitionConfig())) for kind in (PadRemover, FeedForward))
    zeroed.load_state_dict(plain.state_dict())
    states = torch.randn(2, 3, WIDTH)
    found, wanted = zeroed(states, context(padding=padding)), plain(states, context(padding=padding))
    torch.testing.assert_close(found[~padding], wanted[~padding])
    assert (found[padding] == 0).all()
    torch.testing.assert_close(zeroed(states, context()), wanted)


def test_the_pad_remover_is_in_the_encoder_alone_and_needs_a_feed_forward_transition():
    model = small(zero_padding=True)
    assert isinstance(model.source.recurrence.blocks[0].transition, PadRemover)
    assert type(model.target.recurrence.blocks[0].transition) is FeedForward
    other = small(zero_padding=True, transition="separable_convolution", **CLASSIFIER)
    assert not isinstance(other.source.recurrence.blocks[0].transition, PadRemover)


def test_padding_may_ponder_like_anything_else():
    trace = small(**CLASSIFIER, halting=True, ponder_padding=True)(TOKENS).encoder
    assert (trace.steps >= 1).all()
    assert trace.padding is None
    trace = small(**CLASSIFIER, ponder_padding=True)(TOKENS).encoder  # nothing halts
    assert torch.equal(trace.padding, TOKENS == 0)


def test_no_label_is_padding_where_padding_ponders():
    output = small(halting=True, ponder_padding=True)(TOKENS, LABELS)
    assert (output.decoder.steps >= 1).all()
    assert output.decoder.padding is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"zero_padding": True}, "the transition computes"),
        ({"combine_coordinates": "concatenate"}, "coordinates"),
        ({"position_start": "step"}, "coordinates"),
    ],
)
def test_halted_positions_are_not_left_out(fields, reason):
    recurrence = small(**CLASSIFIER, halting=True, max_steps=6, **fields).source.recurrence
    assert reason in row_obstacle(recurrence, recurrence.halting)


def test_choices_that_leave_a_step_as_it_is_are_fast():
    recurrence = small(**CLASSIFIER, halting=True, ponder_padding=True, plain_layers_before=1).source.recurrence
    assert changed_module(recurrence) is None
    assert row_obstacle(recurrence, recurrence.halting) is None


@pytest.mark.parametrize("injection", ["every_step", "input"])
def test_plain_layers_stand_around_the_recurrence(injection):
    model = small(**CLASSIFIER, plain_layers_before=2, plain_layers_after=1, position_injection=injection).eval()
    recurrence, states = model.source.recurrence, torch.randn(2, 5, WIDTH, dtype=torch.float64)
    positions = torch.arange(5).unsqueeze(0)
    where, call = sinusoid(positions, width=WIDTH), context(rule=FixedDepth(), positions=positions)
    entered = states + where
    for layer in recurrence.before:
        entered = layer(entered, call)
    for step in range(3):
        signal = sinusoid(torch.tensor(step), width=WIDTH) + (where if injection == "every_step" else 0)
        entered = recurrence.blocks[0](entered + signal, call)
    left = recurrence.after[0](entered + where if injection == "every_step" else entered, call)
    full = context(depth=recurrence.depth(), encoding=recurrence.coordinates.position(positions))
    torch.testing.assert_close(recurrence(states, full)[0], left)
    assert recurrence.num_slots(3) == 6


def test_states_before_plain_layers_have_no_logits():
    model = small(**CLASSIFIER, plain_layers_after=1)
    with pytest.raises(UserError, match="there are 1 plain layers"):
        model(TOKENS, keep=Kept(states=True))


def test_layers_after_the_recurrence_leave_no_head_to_ask():
    model = small(architecture="language_model", plain_layers_after=1)
    with pytest.raises(UserError, match=r"exit confidence:0.5: plain layers follow the recurrence"):
        model(LABELS, exit=Exit("confidence", 0.5))
    model(LABELS, exit=Exit("state_change", 0.5))


@pytest.mark.parametrize("fields", [{"plain_layers_before": 2}, {"plain_layers_after": 1, "halting": True}])
def test_token_by_token_is_the_whole_target(fields):
    model = small(architecture="language_model", **fields)
    state = model.start(batch=2, capacity=4)
    labels = torch.tensor([[3, 4, 5, 2], [6, 7, 8, 2]])
    tokens = torch.cat((torch.ones(2, 1, dtype=torch.long), labels[:, :-1]), dim=1)
    with torch.no_grad():
        logits = torch.cat([model.target.advance(tokens[:, place : place + 1], state) for place in range(4)], dim=1)
        torch.testing.assert_close(logits, model(labels).logits)


@torch.no_grad()
def test_the_problem_is_told_by_its_own_embedding():
    model = small(num_target_spaces=2)
    first = model(TOKENS, LABELS).logits
    with model.source.problem(1):
        second = model(TOKENS, LABELS).logits
        with model.source.problem(0):
            assert torch.equal(model(TOKENS, LABELS).logits, first)
    assert bool((first - second).abs().max() > 1e-8)
    assert torch.equal(model(TOKENS, LABELS).logits, first)
    with pytest.raises(UserError, match="target_space=2: allowed are 0 to 1"), model.source.problem(2):
        model(TOKENS, LABELS)
    plain = small(zero_padding=True)
    with pytest.raises(UserError, match=r"target_space=1: .*no embedding of problems"), plain.source.problem(1):
        plain(TOKENS, LABELS)


@pytest.mark.parametrize("fields", [{"position_start": "step"}, {"halting": True, "halting_scope": "sequence"}])
def test_a_model_that_sees_the_future_scores_but_does_not_generate(fields):
    model = small(**fields, num_target_spaces=1)
    assert model(TOKENS, LABELS).logits.shape == (3, 3, 9)
    with pytest.raises(
        UserError, match=r"reads more than its cache holds: it can score given targets but not generate"
    ):
        model.start(TOKENS, capacity=3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({**CLASSIFIER, "end_coordinates": True, "position_start": "step"}, "coordinates.from_end=True"),
        (
            {**CLASSIFIER, "position_start": "step", "position_coordinates": "rotary"},
            "tensor2tensor.shift_positions_by_step=True: shifts the signal that is added at every step",
        ),
        (
            {**CLASSIFIER, "position_start": "step", "position_injection": "input"},
            "tensor2tensor.shift_positions_by_step=True: shifts the signal that is added at every step",
        ),
        (
            {"plain_layers_before": 2, "position_coordinates": "learned"},
            "tensor2tensor.plain_layers_before=2: layers before the recurrence",
        ),
        (
            {"step.residual": "previous", "combine_coordinates": "concatenate"},
            "step.residual='previous': the authors' code adds the transition to A",
        ),
        (
            {"step.residual": "state", "combine_coordinates": "concatenate"},
            "step.residual='state': coordinates are concatenated",
        ),
        ({**CLASSIFIER, "position_start": "step", "max_steps": "length"}, "needs a number of steps"),
        (
            {"architecture": "language_model", "halting.side": "decoder", "halting.rule": "ponder",
             "plain_layers_after": 1},
            "tensor2tensor.plain_layers_after=1: ponder needs the output",
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_the_reason(fields, message):
    with pytest.raises(UserError, match=message):
        config_of(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {**CLASSIFIER, "position_start": "step"},
        {"position_start": "step"},
        {"halting": True, "halting_scope": "sequence", "zero_padding": True},
    ],
)
def test_what_can_is_not(fields):
    config = config_of(**fields)
    assert config == with_fields(ModelConfig(), **fields)
    assert config_from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_processes_do_not_share_positions_that_are_shifted():
    assert "by a part of the length" in config_of(**CLASSIFIER, position_start="step").interaction
    assert not config_of(**CLASSIFIER, zero_padding=True).interaction


def test_a_model_comes_back_from_its_folder(tmp_path):
    config = replaced(PRESET, {"sizes": ModelSizes(width=8, filter_width=12, num_heads=2), "vocabulary.size": 9})
    model = build(config).eval()
    assert isinstance(model.source, OfficialSource)
    model.save_pretrained(tmp_path)
    for found in (load_pretrained(tmp_path), EncoderDecoder.from_pretrained(tmp_path)):
        assert found.config == config
        torch.testing.assert_close(found(TOKENS, LABELS).logits, model(TOKENS, LABELS).logits)


def test_choices_that_are_all_off_change_nothing():
    """A configuration of this kind with every default is a plain one."""
    torch.manual_seed(0)
    plain = build(config_of(**SIZES))
    torch.manual_seed(0)
    ours = build(OfficialConfig(**{**vars(plain.config), "tensor2tensor": Tensor2TensorConfig()}))
    assert isinstance(ours, nn.Module)
    for (name, first), (other, second) in zip(plain.named_parameters(), ours.named_parameters(), strict=True):
        assert name == other
        assert torch.equal(first, second)
    assert torch.equal(plain.eval()(TOKENS, LABELS).logits, ours.eval()(TOKENS, LABELS).logits)
