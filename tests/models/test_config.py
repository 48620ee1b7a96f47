"""A configuration is what it says, or it is refused by the name of a field."""

import dataclasses
import json
import math
from typing import Annotated, Literal, Union, get_args, get_origin

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from configs import config_of, with_fields
from universal_transformer.errors import UserError
from universal_transformer.models.components import DepthConfig, VocabularyConfig
from universal_transformer.models.model_config import ModelConfig, config_from_dict
from universal_transformer.nn.step_config import HaltingConfig
from universal_transformer.presets import PRESETS, SIZES, preset
from universal_transformer.registry import build
from universal_transformer.typed import leaves, replaced

FIELDS = leaves(ModelConfig)
CLASSIFIER = {"architecture": "classifier"}
LANGUAGE_MODEL = {"architecture": "language_model"}


def plain(hint):
    """The type without its range; of ``max_steps`` the number, not "length"."""
    return plain(get_args(hint)[0]) if get_origin(hint) in (Annotated, Union) else hint


NUMBERS = [path for path, hint in FIELDS.items() if plain(hint) in (int, float)]
COUNTS = [path for path in NUMBERS if plain(FIELDS[path]) is int]
CHOICES = [path for path, hint in FIELDS.items() if get_origin(hint) is Literal]


def values(hint):
    kind = plain(hint)
    if get_origin(hint) is Union:
        return st.one_of(*map(values, get_args(hint)))
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is str:
        return st.sampled_from(["feed_forward", "separable_convolution", "act"])
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.one_of(st.integers(-1, 9), st.sampled_from([64, 128, 2**31 - 1, 2**31, 10**30]))
    return st.one_of(st.floats(0.0, 1.0), st.floats())


def as_json(changes):
    """Fields of a file in which those at dotted paths are others."""
    fields = ModelConfig().to_dict()
    for path, value in changes.items():
        *group, name = path.split(".")
        (fields[group[0]] if group else fields)[name] = value
    return fields


CHANGES = st.lists(st.sampled_from(sorted(FIELDS)), max_size=4, unique=True).flatmap(
    lambda paths: st.fixed_dictionaries({path: values(FIELDS[path]) for path in paths})
)


@given(changes=CHANGES)
def test_a_configuration_comes_back_from_json_or_is_refused_in_one_line_that_names_a_changed_field(changes):
    try:
        config = replaced(ModelConfig(), changes)
    except UserError as error:
        message = str(error)
        assert any(path.rpartition(".")[2] in message for path in changes)
        assert ": " in message
        assert "\n" not in message
    else:
        written = json.loads(json.dumps(config.to_dict()))
        assert config_from_dict(written) == config


@given(path=st.sampled_from(sorted(FIELDS)), value=st.one_of(st.none(), st.text(max_size=3), st.lists(st.none())))
def test_a_value_of_another_type_is_refused(path, value):
    assume(value is not None or type(None) not in get_args(FIELDS[path]))
    with pytest.raises(UserError, match=f"{path}(: expected|=)"):
        config_from_dict(as_json({path: value}))


@pytest.mark.parametrize("path", NUMBERS)
def test_a_flag_is_no_number_and_a_fraction_no_count(path):
    with pytest.raises(UserError, match=f"{path}: expected a .*number.*, found True"):
        config_from_dict(as_json({path: True}))
    if path in COUNTS:
        with pytest.raises(UserError, match=f"{path}: expected a whole number, .*, found 2.0"):
            config_from_dict(as_json({path: 2.0}))


@pytest.mark.parametrize("path", COUNTS)
def test_counts_have_bounds(path):
    for value, most in ((-1, ""), (2**31, " and at most [0-9,]+")):
        with pytest.raises(UserError, match=rf"^{path}: expected a whole number, at least [01]{most}"):
            replaced(ModelConfig(), {path: value})


@pytest.mark.parametrize("path", CHOICES)
def test_an_unknown_choice_is_answered_with_the_known_ones(path):
    with pytest.raises(UserError, match=f"{path}: expected one of ") as refused:
        config_from_dict(as_json({path: "other"}))
    assert all(choice in str(refused.value) for choice in get_args(FIELDS[path]))


