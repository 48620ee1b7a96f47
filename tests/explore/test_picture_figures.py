"""What is shown of a picture: its pixels with their steps, and the attention to its patches."""

import numpy as np
import pytest
import torch

from small_pictures import write_digits
from universal_transformer.decoding import DecodingOptions, Sampling
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.evaluation.prediction import predict
from universal_transformer.explore.report_page import render
from universal_transformer.explore.story import choose_examples, examine
from universal_transformer.models.components import DepthConfig, InputsConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.context import NOTHING
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
    shown = examine(model, task.codec, example)
    axes = shown.figures["picture"].axes
    assert len(axes) == (3 if halting else 1)
    (answer,) = predict(model, task.codec, [example], options=DecodingOptions(sampling=Sampling(temperature=1.0)))
    assert np.array_equal(axes[0].images[0].get_array(), task.codec.target.picture(answer.written))
    if halting:
        steps = axes[1].images[0].get_array()
        assert steps.ravel().tolist() == [token.steps for token in answer.output]
        assert set(steps.ravel()) <= {1.0, 2.0, 3.0}
    html, figures = render(evaluate(model, task), examples=[shown], config={})
    assert "picture" in figures
    assert "<h2>Picture</h2>" in html
    assert "<script" not in html


def test_a_picture_that_was_read_has_attention_to_its_patches_for_each_token(tmp_path):
    task = CaptionsData(data_dir=str(write_digits(tmp_path)), rows=4, train_examples=4).load()
    model = model_for(task, halting=True, inputs=InputsConfig(kind="patches", stride=7))
    example = task.test["rows"][0]
    shown = examine(model, task.codec, example)
    columns, output = example.source.shape[0], shown.trace.output
    picture, *maps = shown.figures["picture"].axes
    assert picture.images[0].get_array().shape == (28, columns)
    assert len(maps) == min(12, len(output))
    for ax in maps:
        weights = ax.images[1].get_array()
        assert weights.shape == (4, columns // 7)
        assert weights.sum() == pytest.approx(1, abs=weights.size / 510)
    assert shown.trace.right == task.codec.render(example.target[:-1])


def test_attention_is_in_its_row_and_column(tmp_path, monkeypatch):
    """Patches follow each other from top to bottom, then the next column."""
    task = CaptionsData(data_dir=str(write_digits(tmp_path)), rows=4, train_examples=4).load()
    model = model_for(task, halting=False, inputs=InputsConfig(kind="patches", stride=7))
    example = task.test["rows"][0]
    kept = {}
    forward = model.forward

    def watched(*arguments, **named):
        output = forward(*arguments, **named)
        if named.get("keep", NOTHING).attention:
            kept["attention"] = output.decoder.cross_attention[-1, 0].mean(0)
        return output

    monkeypatch.setattr(model, "forward", watched)
    _, *maps = examine(model, task.codec, example).figures["picture"].axes
    for ax, weights in zip(maps, kept["attention"], strict=False):
        drawn = ax.images[1].get_array()
        for place, weight in enumerate(weights.tolist()):
            assert drawn[place % 4, place // 4] == pytest.approx(weight, abs=1 / 255)
