"""Frames that are written position by position: the equations, what a position sees, and where generation ends."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import relu

from small_frames import INPUTS, SHAPE, SIZES, frames, source_fields, tokens
from universal_transformer.decoding.frame_generation import generate_frames
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.models.components import (
    CoordinatesConfig,
    DepthConfig,
    GenerationConfig,
    OutputsConfig,
    VocabularyConfig,
)
from universal_transformer.models.model import Call
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.universal import EncoderDecoder, FrameGenerator
from universal_transformer.nn.step_config import HaltingConfig, StepConfig
from universal_transformer.registry import build, load_pretrained
from universal_transformer.rules import Exit

STRIDE, FEATURES = 3, 5
GIVEN = ("tokens", *INPUTS)


def config_of(given="tokens", *, depth="fixed", **fields):
    usual = {
        "outputs": OutputsConfig(kind="frames", features=FEATURES, stride=STRIDE),
        "sizes": SIZES,
        "depth": DepthConfig(max_steps=3),
        "step": StepConfig(dropout=0.0),
    }
    return ModelConfig(**{**usual, **source_fields(given), **SHAPE[depth], **fields})


def model_of(given="tokens", *, seed=3, **fields):
    torch.manual_seed(seed)
    model = build(config_of(given, **fields)).eval()
    with torch.no_grad():
        model.target.stop.bias.fill_(-2.0)
    return model


def source_of(given, *lengths):
    return tokens(*lengths) if given == "tokens" else frames(*lengths, seed=1)


def written(*lengths, seed=0):
    return frames(*lengths, features=FEATURES, seed=seed)


@torch.no_grad()
def test_frames_and_stops_are_those_of_the_equations():
    model, source, target = model_of(), tokens(4), written(8)
    output, side = model(source, target), model.target
    assert output.frames.shape == target.shape
    first, second = side.embedding[0], side.embedding[3]
    before = torch.stack([torch.zeros(FEATURES), target[0, 2], target[0, 5]])
    inputs = relu(relu(before @ first.weight.T + first.bias) @ second.weight.T + second.bias)
    encoded = model.source(source, Call())
    states, _ = side.recurrence(inputs.unsqueeze(0), side.context(3, Call(), padding=None, encoded=encoded))
    for place, state in enumerate(states[0]):
        made = (side.output.weight @ state + side.output.bias).reshape(STRIDE, FEATURES)
        here = output.frames[0, STRIDE * place : STRIDE * (place + 1)]
        torch.testing.assert_close(here, made[: len(here)])
        torch.testing.assert_close(output.stop[0, place], side.stop.weight[0] @ state + side.stop.bias[0])
    assert output.places.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("depth", SHAPE)
@torch.no_grad()
def test_padding_and_other_rows_change_nothing(given, depth):
    model, source, target = model_of(given, depth=depth), source_of(given, 6, 12, 8), written(4, 7, 9)
    together = model(source, target)
    for row, (read, length) in enumerate(((6, 4), (12, 7), (8, 9))):
        alone = model(source[row : row + 1, :read], target[row : row + 1, :length])
        torch.testing.assert_close(together.frames[row, :length], alone.frames[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(together.stop[row, : alone.stop.shape[1]], alone.stop[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("given", ["tokens", "joined frames"])
@torch.no_grad()
def test_a_position_sees_the_last_frame_of_each_position_before_and_no_later_one(given):
    model, source, target = model_of(given), source_of(given, 8), written(9)
    found = model(source, target)
    for frame in range(9):
        other = target.clone()
        other[0, frame] += 1.0
        changed, next_place = model(source, other), frame // STRIDE + 1
        end = STRIDE * next_place
        torch.testing.assert_close(changed.frames[:, :end], found.frames[:, :end])
        torch.testing.assert_close(changed.stop[:, :next_place], found.stop[:, :next_place])
        seen = frame % STRIDE == STRIDE - 1 and next_place < 3
        assert torch.allclose(changed.frames[:, end:], found.frames[:, end:]) is not seen


@pytest.mark.parametrize("given", GIVEN)
@torch.no_grad()
def test_every_part_of_the_source_reaches_the_frames(given):
    model, source, target = model_of(given), source_of(given, 8), written(6)
    found = model(source, target)
    for place in range(8):
        other = source.clone()
        other[0, place] = other[0, place] + 1.0 if given != "tokens" else 3 + (other[0, place] - 2) % 6
        assert not torch.allclose(model(other, target).frames, found.frames)


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("depth", SHAPE)
@torch.no_grad()
def test_positions_one_by_one_have_the_frames_of_all_at_once(given, depth):
    model, source, target = model_of(given, depth=depth), source_of(given, 6, 8), written(12, 12)
    whole = model(source, target)
    before = torch.cat((model.target.first(2), target[:, STRIDE - 1 :: STRIDE][:, :-1]), dim=1)
    for parts in ([1] * 4, [3, 1], [4]):
        state = model.start(source, capacity=4)
        found = [model.target.advance(part, state) for part in torch.split(before, parts, dim=1)]
        made, stop = (torch.cat(side, dim=1) for side in zip(*found, strict=True))
        torch.testing.assert_close(made, whole.frames, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(stop, whole.stop, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_halted_positions_are_left_out_without_a_change():
    for scale in (0.0, 3.0):
        model, source, target = model_of(depth="halting"), tokens(4, 6), written(30, 24)
        model.target.recurrence.halting.bias.fill_(scale)
        found = model(source, target)
        model.use_halting_execution("masked")
        masked = model(source, target)
        torch.testing.assert_close(found.frames[0], masked.frames[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.decoder.steps, masked.decoder.steps)


@pytest.mark.parametrize("depth", SHAPE)
def test_gradients_are_those_of_differences(depth):
    model, source, target = model_of(depth=depth).double(), tokens(5, 3), written(6, 4).double()
    for layer in (0, 3):  # away from the corner of ReLU, where the first frame of zeros would be
        torch.nn.init.uniform_(model.target.embedding[layer].bias, 0.1, 0.5)

    def loss():
        output = model(source, target)
        return output.frames[:, :4].square().sum() + output.stop.sigmoid().sum()

    loss().backward()
    step = 1e-6
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        place = parameter.grad.abs().argmax()
        with torch.no_grad():
            flat = parameter.view(-1)
            flat[place] += step
            above = loss()
            flat[place] -= 2 * step
            below = loss()
            flat[place] += step
        assert float((above - below) / (2 * step)) == pytest.approx(
            float(parameter.grad.view(-1)[place]), rel=1e-4, abs=1e-6
        ), name


def stopping(model, source, *, limit):
    """Frames of one row by a naive loop, without a cache."""
    made = np.zeros((0, FEATURES), dtype=np.float32)
    for _ in range(limit):
        padded = torch.from_numpy(np.concatenate([made, np.zeros((STRIDE, FEATURES), np.float32)])).unsqueeze(0)
        output = model(source, padded)
        made = np.concatenate([made, output.frames[0, -STRIDE:].numpy()])
        if output.stop[0, -1].sigmoid() > 0.5:
            return made, True
    return made, False


@pytest.mark.parametrize("depth", SHAPE)
@torch.no_grad()
def test_generation_is_that_of_a_naive_loop_for_each_row(depth):
    ended = set()
    for seed in range(6):
        outputs = OutputsConfig(kind="frames", features=FEATURES, stride=STRIDE, prenet_dropout=0.0)
        model, source = model_of(seed=seed, depth=depth, outputs=outputs), tokens(4, 6, 5, seed=seed)
        model.target.stop.weight.mul_(30.0)
        model.target.stop.bias.fill_(-8.0)
        rows = generate_frames(model, source, DecodingOptions(max_new_tokens=12))
        for row, length in enumerate((4, 6, 5)):
            made, finished = stopping(model, source[row : row + 1, :length], limit=4)
            np.testing.assert_allclose(rows[row].frames, made, rtol=1e-4, atol=1e-5)
            assert rows[row].finished == finished
            assert len(rows[row].steps) == len(made) / STRIDE
            assert len(rows[row].source_steps) == length
            ended.add((finished, len(made)))
    assert {finished for finished, _ in ended} == {True, False}
    assert len(ended) > 2


def test_generation_ends_at_its_limit_and_writes_one_position_at_least():
    model = model_of(generation=GenerationConfig(max_new_tokens=20))
    with torch.no_grad():
        model.target.stop.bias.fill_(-100.0)
    for limit, positions in ((None, 6), (7, 2), (1, 1)):
        (row,) = generate_frames(model, tokens(3), DecodingOptions(max_new_tokens=limit))
        assert (len(row.parts), row.finished) == (positions, False)
    with torch.no_grad():
        model.target.stop.bias.fill_(100.0)
    (row,) = generate_frames(model, [[4, 2]])
    assert (len(row.parts), row.finished) == (1, True)
    with pytest.raises(UserError, match=r"max_new_tokens: .*at least 1"):
        generate_frames(model, tokens(3), DecodingOptions(max_new_tokens=0))


def test_a_learned_table_of_positions_limits_generation():
    model = model_of(coordinates=CoordinatesConfig(position="learned", max_positions=4))
    with torch.no_grad():
        model.target.stop.bias.fill_(-100.0)
    (row,) = generate_frames(model, tokens(3), DecodingOptions(max_new_tokens=300))
    assert len(row.parts) == 4


def test_frames_that_are_not_finite_are_refused():
    model = model_of()
    with torch.no_grad():
        model.target.output.bias[0] = math.inf
    with pytest.raises(UserError, match="frames are not finite"):
        generate_frames(model, tokens(3))
    target = written(5)
    for value in (math.nan, math.inf):
        target[0, 1, 2] = value
        with pytest.raises(UserError, match="target: a number that is not finite"):
            model_of()(tokens(3), target)
    with pytest.raises(UserError, match=r"target of type torch.float32 .* \[batch, frame, 5\]"):
        model(tokens(3), frames(4))


def test_dropout_of_generation_follows_from_the_source_alone():
    model, source = model_of(), tokens(4, 6, 5)
    together = generate_frames(model, source, DecodingOptions(max_new_tokens=12))
    for row, length in enumerate((4, 6, 5)):
        (alone,) = generate_frames(model, source[row : row + 1, :length], DecodingOptions(max_new_tokens=12))
        np.testing.assert_allclose(together[row].frames, alone.frames, rtol=1e-4, atol=1e-5)
    generators = [torch.Generator().manual_seed(seed) for seed in range(200)]
    masks = model.target.masks(generators)
    assert masks.shape == (2, 200, 1, 8)
    assert set(masks.unique().tolist()) == {0.0, 2.0}
    assert abs(float(masks.mean()) - 1) < 0.1
    assert not torch.equal(masks, model.target.masks(generators))


@torch.no_grad()
def test_masks_are_those_of_dropout():
    model, before = model_of(), written(1, 1)
    masks = model.target.masks([torch.Generator().manual_seed(seed) for seed in (1, 2)])
    first, second = model.target.embedding[0], model.target.embedding[3]
    expected = relu(second(relu(first(before)) * masks[0])) * masks[1]
    torch.testing.assert_close(model.target.embed(before, masks=masks), expected)


def test_teacher_forcing_has_dropout_in_training_alone():
    config = config_of(outputs=OutputsConfig(kind="frames", features=FEATURES, prenet_dropout=0.9))
    model, source, target = build(config), tokens(3), written(6)
    model.train()
    assert not torch.equal(model(source, target).frames, model(source, target).frames)
    model.eval()
    assert torch.equal(model(source, target).frames, model(source, target).frames)


def test_positions_are_drawn_in_training_where_they_are_asked_for():
    config = config_of(coordinates=CoordinatesConfig(offsets="random", max_positions=50))
    model = build(config).train()
    model.target.embedding.eval()
    found = [model(tokens(3), written(6)).frames for _ in range(4)]
    assert any(not torch.equal(found[0], other) for other in found[1:])


def test_an_exit_reads_states_and_not_outputs():
    model, source, target = model_of(), tokens(3), written(6)
    output = model(source, target, exit=Exit.parse("state_change:1e9"))
    assert output.decoder.steps.max() == 2
    with pytest.raises(UserError, match="frames, which have no probabilities"):
        model(source, target, exit=Exit.parse("confidence:0.5"))


def test_a_model_is_saved_and_loaded(tmp_path):
    model, source, target = model_of("joined frames"), frames(7), written(6)
    model.save_pretrained(tmp_path)
    loaded = load_pretrained(tmp_path)
    assert isinstance(loaded, FrameGenerator)
    assert torch.equal(loaded(source, target).frames, model(source, target).frames)
    with pytest.raises(
        UserError, match="EncoderDecoder writes tokens; this configuration is of one that writes frames"
    ):
        EncoderDecoder.from_pretrained(tmp_path)
    with pytest.raises(UserError, match="FrameGenerator writes frames; this configuration"):
        FrameGenerator(ModelConfig(vocabulary=VocabularyConfig(size=9)))


def test_a_model_without_memory_has_shapes():
    with torch.device("meta"):
        model = build(config_of())
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.target.output.weight.shape == (STRIDE * FEATURES, 8)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architecture": "classifier"}, "outputs.kind='frames': needs architecture \"encoder_decoder\""),
        ({"vocabulary": VocabularyConfig(size=9, target_size=9)}, "vocabulary.target_size=9: frames that are written"),
        ({"halting": HaltingConfig(side="decoder", rule="ponder")}, "halting.rule='ponder': ponder needs"),
        ({"outputs": OutputsConfig(features=3)}, "outputs.features=3: applies only to outputs.kind"),
        ({"outputs": OutputsConfig(stride=3)}, "outputs.stride=3: applies only to outputs.kind"),
    ],
)
def test_choices_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(UserError) as raised:
        config_of(**fields)
    assert str(raised.value).startswith(message)


def test_the_number_of_features_is_needed():
    with pytest.raises(UserError, match=r"outputs\.features=None: frames need the number of features"):
        build(config_of(outputs=OutputsConfig(kind="frames")))
