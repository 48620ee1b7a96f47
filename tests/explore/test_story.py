import dataclasses

import numpy as np
import pytest
import torch

from configs import config_of, with_fields
from universal_transformer.decoding import generate
from universal_transformer.errors import UserError
from universal_transformer.evaluation.prediction import predict
from universal_transformer.evaluation.tensors import batch_of
from universal_transformer.explore.story import choose_examples, examine
from universal_transformer.nn.context import Kept
from universal_transformer.registry import build
from universal_transformer.tasks.algorithmic import AlgorithmicData
from universal_transformer.tasks.stories import StoriesData
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
    story = examine(model, stories.codec, example)
    assert story.facts
    assert len(story.labels) == len(story.steps) == len(example.source)
    assert story.supports == example.supports
    assert story.answer == stories.codec.render(example.target)
    made = int(max(story.steps)) if halting else 4
    assert story.attention.shape == (made, 2, len(example.source), len(example.source))
    assert np.allclose(story.attention.sum(-1), 1, atol=1e-5)
    assert model.training, "looking changes nothing"


@pytest.mark.parametrize("recent_first", [False, True])
def test_a_story_is_shown_in_reading_order_whatever_the_model_reads_first(recent_first):
    sizes = {"train_stories": 30, "validation_stories": 2, "test_stories": 5}
    task = StoriesData(**sizes, recent_first=recent_first).load()
    model, example = model_for(task).eval(), task.test["test"][0]
    names = task.codec.words(example)
    order = list(range(len(names)))
    if recent_first:
        order[:-1] = reversed(order[:-1])
    story = examine(model, task.codec, example)
    (answer,) = predict(model, task.codec, [example])
    assert list(story.labels) == [token.text for token in answer.tokens] == [names[row] for row in order]
    assert [story.labels[row] for row in story.supports] == [names[row] for row in order if row in example.supports]
    with torch.no_grad():
        seen = model(batch_of(model, [example]).source, keep=Kept(attention=True)).encoder
    assert list(story.steps) == answer.steps == seen.steps[0, order].tolist()
    attention = seen.self_attention[:, 0].numpy()
    assert np.array_equal(story.attention, attention[:, :, order][:, :, :, order])


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
        story = examine(model, task.codec, example)
        found = generate(model, torch.tensor([example.source]))[0]
        assert story.output == task.codec.render(found.tokens)
        assert story.answer == "".join(story.labels)
        assert len(story.output_labels) == len(story.output_steps) == len(found.tokens) + found.finished
        assert np.mean(story.output_steps) == pytest.approx(found.steps)


def test_language_models_go_on(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line {n} of a short text\n" for n in range(200)))
    task = TextData(train=str(path), block_length=30).load()
    model = model_for(task)
    story = examine(model, task.codec, choose_examples(model, task)[0])
    assert len(story.labels) == len(story.steps) == 30
    assert len(story.output_labels) == len(story.output_steps) > 0
    assert story.answer is None
    short = replaced(model.config, {"coordinates.position": "learned", "coordinates.max_positions": 33})
    story = examine(build(short).eval(), task.codec, task.validation[0])
    assert len(story.labels) == 16
    assert len(story.output_labels) <= 17
