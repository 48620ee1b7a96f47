import base64
import dataclasses
import json
import re
from collections import Counter

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from configs import config_of, with_fields
from small_baselines import small_lstm
from small_explored import explored
from universal_transformer.decoding import generate
from universal_transformer.errors import UserError
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.evaluation.prediction import predict
from universal_transformer.evaluation.tensors import batch_of
from universal_transformer.explore.canvas import GHOST
from universal_transformer.explore.report_page import render
from universal_transformer.explore.story import choose_examples, examine
from universal_transformer.nn.context import Kept
from universal_transformer.registry import build
from universal_transformer.tasks.algorithmic import AlgorithmicData
from universal_transformer.tasks.sides.listed import Names
from universal_transformer.tasks.stories import StoriesData
from universal_transformer.tasks.sudoku import SudokuData
from universal_transformer.tasks.text import TextData
from universal_transformer.typed import replaced

TINY = config_of(width=16, filter_width=32, num_heads=2, max_steps=4, halting=True, dropout=0.0)


def model_for(task, **changes):
    torch.manual_seed(0)
    return build(task.configure(with_fields(TINY, **changes)))


@pytest.fixture(scope="module")
def stories():
    return StoriesData(train_stories=30, validation_stories=5, test_stories=20).load()


@pytest.mark.claim("figure 3")
@pytest.mark.parametrize("halting", [True, False])
def test_a_story_has_a_label_and_steps_for_each_fact(stories, halting):
    model, example = model_for(stories, halting=halting), stories.test["test"][0]
    story = examine(model, stories.codec, example, name="tiny")
    (side,) = story.trace.sides
    assert story.title == f"One story: {side.tokens[-1]}?"
    assert len(side.tokens) == len(side.steps) == len(example.source)
    assert side.supports == example.supports
    assert story.trace.right == stories.codec.render(example.target)
    made = int(max(side.steps)) if halting else 4
    assert side.self_attention.weights.shape == (made, 2, len(example.source), len(example.source))
    assert np.allclose(side.self_attention.weights.sum(-1), 1, atol=len(example.source) / 510)
    assert story.figures.keys() == {"attention", *["ponder_map"] * halting}
    assert not story.pictured
    assert model.training, "looking changes nothing"


def steps_and_weights(figure):
    """What is drawn: filled cells of each row of a map of steps; weights of each panel of a map of attention."""
    rows = Counter(bar.get_y() for bar in figure.axes[0].patches if to_hex(bar.get_facecolor()) != GHOST)
    cells = [ax.collections[0].get_array() for ax in figure.axes if ax.collections and ax.get_title()]
    return [rows[place] for place in sorted(rows)], cells


@pytest.mark.parametrize("recent_first", [False, True])
def test_a_page_and_picture_files_have_the_numbers_of_the_model(recent_first):
    task = StoriesData(train_stories=30, validation_stories=2, test_stories=5, recent_first=recent_first).load()
    model, example = model_for(task).eval(), task.test["test"][0]
    names = task.codec.words(example)
    order = list(range(len(names)))
    if recent_first:
        order[:-1] = reversed(order[:-1])
    story = examine(model, task.codec, example)
    html, _ = render(evaluate(model, task), examples=[story], config={})
    (text,) = re.findall(r'<script type="application/json" id="traces">(.*?)</script>', html, flags=re.DOTALL)
    ((embedded,),) = [[trace["sides"][0] for trace in json.loads(text)]]
    (answer,) = predict(model, task.codec, [example])
    assert embedded["tokens"] == [token.text for token in answer.tokens] == [names[row] for row in order]
    shown = {embedded["tokens"][row] for row in embedded["supports"]}
    assert shown == {names[row] for row in example.supports}
    with torch.no_grad():
        seen = model(batch_of(model, [example]).source, keep=Kept(attention=True)).encoder
    assert embedded["steps"] == answer.steps == seen.steps[0, order].tolist()
    assert steps_and_weights(story.figures["ponder_map"])[0] == embedded["steps"]
    weights = np.frombuffer(base64.b64decode(embedded["self_attention"]["data"]), np.uint8) / 255
    weights = weights.reshape(embedded["self_attention"]["shape"])
    assert np.abs(weights - seen.self_attention[:, 0].numpy()[:, :, order][:, :, :, order]).max() <= 1 / 255
    panels = steps_and_weights(story.figures["attention"])[1]
    assert len(panels) == len(weights)
    for drawn, wanted in zip(panels, weights[:, :, -1], strict=True):
        assert np.array_equal(drawn, wanted.ravel())


