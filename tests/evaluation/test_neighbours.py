"""The table of neighbours against a naive loop, and bits per pixel against the probabilities of a model."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from small_pictures import write_digits
from universal_transformer.data.example import FIRST
from universal_transformer.errors import UserError
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.evaluation.metrics import metric_of
from universal_transformer.evaluation.metrics.intensities import WEIGHT, NeighbourTable
from universal_transformer.models.components import DepthConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.step_config import HaltingConfig, Sizes, StepConfig
from universal_transformer.registry import build
from universal_transformer.tasks import PicturesData
from universal_transformer.training.validation import trivial_score

COLUMNS, ROWS = 4, 3


def pictures(levels, *, count=6, seed=0):
    draw = np.random.default_rng(seed)
    return [tuple((FIRST + draw.integers(levels, size=COLUMNS * ROWS)).tolist()) for _ in range(count)]


def context(picture, place, levels):
    """The classes of the pixels to the left, above, above left and above right."""
    row, column = divmod(place, COLUMNS)
    found = []
    for up, right in ((0, -1), (1, 0), (1, -1), (1, 1)):
        inside = 0 <= column + right < COLUMNS and row - up >= 0
        value = picture[(row - up) * COLUMNS + column + right] - FIRST if inside else 0
        if levels > 16:
            value = 0 if value == 0 else 1 + (value - 1) * 3 // (levels - 1)
        found.append(value)
    return tuple(found)


@pytest.mark.parametrize("levels", [2, 5, 16, 256])
def test_the_table_is_that_of_a_naive_loop(levels):
    train, test = pictures(levels), pictures(levels, count=2, seed=1)
    table = NeighbourTable.learn(train, columns=COLUMNS, levels=levels)
    beside: Counter = Counter()
    contexts: Counter = Counter()
    alone: Counter = Counter()
    for picture in train:
        for place, index in enumerate(picture):
            key = context(picture, place, levels)
            beside[key, index] += 1
            contexts[key] += 1
            alone[index] += 1
    for picture in test:
        nats = 0.0
        for place, index in enumerate(picture):
            key = context(picture, place, levels)
            prior = WEIGHT * levels * (alone[index] + 1) / (len(train) * COLUMNS * ROWS + levels)
            nats -= math.log((beside[key, index] + prior) / (contexts[key] + WEIGHT * levels))
        assert table.nats(picture) == pytest.approx(nats)


def test_the_probabilities_of_all_pictures_add_up_to_1():
    table = NeighbourTable.learn([(3, 4, 4, 3), (4, 4, 3, 3)], columns=2, levels=2)
    every = [tuple(FIRST + (number >> place) % 2 for place in range(4)) for number in range(16)]
    assert sum(math.exp(-table.nats(picture)) for picture in every) == pytest.approx(1)


@pytest.mark.parametrize("counts", [(1,), (2**9, 1)])
def test_a_table_of_other_counts_is_refused(counts):
    with pytest.raises(UserError, match="counts"):
        NeighbourTable(columns=2, levels=2, counts=counts)


@pytest.mark.parametrize("halting", ["none", "both"])
def test_bits_per_pixel_are_those_of_the_probabilities(halting, tmp_path):
    task = PicturesData(data_dir=str(write_digits(tmp_path)), side=4, levels=4).load()
    torch.manual_seed(0)
    config = ModelConfig(
        sizes=Sizes(width=8, filter_width=8, num_heads=2),
        depth=DepthConfig(max_steps=2),
        step=StepConfig(dropout=0.0),
        halting=HaltingConfig(side=halting, bias=0.0),
    )
    model = build(task.configure(config)).eval()
    baseline = metric_of(task).learn(task.train, model.config)
    baseline.save(tmp_path / "baseline.json")
    assert metric_of(task).statistics.load(tmp_path / "baseline.json", model.config) == baseline
    report = evaluate(model, task, baseline=baseline, batch_tokens=64)
    examples = task.test["test"]
    nats = 0.0
    for example in examples:
        with torch.no_grad():
            logits = model(torch.tensor([example.source]), torch.tensor([example.target])).logits[0]
        nats -= float(logits.log_softmax(-1)[range(16), list(example.target)].sum())
    (total,) = report.totals
    assert total.metrics == {"bits_per_pixel": pytest.approx(nats / 16 / len(examples) / math.log(2), rel=1e-5)}
    expected = sum(baseline.neighbours.nats(example.target) for example in examples) / 16 / len(examples) / math.log(2)
    assert total.baseline == {"bits_per_pixel": pytest.approx(expected)}
    assert trivial_score(baseline, examples, metric=None).cross_entropy / math.log(2) == pytest.approx(expected)
    assert {steps.side: steps.num_positions for steps in total.steps} == {"encoder": 30, "decoder": 160}
    assert "given four neighbours" in report.baseline
