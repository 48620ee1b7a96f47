"""An option that is set away from its default and changes nothing is refused, or named by `unread`.

For each field and each of some models: another value is refused or named, or it gives other weights or other outputs
with the same seed; and what is named changes nothing.
"""

from contextlib import suppress
from operator import attrgetter, eq
from typing import Literal, get_args, get_origin

import pytest
import torch

from configs import config_of
from universal_transformer.errors import UserError
from universal_transformer.models.model_config import REGISTRIES, ModelConfig
from universal_transformer.registry import build
from universal_transformer.typed import leaves, replaced

SIZES = {"width": 8, "filter_width": 12, "num_heads": 2, "max_steps": 3, "vocabulary_size": 9, "dropout": 0.5}
CLASSIFIER = {"architecture": "classifier", "num_classes": 4}
TAGGER = {"architecture": "tagger", "num_classes": 4}
PATCHES = {"inputs": "patches", "inputs.features": 8, "inputs.stride": 2}
FRAMES = {"inputs": "frames", "inputs.features": 4}
RASTER = {"outputs.kind": "raster", "outputs.columns": 3, "target_vocabulary_size": 7}
WRITTEN_FRAMES = {"outputs.kind": "frames", "outputs.features": 4}
MODELS = {
    "encoder-decoder": {},
    "language model": {"architecture": "language_model"},
    "classifier": CLASSIFIER,
    "tagger": TAGGER,
    "facts": {**CLASSIFIER, "inputs": "facts", "max_fact_words": 3},
    "pictures": {**CLASSIFIER, **PATCHES},
    "sounds": FRAMES,
    "captions": {**PATCHES, "target_vocabulary_size": 7},
    "drawings": RASTER,
    "spoken": WRITTEN_FRAMES,
    "rotary": {"position_coordinates": "rotary"},
    "learned": {"position_coordinates": "learned"},
    "distance": {"position_coordinates": "distance"},
    "no coordinates": {"position_coordinates": "none", "step_coordinates": "none"},
    "board": {**TAGGER, "position_coordinates": "grid", "coordinates.box_rows": 2, "coordinates.box_columns": 2},
    "at the input": {"position_injection": "input"},
    "random positions": {"position_offsets": "random", "max_positions": 40},
    "convolution": {"transition": "separable_convolution"},
    "one step": {"max_steps": 1},
    "halting": {**CLASSIFIER, "halting": True},
    "ponder": {"halting.side": "decoder", "halting.rule": "ponder"},
    "stick-breaking": {"halting.side": "decoder", "halting.rule": "stick_breaking"},
}
OTHERWISE_READ = ("architecture", "vocabulary.", "execution.", "generation.", "depth.min_steps")
"""What the data determine; what changes no number; how long an answer may be; what exits read, which need no unit."""
OTHER = {
    "inputs.segments": [2],
    "inputs.features": [5],
    "outputs.columns": [5],
    "outputs.features": [5],
    "sizes.num_heads": [1, 4],
    "sizes.width": [16],
    "coordinates.max_positions": [30],
    "coordinates.box_rows": [4],
    "coordinates.box_columns": [4],
    "halting.bias": [0.5],
    "halting.prior_steps": [1.5],
    "halting.threshold": [0.3],
    "depth.max_steps": [2, 5],
    "depth.decoder_max_steps": [2],
    "halting.side": ["none"],
    "halting.quantile": [0.05],
    "halting.output": ["interpolate"],
    "attention.key_value_heads": [1],
}


def other_values(path, hint, *, value):
    """Values that a field may have besides its own, as a user may try them."""
    if path in REGISTRIES:
        return [name for name in REGISTRIES[path] if name != value]
    if path in OTHER:
        return OTHER[path]
    if isinstance(value, bool):
        return [not value]
    if get_origin(hint) is Literal:
        return [choice for choice in get_args(hint) if choice != value]
    return [value + 1] if isinstance(value, int) else [(1 + value) / 4]


def inputs(config):
    """A source and a target that a model of this configuration takes."""
    draw = torch.Generator().manual_seed(0)
    features, kind = config.inputs.features, config.inputs.kind
    if kind in ("frames", "patches"):
        source = torch.rand(2, 8, features, generator=draw)
    else:
        shape = (2, 4, 3) if kind == "facts" else (2, 16)
        source = torch.randint(3, 9, shape, generator=draw)
    if config.outputs.kind == "frames":
        return source, torch.rand(2, 8, config.outputs.features, generator=draw)
    target = torch.randint(3, 7, (2, 6), generator=draw)
    return ([source] if config.reads else []) + ([target] if config.decodes else [])


def fingerprint(config):
    """The weights, and after a stir the outputs in training and in evaluation, one after the other."""
    torch.manual_seed(0)
    model = build(config)
    yield [tensor.shape for tensor in model.state_dict().values()]
    yield b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += (3.0 if "halting" in name else 0.3) * torch.randn_like(parameter)
        for training in (True, False):
            torch.manual_seed(1)
            output = model.train(training)(*inputs(config))
            yield from (value.numpy().tobytes() for value in vars(output).values() if isinstance(value, torch.Tensor))
            for trace in (getattr(output, side, None) for side in ("encoder", "decoder")):
                yield None if trace is None else (trace.steps.tolist(), float(trace.ponder_cost))


def change_nothing(config, path, *, hint, unread, before):
    """Values of a field that are neither refused nor named as unread, and change nothing."""
    for value in other_values(path, hint, value=attrgetter(path)(config)):
        if value == attrgetter(path)(config):
            continue
        try:
            changed = replaced(config, {path: value})
            unread_then = path in unread or path in dict(changed.unread())
            if not unread_then and all(map(eq, fingerprint(changed), before)):
                yield f"{path}={value!r}"
        except UserError:
            continue


FIELDS = {path: hint for path, hint in leaves(ModelConfig).items() if not path.startswith(OTHERWISE_READ)}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MODELS)
def test_another_value_of_a_field_changes_the_model_or_is_refused_or_named(name):
    config = config_of(**{**SIZES, **MODELS[name]})
    before, unread = list(fingerprint(config)), dict(config.unread())
    silent = [
        text
        for path, hint in FIELDS.items()
        for text in change_nothing(config, path, hint=hint, unread=unread, before=before)
    ]
    assert silent == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MODELS)
def test_a_field_that_is_named_changes_nothing(name):
    config = config_of(**{**SIZES, **MODELS[name]})
    before = list(fingerprint(config))
    for path in dict(config.unread()):
        if path.startswith("generation.") or path == "halting.rule":
            continue
        for value in other_values(path, FIELDS[path], value=attrgetter(path)(config)):
            with suppress(UserError):
                assert list(fingerprint(replaced(config, {path: value}))) == before, f"{path}={value!r}"
