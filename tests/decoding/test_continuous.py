"""A stream of requests through a few slots: what each gives alone, and no depth step more than they need together."""

import itertools
from functools import cache
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from small_models import HALTING, MODERN, small
from universal_transformer.decoding import continuous
from universal_transformer.decoding.continuous import ContinuousBatch, generate_stream
from universal_transformer.decoding.generation import check_model, evaluating
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.decoding.sampling import generate
from universal_transformer.errors import UserError
from universal_transformer.execution import policy
from universal_transformer.execution.stream import RowStream, stream_obstacle
from universal_transformer.models.call import GREEDY, Sampling
from universal_transformer.registry import build
from universal_transformer.rules import Exit
from universal_transformer.typed import replaced


class Request(NamedTuple):
    number: int
    tokens: list


HOT = Sampling(temperature=1.3, top_k=7, top_p=0.97, seed=5)
STREAMS = {
    "fixed": {},
    "fixed pre": {"norm": "pre"},
    "modern": {"halting": True, "position_coordinates": "rotary", **MODERN},
    "pre": {"halting": True, "norm": "pre", "attention_bias": True},
    "pre, no steps": {"halting": True, "norm": "pre", "step_coordinates": "none"},
    "at the input": {"position_injection": "input", "halting": True},
    "at the input, fixed": {"position_injection": "input"},
    "at the input, final": {"position_injection": "input", "halting": True, "halting_output": "final"},
    "no coordinates": {"position_coordinates": "none", "step_coordinates": "none", "halting": True},
    "learned": {"position_coordinates": "learned", "step_coordinates": "learned", "halting": True},
    "at least two steps": {"halting": True, "min_steps": 2},
    "two blocks, fixed": {"layers_per_step": 2},
    "two blocks": {"halting": True, "layers_per_step": 2},
    "three blocks, pre": {"halting": True, "layers_per_step": 3, "norm": "pre"},
    "without remainder": {"halting": True, "remainder_at_cap": False, "attention_bias": True},
    "rotary, fixed": {"position_coordinates": "rotary", "norm": "pre"},
    "rotary": {"position_coordinates": "rotary", "halting": True},
    "rotary, pre, no steps": {
        "position_coordinates": "rotary",
        "halting": True,
        "norm": "pre",
        "step_coordinates": "none",
        "attention_bias": True,
    },
    "rotary, two blocks": {
        "position_coordinates": "rotary",
        "halting": True,
        "norm": "pre",
        "layers_per_step": 2,
    },
    **{name: fields for name, fields in HALTING.items() if name.endswith("frozen")},
}
REFUSED = {
    "evolving": {"halting": True, "halting_state": "evolving"},
    "convolution": {"transition": "separable_convolution"},
    "untied": {"tied": False},
}


def model_and_requests(architecture, fields, *, count=7):
    fields = dict(fields)
    min_steps = fields.pop("min_steps", 1)
    model = small(architecture=architecture, max_steps=5, **fields)
    recurrence = model.target.recurrence
    recurrence.trained_depth = recurrence.trained_depth._replace(min_steps=min_steps)
    with torch.no_grad():
        model.target.bias[2] += 1.0  # so that some sequences end
        if model.target.recurrence.halting.decides:
            model.target.recurrence.halting.bias.fill_(-0.5)
    start = [1] if architecture == "language_model" else []
    tokens = [[*start, *torch.randint(3, 9, (1 + 3 * row % 5,)).tolist()] for row in range(count)]
    return model, [Request(3 * row, each) for row, each in enumerate(tokens)]


def stream(model, requests, *, slots=3, capacity=30, **options):
    return generate_stream(model, requests, slots=slots, capacity=capacity, options=DecodingOptions(**options))


def alone(model, request, **options):
    source = [request.tokens]
    if model.config.architecture == "encoder_decoder":
        source = torch.tensor(source)
    return generate(model, source, DecodingOptions(**options), indices=[request.number])[0]


def same(found, expected):
    assert (found.tokens, found.finished) == (expected.tokens, expected.finished)
    assert found.score == found.penalised_score == pytest.approx(expected.score)
    assert found.token_scores == pytest.approx(expected.token_scores)
    assert found.token_steps == expected.token_steps
    assert found.source_steps == expected.source_steps