def test_chosen_stories_have_each_number_of_supports_and_are_the_same_each_time(stories):
    model = model_for(stories)
    (chosen,) = choose_examples(model, stories)
    assert len(chosen.supports) == 3
    assert choose_examples(model, stories, count=3)[0] == chosen
    assert [len(found.supports) for found in choose_examples(model, stories, count=4)] == [3, 2, 1, 3]
    assert len(set(choose_examples(model, stories, count=4))) == 4
    with pytest.raises(UserError, match="no examples"):
        choose_examples(model, dataclasses.replace(stories, test={}))


def test_sequences_show_what_was_written():
    task = AlgorithmicData(train_examples=9, validation_examples=5, test_examples=9, test_lengths=(6,)).load()
    model = model_for(task)
    for example in choose_examples(model, task, count=2):
        shown = examine(model, task.codec, example)
        found = generate(model, torch.tensor([example.source]))[0]
        trace = shown.trace
        assert trace.answer == task.codec.render(found.tokens)
        assert trace.right == "".join(trace.sides[0].tokens) == task.codec.render(example.target[:-1])
        assert len(trace.output) == len(trace.places) == len(found.tokens) + found.finished
        assert np.mean(trace.sides[1].steps) == pytest.approx(found.steps)
        assert (shown.title, shown.figures, shown.pictured) == ("Sample", {}, False)
    with pytest.raises(UserError, match="no depth"):
        examine(small_lstm(), task.codec, example)


def test_the_attention_of_many_examples_is_bounded(stories):
    model, example = model_for(stories), stories.test["test"][0]
    whole = examine(model, stories.codec, example).trace.sides[0].self_attention
    layers, heads, positions, _ = whole.shape
    cut = examine(model, stories.codec, example, most_weights=layers * positions**2).trace
    assert cut.sides[0].self_attention.shape == (layers, 1, positions, positions)
    assert cut.cut == (f"attention is the mean over {heads} heads",)


def test_an_input_is_read_again_from_its_text(tmp_path):
    for form, (pipeline, text) in explored(tmp_path).items():
        if form != "language model":  # whose input is no source
            example = pipeline.example(text, 0)
            again = pipeline.example(pipeline.codec.source.input_text(example.source), 0)
            assert again.source == example.source, form
    names = Names(lists=(("lucas", "theo"), ("one", "two")))
    ids = names.encode("theo", "two")
    assert names.read_line(names.input_text(ids), where="").source == ids


def test_a_board_keeps_its_given_cells():
    task = SudokuData(side=4, train_boards=20, validation_boards=5, test_boards=5).load()
    model, example = model_for(task), task.test["test"][0]
    trace = examine(model, task.codec, example).trace
    given = [digit for digit in trace.sides[0].tokens if digit != "."]
    assert given
    kept = [text for text, digit in zip(trace.answer, trace.sides[0].tokens, strict=True) if digit != "."]
    assert kept == given


def test_language_models_go_on(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line {n} of a short text\n" for n in range(200)))
    task = TextData(train=str(path), block_length=30).load()
    model = model_for(task)
    trace = examine(model, task.codec, choose_examples(model, task)[0]).trace
    (side,) = trace.sides
    assert len(side.tokens) == len(side.steps) == 15 + len(trace.output)
    assert trace.output
    assert trace.right is None
    short = replaced(model.config, {"coordinates.position": "learned", "coordinates.max_positions": 33})
    trace = examine(build(short).eval(), task.codec, task.validation[0]).trace
    assert len(trace.sides[0].tokens) <= 33