@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5, math.inf, math.nan])
@pytest.mark.parametrize("group", ["step", "attention", "transition"])
def test_dropout_is_a_probability_below_one(group, value):
    with pytest.raises(UserError, match=rf"^{group}\.dropout: expected a number, at least 0 and below 1, found"):
        replaced(ModelConfig(), {f"{group}.dropout": value})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"halting_threshold": 0.0}, "halting.threshold: .*more than 0 and at most 1, found 0.0"),
        ({"halting_threshold": 1.01}, "halting.threshold: .*found 1.01"),
        ({"halting_threshold": math.nan}, "halting.threshold: .*found nan"),
        ({"halting_bias": 101.0}, "halting.bias: .*at least -100 and at most 100 or None, found 101.0"),
        ({"halting_bias": -math.inf}, "halting.bias: .*found -inf"),
        ({"norm_epsilon": 0.0}, "step.norm_epsilon: .*more than 0"),
        ({"norm_epsilon": math.inf}, "step.norm_epsilon: .*found inf"),
        ({"width": 128, "num_heads": 5}, r"sizes.num_heads=5: must divide width=128: one of \[1, 2, 4"),
        (
            {"width": 2**31 - 1, "num_heads": 2},
            "sizes.num_heads=2: must divide",
        ),  # and not by counting that far
        ({"depth.max_steps": 2**16 + 1}, "depth.max_steps: .*at most 65,536"),
        ({"width": 9, "num_heads": 3}, "sizes.width=9: .*even"),
        ({"width": 9, "num_heads": 3, "position_coordinates": "rotary"}, "sizes.width=9"),
        ({"width": 12, "num_heads": 4, "position_coordinates": "rotary"}, "sizes.num_heads=4: .*even, not 3"),
        ({"end_coordinates": True, "position_coordinates": "rotary"}, "coordinates.from_end=True: needs"),
        ({"end_coordinates": True, **LANGUAGE_MODEL}, "coordinates.from_end=True: a language model"),
        ({"rotary_source": True}, "attention.rotary_source=True: needs coordinates.position rotary"),
        ({"source_sink": True, **LANGUAGE_MODEL}, "attention.source_sink=True: applies only to an encoder_decoder"),
        ({**CLASSIFIER, "separator_id": 3}, "vocabulary.separator_id=3: an encoder_decoder"),
        ({"position_coordinates": "grid"}, "coordinates.position='grid': needs architecture"),
        (
            {"step.residual": "state", "position_coordinates": "rotary", "step_coordinates": "none"},
            "step.residual='state': no coordinates are added at a step",
        ),
        (
            {"step.residual": "previous", "execution.activation_checkpointing": True},
            "execution.activation_checkpointing=True: a step is computed again without the step before",
        ),
        (
            {"step.residual": "previous", "tied": False},
            "step.residual='previous': A of the step before: needs step.tied=True",
        ),
        (
            {"step.residual": "state", "position_injection": "input", "step_coordinates": "none"},
            "step.residual='state': no coordinates are added at a step",
        ),
        (
            {"architecture": "tagger", "position_coordinates": "grid", "position_offsets": "random"},
            "coordinates.offsets='random': cells of a board",
        ),
        ({"architecture": "tagger", "halting": "decoder"}, "halting.side='decoder': a tagger has no decoder"),
        ({"architecture": "tagger", "pooling": "last"}, "outputs.pooling='last': a tagger reads each position"),
        ({"architecture": "tagger", "inputs": "facts"}, "inputs.kind='facts': architecture must be"),
        (
            {"separator_id": 9, "vocabulary_size": 9},
            "vocabulary.separator_id=9: vocabulary.size=9 ends at id 8",
        ),
        ({"separator_id": 3, "padding_id": 3}, "vocabulary.separator_id=3: must differ from padding_id"),
        ({"separator_id": (4, 0)}, r"vocabulary.separator_id=\(4, 0\): must differ from padding_id"),
        ({"separator_id": 3, "end_coordinates": True}, "vocabulary.separator_id=3: the parts have no common"),
        (
            {
                "width": 12,
                "num_heads": 3,
                "position_coordinates": "rotary",
                "rotary_source": True,
                "end_coordinates": True,
            },
            "sizes.num_heads=3: half of them",
        ),
        (
            {"inputs": "facts"},
            'inputs.kind=\'facts\': architecture must be "classifier", not "encoder_decoder"',
        ),
        ({"halting": True, "halting_scope": "sequence"}, "halting.scope='sequence': lets a causal decoder"),
        ({"end_id": 0}, "vocabulary.end_id=0: must differ from padding_id"),
        ({"vocabulary_size": 2}, "vocabulary.end_id=2: vocabulary.size=2 ends at id 1"),
        (
            {"vocabulary_size": 9, "target_vocabulary_size": 2},
            "vocabulary.end_id=2: vocabulary.target_size=2 ends at id 1",
        ),
        ({"vocabulary_size": 9, "start_id": 9}, "start_id=9: vocabulary.size=9 ends at id 8"),
        ({**CLASSIFIER, "vocabulary_size": 9, "padding_id": 9}, "vocabulary.padding_id=9"),
        ({"transition": "other"}, "transition.kind='other': allowed: feed_forward, separable_convolution, single_"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(fields, message):
    with pytest.raises(UserError, match=message):
        config_of(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {**CLASSIFIER, "halting": True, "halting_scope": "sequence"},
        {**CLASSIFIER, "inputs": "facts"},
        {"halting_scope": "sequence"},  # nothing halts
        {"width": 9, "num_heads": 3, "position_coordinates": "learned", "step_coordinates": "learned"},
        {**CLASSIFIER, "vocabulary_size": 1},
        {"step.residual": "state", "position_injection": "input"},
        {"step.residual": "state", "position_coordinates": "none"},
    ],
)
def test_what_can_is_not(fields):
    assert config_of(**fields) == with_fields(ModelConfig(), **fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({**CLASSIFIER, "halting.side": "decoder"}, "halting.side='decoder': a classifier has no decoder"),
        (
            {**LANGUAGE_MODEL, "halting.side": "encoder"},
            "halting.side='encoder': a language_model has no encoder",
        ),
        ({**CLASSIFIER, "depth.decoder_max_steps": 3}, "depth.decoder_max_steps=3: applies only to an encoder_decoder"),
        ({"depth.min_steps": 7}, "depth.min_steps=7: at most max_steps=6"),
        ({"depth.min_steps": 4, "depth.decoder_max_steps": 3}, "depth.min_steps=4: at most max_steps=3"),
    ],
)
def test_a_side_that_there_is_not_has_no_choices(changes, message):
    with pytest.raises(UserError, match=message):
        replaced(ModelConfig(), changes)


