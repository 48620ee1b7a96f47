"""Frames and patches to states, against naive loops, and the laws of models that read them."""

import math

import pytest
import torch

from small_frames import INPUTS, SHAPE, SIZES, frames
from universal_transformer.decoding import generate
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.models.components import (
    CoordinatesConfig,
    DepthConfig,
    InputsConfig,
    OutputsConfig,
    VocabularyConfig,
)
from universal_transformer.models.frame_input import FrameInput, PatchInput, check_frames
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.positions.sinusoids import PicturePositions
from universal_transformer.nn.coordinates import SinusoidalPositions, sinusoid
from universal_transformer.nn.step_config import Sizes, StepConfig
from universal_transformer.registry import build

OUTPUTS = ("classifier", "tagger", "encoder_decoder", "raster")


def config_of(given="frames", output="classifier", *, depth="fixed", **fields):
    raster = {"outputs": OutputsConfig(kind="raster", columns=3)} if output == "raster" else {}
    decodes = output in ("raster", "encoder_decoder")
    return ModelConfig(
        architecture="encoder_decoder" if output == "raster" else output,
        inputs=InputsConfig(**INPUTS[given]),
        vocabulary=VocabularyConfig(target_size=9, num_classes=None) if decodes else VocabularyConfig(num_classes=5),
        sizes=SIZES,
        depth=DepthConfig(max_steps=3),
        step=StepConfig(dropout=0.0),
        **raster,
        **SHAPE[depth],
        **fields,
    )


def model_of(*arguments, **fields):
    torch.manual_seed(3)
    return build(config_of(*arguments, **fields)).eval()


def inputs_of(given, lengths=(5,)):
    torch.manual_seed(1)
    module = model_of(given).source.input
    return module, frames(*lengths)


@pytest.mark.parametrize("given", ["frames", "joined frames"])
@torch.no_grad()
def test_a_position_is_a_linear_map_of_the_frames_that_it_joins(given):
    module, source = inputs_of(given, (7,))
    states, stride = module(source)[0], INPUTS[given].get("stride", 1)
    assert len(states) == math.ceil(7 / stride)
    for place, state in enumerate(states):
        numbers = torch.zeros(stride * 4)
        for offset in range(stride):
            if place * stride + offset < 7:
                numbers[4 * offset : 4 * offset + 4] = source[0, place * stride + offset]
        torch.testing.assert_close(state, module.project.weight @ numbers + module.project.bias)


@torch.no_grad()
def test_a_position_is_a_linear_map_of_the_pixels_of_its_patch():
    module, source = inputs_of("patches", (6,))
    states = module(source)[0]
    assert len(states) == 3 * 2
    for place, state in enumerate(states):
        row, column = place % 2, place // 2
        pixels = [source[0, 2 * column + across, 2 * row + down] for across in range(2) for down in range(2)]
        torch.testing.assert_close(state, module.project.weight @ torch.stack(pixels) + module.project.bias)


