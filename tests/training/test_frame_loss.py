"""The loss of frames against a naive loop, and that accumulation and padding change nothing."""

import math

import pytest
import torch

from small_frames import SIZES, frames, tokens
from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import Example, size
from universal_transformer.models.components import DepthConfig, OutputsConfig, VocabularyConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.outputs import FrameOutput
from universal_transformer.nn.step_config import HaltingConfig, StepConfig
from universal_transformer.registry import build
from universal_transformer.training.batches import Part, counts_of
from universal_transformer.training.objective import STOP_WEIGHT, frame_loss, objective
from universal_transformer.training.processes import ALONE

FEATURES, STRIDE = 4, 3


def test_the_loss_is_the_sum_of_the_equation():
    target, generator = frames(7, 4, 6), torch.Generator().manual_seed(1)
    output = FrameOutput(
        torch.randn(3, 7, FEATURES, generator=generator), torch.randn(3, 3, generator=generator), STRIDE
    )
    expected, right = 0.0, 0
    for row, length in enumerate((7, 4, 6)):
        for frame in range(length):
            difference = output.frames[row, frame] - target[row, frame]
            expected += float((difference.abs() + difference**2).mean())
            probability = float(output.stop[row, frame // STRIDE].sigmoid())
            last = frame // STRIDE == (length - 1) // STRIDE
            expected -= STOP_WEIGHT * math.log(probability) if last else math.log(1 - probability)
            right += (probability > 0.5) == last
    total, rightly = frame_loss(output, target)
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert int(rightly.sum()) == right


def model_of(**fields):
    torch.manual_seed(0)
    return build(
        ModelConfig(
            vocabulary=VocabularyConfig(size=9),
            outputs=OutputsConfig(kind="frames", features=FEATURES, stride=STRIDE),
            sizes=SIZES,
            depth=DepthConfig(max_steps=2),
            step=StepConfig(dropout=0.0),
            **fields,
        )
    ).eval()


def loss_of(model, source, target):
    batch = Batch(source=source, target=target, indices=torch.arange(len(source)))
    return batch, objective(model, batch, label_smoothing=0.0, ponder_weight=0.5)


def test_the_objective_is_a_mean_over_frames():
    model, source, target = model_of(), tokens(4, 3), frames(7, 4)
    batch, loss = loss_of(model, source, target)
    assert batch.num_tokens == int(loss.num_targets) == 11
    parts = [loss_of(model, source[row : row + 1], target[row : row + 1, :length]) for row, length in ((0, 7), (1, 4))]
    mean = sum(float(part.cross_entropy * part.num_targets) for _, part in parts) / 11
    assert float(loss.cross_entropy) == pytest.approx(mean, rel=1e-5)
    assert float(loss.total.detach()) == pytest.approx(mean, rel=1e-5), "a fixed depth has no ponder cost"
    assert set(loss.steps) == {"encoder", "decoder"}


def test_steps_cost_what_they_are_told_to():
    _, loss = loss_of(model_of(halting=HaltingConfig(side="both")), tokens(4), frames(7))
    assert float(loss.ponder) > 1
    assert float(loss.total.detach()) == pytest.approx(float(loss.cross_entropy) + 0.5 * float(loss.ponder), rel=1e-5)


def test_the_figures_of_parts_of_a_batch_add_up_to_those_of_the_batch():
    model = model_of(halting=HaltingConfig(side="both", bias=0.0))
    source, target = tokens(4, 3, 5), frames(7, 4, 9)
    whole = Batch(source=source, target=target, indices=torch.arange(3))
    cut = [([0, 2], 9), ([1], 4)]
    parts = [
        Part(Batch(source=source[rows], target=target[rows, :length], indices=torch.tensor(rows)))
        for rows, length in cut
    ]
    counts = counts_of(model, parts, processes=ALONE)
    settings = {"label_smoothing": 0.0, "ponder_weight": 0.5}
    expected = objective(model, whole, **settings)
    found = [objective(model, part.batch, counts=counts, **settings) for part in parts]
    for name in ("total", "cross_entropy", "ponder", "mean_steps"):
        total = sum(float(getattr(loss, name).detach()) for loss in found)
        assert total == pytest.approx(float(getattr(expected, name).detach()), rel=1e-5), name


def test_frames_are_batched_as_targets():
    pieces = [frames(length, features=FEATURES)[0].numpy() for length in (5, 2)]
    examples = [Example(source=(3, 4, 2), target=piece) for piece in pieces]
    batch = collate(examples, indices=[0, 1])
    assert batch.target.shape == (2, 5, FEATURES)
    assert batch.target[1, 2:].isnan().all()
    assert batch.num_tokens == 7
    assert [size(one) for one in examples] == [5, 3]
