"""The laws of a trace: what it says is what the model and `predict` say."""

import base64
import json
from dataclasses import replace
from functools import partial
from math import exp

import numpy as np
import pytest
import torch

from small_baselines import small_lstm
from small_explored import STORY, explored, stories
from small_task_models import model_for
from universal_transformer.data.example import Example
from universal_transformer.decoding.options import DEFAULTS, DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation import prediction
from universal_transformer.evaluation.tensors import batch_of, inputs_of
from universal_transformer.explore.input_trace import trace_input, traced
from universal_transformer.nn.context import Kept
from universal_transformer.rules import Exit
from universal_transformer.tasks.task import Task

FORMS = (
    "story",
    "story, latest fact first",
    "story, fixed depth",
    "board",
    "sequence",
    "language model",
    "label",
    "several labels",
    "tags",
)
FULL = Kept(attention=True, states=True)


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    found = explored(tmp_path_factory.mktemp("rows"))
    assert tuple(found) == FORMS
    return found


def weights(attention):
    data = np.frombuffer(base64.b64decode(attention.data), dtype=np.uint8)
    return data.reshape(attention.shape) / 255


def called(pipeline, example, trace):
    """The call that a trace describes: with the answer that it shows."""
    config = pipeline.model.config
    if config.decodes:
        (answer,) = pipeline.model.generate([list(example.source if config.reads else example.target)])
        end = [config.vocabulary.end_id] * answer.finished
        before = () if config.reads else example.target
        example = replace(example, target=(*before, *answer.tokens, *end))
    batch = batch_of(pipeline.model, [example])
    with torch.inference_mode():
        return pipeline.model(*inputs_of(batch, model=pipeline.model), keep=FULL)


@pytest.mark.parametrize("form", FORMS)
def test_a_trace_says_what_predict_says(members, form):
    pipeline, text = members[form]
    example, answer = pipeline.example(text, 0), pipeline(text)
    trace = trace_input(pipeline.model, pipeline.codec, example, name="tiny")
    assert (trace.answer, trace.finished, trace.model) == (answer.text, answer.finished, "tiny")
    assert trace.probability == pytest.approx(exp(answer.score), abs=1e-6)
    assert [text for text, _ in trace.choices] == [text for text, _ in answer.choices]
    assert [text for text, _ in trace.output] == [token.text for token in answer.output]
    shown = {side.side: side for side in trace.sides}
    first = trace.sides[0]
    assert list(first.tokens)[: len(answer.tokens)] == [token.text for token in answer.tokens]
    assert list(first.steps)[: len(answer.tokens)] == answer.steps
    if "decoder" in shown:
        side = shown["decoder"]
        assert [side.steps[place] for place in trace.places] == [token.steps for token in answer.output]
        assert [side.tokens[place] for place in trace.places] == [token.text for token in answer.output]
        assert side.columns == ("<start>", *side.tokens[:-1])


@pytest.mark.parametrize("form", FORMS)
def test_a_trace_says_what_the_model_returns(members, form):
    pipeline, text = members[form]
    example = pipeline.example(text, 0)
    trace = trace_input(pipeline.model, pipeline.codec, example)
    output = called(pipeline, example, trace)
    for side in trace.sides:
        given = getattr(output, side.side)
        order = list(range(len(side.tokens)))
        if side.side == "encoder":
            order = list(pipeline.codec.source.reading_order(len(order)))
        assert side.steps == tuple(given.steps[0, order].tolist())
        assert side.remainders == pytest.approx(given.remainder[0, order].tolist(), abs=1e-6)
        if given.probability is None:
            assert side.halting is None
        else:
            assert np.allclose(side.halting, given.probability[:, 0][:, order], atol=1e-6)
        own = given.self_attention[:, 0][:, :, order][:, :, :, order]
        assert np.abs(weights(side.self_attention) - own.numpy()).max() <= 1 / 255
        assert side.self_attention.shape[0] == side.self_attention.blocks * max(side.steps)
        if given.cross_attention is not None:
            rows = list(pipeline.codec.source.reading_order(given.cross_attention.shape[-1]))
            other = given.cross_attention[:, 0][:, :, :, rows]
            assert np.abs(weights(side.cross_attention) - other.numpy()).max() <= 1 / 255
    assert len(trace.after_steps) == len(output.step_logits)
    per_position = form in ("board", "sequence", "language model", "tags")
    count = len(trace.sides[-1].tokens) if per_position else 1
    assert all(len(step) == count for step in trace.after_steps)
    assert not trace.cut


