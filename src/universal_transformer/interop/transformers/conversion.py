"""Models of this library as models of transformers, and back, bit for bit."""

from collections.abc import Mapping
from typing import Any

import torch

from universal_transformer.axes import Tensor
from universal_transformer.interop.transformers.shared_config import UniversalTransformerConfig
from universal_transformer.interop.transformers.task_models import (
    ModelForTask,
    UniversalTransformerForCausalLM,
    UniversalTransformerForConditionalGeneration,
    UniversalTransformerForSequenceClassification,
    UniversalTransformerForTokenClassification,
)
from universal_transformer.models.model import Model
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.pretrained import check_shapes
from universal_transformer.models.universal import CLASSES

COUNTERPARTS: dict[str, type[ModelForTask]] = {
    "language_model": UniversalTransformerForCausalLM,
    "encoder_decoder": UniversalTransformerForConditionalGeneration,
    "classifier": UniversalTransformerForSequenceClassification,
    "tagger": UniversalTransformerForTokenClassification,
}
"""Architecture -> the class of transformers."""
PREFIXES = {
    "source.": "model.encoder.side.",
    "target.output.": "lm_head.",
    "target.bias": "lm_head.bias",
    "target.": "model.decoder.",
    "head.": "classifier.",
}
"""How names of tensors begin, here and there. The first that fits counts."""


def to_transformers(model: Model, **fields: Any) -> ModelForTask:
    """The same model as a model of transformers; ``fields`` of its configuration that only transformers has.

    UserError for a model that reads or writes no tokens, or is no Universal Transformer.
    """
    config = UniversalTransformerConfig.of(model.config, **fields)
    made = COUNTERPARTS[model.config.architecture](config).to(next(model.parameters()).dtype)
    if model.config.decodes:
        _choose_generation(made.generation_config, model.config)
    _fill(made, {_renamed(name): value for name, value in model.tensors().items()})
    return made.train(model.training)


def from_transformers(model: ModelForTask) -> Model:
    """The same model as one of this library."""
    config = model.config.model_config(model.architecture)
    made = CLASSES[config.architecture, config.writes](config).to(model.dtype)
    tensors = model.state_dict()
    places = {name: _renamed(name) for name in made.tensors()}
    _fill(made, {name: tensors[place] for name, place in places.items()})
    return made.train(model.training)


def _choose_generation(chosen: Any, config: ModelConfig) -> None:
    """Let ``generate`` write what ours writes: never padding or a start, and no more tokens than an answer has. That
    depends on the source, where there is one (`Writer`); pipelines of text alone have a limit of their own otherwise.
    """
    vocabulary, generation = config.vocabulary, config.generation
    never = {vocabulary.padding_id, vocabulary.start_id} - {vocabulary.end_id}
    if generation.fixed_length:
        never.add(vocabulary.end_id)
    chosen.suppress_tokens = sorted(never)
    chosen.max_new_tokens = None if config.reads else generation.max_new_tokens


def _renamed(name: str) -> str:
    ours = next(prefix for prefix in PREFIXES if name.startswith(prefix))
    return PREFIXES[ours] + name.removeprefix(ours)


@torch.no_grad()
def _fill(model: Any, tensors: Mapping[str, Tensor]) -> None:
    """Copy ``tensors`` to their places; UserError unless these are all that ``model`` has."""
    places = dict(model.named_parameters())
    places |= {name: buffer for name, buffer in model.named_buffers() if name in model.state_dict()}
    shapes = [{name: tuple(value.shape) for name, value in part.items()} for part in (tensors, places)]
    check_shapes(shapes[0], shapes[1], name="the model")
    for name, place in places.items():
        place.copy_(tensors[name])