@pytest.mark.cover(1)
@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
@pytest.mark.parametrize("name", STREAMS)
def test_a_request_comes_out_as_it_does_alone_whenever_it_arrives(name, architecture):
    model, requests = model_and_requests(architecture, STREAMS[name], count=3)
    options = {"max_steps": 4 if name == "mean frozen" else None, "max_new_tokens": 4}

    @cache
    def wanted(sampling):
        return {request.number: alone(model, request, sampling=sampling, **options) for request in requests}

    @settings(max_examples=2)
    @given(order=st.permutations(requests), slots=st.integers(1, 5), sampling=st.sampled_from([GREEDY, HOT]))
    def check(order, slots, sampling):
        found = list(stream(model, order, slots=slots, sampling=sampling, **options))
        assert sorted(number for number, _ in found) == sorted(wanted(sampling))
        for number, result in found:
            same(result, wanted(sampling)[number])

    check()


WARM = Sampling(temperature=0.7, seed=8)
OWN = [
    {"sampling": sampling, "max_new_tokens": most, "max_steps": steps}
    for sampling in (GREEDY, HOT, WARM)
    for most, steps in ((1, None), (3, 3), (6, None), (6, 5), (None, 2))
]
"""Options of requests that are in one stream together."""


class Turn(NamedTuple):
    """What happens between two calls of the block: requests enter, by their options, and one of them leaves."""

    entering: list
    leaving: int | None


TURNS = st.lists(
    st.builds(Turn, st.lists(st.sampled_from(range(len(OWN))), max_size=3), st.one_of(st.none(), st.integers(0, 12))),
    min_size=1,
    max_size=12,
)


def entered(batch, requests):
    """Requests prepared together as far as they make equally many steps; whoever has a token, its first one."""
    of = lambda request: request.options.max_steps or 0  # noqa: E731
    return [
        job for _, group in itertools.groupby(sorted(requests, key=of), key=of) for job in batch.prepare(list(group))
    ]


@pytest.mark.cover(1)
@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
@pytest.mark.parametrize(
    "name", ["fixed", "pre", "two blocks", "rotary", "without remainder", "learned", "interpolate frozen"]
)
def test_nothing_that_enters_or_leaves_changes_a_request(name, architecture):
    """Requests with options of their own enter and leave at any time. Each has the tokens that it has alone, those of
    one that left are the first of these, and every token is reported once.
    """
    model, requests = model_and_requests(architecture, STREAMS[name], count=5)

    @cache
    def wanted(number, options):
        return alone(model, Request(number, requests[number % 5].tokens), **OWN[options])

    @settings(max_examples=4)
    @given(turns=TURNS, slots=st.integers(1, 4))
    def check(turns, slots):
        batch = ContinuousBatch(model, slots=slots, capacity=60)
        jobs, reported, numbers = {}, {}, itertools.count()
        schedule = iter(turns)
        with evaluating(batch.model):
            while (turn := next(schedule, None)) is not None or not batch.idle:
                new = []
                for options in turn.entering if turn else ():
                    number = next(numbers)
                    ids, own = requests[number % 5].tokens, DecodingOptions(**OWN[options])
                    new.append(continuous.Request(number, ids, own))
                    jobs[number] = options
                moved = entered(batch, new)
                if turn and turn.leaving in reported:
                    reported[turn.leaving][0].cancelled = True
                moved = [(job, 1) for job in moved]
                for job, count in [*moved, *((job, len(job.sequence.result.token_scores)) for job in batch.step())]:
                    assert not job.cancelled
                    reported.setdefault(job.request.number, (job, []))[1].append(count)
                assert len(batch.stream) <= slots
        assert not batch.waiting
        for number, options in jobs.items():
            job, told = reported[number]
            result, expected = job.sequence.result, wanted(number, options)
            assert told == list(range(1, 1 + len(result.token_scores)))
            if job.cancelled and not job.sequence.done:
                count = len(result.token_scores)
                assert result.tokens == expected.tokens[:count]
                assert result.token_steps == expected.token_steps[:count]
            else:
                same(result, expected)

    check()


def test_a_row_that_left_is_taken_again():
    """Between bursts the stream has no row, and its rows grow again; their sources are not kept."""
    model, requests = model_and_requests("encoder_decoder", {"halting": True})
    batch = ContinuousBatch(model, slots=3, capacity=30)
    with evaluating(batch.model):
        for burst in range(3):
            jobs = batch.prepare([continuous.Request(*request) for request in requests[burst : burst + 3]])
            while not batch.idle:
                batch.step()
            for job, request in zip(jobs, requests[burst:], strict=False):
                same(job.sequence.result, alone(model, request))
            assert batch.step() == []
            assert (len(batch.stream), batch.stream.sources, batch.free) == (0, [], 3)


