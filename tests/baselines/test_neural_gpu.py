"""The Neural GPU against a loop over every pixel."""

import dataclasses
import math

import pytest
import torch
from torch.func import functional_call

from small_baselines import small_neural_gpu
from training import tiny
from universal_transformer.baselines.baseline_config import NeuralGpuConfig
from universal_transformer.baselines.neural_gpu import gate
from universal_transformer.decoding import Beams, Sampling, beam_search, generate
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.models.model import Call
from universal_transformer.registry import load_pretrained
from universal_transformer.runs.trainer import train

SOURCE = torch.tensor([[3, 4, 5, 6], [7, 0, 0, 0], [8, 8, 0, 0], [5, 6, 7, 0]])
TARGET = torch.tensor([[4, 4, 2, 0, 0], [3, 2, 0, 0, 0], [8, 7, 2, 0, 0], [2, 0, 0, 0, 0]])


def convolved(conv, image, channel, column, place):
    """One output of a convolution over an image of [channel, column, place]; outside of it everything is 0."""
    columns, places = (size // 2 for size in conv.weight.shape[2:])
    total = conv.bias[channel].clone()
    for i in range(-columns, columns + 1):
        for j in range(-places, places + 1):
            if 0 <= column + i < image.shape[1] and 0 <= place + j < image.shape[2]:
                total += conv.weight[channel, :, columns + i, places + j] @ image[:, column + i, place + j]
    return total


def cut(x, c):
    return min(1.0, max(0.0, c / (1 + math.exp(-x)) - (c - 1) / 2))


def unit(module, image):
    """CGRU of one image, pixel by pixel."""
    channels = image.shape[0]
    update, reset, new = torch.zeros_like(image), torch.zeros_like(image), torch.zeros_like(image)
    pixels = [tuple(index) for index in torch.ones_like(image).nonzero().tolist()]
    for m, column, place in pixels:
        update[m, column, place] = cut(convolved(module.gates, image, m, column, place), module.cutoff)
        reset[m, column, place] = cut(convolved(module.gates, image, channels + m, column, place), module.cutoff)
    for m, column, place in pixels:
        candidate = math.tanh(convolved(module.candidate, reset * image, m, column, place))
        u = update[m, column, place]
        new[m, column, place] = u * image[m, column, place] + (1 - u) * candidate
    return new


def oracle(model, tokens):
    """Logits of every place of one source."""
    config = model.config
    places = len(tokens) + config.output_extra
    image = torch.zeros(config.width, config.image_width, places, dtype=torch.float64)
    for place, token in enumerate(tokens):
        image[:, 0, place] = model.source.input.weight[token] * config.width**0.5
    for _ in range(places):
        for module in model.source.units:
            image = unit(module, image)
    return torch.stack([model.source.output.weight @ image[:, 0, k] + model.source.output.bias for k in range(places)])


def all_places(model, source):
    """Logits of all places, and which of them belong to each row."""
    encoded = model.source(source, Call())
    return encoded.logits, torch.arange(encoded.logits.shape[1]) < encoded.places.unsqueeze(1)


def real(row):
    return [token for token in row.tolist() if token]


@torch.no_grad()
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"cutoff": 1.0, "num_layers": 1},
        {"output_extra": 3, "image_width": 3},
        {"kernel_size": 1},
        {"image_width": 1},
        {"image_width": 2, "kernel_size": 5},
    ],
    ids=str,
)
def test_it_is_the_equations_for_every_row_of_a_batch(fields):
    model = small_neural_gpu(**fields)
    logits, inside = all_places(model, SOURCE)
    for row, tokens in enumerate(map(real, SOURCE)):
        expected = oracle(model, tokens)
        assert int(inside[row].sum()) == len(expected)
        torch.testing.assert_close(logits[row, : len(expected)], expected, rtol=1e-10, atol=1e-10)
    teacher = model(SOURCE, TARGET).logits
    most = min(teacher.shape[1], logits.shape[1])
    assert torch.equal(teacher[:, :most], logits[:, :most])


@torch.no_grad()
def test_neither_padding_nor_the_order_of_rows_changes_a_row():
    model = small_neural_gpu()
    expected, inside = all_places(model, SOURCE)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(all_places(model, SOURCE[order])[0][inside[order]], expected[order][inside[order]])
    left = torch.tensor([[0] * (4 - len(real(row))) + real(row) for row in SOURCE])
    assert torch.equal(all_places(model, left)[0], expected)
    wide = torch.nn.functional.pad(SOURCE, (0, 3))
    torch.testing.assert_close(all_places(model, wide)[0], expected)


def test_gates_saturate_with_a_cutoff_and_only_then():
    x = torch.tensor([-9.0, -1.0, 0.0, 1.0, 9.0])
    assert gate(x, cutoff=1.0).tolist() == x.sigmoid().tolist()
    cut_off = gate(x, cutoff=1.2)
    assert (float(cut_off[0]), float(cut_off[2]), float(cut_off[4])) == (0.0, 0.5, 1.0)


