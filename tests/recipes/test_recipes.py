"""Every recipe is whole: a configuration that survives its JSON, trains something, and is explained."""

import dataclasses
import subprocess
import sys

import pytest
import torch

from configs import recipe_configs
from paper.tasks import LearningToExecuteData
from universal_transformer.errors import UserError
from universal_transformer.models.components import VocabularyConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.recipes import RECIPES
from universal_transformer.registry import build
from universal_transformer.tasks import (
    AlgorithmicData,
    ControlData,
    PairsData,
    ParsingData,
    PlansData,
    StoriesData,
    SudokuData,
)
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import replaced

MADE_UP = (StoriesData, AlgorithmicData, LearningToExecuteData, SudokuData, ParsingData, ControlData, PlansData)

CONFIGS = recipe_configs()


def test_a_recipe_carries_its_own_name_and_a_summary():
    for name, config in CONFIGS.items():
        assert config.recipe == name
        assert len((RECIPES[name].__doc__ or "").split("\n")[0]) > 20, name


def test_a_recipe_comes_back_from_its_json():
    for name, config in CONFIGS.items():
        assert RunConfig.from_dict(config.to_dict()) == config, name


def test_a_recipe_is_the_same_each_time_and_unlike_the_others():
    digests = {name: config.digest() for name, config in CONFIGS.items()}
    assert {name: recipe().digest() for name, recipe in RECIPES.items()} == digests
    assert len(set(digests.values())) == len(digests)


def test_a_recipe_leaves_to_the_data_what_follows_from_the_data():
    """Vocabularies, classes and words a fact are the data's to say."""
    for name, config in CONFIGS.items():
        left = replaced(config.model.vocabulary, {"separator_id": None})
        assert left == VocabularyConfig(), name


MODELS = {config.model: name for name, config in CONFIGS.items()}
"""Many recipes have the same model."""


@pytest.mark.parametrize("model", MODELS, ids=MODELS.values())
def test_a_recipes_model_can_be_built(model):
    sizes = {"vocabulary.size": 33, "vocabulary.num_classes": 33, "vocabulary.max_fact_words": 5}
    if isinstance(model, ModelConfig) and model.coordinates.position == "grid":
        sizes |= {"coordinates.box_rows": 2, "coordinates.box_columns": 2}
    if model.inputs.kind in ("frames", "patches"):
        sizes |= {"inputs.features": 4 * model.inputs.stride}
    if isinstance(model, ModelConfig) and model.outputs.kind == "frames":
        sizes |= {"outputs.features": 4}
    with torch.device("meta"):
        assert build(replaced(model, sizes)).num_parameters() > 0


WITHOUT_FILES = [name for name, config in CONFIGS.items() if isinstance(config.data, MADE_UP)]
WITHOUT_FILES += ["summaries", "records", "treatments"]
DIFFERENT = {(type(CONFIGS[name].data), CONFIGS[name].model): name for name in WITHOUT_FILES}


@pytest.mark.parametrize("name", DIFFERENT.values())
def test_recipes_that_need_no_files_agree_with_their_data(name):
    config = CONFIGS[name]
    small = dataclasses.replace(config.data, **_few(config.data))
    model = small.load().configure(config.model)
    inputs = dataclasses.replace(model.inputs, features=config.model.inputs.features)  # the data determine them
    assert (model.architecture, inputs) == (config.model.architecture, config.model.inputs)


def _few(data):
    if isinstance(data, SudokuData):
        return {"train_boards": 5, "train_examples": 10, "validation_boards": 2, "test_boards": 2}
    if isinstance(data, ControlData | PlansData):
        return {"train_episodes": 1, "validation_episodes": 1, "test_episodes": 1}
    if isinstance(data, PairsData):
        return {"train_pairs": 50, "test_pairs": 2}
    if isinstance(data, ParsingData):
        return {"train_sentences": 200, "test_sentences": 2, "longer": (10, 12)}
    counts = {"train_stories": 20, "validation_stories": 5, "test_stories": 5}
    if not hasattr(data, "train_stories"):
        counts = {"train_examples": 50, "validation_examples": 5, "test_examples": 2}
    return counts


@pytest.mark.parametrize("name", ["pairs", "text", "labelled", "tagged"])
def test_recipes_of_your_own_files_ask_for_one(name):
    with pytest.raises(UserError, match=r"--data\.train"):
        RECIPES[name]().data.load()


def test_recipes_import_no_torch():
    code = (
        "import sys; from universal_transformer.recipes import RECIPES;"
        "[recipe() for recipe in RECIPES.values()]; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_importing_recipes_runs_none():
    code = (
        "from universal_transformer.training.run_config import RunConfig;"
        "made = [];"
        "RunConfig.__init__ = lambda config, **fields: made.append(fields);"
        "import universal_transformer.recipes; print(made)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
