"""Beam search against enumeration of all sequences, and against a beam search without a cache and early stop."""

import itertools
import math

import pytest
import torch

from small_models import HALTING, small
from universal_transformer.decoding.beam import beam_search, score_divisor
from universal_transformer.decoding.options import Beams, DecodingOptions
from universal_transformer.decoding.sampling import generate
from universal_transformer.errors import UserError
from universal_transformer.models.call import Sampling

MODELS = {
    "fixed": {},
    "convolution": {"transition": "separable_convolution", "norm": "pre"},
    "halting convolution": {"transition": "separable_convolution", "halting": True},
    **{name: HALTING[name] for name in ("mean frozen", "final evolving", "interpolate evolving")},
}
SOURCE = torch.tensor([[3, 4, 5, 2], [4, 2, 0, 0], [5, 5, 2, 0]])
PROMPTS = [[1, 3, 4], [1], [1, 5, 5, 4, 3]]


def model_and_rows(architecture, fields):
    model = small(architecture=architecture, vocabulary_size=6, **fields)
    with torch.no_grad():
        model.target.bias[2] += 0.5
    if architecture == "language_model":
        return model, PROMPTS, [[prompt] for prompt in PROMPTS]
    return model, SOURCE, [row[row != 0].unsqueeze(0) for row in SOURCE]


class Table:
    """``log p(token | row, prefix)`` by whole passes over many prefixes of one length."""

    def __init__(self, model, row):
        self.model, self.row = model, row

    @torch.no_grad()
    def __call__(self, prefixes):
        labels = torch.tensor([[*prefix, 2] for prefix in prefixes])
        if self.model.config.architecture == "language_model":
            prompt = torch.tensor(self.row[0][1:], dtype=torch.long).expand(len(prefixes), -1)
            output = self.model(torch.cat((prompt, labels), dim=1))
        else:
            output = self.model(self.row.expand(len(prefixes), -1), labels)
        return output.logits[:, -1].log_softmax(dim=-1).tolist()


def penalised(total, length, length_penalty):
    return total / ((5 + length) / 6) ** length_penalty


def everything(table, *, limit, length_penalty):
    """All sequences of up to ``limit`` tokens: those that end, best first, then those cut off, best first."""
    ended, cut, totals = [], [], {(): 0.0}
    for length in range(limit):
        prefixes = list(itertools.product((3, 4, 5), repeat=length))
        for prefix, scores in zip(prefixes, table(prefixes), strict=True):
            ended.append((penalised(totals[prefix] + scores[2], length + 1, length_penalty), prefix, True))
            totals |= {(*prefix, token): totals[prefix] + scores[token] for token in (3, 4, 5)}
    cut = [
        (penalised(totals[prefix], limit, length_penalty), prefix, False) for prefix in totals if len(prefix) == limit
    ]
    return sorted(ended, reverse=True) + sorted(cut, reverse=True)


def naive_beam(table, *, beams, limit, length_penalty):
    running, ended = [(0.0, ())], []
    for length in range(limit):
        longer = []
        for (total, prefix), scores in zip(running, table([prefix for _, prefix in running]), strict=True):
            longer += [(total + scores[token], (*prefix, token)) for token in (2, 3, 4, 5)]
        longer = sorted(longer, reverse=True)[: 2 * beams]
        ended += [
            (penalised(total, length + 1, length_penalty), prefix[:-1], True)
            for total, prefix in longer
            if prefix[-1] == 2
        ]
        running = [(total, prefix) for total, prefix in longer if prefix[-1] != 2][:beams]
    cut = [(penalised(total, limit, length_penalty), prefix, False) for total, prefix in running]
    return sorted(ended, reverse=True) + cut


def same(results, expected):
    assert [(tuple(r.tokens), r.finished) for r in results] == [(tokens, ended) for _, tokens, ended in expected]
    assert [r.penalised_score for r in results] == pytest.approx([score for score, _, _ in expected])


@pytest.mark.parametrize(("architecture", "length_penalty"), [("encoder_decoder", 0.0), ("language_model", 1.5)])
@pytest.mark.parametrize("fields", MODELS.values(), ids=MODELS.keys())
def test_a_beam_as_wide_as_the_space_finds_the_best_of_everything(fields, architecture, length_penalty):
    model, rows, each = model_and_rows(architecture, fields)
    found = beam_search(model, rows, DecodingOptions(beams=Beams(27, length_penalty), max_new_tokens=3), num_results=7)
    for results, row in zip(found, each, strict=True):
        same(results, everything(Table(model, row), limit=3, length_penalty=length_penalty)[:7])


