"""A cache changes neither the logits nor the steps of any token, in whatever chunks tokens are fed."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from configs import with_fields
from small_models import SOURCES, small, variants
from universal_transformer.data.example import Example
from universal_transformer.decoding import generate
from universal_transformer.decoding.generation import evaluating, prepared, start_generation
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.execution.packing import packs
from universal_transformer.models.components import DepthConfig, InputsConfig, VocabularyConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.step_config import Sizes
from universal_transformer.registry import build

VARIANTS = variants()
HALF = dict(list(VARIANTS.items())[::2])
LENGTH = 9  # longer than two causal convolutions reach


def sources(rows):
    """Ragged, padded on the right."""
    source = torch.randint(3, 9, (rows, 5))
    for row in range(rows):
        source[row, 5 - row % 3 :] = 0
    return source


def shifted(model, labels):
    return torch.cat((torch.full_like(labels[:, :1], model.config.start_id), labels[:, :-1]), dim=1)


@pytest.mark.parametrize("fields", (VARIANTS | SOURCES).values(), ids=(VARIANTS | SOURCES).keys())
@torch.no_grad()
def test_tokens_fed_in_chunks_give_the_logits_and_steps_of_one_pass(fields):
    labels, source = torch.randint(2, 9, (3, LENGTH)), sources(3)
    for _ in range(20):
        model = small(**fields)
        whole = model(source, labels)
        if not fields.get("halting") or len(whole.decoder.steps.unique()) > 1:
            break
    else:
        raise AssertionError("no draw of the weights makes positions halt at different steps")
    tokens = shifted(model, labels)
    for chunks in ([1] * LENGTH, [2, 6, 1]):
        state, logits, steps = model.start(source, capacity=LENGTH), [], []
        for chunk in tokens.split(chunks, dim=1):
            logits.append(model.target.advance(chunk, state))
            steps.append(state.trace.steps)
        torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits, rtol=0, atol=1e-9)
        assert torch.equal(torch.cat(steps, dim=1), whole.decoder.steps)


@pytest.mark.parametrize(
    ("fields", "side"),
    [(fields, "left") for fields in VARIANTS.values()]
    # a convolution reaches for the tokens next to it: padding stands on the left
    + [(f, "right") for f in HALF.values() if f.get("transition") != "separable_convolution"],
    ids=str,
)
@torch.no_grad()
def test_prompts_of_different_lengths_continue_as_each_does_alone(fields, side):
    model = small(architecture="language_model", **fields)
    lengths = [4, 1, 6]
    prompts = [torch.cat((torch.tensor([1]), torch.randint(2, 9, (length - 1,)))) for length in lengths]
    more = torch.randint(2, 9, (3, 2))
    tokens, padding = torch.zeros(3, 6, dtype=torch.long), torch.ones(3, 6, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        place = slice(6 - len(prompt), 6) if side == "left" else slice(0, len(prompt))
        tokens[row, place], padding[row, place] = prompt, False
    together = model.start(batch=3, capacity=9)
    first = model.target.advance(tokens, together, padding=padding)
    rest = [model.target.advance(column, together) for column in more.split(1, dim=1)]
    for row, prompt in enumerate(prompts):
        alone = model.start(batch=1, capacity=9)
        expected = model.target.advance(prompt.unsqueeze(0), alone)
        torch.testing.assert_close(first[row][~padding[row]], expected[0], rtol=0, atol=1e-9)
        for column, logits in zip(more[row], rest, strict=True):
            expected = model.target.advance(column.view(1, 1), alone)
            torch.testing.assert_close(logits[row], expected[0], rtol=0, atol=1e-9)
    assert together.lengths.tolist() == [length + 2 for length in lengths]


@pytest.mark.parametrize("rows", [[2, 0, 0, 1, 2], [2, 0], [1, 1, 0]])
@pytest.mark.parametrize("fields", HALF.values(), ids=HALF.keys())
@torch.no_grad()
def test_reordered_rows_continue_like_rows_that_were_in_this_order(fields, rows):
    model, source = small(**fields), sources(3)
    tokens = shifted(model, torch.randint(2, 9, (3, LENGTH)))
    index = torch.tensor(rows)
    state = model.start(source, capacity=LENGTH)
    model.target.advance(tokens[:, :3], state)
    state.reorder(index)
    moved = model.target.advance(tokens[index, 3:], state)
    state = model.start(source[index], capacity=LENGTH)
    expected = model.target.advance(tokens[index], state)[:, 3:]
    torch.testing.assert_close(moved, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("fields", [{}, {"halting": True}, {"transition": "separable_convolution"}])
def test_a_done_row_is_fed_padding_without_effect_on_the_others(fields):
    model = small(**fields)
    source, draws = sources(3), torch.randint(2, 9, (5, 3))
    with evaluating(model):
        session, other = (start_generation(model, source, DecodingOptions(max_new_tokens=7)) for _ in range(2))
        for tokens in draws:
            session.advance(tokens)
            other.advance(tokens, done=torch.tensor([False, True, False]))
            torch.testing.assert_close(session.log_probabilities[::2], other.log_probabilities[::2])
            assert torch.equal(session.steps[::2], other.steps[::2])


@pytest.mark.claim("US 1", "US 14")
@pytest.mark.parametrize("place", [0, 2, 6])
def test_an_end_token_ends_generation(place, monkeypatch):
    model = small()
    end, other, advance = model.config.vocabulary.end_id, 5, model.target.advance

    def written(tokens, state, **options):  # <end> is the likeliest token at this place alone
        logits = torch.zeros_like(advance(tokens, state, **options))
        logits[..., end if state.cache.length - 1 == place else other] = 9.0
        return logits

    monkeypatch.setattr(model.target, "advance", written)
    (result,) = generate(model, sources(1), DecodingOptions(max_new_tokens=6))
    assert result.finished == (place < 6)
    assert result.tokens == [other] * place


@pytest.mark.parametrize("training", [True, False])
def test_evaluating_leaves_every_module_in_its_mode(training):
    model = small(dropout=0.5).train(training)
    model.target.dropout.training = not training
    before = [module.training for module in model.modules()]
    with contextlib.suppress(ZeroDivisionError), evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
        raise ZeroDivisionError
    assert torch.is_grad_enabled()
    assert [module.training for module in model.modules()] == before


@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fields", [{}, {"halting": True}, {"tie_output": False, "norm": "pre"}], ids=str)
def test_prepared_matrices_give_the_same_probabilities(fields, kind, architecture):
    model = small(architecture=architecture, **fields).to(kind)
    rows = sources(3) if architecture == "encoder_decoder" else [[1, 3, 4], [1], [1, 5]]
    twin = prepared(model)
    assert prepared(twin) is twin or not packs(model.target.matrix)
    with evaluating(model):
        found = opened(model, rows, max_new_tokens=2)
        exact = opened(model.double(), rows, max_new_tokens=2).log_probabilities
    possible = exact > float("-inf")
    error = (found.log_probabilities.double() - exact)[possible].abs().max()
    assert error < (1e-4 if kind == torch.float32 else 0.3)


def opened(model, source, **options):
    return start_generation(model, source, DecodingOptions(**options))


def test_the_default_limit_of_a_row_is_that_of_the_model_or_twice_its_source_plus_ten():
    model = small(**{"generation.max_new_tokens": 14})
    assert opened(model, torch.tensor([[3, 4, 2], [5, 0, 0]])).limits == [16, 14]
    model = small()
    assert opened(model, torch.tensor([[3, 4, 2], [5, 0, 0]])).limits == [16, 12]
    assert opened(model, torch.tensor([[3, 4, 2]]), max_new_tokens=3).limits == [3]
    fields = {"architecture": "language_model", "position_coordinates": "learned", "max_positions": 14}
    assert opened(small(**fields), [[1], [1, 3, 4]]).limits == [12, 12]
    model = small(**fields, **{"generation.max_new_tokens": 99})
    assert opened(model, [[1], [1, 3, 4]]).limits == [14, 12]
    assert opened(model, [[1], [1, *[3] * 13]]).limits == [14, 1]


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ([], {}, "no prompts"),
        ([[1, 9]], {}, "prompt 0: token id 9: allowed are 0 to 8"),
        ([[1, -1]], {}, "token id -1"),
        ([[1, 0]], {}, "token id 0.*without padding_id=0"),
        ([[1]], {"max_new_tokens": 0}, "max_new_tokens: expected a whole number, at least 1 .*found 0"),
        (
            [[1, 3]],
            {"max_new_tokens": 10},
            "max_new_tokens=10 does not fit .*max_positions=10: at most 9 new",
        ),
        ([[1], [1] + [3] * 10], {}, "a prompt of 11 tokens .*max_positions=10: shorten the prompt"),
        ([[1]], {"max_steps": 0}, "max_steps: .*at least 1"),
        ([[1]], {"max_steps": 4}, "step 4 lies beyond the learned table"),
        ([[1]], {"halting_threshold": 0.0}, "halting_threshold: .*more than 0"),
    ],
)
def test_what_cannot_be_continued_is_refused_in_one_line(source, options, message):
    tables = {"position_coordinates": "learned", "step_coordinates": "learned", "max_positions": 10}
    model = small(architecture="language_model", halting=True, **tables)
    with pytest.raises(UserError, match=message) as refused:
        opened(model, source, **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([[1], []], "source row 1 is empty"),
        (torch.tensor([[3, 4], [0, 0]]), "source row 1 is empty"),
        (torch.zeros(0, 3, dtype=torch.long), r"source of shape \[0, 3\]"),
        (torch.zeros(2, 0, dtype=torch.long), r"source of shape \[2, 0\]"),
        (torch.tensor([[3, 9]]), "token id 9"),
    ],
)
def test_an_invalid_source_is_refused(source, message):
    with pytest.raises(UserError, match=message):
        opened(small(), source)


def test_a_source_of_one_dimension_is_refused():
    with pytest.raises(UserError, match=r"source of shape \[2\]: .*add the batch dimension: source.unsqueeze\(0\)"):
        opened(small(), torch.tensor([3, 4]))


@pytest.mark.parametrize("start_is_padding", [False, True])
def test_a_prompt_gets_the_start_token_once(start_is_padding):
    model = small(architecture="language_model")
    model.config = with_fields(model.config, **{"tensor2tensor.start_is_padding": start_is_padding})
    start = model.config.start_id
    forms = [[[start, 3, 4], [start, 5], [start]], [[3, 4], [5], []], torch.tensor([[3, 4], [5, 0], [0, 0]])]
    first, *others = (opened(model, form).log_probabilities for form in forms)
    assert all(torch.equal(first, other) for other in others)


def test_sources_are_a_padded_tensor_or_lists():
    model = small()
    first, second = opened(model, torch.tensor([[3, 4, 2], [5, 0, 0]])), opened(model, [[3, 4, 2], [5]])
    assert torch.equal(first.log_probabilities, second.log_probabilities)
    assert first.limits == second.limits


def test_logits_that_are_not_finite_stop_generation():
    model = small()
    with torch.no_grad():
        model.target.bias[4] = float("nan")
    with pytest.raises(UserError, match="not finite"):
        opened(model, torch.tensor([[3, 2]]))


def test_a_cache_larger_than_memory_is_refused():
    with pytest.raises(UserError, match="capacity"):
        opened(small(), torch.tensor([[3, 2]]), max_new_tokens=2**31 - 1)


def test_a_model_that_reads_frames_takes_what_its_codec_reads():
    """The codec of sounds and pictures gives an array for a path."""
    config = ModelConfig(
        architecture="encoder_decoder",
        inputs=InputsConfig(kind="frames", features=3),
        vocabulary=VocabularyConfig(target_size=9),
        sizes=Sizes(width=8, filter_width=8, num_heads=2),
        depth=DepthConfig(max_steps=2),
    )
    model, frames = build(config).eval(), np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    model.codec = SimpleNamespace(
        read=lambda *_, **__: iter([Example(source=frames, target=())]), render=lambda tokens: str(list(tokens))
    )
    (found,) = model.generate(["a.wav"], max_new_tokens=4)
    assert found.tokens == model.generate([torch.from_numpy(frames)], max_new_tokens=4)[0].tokens
    assert found.text == str(found.tokens)


@pytest.mark.parametrize("hooked", ["model", "model.target"])
def test_generation_does_not_change_a_model_with_a_hook(hooked):
    model = small(architecture="language_model").to(torch.float32)
    {"model": model, "model.target": model.target}[hooked].register_forward_hook(lambda *_: None)
    names = list(model.state_dict())
    model.generate([[1, 3]], max_new_tokens=2)
    assert model.target.packed_logits is None
    assert list(model.state_dict()) == names


def test_rows_are_reordered_where_gradients_are_computed():
    model, tokens = small(), torch.tensor([[1, 3], [1, 4]])
    found = []
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            state = model.start(torch.tensor([[3, 4], [5, 6]]), capacity=3)
            model.target.advance(tokens, state)
            state.reorder(torch.tensor([1, 0]))
            found.append(model.target.advance(tokens[:, :1], state).detach())
    torch.testing.assert_close(*found)