@torch.no_grad()
def test_output_is_the_likeliest_symbol_of_each_place_up_to_the_end():
    model = small_neural_gpu()
    model.source.output.bias[2] += 0.5
    logits, inside = all_places(model, SOURCE)
    logits[..., :2] = float("-inf")  # neither padding nor start is ever written
    found = generate(model, SOURCE)
    for row, result in enumerate(found):
        best = logits[row][inside[row]].argmax(-1).tolist()
        ended = 2 in best
        assert result.finished == ended
        assert result.tokens == (best[: best.index(2)] if ended else best)
        scores = all_places(model, SOURCE)[0][row].log_softmax(-1)
        written = [*result.tokens, *([2] if ended else [])]
        total = sum(float(scores[place, token]) for place, token in enumerate(written))
        assert result.score == pytest.approx(total)
    assert [len(one.tokens) for one in generate(model, SOURCE, DecodingOptions(max_new_tokens=1))] <= [1] * 4
    drawn = generate(model, SOURCE, DecodingOptions(sampling=Sampling(temperature=1.0, seed=3)))
    again = generate(model, SOURCE[1:], DecodingOptions(sampling=Sampling(temperature=1.0, seed=3)), indices=[1, 2, 3])
    assert [one.tokens for one in drawn[1:]] == [one.tokens for one in again]


@torch.no_grad()
def test_a_wide_beam_search_is_brute_force():
    model, most = small_neural_gpu(), 2
    scores = all_places(model, SOURCE[1:2])[0][0].log_softmax(-1)
    words = range(3, 9)
    totals = {(): float(scores[0, 2])}
    totals |= {(first,): float(scores[0, first] + scores[1, 2]) for first in words}
    totals |= {(first, second): float(scores[0, first] + scores[1, second]) for first in words for second in words}
    assert model.target.limit(1) == most
    (found,) = beam_search(model, SOURCE[1:2], DecodingOptions(beams=Beams(40, 0.0)), num_results=40)
    assert {tuple(one.tokens): one.score for one in found} == pytest.approx(
        {tokens: totals[tokens] for tokens in map(tuple, (one.tokens for one in found))}
    )
    ended = [one for one in found if one.finished]
    assert sorted((tuple(one.tokens) for one in ended), key=totals.get, reverse=True) == [
        tuple(one.tokens) for one in ended
    ]
    assert len(ended) == 1 + len(words)


def test_gradients_are_those_of_finite_differences():
    model = small_neural_gpu(width=2, cutoff=1.0)
    names, parameters = zip(*model.named_parameters(), strict=True)

    def run(*parameters):
        values = dict(zip(names, parameters, strict=True))
        return functional_call(model, values, (SOURCE[1:], TARGET[1:])).logits[TARGET[1:] != 0]

    assert torch.autograd.gradcheck(run, parameters, fast_mode=True, atol=1e-5)


@torch.no_grad()
def test_a_saved_model_comes_back_bit_for_bit(tmp_path):
    model = small_neural_gpu(output_extra=3).float()
    model.save_pretrained(tmp_path)
    back = load_pretrained(tmp_path)
    assert back.config == model.config
    assert torch.equal(all_places(back, SOURCE)[0], all_places(model, SOURCE)[0])


def test_twenty_updates_lower_the_loss_and_a_resume_changes_no_bit(tmp_path):
    task = tiny.task("encoder_decoder")
    config = dataclasses.replace(
        tiny.run_config(max_updates=20, learning_rate=0.02, validate_every=100),
        model=NeuralGpuConfig(width=12, dropout=0.1),
    )
    train(config, tmp_path / "straight", task=task, quiet=True)
    losses = [float.fromhex(loss) for _, loss, _ in tiny.losses(tmp_path / "straight")]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    half = dataclasses.replace(config, training=dataclasses.replace(config.training, max_updates=9))
    train(half, tmp_path / "halves", task=task, quiet=True)
    train(config, tmp_path / "halves", task=task, resume=True, quiet=True)
    assert tiny.losses(tmp_path / "halves") == tiny.losses(tmp_path / "straight")


def test_a_target_without_room_is_refused_with_the_field_to_raise():
    model = small_neural_gpu()
    with pytest.raises(UserError, match=r"a target of 3 symbols.* allows 2: raise output_extra=1 by 1 at least"):
        model(torch.tensor([[3]]), torch.tensor([[3, 3, 2]]))
    assert small_neural_gpu(output_extra=2)(torch.tensor([[3]]), torch.tensor([[3, 3, 2]])).logits.shape[1] == 3


def test_what_it_does_not_do_is_refused():
    with pytest.raises(UserError, match=r"max_new_tokens: .*at least 1"):
        generate(small_neural_gpu(), SOURCE, DecodingOptions(max_new_tokens=0))
    with pytest.raises(UserError, match="max_steps=3: a model of kind neural_gpu has no depth"):
        generate(small_neural_gpu(), SOURCE, DecodingOptions(max_steps=3))