def test_encoder_and_decoder_can_differ():
    config = ModelConfig(
        depth=DepthConfig(max_steps=4, min_steps=2, decoder_max_steps=8),
        halting=HaltingConfig(side="encoder"),
    )
    sides = (False, True)
    assert [config.max_steps_of(decoder=side) for side in sides] == [4, 8]
    assert [config.halts_in(decoder=side) for side in sides] == [True, False]
    assert (config.max_steps, config.halts, ModelConfig().halts) == (8, True, False)


def test_unknown_fields_are_named():
    with pytest.raises(UserError, match="unknown: depht, widht"):
        config_from_dict({**ModelConfig().to_dict(), "widht": 8, "depht": 3})
    with pytest.raises(UserError, match=r"depth: unknown: max_step \(did you mean max_steps"):
        config_from_dict({**ModelConfig().to_dict(), "depth": {"max_step": 3}})


def test_a_configuration_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().depth = DepthConfig()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_a_size_and_come_back_from_json(name, size):
    config = preset(name, size=size)
    assert config.sizes == SIZES[size]
    assert replaced(config, {"sizes": PRESETS[name].sizes}) == PRESETS[name]
    assert config_from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert PRESETS["paper"] == ModelConfig()


def test_presets_and_sizes_that_are_none_are_answered_with_those_that_are():
    with pytest.raises(UserError, match="preset='t2t': allowed: paper, patent, tensor2tensor"):
        preset("t2t")
    with pytest.raises(UserError, match="size='huge': allowed: tiny, small, base, big"):
        preset(size="huge")


