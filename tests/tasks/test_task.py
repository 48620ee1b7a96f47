import dataclasses
import subprocess
import sys

import pytest

from configs import config_of
from training import tiny
from universal_transformer.baselines.baseline_config import LstmConfig, NeuralGpuConfig
from universal_transformer.data.example import Example
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.tasks import TASKS, AlgorithmicData, StoriesData, TaskData
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.lazy import LazyExamples
from universal_transformer.typed import docstrings, replaced


def test_a_task_fills_what_the_data_decide_and_leaves_the_rest():
    data = StoriesData(train_stories=20, validation_stories=2, test_stories=2)
    task = data.load()
    model = task.configure(config_of(width=48, max_steps=3))
    assert (model.sizes.width, model.max_steps) == (48, 3)
    assert (model.architecture, model.inputs.kind) == ("classifier", "facts")
    assert model.vocabulary.size == 2 + len(task.codec.source.vocabulary)
    assert task.configure(model) == model


def test_sequences_are_for_an_encoder_and_a_decoder_with_one_vocabulary():
    model = AlgorithmicData(problem="addition", train_examples=5).load().configure(ModelConfig())
    assert (model.architecture, model.vocabulary.size, model.vocabulary.target_size) == (
        "encoder_decoder",
        15,
        None,
    )


def row(length):
    return Example(source=(5,) * 3, target=(7,) * length)


@pytest.mark.parametrize(
    ("architecture", "train", "limit"),
    [
        ("encoder_decoder", [row(5), row(48), row(9)], 48 + 12 + 10),
        ("encoder_decoder", LazyExamples(lambda index: row(1 + index % 40), count=10**9), 40 + 10 + 10),
        ("language_model", [row(20), row(13)], 20),
        ("classifier", [Example(source=(5,), target=3)], None),
    ],
)
def test_the_longest_answer_in_training_decides_how_long_an_answer_may_be(architecture, train, limit):
    codec = Codec.shared(tiny.TinySide(architecture))
    task = dataclasses.replace(AlgorithmicData(train_examples=1).load(), codec=codec, train=train)
    configured = task.configure(ModelConfig())
    assert configured.generation.max_new_tokens == limit
    assert task.configure(configured) == configured
    chosen = replaced(ModelConfig(), {"generation.max_new_tokens": 7})
    assert task.configure(chosen).generation.max_new_tokens == 7


def test_baselines_have_the_same_limit():
    task = AlgorithmicData(problem="copy", train_lengths=(1, 40)).load()
    for config in (LstmConfig(), NeuralGpuConfig()):
        assert task.configure(config).generation.max_new_tokens == 41 + 10 + 10


@pytest.mark.parametrize("name", TASKS)
def test_every_field_of_every_task_is_explained(name):
    data = TASKS[name]
    assert dataclasses.is_dataclass(data)
    assert data.__doc__
    assert {field.name for field in dataclasses.fields(data)} <= docstrings(data).keys()
    assert all(field.kw_only for field in dataclasses.fields(data))


@pytest.mark.parametrize("name", ["stories", "babi", "algorithmic", "learning-to-execute"])
def test_the_data_of_a_task_are_frozen_and_equal_by_value(name):
    data = TASKS[name]()
    assert isinstance(data, TaskData)
    assert data == TASKS[name]()
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.seed = 3


def test_choosing_a_task_imports_no_torch():
    code = "import sys, universal_transformer.tasks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