@torch.no_grad()
def test_convolutions_halve_the_frames():
    module, source = inputs_of("convolved frames", (8,))
    states = source[0]
    for convolution in module.stem:
        made = []
        for place in range(len(states) // 2):
            total = convolution.bias.clone()
            for offset in range(3):
                if 0 <= 2 * place + offset - 1 < len(states):
                    total += convolution.weight[:, :, offset] @ states[2 * place + offset - 1]
            made.append(torch.nn.functional.gelu(total))
        states = torch.stack(made)
    torch.testing.assert_close(module(source)[0], states @ module.project.weight.T + module.project.bias)


@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("depth", SHAPE)
@torch.no_grad()
def test_padding_and_other_rows_change_nothing(given, output, depth):
    model, source = model_of(given, output, depth=depth), frames(6, 12, 8)
    target = [torch.tensor([[3, 4, 5, 6, 7, 8]]).expand(3, -1)] if output in ("raster", "encoder_decoder") else []
    together = model(source, *target).logits
    for row, length in enumerate((6, 12, 8)):
        alone = model(source[row : row + 1, :length], *(one[:1] for one in target)).logits[0]
        there = together[row][: len(alone)] if output == "tagger" else together[row]
        torch.testing.assert_close(there, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.claim("JP 1", "JP 3")
@pytest.mark.parametrize("given", INPUTS)
@torch.no_grad()
def test_every_frame_reaches_the_answer_and_no_later_label_does(given):
    model, source = model_of(given, "raster"), frames(8)
    target = torch.tensor([[3, 4, 5, 6, 7, 8]])
    logits = model(source, target).logits
    for frame in range(8):
        other = source.clone()
        other[0, frame] += 1.0
        assert not torch.allclose(model(other, target).logits, logits)
    for place in range(6):
        changed = target.clone()
        changed[0, place] = 3 + (target[0, place] - 2) % 6
        found = model(source, changed).logits
        torch.testing.assert_close(found[:, : place + 1], logits[:, : place + 1])
        if place < 5:
            assert not torch.allclose(found[:, place + 1 :], logits[:, place + 1 :])


@pytest.mark.cover(1)
@pytest.mark.parametrize("given", ["joined frames", "convolved patches"])
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("depth", SHAPE)
def test_gradients_are_those_of_differences(given, output, depth):
    model, source = model_of(given, output, depth=depth).double(), frames(6, 8).double()
    target = [torch.tensor([[3, 4, 5, 6]]).expand(2, -1)] if output in ("raster", "encoder_decoder") else []

    def loss():
        logits = model(source, *target).logits
        if output == "tagger":
            logits = logits[:, :2]
        return logits.log_softmax(-1)[..., 1].sum()

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


def test_a_picture_has_a_sinusoid_of_the_line_and_one_of_the_place_in_it():
    signal = PicturePositions(SIZES.width, line=3)(torch.arange(7).unsqueeze(0)).signal[0]
    for place in range(7):
        line, inside = (sinusoid(torch.tensor(number), width=4) for number in (place // 3, place % 3))
        torch.testing.assert_close(signal[place], torch.cat((line, inside)))


def test_positions_of_a_text_beside_a_picture_have_one_dimension():
    model = model_of("frames", "raster")
    assert isinstance(model.source.recurrence.coordinates.position, SinusoidalPositions)
    assert model.target.recurrence.coordinates.position.line == 3
    assert model_of("patches", "encoder_decoder").source.recurrence.coordinates.position.line == 2


@pytest.mark.parametrize("shape", [(1, 5, 3), (5, 4), (1, 0, 4), (0, 5, 4)])
def test_other_shapes_are_refused(shape):
    expected = r"expected floating-point numbers \[batch, frame, 4\], at least one row of at least one frame"
    with pytest.raises(UserError, match=expected):
        check_frames(torch.zeros(shape), features=4)


def test_numbers_that_are_not_finite_are_refused():
    model = model_of("frames")
    for value, place in ((math.nan, (0, 1, 2)), (math.inf, (0, 1, 2)), (-math.inf, (0, 4, 0))):
        source = frames(5)
        source[place] = value
        with pytest.raises(UserError, match="a number that is not finite; only padding is NaN"):
            model(source)
    with pytest.raises(UserError, match="a row without a frame"):
        model(torch.full((1, 3, 4), math.nan))
    with pytest.raises(UserError, match="expected floating-point numbers"):
        check_frames(torch.zeros(1, 3, 4, dtype=torch.long), features=4)


def test_frames_are_generated_from_in_any_form():
    model, source = model_of("frames", "encoder_decoder"), frames(5, 3)
    expected = [one.tokens for one in generate(model, source, DecodingOptions(max_new_tokens=4))]
    assert [
        one.tokens for one in generate(model, [source[0].numpy(), source[1, :3]], DecodingOptions(max_new_tokens=4))
    ] == expected
    for wrong in ([], [[1, 2]]):
        with pytest.raises(UserError, match=r"expected an array \[frame, 4\] for each row"):
            generate(model, wrong, DecodingOptions(max_new_tokens=4))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"inputs": InputsConfig(features=4)}, "inputs.features=4: applies only to inputs.kind"),
        ({"inputs": InputsConfig(stride=4)}, "inputs.stride=4: applies only to inputs.kind"),
        ({"inputs": InputsConfig(stem="convolution")}, "inputs.stem='convolution': applies only to inputs.kind"),
        ({"inputs": InputsConfig(kind="frames", stride=3, stem="convolution")}, "need a power of 2"),
        ({"inputs": InputsConfig(kind="patches", features=7, stride=2)}, "must divide the height of the pictures"),
        ({"inputs": InputsConfig(kind="frames"), "architecture": "language_model"}, "a language model reads what it"),
        ({"outputs": OutputsConfig(kind="raster")}, "outputs.kind='raster': needs outputs.columns, the width"),
        ({"outputs": OutputsConfig(columns=3)}, 'outputs.columns=3: applies only to outputs.kind="raster"'),
        ({"outputs": OutputsConfig(kind="raster", columns=3)}, "and vocabulary.target_size, for the intensities"),
        (
            {"outputs": OutputsConfig(kind="raster", columns=3), "architecture": "classifier"},
            'needs architecture "encoder_decoder"',
        ),
        (
            {
                "inputs": InputsConfig(kind="patches", features=4),
                "coordinates": CoordinatesConfig(position="rotary"),
            },
            "pictures need sinusoidal",
        ),
        ({"inputs": InputsConfig(kind="patches"), "sizes": Sizes(width=6, num_heads=2)}, "a multiple of 4 is needed"),
        (
            {"inputs": InputsConfig(kind="patches"), "coordinates": CoordinatesConfig(offsets="random")},
            "rows and columns are not shifted",
        ),
    ],
)
def test_combinations_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(UserError) as error:
        ModelConfig(**fields)
    assert message in str(error.value)


@pytest.mark.parametrize(("module", "kind"), [(FrameInput, "frames"), (PatchInput, "patches")])
def test_the_number_of_features_comes_from_the_data(module, kind):
    with pytest.raises(UserError, match=r"inputs\.features=None: .* take it from the data"):
        module(ModelConfig(inputs=InputsConfig(kind=kind)), 8)


@pytest.mark.claim("JP 12")
@pytest.mark.parametrize("given", INPUTS)
def test_a_saved_model_is_the_same(given, tmp_path):
    model, source = model_of(given, "raster"), frames(8)
    model.save_pretrained(tmp_path)
    found = type(model).from_pretrained(tmp_path)
    assert found.config == model.config
    target = torch.tensor([[3, 4, 5]])
    assert torch.equal(found(source, target).logits, model(source, target).logits)
