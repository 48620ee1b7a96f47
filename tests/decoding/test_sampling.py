"""Greedy search and sampling against loops without a cache, a batch or tensors."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from small_models import HALTING, small
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.decoding.sampling import filtered_distribution, generate, pick
from universal_transformer.errors import UserError
from universal_transformer.models.call import Sampling

SOURCE = torch.tensor([[3, 4, 5, 6, 2], [7, 2, 0, 0, 0], [8, 8, 2, 0, 0], [5, 6, 7, 2, 0]])
PROMPTS = [[1, 3, 4], [1], [1, 8, 8, 8, 5], [1, 5]]
MODELS = {
    "fixed": {},
    "convolution": {"transition": "separable_convolution", "norm": "pre"},
    "halting convolution": {"transition": "separable_convolution", "halting": True},
    "learned": {"position_coordinates": "learned", "halting": True},
    **HALTING,
}


def model_and_input(architecture, fields):
    model = small(architecture=architecture, **fields)
    with torch.no_grad():
        model.target.bias[2] += 1.0  # so that some sequences end
    return model, SOURCE if architecture == "encoder_decoder" else PROMPTS


def alone(model, rows, row):
    """One row without its padding."""
    if model.config.architecture == "language_model":
        return [rows[row]]
    return rows[row : row + 1, : int((rows[row] != 0).sum())]


@torch.no_grad()
def uncached_log_probabilities(model, row, tokens, **depth):
    """Log-probabilities of every token after ``tokens`` by one full pass, and the depth steps of the last position."""
    if model.config.architecture == "language_model":
        labels = torch.tensor([[*row[0][1:], *tokens, model.config.vocabulary.end_id]])
        output = model(labels, **depth)
    else:
        output = model(row, torch.tensor([[*tokens, model.config.vocabulary.end_id]]), **depth)
    return output.logits[0, -1].log_softmax(dim=-1), float(output.decoder.steps[0, -1])


def uncached_greedy(model, row, *, limit, **depth):
    tokens, total, steps = [], 0.0, []
    for _ in range(limit):
        scores, made = uncached_log_probabilities(model, row, tokens, **depth)
        scores[[model.config.vocabulary.padding_id, model.config.start_id]] = -math.inf
        total, steps = total + float(scores.max()), [*steps, made]
        if int(scores.argmax()) == model.config.vocabulary.end_id:
            return tokens, total, True, sum(steps) / len(steps)
        tokens.append(int(scores.argmax()))
    return tokens, total, False, sum(steps) / len(steps)


@pytest.mark.cover(1)
@pytest.mark.claim("US 1", "US 11", "US 14", "US 24", "US FIG. 3", "equation 8", "tutorial output")
@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
@pytest.mark.parametrize("fields", MODELS.values(), ids=MODELS.keys())
def test_greedy_is_what_whole_passes_give_one_row_at_a_time(fields, architecture):
    model, rows = model_and_input(architecture, fields)
    for row, result in enumerate(generate(model, rows, DecodingOptions(max_new_tokens=6))):
        tokens, total, finished, steps = uncached_greedy(model, alone(model, rows, row), limit=6)
        assert (result.tokens, result.finished) == (tokens, finished)
        assert result.score == pytest.approx(total)
        assert result.score == result.penalised_score == sum(result.token_scores)
        assert len(result.token_scores) == len(result.token_steps) == len(result.tokens) + result.finished
        assert result.steps == pytest.approx(steps)


def test_depth_is_chosen_at_run_time():
    model, rows = model_and_input("encoder_decoder", {"halting": True})
    for depth in ({"max_steps": 1}, {"max_steps": 5}, {"halting_threshold": 0.3}):
        expected = uncached_greedy(model, rows[:1], limit=4, **depth)
        (result,) = generate(model, rows[:1], DecodingOptions(max_new_tokens=4, **depth))
        assert (result.tokens, result.finished, result.steps) == (expected[0], expected[2], expected[3])
        with torch.no_grad():
            assert result.source_steps == model(rows[:1], rows[:1], **depth).encoder.steps[0].tolist()


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.5, top_k=6, top_p=0.95, seed=3)], ids=str)
@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
@pytest.mark.parametrize("name", ["fixed", "learned", "halting convolution"])
def test_a_row_gives_the_same_result_in_every_batch(name, architecture, sampling):
    model, rows = model_and_input(architecture, MODELS[name])
    together = generate(model, rows, DecodingOptions(sampling=sampling))
    order = [2, 0, 3]
    some = rows[order] if isinstance(rows, torch.Tensor) else [rows[row] for row in order]
    for row, result in zip(
        order, generate(model, some, DecodingOptions(sampling=sampling), indices=order), strict=True
    ):
        assert result.tokens == together[row].tokens
        assert result.score == pytest.approx(together[row].score)
        assert result.source_steps == together[row].source_steps
    for row in range(4):
        (result,) = generate(model, alone(model, rows, row), DecodingOptions(sampling=sampling), indices=[row])
        assert result.tokens == together[row].tokens
        assert result.steps == pytest.approx(together[row].steps)


def test_the_seed_and_the_number_of_the_row_determine_the_draws():
    model, rows = model_and_input("encoder_decoder", {})
    same = rows[:1].expand(6, -1)

    def drawn(indices=None, **options):
        results = generate(model, same, DecodingOptions(max_new_tokens=6, **options), indices=indices)
        return [tuple(result.tokens) for result in results]

    hot = Sampling(temperature=2.0)
    assert drawn(sampling=hot) == drawn(sampling=hot)
    assert len(set(drawn(sampling=hot))) > 3
    assert drawn(sampling=hot) != drawn(sampling=Sampling(temperature=2.0, seed=1))
    assert len(set(drawn(sampling=hot, indices=[7] * 6))) == 1


@pytest.mark.parametrize("sampling", [Sampling(temperature=1e-6), Sampling(temperature=3.0, top_k=1)], ids=str)
@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
def test_sampling_at_low_temperature_or_from_one_token_is_greedy(architecture, sampling):
    model, rows = model_and_input(architecture, {})
    assert generate(model, rows, DecodingOptions(sampling=sampling)) == generate(model, rows)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=3.0)], ids=str)
def test_the_score_is_the_likelihood_that_teacher_forcing_gives(sampling):
    model, rows = model_and_input("encoder_decoder", {"halting": True})
    for row, result in enumerate(generate(model, rows, DecodingOptions(sampling=sampling))):
        target = torch.tensor([result.tokens + [2] * result.finished])
        with torch.no_grad():
            table = model(alone(model, rows, row), target).logits.log_softmax(dim=-1)
        assert result.score == pytest.approx(float(table.gather(2, target.unsqueeze(2)).sum()))


def test_neither_padding_nor_the_start_token_is_generated():
    model, rows = model_and_input("encoder_decoder", {})
    with torch.no_grad():
        model.target.bias[:2] = 50.0
    for result in generate(model, rows, DecodingOptions(sampling=Sampling(temperature=2.0))):
        assert not {0, 1, 2} & set(result.tokens)


def test_a_batch_costs_no_more_than_its_longest_row(monkeypatch):
    model, rows = model_and_input("encoder_decoder", {})
    calls, advance = [], model.target.advance
    monkeypatch.setattr(
        model.target,
        "advance",
        lambda tokens, *rest, **more: calls.append(len(tokens)) or advance(tokens, *rest, **more),
    )
    results = generate(model, rows, DecodingOptions(sampling=Sampling(temperature=1.0)))
    lengths = [len(result.tokens) + result.finished for result in results]
    assert len(calls) == max(lengths)
    for fed, rows_fed in enumerate(calls):
        running = sum(length > fed for length in lengths)
        assert running <= rows_fed <= max(4 * (fed == 0), 2 * running - 1)


LOGITS = st.lists(st.integers(-4, 4), min_size=1, max_size=12)


def naive(logits, *, temperature, top_k, top_p):
    """Token by token, likeliest first."""
    total = sum(math.exp(z / temperature) for z in logits)
    ranked = sorted(range(len(logits)), key=lambda v: (-logits[v], v))
    ranked = ranked[: top_k or len(logits)]
    kept, share = [], sum(math.exp(logits[v] / temperature) / total for v in ranked)
    for v in ranked:
        if top_p < 1.0 and sum(math.exp(logits[u] / temperature) / total for u in kept) >= top_p * share - 1e-12:
            break
        kept.append(v)
    weight = [math.exp(z / temperature) if v in kept else 0.0 for v, z in enumerate(logits)]
    return [w / sum(weight) for w in weight]


@given(
    logits=LOGITS,
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.none() | st.integers(1, 13),
    top_p=st.sampled_from([0.01, 0.3, 0.57, 0.9, 0.999, 1.0]),
)
def test_the_filtered_distribution_is_the_naive_one(logits, temperature, top_k, top_p):
    found = filtered_distribution(
        torch.tensor([logits], dtype=torch.float64), temperature=temperature, top_k=top_k, top_p=top_p
    )
    expected = naive(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    torch.testing.assert_close(found[0], torch.tensor(expected, dtype=torch.float64))


def test_a_nucleus_that_holds_just_enough_takes_no_more():
    logits = torch.tensor([[0.125, 0.5, 0.25, 0.125]], dtype=torch.float64).log()
    for top_p, kept in ((0.5, [1]), (0.51, [1, 2]), (0.75, [1, 2]), (0.76, [0, 1, 2]), (0.9, [0, 1, 2, 3])):
        found = filtered_distribution(logits, top_p=top_p)
        assert found[0].nonzero().flatten().tolist() == kept
    tenths = torch.zeros(1, 10)
    for number in range(1, 10):
        assert filtered_distribution(tenths, top_p=number / 10).count_nonzero() == number, "sums of tenths are rounded"


@given(logits=LOGITS, temperature=st.floats(1e-300, 1e-3))
def test_as_the_temperature_falls_only_the_likeliest_stay(logits, temperature):
    found = filtered_distribution(torch.tensor([logits], dtype=torch.float32), temperature=temperature)
    best = [float(z == max(logits)) for z in logits]
    torch.testing.assert_close(found[0], torch.tensor(best, dtype=torch.float64) / sum(best))


@given(weights=st.lists(st.integers(0, 5), min_size=1, max_size=8).filter(any))
def test_every_token_is_picked_as_often_as_it_is_likely(weights):
    probability = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    count = 100 * sum(weights)
    draws = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    picked = pick(probability.expand(count, -1), draws)
    assert torch.bincount(picked, minlength=len(weights)).tolist() == [100 * weight for weight in weights]


def test_the_greatest_and_the_least_draw_pick_what_is_possible():
    probability = torch.tensor([[0.0, 0.1, 0.2, 0.7, 0.0]] * 2, dtype=torch.float64)
    draws = torch.tensor([0.0, 1.0 - 2.0**-53], dtype=torch.float64)
    assert pick(probability, draws).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -0.1}, "temperature: .*at least 0, found -0.1"),
        ({"temperature": math.inf}, "temperature: .*found inf"),
        ({"temperature": math.nan}, "temperature: .*found nan"),
        ({"top_k": -1}, "top_k: .*at least 1.*, found -1"),
        ({"top_p": 0.0}, "top_p: .*more than 0 and at most 1, found 0.0"),
        ({"top_p": 1.1}, "top_p: .*found 1.1"),
        ({"top_p": math.nan}, "top_p: .*found nan"),
        ({"seed": -1}, "seed: .*at least 0.*, found -1"),
    ],
)
def test_invalid_sampling_is_refused(fields, message):
    with pytest.raises(UserError, match=message):
        Sampling(**fields)


def test_indices_number_every_row():
    with pytest.raises(UserError, match="indices numbers 1 rows, but there are 4"):
        generate(small(), SOURCE, indices=[0])