def test_the_likeliest_tokens_are_noted_where_they_are_asked_for():
    model, requests = model_and_requests("language_model", {"halting": True})
    batch = ContinuousBatch(model, slots=3, capacity=30)
    with evaluating(batch.model):
        asked = [
            continuous.Request(*request, DecodingOptions(sampling=HOT, max_new_tokens=5), likeliest)
            for request, likeliest in zip(requests, (0, 2, 4), strict=False)
        ]
        jobs = batch.prepare(asked)
        while not batch.idle:
            batch.step()
    for job, likeliest in zip(jobs, (0, 2, 4), strict=True):
        noted, result = job.sequence.noted, job.sequence.result
        assert [len(best) for best in noted] == [likeliest] * len(result.token_scores) * bool(likeliest)
        for best, token, score in zip(noted, result.tokens, result.token_scores, strict=False):
            values = [value for _, value in best]
            assert values == sorted(values, reverse=True)
            assert dict(best).get(token, score) == pytest.approx(score)
            assert score <= values[0] + 1e-9


@pytest.mark.parametrize(
    ("depth", "options", "message"),
    [
        ({}, {"max_steps": 6}, "max_steps=6: this stream makes 1 to 5 steps"),
        (
            {},
            {"halting_threshold": 0.5},
            "halting_threshold=0.5: requests of one stream share it; here it is as trained",
        ),
        ({"halting_threshold": 0.5}, {"halting_threshold": 0.6}, "here it is 0.5"),
        ({}, {"exit": Exit("state_change", 0.5)}, "exit=state_change:0.5: requests of one stream share it"),
        ({}, {"beams": 2}, "beams=2: a stream searches with one beam"),
        ({}, {"max_new_tokens": 40}, "do not fit capacity=30: at least 4"),
    ],
)
def test_a_request_that_a_stream_cannot_serve_is_refused_by_name(depth, options, message):
    model, requests = model_and_requests("language_model", {"halting": True})
    batch = ContinuousBatch(model, slots=2, capacity=30, options=DecodingOptions(**depth))
    with pytest.raises(UserError, match=message) as refused:
        batch.limit(continuous.Request(7, requests[0].tokens, DecodingOptions(**options)))
    assert "\n" not in str(refused.value)
    assert batch.limit(continuous.Request(7, requests[0].tokens, DecodingOptions(max_new_tokens=3))) == 3


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_distances_to_the_source_are_those_of_each_request(norm):
    """Rotary queries to sources of different lengths, each with a sink."""
    model, requests = model_and_requests(
        "encoder_decoder", {"position_coordinates": "distance", "source_sink": True, "halting": True, "norm": norm}
    )
    for number, result in stream(model, requests):
        same(result, alone(model, requests[number // 3]))


def test_limits_and_thresholds_are_those_of_generate():
    model, requests = model_and_requests("language_model", {"halting": True})
    for options in ({"max_new_tokens": 1}, {"max_new_tokens": 4}, {"halting_threshold": 0.3, "max_steps": 9}):
        for number, result in stream(model, requests, slots=2, **options):
            same(result, alone(model, requests[number // 3], **options))


@pytest.mark.parametrize("rule", ["ponder", "stick_breaking"])
@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
def test_other_rules_too(architecture, rule):
    changes = {"halting.side": "decoder", "halting.rule": rule, "halting.bias": 0.0}
    model = build(replaced(small(architecture=architecture, max_steps=5).config, changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        model.target.recurrence.halting.weight.normal_(std=2.0)
    assert stream_obstacle(model.target.recurrence) is None
    _, requests = model_and_requests(architecture, {}, count=4)
    for bias in range(-9, 9):  # until tokens differ in steps
        torch.nn.init.constant_(model.target.recurrence.halting.bias, float(bias))
        found = dict(stream(model, requests, max_new_tokens=4))
        if len({steps for each in found.values() for steps in each.token_steps}) > 1:
            break
    else:
        pytest.fail("all tokens take as many steps: nothing is tested")
    for request in requests:
        same(found[request.number], alone(model, request, max_new_tokens=4))


@pytest.mark.parametrize("fields", [{}, {"position_injection": "input", "step_coordinates": "none"}])
@pytest.mark.parametrize("kind", ["state_change", "output_change", "confidence"])
@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
def test_exits_too(architecture, kind, fields):
    model, requests = model_and_requests(architecture, fields, count=4)
    for threshold in (0.8, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.1, 0.05, 0.02, 0.01):  # until tokens differ in steps
        options = {"exit": Exit(kind, threshold), "max_new_tokens": 6}
        found = dict(stream(model, requests, **options))
        if len({steps for each in found.values() for steps in each.token_steps}) > 1:
            break
    else:
        pytest.fail("all tokens take as many steps: nothing is tested")
    for request in requests:
        same(found[request.number], alone(model, request, **options))


@pytest.mark.parametrize("slots", [1, 3, 50])
@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
def test_no_row_waits_and_none_thinks_in_vain(architecture, slots, monkeypatch):
    """Every row of every call belongs to a token that runs: their number is the sum of N. And the calls are no more
    than those of any schedule without idle slots: the slots' even share, and the longest request."""
    model, requests = model_and_requests(architecture, {"halting": True}, count=12)
    rows, step = [], RowStream.step
    monkeypatch.setattr(RowStream, "step", lambda self: rows.append(len(self)) or step(self))
    found = dict(stream(model, requests, slots=slots, sampling=HOT))
    work = []
    for request in requests:
        result = found[request.number]
        tokens = len(result.tokens) + result.finished
        first = alone(model, request, max_new_tokens=1).steps  # made with the prompt
        work.append(round(result.steps * tokens - first))
    assert sum(rows) == sum(work)
    assert sum(rows) < 5 * sum(len(each.tokens) for each in found.values())
    assert len(rows) <= sum(work) / slots + max(work)
    assert max(rows) <= slots
    if slots == 1:
        assert len(rows) == sum(work)


@pytest.mark.parametrize("fields", [{}, {"halting": True}], ids=["fixed", "halting"])
@pytest.mark.parametrize("together", [1, 100])
def test_rows_that_look_at_much_take_turns(fields, together, monkeypatch):
    """At width 8 a place is 16 numbers: 100 of them are two rows after three places, and one row after more."""
    monkeypatch.setattr(policy, "MOST_GATHERED", together)
    model, requests = model_and_requests("language_model", fields)
    for number, result in stream(model, requests):
        same(result, alone(model, requests[number // 3]))


def test_fixed_depth_fills_free_slots_too(monkeypatch):
    model, requests = model_and_requests("encoder_decoder", {}, count=12)
    rows, step = [], RowStream.step
    monkeypatch.setattr(RowStream, "step", lambda self: rows.append(len(self)) or step(self))
    found = list(stream(model, requests))
    assert sum(rows) == 5 * sum(len(each.tokens) + each.finished - 1 for _, each in found)


def test_requests_are_read_as_they_are_needed():
    model, requests = model_and_requests("encoder_decoder", {"halting": True})
    read = []
    endless = (read.append(0) or Request(n, requests[n % 7].tokens) for n in itertools.count())
    results = stream(model, endless, slots=2)
    assert read == []
    for _ in range(10):
        number, result = next(results)
        same(result, alone(model, Request(number, requests[number % 7].tokens)))
    assert len(read) <= 10 + 2 * 2 + 2


def test_between_results_the_model_is_as_it_was():
    model, requests = model_and_requests("encoder_decoder", {"halting": True})
    model.train()
    for _ in stream(model, requests, slots=2):
        assert torch.is_grad_enabled()
        assert all(module.training for module in model.modules())


def test_no_requests_no_results():
    model, _ = model_and_requests("encoder_decoder", {"halting": True})
    assert list(stream(model, [], slots=2, capacity=3)) == []


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        ([3, 4], {"slots": 0}, "slots=0: at least 1"),
        ([3, 4], {"capacity": 0}, "capacity=0: at least 1"),
        (
            [3, 4],
            {"capacity": 10},
            "request 7: 1 tokens and up to 14 new ones do not fit capacity=10: at least 14",
        ),
        ([3, 9], {}, "token id 9"),
        ([], {}, r"source of shape \[1, 0\]|row 0 is empty"),
        ([3], {"max_new_tokens": 0}, "max_new_tokens: .*at least 1 .*found 0"),
        ([3], {"max_steps": 0}, "max_steps: .*at least 1"),
        ([3], {"halting_threshold": 0.0}, "halting_threshold: .*more than 0"),
        ([3], {"capacity": 10**14}, "capacity"),
    ],
)
def test_what_cannot_be_continued_is_refused_in_one_line(tokens, options, message):
    model, _ = model_and_requests("encoder_decoder", {"halting": True})
    with pytest.raises(UserError, match=message) as refused:
        list(stream(model, [Request(7, tokens)], **{"slots": 2, "capacity": 20, **options}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_whose_rows_cannot_be_at_different_steps_is_refused(name):
    model, requests = model_and_requests("encoder_decoder", REFUSED[name])
    with pytest.raises(UserError, match=r"^rows cannot be at different depth steps: "):
        stream(model, requests)


def test_autocast_is_refused():
    model, requests = model_and_requests("encoder_decoder", {"halting": True})
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(UserError, match="under autocast; use generate"):
        stream(model, requests)


def test_a_classifier_generates_nothing():
    with pytest.raises(UserError, match="Classifier cannot generate"):
        check_model(small(architecture="classifier", num_classes=2))