def test_the_default_bias_takes_about_all_steps_at_any_cap():
    for steps in (2, 4, 8, 16):
        config = ModelConfig(
            architecture="language_model",
            vocabulary=VocabularyConfig(size=9),
            depth=DepthConfig(max_steps=steps),
            halting=HaltingConfig(side="decoder"),
        )
        unit = build(config).target.recurrence.halting
        assert unit.bias.sigmoid().item() == pytest.approx(1 / (2 * steps))
        assert config.to_dict()["halting"]["bias"] is None
        assert config_from_dict(config.to_dict()) == config


@pytest.mark.parametrize("rule", ["act", "ponder", "stick_breaking"])
def test_every_rule_is_built_where_tensors_have_no_values(rule):
    changes = {"architecture": "language_model", "vocabulary.size": 9, "halting.side": "decoder", "halting.rule": rule}
    with torch.device("meta"):
        assert build(replaced(ModelConfig(), changes)).target.recurrence.halting.bias.is_meta


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"halting.output": "final"}, "halting.output='final': the output of stick_breaking is what others see"),
        ({"halting.state": "evolving"}, "halting.state='evolving': stick_breaking freezes what others see"),
        ({"halting.remainder_at_cap": False}, "halting.remainder_at_cap=False: with stick_breaking the last step"),
        ({"step.blocks": 2}, "step.blocks=2: with stick_breaking"),
    ],
)
def test_what_stick_breaking_cannot_be_combined_with(fields, message):
    with pytest.raises(UserError, match=message):
        replaced(ModelConfig(), {"halting.side": "both", "halting.rule": "stick_breaking", **fields})
    replaced(ModelConfig(), {"halting.side": "both", "halting.rule": "stick_breaking"})


PONDER = {"architecture": "language_model", "halting.side": "decoder", "halting.rule": "ponder"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architecture": "encoder_decoder", "halting.side": "both"}, "halting.side='both': ponder needs the output"),
        ({"halting.output": "interpolate"}, "halting.output='interpolate': ponder reads the state of the last step"),
        ({"halting.state": "evolving"}, "halting.state='evolving': ponder freezes"),
        ({"halting.remainder_at_cap": False}, "halting.remainder_at_cap=False: with ponder the last step"),
        ({"halting.threshold": 0.7}, "halting.threshold=0.7: ponder stops at halting.quantile"),
        (
            {"architecture": "tagger", "halting.side": "encoder", "depth.max_steps": "length"},
            "with ponder all sequences have the same last step",
        ),
        ({"halting.prior_steps": 0.5}, "halting.prior_steps: expected a number, at least 1 or None, found 0.5"),
        (
            {"halting.prior_steps": 3.0, "halting.prior": "uniform"},
            "halting.prior_steps=3.0: a uniform prior has no rate",
        ),
    ],
)
def test_what_ponder_cannot_be_combined_with(fields, message):
    with pytest.raises(UserError, match=message):
        replaced(ModelConfig(), {**PONDER, **fields})
    replaced(ModelConfig(), PONDER)


@pytest.mark.parametrize("rule", ["act", "stick_breaking"])
@pytest.mark.parametrize(("field", "value"), [("prior", "uniform"), ("prior_steps", 3.0), ("quantile", 0.7)])
def test_what_only_ponder_reads_is_refused_with_another_rule(rule, field, value):
    fields = {"halting.side": "both", "halting.rule": rule, f"halting.{field}": value}
    with pytest.raises(UserError, match=rf'^halting.{field}={value!r}: applies only to halting.rule="ponder"'):
        replaced(ModelConfig(), fields)
    assert replaced(ModelConfig(), {**PONDER, f"halting.{field}": value})