@pytest.mark.parametrize("form", ["story, fixed depth", "sequence"])
def test_the_last_states_give_the_answer(members, form):
    pipeline, text = members[form]
    model, codec = pipeline.model, pipeline.codec
    if form == "sequence":
        model = model_for_fixed(pipeline)
    trace = trace_input(model, codec, pipeline.example(text, 0))
    answers = trace.output or [(trace.answer, trace.probability)]
    assert [text for text, _ in trace.after_steps[-1]] == [text for text, _ in answers]
    assert [p for _, p in trace.after_steps[-1]] == pytest.approx([p for _, p in answers], abs=2e-6), "as in scores"


def model_for_fixed(pipeline):
    examples = [Example(source=(4, 5), target=(4, 2))]
    task = Task(name="sums", codec=pipeline.codec, train=examples, validation=examples, test={}, metric="sequence")
    return model_for(task, halting=False)


def test_the_oldest_fact_is_first_and_the_supporting_facts_are_named(members):
    for form in ("story", "story, latest fact first"):
        pipeline, text = members[form]
        (side,) = trace_input(pipeline.model, pipeline.codec, pipeline.example(text, 0)).sides
        assert len(side.tokens) == 4
        assert side.supports == (0, 2)


def test_the_depth_of_a_call_is_that_of_its_options():
    pipeline = stories()
    example = pipeline.example(STORY, 0)
    for options in (
        DecodingOptions(max_steps=2),
        DecodingOptions(halting_threshold=0.3),
        DecodingOptions(exit=Exit.parse("state_change:0.5")),
    ):
        trace = trace_input(pipeline.model, pipeline.codec, example, options=options)
        assert list(trace.sides[0].steps) == pipeline(STORY, options=options).steps
        assert trace.max_steps == (options.max_steps or 4)
        assert trace.threshold == (None if options.exit else options.halting_threshold or 0.99)
    with pytest.raises(UserError, match="max_steps"):
        trace_input(pipeline.model, pipeline.codec, example, options=DecodingOptions(max_steps=10**6))


def test_a_story_of_seventy_facts_is_small():
    pipeline = stories(num_heads=4, max_steps=6)
    lines = [f"{number} mary went to the kitchen" for number in range(1, 71)]
    example = pipeline.example("\n".join([*lines, "71 where is mary?"]), 0)
    options = DecodingOptions(halting_threshold=1.0)
    trace = trace_input(pipeline.model, pipeline.codec, example, options=options)
    assert trace.sides[0].self_attention.shape == (6, 4, 71, 71)
    assert len(json.dumps(trace.to_dict(), ensure_ascii=False)) < 200_000


def test_what_is_cut_is_said():
    pipeline = stories()
    example = pipeline.example(STORY, 0)
    whole = trace_input(pipeline.model, pipeline.codec, example).sides[0].self_attention
    call = partial(traced, pipeline.model, pipeline.codec, example, options=DEFAULTS)
    trace, _ = call(most_weights=whole.shape[0] * 16)
    assert trace.cut == ("attention is the mean over 2 heads",)
    mean = weights(whole).mean(1, keepdims=True)
    assert np.abs(weights(trace.sides[0].self_attention) - mean).max() <= 1 / 255
    trace, _ = call(most_weights=whole.shape[0] * 9)
    assert trace.cut[1] == "attention is that of the first 3 positions"
    assert np.abs(weights(trace.sides[0].self_attention) - mean[:, :, :3, :3]).max() <= 1 / 255


def test_a_long_input_keeps_the_mean_over_heads_alone(monkeypatch):
    pipeline = stories()
    example = pipeline.example(STORY, 0)
    whole = trace_input(pipeline.model, pipeline.codec, example).sides[0].self_attention
    monkeypatch.setattr(prediction, "MOST_WEIGHTS", 4 * 2 * 4**2 - 1)  # steps, heads, positions
    trace = trace_input(pipeline.model, pipeline.codec, example)
    assert trace.cut == ("attention is the mean over 2 heads",)
    assert np.abs(weights(trace.sides[0].self_attention) - weights(whole).mean(1, keepdims=True)).max() <= 1 / 255
    monkeypatch.setattr(prediction, "MOST_WEIGHTS", 4 * 2 * 4**2)
    assert trace_input(pipeline.model, pipeline.codec, example).sides[0].self_attention == whole


def test_a_model_without_depth_is_refused():
    with pytest.raises(UserError, match="no depth"):
        trace_input(small_lstm(), None, None)
