"""What is shown of a picture: its pixels with their steps, and the attention to its patches."""

import numpy as np
import pytest
import torch

from small_pictures import write_digits
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.explore.report_page import render
from universal_transformer.explore.story import choose_examples, examine
from universal_transformer.explore.story_figures import drawn_picture, read_picture
from universal_transformer.models.components import DepthConfig, InputsConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.step_config import HaltingConfig, Sizes, StepConfig
from universal_transformer.registry import build
from universal_transformer.tasks import CaptionsData, PicturesData


def model_for(task, *, halting, **fields):
    torch.manual_seed(0)
    config = ModelConfig(
        sizes=Sizes(width=8, filter_width=8, num_heads=2),
        depth=DepthConfig(max_steps=3),
        step=StepConfig(dropout=0.0),
        halting=HaltingConfig(side="both" if halting else "none", bias=0.0),
        **fields,
    )
    return build(task.configure(config)).eval()


@pytest.mark.parametrize("halting", [False, True])
def test_a_picture_that_was_written_has_steps_for_each_pixel(halting, tmp_path):
    task = PicturesData(data_dir=str(write_digits(tmp_path)), side=4, levels=4).load()
    model = model_for(task, halting=halting)
    (example,) = choose_examples(model, task)
    story = examine(model, task.codec, example)
    assert story.pixels.shape == (4, 4)
    assert len(story.output_steps) == 16
    assert set(story.output_steps) <= {1.0, 2.0, 3.0}
    assert len(drawn_picture(story).axes) == (3 if halting else 1)
    report = evaluate(model, task)
    html, figures = render(report, stories=[story], config={})
    assert "picture_1" in figures
    assert "<h2>Pictures</h2>" in html
    assert "<h2>Samples</h2>" not in html


def test_a_picture_that_was_read_has_attention_to_its_patches_for_each_token(tmp_path):
    task = CaptionsData(data_dir=str(write_digits(tmp_path)), rows=4, train_examples=4).load()
    model = model_for(task, halting=True, inputs=InputsConfig(kind="patches", stride=7))
    example = task.test["rows"][0]
    story = examine(model, task.codec, example)
    columns = example.source.shape[0]
    assert story.pixels.shape == (28, columns)
    assert story.source_attention.shape == (len(story.output_labels), 4, columns // 7)
    np.testing.assert_allclose(story.source_attention.sum(axis=(1, 2)), 1, atol=1e-5)
    assert story.answer == task.codec.render(example.target[:-1])
    assert len(read_picture(story).axes) == 1 + min(12, len(story.output_labels))


def test_attention_is_in_its_row_and_column(tmp_path, monkeypatch):
    """Patches follow each other from top to bottom, then the next column."""
    task = CaptionsData(data_dir=str(write_digits(tmp_path)), rows=4, train_examples=4).load()
    model = model_for(task, halting=False, inputs=InputsConfig(kind="patches", stride=7))
    example = task.test["rows"][0]
    kept = {}
    forward = model.forward

    def watched(*arguments, **named):
        output = forward(*arguments, **named)
        if "keep" in named:
            kept["attention"] = output.decoder.cross_attention[-1, 0].mean(0)
        return output

    monkeypatch.setattr(model, "forward", watched)
    story = examine(model, task.codec, example)
    for token, weights in enumerate(kept["attention"]):
        for place, weight in enumerate(weights.tolist()):
            assert story.source_attention[token, place % 4, place // 4] == pytest.approx(weight)