@pytest.mark.cover(1)
@pytest.mark.parametrize("fields", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize(
    ("architecture", "beams", "results", "length_penalty"),
    [("language_model", 1, 1, 0.6), ("encoder_decoder", 2, 1, 0.0), ("language_model", 3, 3, 1.0)],
)
def test_a_narrow_beam_is_the_naive_one(fields, architecture, beams, results, length_penalty):
    model, rows, each = model_and_rows(architecture, fields)
    found = beam_search(
        model, rows, DecodingOptions(beams=Beams(beams, length_penalty), max_new_tokens=6), num_results=results
    )
    for row_results, row in zip(found, each, strict=True):
        same(row_results, naive_beam(Table(model, row), beams=beams, limit=6, length_penalty=length_penalty)[:results])


def test_sequences_cut_off_follow_all_that_ended():
    model, rows, each = model_and_rows("encoder_decoder", {})
    with torch.no_grad():
        model.target.bias[2] -= 20.0
    for results, row in zip(
        beam_search(model, rows, DecodingOptions(beams=9, max_new_tokens=2), num_results=9), each, strict=True
    ):
        same(results, everything(Table(model, row), limit=2, length_penalty=0.6)[:9])
        assert [result.finished for result in results] == [True] * 4 + [False] * 5


def test_rows_with_different_limits_give_the_results_of_single_rows():
    model, rows, each = model_and_rows("encoder_decoder", {"halting": True})
    options = DecodingOptions(beams=Beams(3, 6.0))  # an exponent that favours the longest
    together = beam_search(model, rows, options, num_results=2)
    assert [len(results[0].tokens) for results in together] == [17, 13, 15]
    for results, row in zip(together, each, strict=True):
        (alone,) = beam_search(model, row, options, num_results=2)
        assert [result.tokens for result in alone] == [result.tokens for result in results]
        assert [result.steps for result in alone] == pytest.approx([result.steps for result in results])
        assert [result.source_steps for result in alone] == [result.source_steps for result in results]


def test_scores_and_steps_are_those_of_the_tokens_of_the_hypothesis():
    different = 0
    for _ in range(4):
        model, rows, each = model_and_rows("encoder_decoder", {"halting": True, "step_coordinates": "none"})
        found = beam_search(model, rows, DecodingOptions(beams=Beams(4, 6.0), max_new_tokens=4), num_results=4)
        for results, row in zip(found, each, strict=True):
            different += len({result.steps for result in results}) > 1
            for result in results:
                with torch.no_grad():
                    output = model(row, torch.tensor([result.tokens + [2] * result.finished]))
                assert result.token_steps == output.decoder.steps[0].tolist()
                assert result.steps == pytest.approx(float(output.decoder.mean_steps()))
                labels = torch.tensor([[*result.tokens, *[2] * result.finished]])
                scores = output.logits.log_softmax(-1).gather(2, labels.unsqueeze(2)).flatten()
                assert result.token_scores == pytest.approx(scores.tolist())
                assert result.score == pytest.approx(float(scores.sum()))
                assert result.source_steps == output.encoder.steps[0].tolist()
    assert different > 3


def test_an_unlikely_end_is_no_answer_however_short():
    model, rows, _ = model_and_rows("encoder_decoder", {})
    with torch.no_grad():
        model.target.bias[2] -= 5.0  # the least likely token at every place
    for (best,) in beam_search(model, rows, DecodingOptions(beams=Beams(1, 0.0), max_new_tokens=4)):
        assert (len(best.tokens), best.finished) == (4, False)


def test_one_beam_without_penalty_is_never_worse_than_greedy():
    model, rows, _ = model_and_rows("encoder_decoder", {})
    greedy = generate(model, rows, DecodingOptions(max_new_tokens=6))
    for (best,), other in zip(
        beam_search(model, rows, DecodingOptions(beams=Beams(1, 0.0), max_new_tokens=6)), greedy, strict=True
    ):
        assert best.score >= other.score - 1e-9 or not other.finished


def test_the_search_stops_when_nothing_running_can_win(monkeypatch):
    model, rows, _ = model_and_rows("encoder_decoder", {})
    with torch.no_grad():
        model.target.bias[2] += 50.0
    calls, advance = [], model.target.advance
    monkeypatch.setattr(model.target, "advance", lambda *args, **more: calls.append(1) or advance(*args, **more))
    found = beam_search(model, rows, DecodingOptions(beams=4, max_new_tokens=1000))
    assert [results[0].tokens for results in found] == [[], [], []]
    assert len(calls) == 1


@pytest.mark.parametrize("length", [1, 7, 100])
def test_the_penalty_is_that_of_wu_et_al(length):
    assert score_divisor(length, length_penalty=0.6) == pytest.approx((5 + length) ** 0.6 / 6**0.6)
    assert score_divisor(length, length_penalty=0.0) == 1.0


@pytest.mark.parametrize(
    ("options", "num_results", "message"),
    [
        (lambda: DecodingOptions(beams=0), 1, "beams: expected a whole number, at least 1 .*found 0"),
        (lambda: DecodingOptions(beams=4), 0, "num_results=0: 1 to beams=4"),
        (lambda: DecodingOptions(beams=4), 5, "num_results=5: 1 to beams=4"),
        (lambda: DecodingOptions(beams=Beams(4, -0.1)), 1, "length_penalty: .*at least 0 and at most 10, found -0.1"),
        (lambda: DecodingOptions(beams=Beams(4, math.nan)), 1, "length_penalty: .*found nan"),
        (lambda: DecodingOptions(beams=4, max_new_tokens=0), 1, "max_new_tokens: .*at least 1 .*found 0"),
        (lambda: DecodingOptions(sampling=Sampling(temperature=1.0)), 1, "temperature=1: a beam search draws no"),
    ],
)
def test_invalid_arguments_of_a_search_are_refused(options, num_results, message):
    model, rows, _ = model_and_rows("encoder_decoder", {})
    with pytest.raises(UserError, match=message):
        beam_search(model, rows, options(), num_results=num_results)
