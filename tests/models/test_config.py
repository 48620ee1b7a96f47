"""A configuration is what it says, or it is refused by the name of a field."""

import dataclasses
import json
import math
from typing import get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from universal_transformer.errors import UserError
from universal_transformer.models.config import EXECUTION, PRESETS, SIZES, ModelConfig, preset

FIELDS = get_type_hints(ModelConfig)
CLASSIFIER = {"architecture": "classifier"}


def values(kind):
    if get_args(kind):
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.one_of(st.integers(-1, 9), st.sampled_from([64, 128, 2**31 - 1, 2**31, 10**30]))
    return st.one_of(st.floats(0.0, 1.0), st.floats())


def made(fields):
    """A configuration, or the message of its refusal."""
    try:
        return ModelConfig(**fields), ""
    except UserError as error:
        return None, str(error)


CHANGES = st.lists(st.sampled_from(sorted(FIELDS)), max_size=4, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: values(FIELDS[name]) for name in names})
)


@settings(max_examples=300)
@given(changes=CHANGES)
def test_a_configuration_comes_back_from_json_or_is_refused_in_one_line_that_names_a_changed_field(changes):
    config, message = made(changes)
    if config is None:
        field, _, rest = message.partition("=")
        assert field in FIELDS
        assert any(name in message for name in changes)
        assert ": " in rest
        assert "\n" not in rest
    else:
        assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
        default = {name for name, value in EXECUTION.items() if getattr(config, name) == value}
        assert set(config.to_dict()) == set(FIELDS) - default


@given(
    name=st.sampled_from(sorted(FIELDS)), value=st.one_of(st.none(), st.text(max_size=3), st.lists(st.none()))
)
def test_a_value_of_another_type_is_refused(name, value):
    with pytest.raises(UserError, match=f"^{name}="):
        ModelConfig.from_dict({name: value})


@pytest.mark.parametrize("name", [name for name, kind in FIELDS.items() if kind in (int, float)])
def test_a_flag_is_no_number_and_a_fraction_no_count(name):
    with pytest.raises(UserError, match=f"^{name}=True: a"):
        ModelConfig.from_dict({name: True})
    if FIELDS[name] is int:
        with pytest.raises(UserError, match=f"^{name}=2.0: a value of type int"):
            ModelConfig.from_dict({name: 2.0})


@pytest.mark.parametrize("name", [name for name, kind in FIELDS.items() if kind is int])
def test_counts_have_bounds(name):
    for value in (-1, 2**31):
        with pytest.raises(UserError, match=f"^{name}={value}: at least [01] and below 2\\^31"):
            ModelConfig(**{name: value})


@pytest.mark.parametrize(
    "name", ["width", "filter_width", "num_heads", "max_steps", "layers_per_step", "max_positions"]
)
def test_of_some_there_must_be_one(name):
    with pytest.raises(UserError, match=f"^{name}=0: at least 1"):
        ModelConfig(**{name: 0})


@pytest.mark.parametrize("name", [name for name, kind in FIELDS.items() if get_args(kind)])
def test_an_unknown_choice_is_answered_with_the_known_ones(name):
    with pytest.raises(UserError, match=f"^{name}='other': allowed: ") as refused:
        ModelConfig.from_dict({name: "other"})
    assert all(choice in str(refused.value) for choice in get_args(FIELDS[name]))


@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5, math.inf, math.nan])
@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "transition_dropout"])
def test_dropout_is_a_probability_below_one(name, value):
    with pytest.raises(UserError, match=f"^{name}="):
        ModelConfig(**{name: value})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"halting_threshold": 0.0}, r"^halting_threshold=0.0: .*\(0, 1\]"),
        ({"halting_threshold": 1.01}, "^halting_threshold=1.01"),
        ({"halting_threshold": math.nan}, "^halting_threshold=nan"),
        ({"halting_bias": 101.0}, "^halting_bias=101.0: between -100 and 100"),
        ({"halting_bias": -math.inf}, "^halting_bias=-inf"),
        ({"norm_epsilon": 0.0}, "^norm_epsilon=0.0: above 0"),
        ({"norm_epsilon": math.inf}, "^norm_epsilon=inf"),
        ({"width": 128, "num_heads": 5}, r"^num_heads=5: must divide width=128: one of \[1, 2, 4"),
        ({"width": 2**31 - 1, "num_heads": 2}, "^num_heads=2: must divide"),  # and not by counting that far
        ({"width": 9, "num_heads": 3}, "^width=9: .*even"),
        ({"width": 9, "num_heads": 3, "position_coordinates": "rotary"}, "^width=9"),
        ({"width": 12, "num_heads": 4, "position_coordinates": "rotary"}, "^num_heads=4: .*even, not 3"),
        ({"end_coordinates": True, "position_coordinates": "rotary"}, "^end_coordinates=True: needs"),
        (
            {"end_coordinates": True, "architecture": "language_model"},
            "^end_coordinates=True: a language model",
        ),
        ({**CLASSIFIER, "end_coordinates": True, "position_start": "step"}, "^end_coordinates=True"),
        (
            {**CLASSIFIER, "position_start": "step", "position_coordinates": "rotary"},
            "^position_start='step': shifts what is added at every step",
        ),
        (
            {**CLASSIFIER, "position_start": "step", "position_injection": "input"},
            "^position_start='step': shifts what is added at every step",
        ),
        (
            {"plain_layers_before": 2, "position_coordinates": "learned"},
            "^plain_layers_before=2: layers in front of the loop",
        ),
        ({"rotary_source": True}, "^rotary_source=True: needs position_coordinates rotary"),
        ({"source_sink": True, "architecture": "language_model"}, "^source_sink=True: an encoder_decoder"),
        ({**CLASSIFIER, "separator_id": 3}, "^separator_id=3: an encoder_decoder"),
        ({"separator_id": 9, "vocabulary_size": 9}, "^separator_id=9: vocabulary_size=9 ends at id 8"),
        ({"separator_id": 3, "padding_id": 3}, "^separator_id=3: must differ from padding_id"),
        ({"separator_id": 3, "end_coordinates": True}, "^separator_id=3: parts have no common end"),
        (
            {
                "width": 12,
                "num_heads": 3,
                "position_coordinates": "rotary",
                "rotary_source": True,
                "end_coordinates": True,
            },
            "^num_heads=3: half of them",
        ),
        ({"inputs": "facts"}, '^inputs=\'facts\': architecture must be "classifier", not "encoder_decoder"'),
        (
            {"halting": True, "halting_scope": "sequence"},
            "^halting_scope='sequence': lets a causal decoder see",
        ),
        ({"position_start": "step"}, "^position_start='step': lets a causal decoder see"),
        ({"end_id": 0}, "^end_id=0: must differ from padding_id"),
        ({"vocabulary_size": 2}, "^end_id=2: vocabulary_size=2 ends at id 1"),
        (
            {"vocabulary_size": 9, "target_vocabulary_size": 2},
            "^end_id=2: target_vocabulary_size=2 ends at id 1",
        ),
        ({"vocabulary_size": 9, "start_id": 9}, "^start_id=9: vocabulary_size=9 ends at id 8"),
        ({**CLASSIFIER, "vocabulary_size": 9, "padding_id": 9}, "^padding_id=9"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(fields, message):
    with pytest.raises(UserError, match=message):
        ModelConfig(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {**CLASSIFIER, "halting": True, "halting_scope": "sequence"},
        {**CLASSIFIER, "position_start": "step"},
        {**CLASSIFIER, "inputs": "facts"},
        {"halting_scope": "sequence"},  # nothing halts
        {"position_start": "step", "allow_look_ahead": True},
        {"width": 9, "num_heads": 3, "position_coordinates": "learned", "step_coordinates": "learned"},
        {**CLASSIFIER, "vocabulary_size": 1},
    ],
)
def test_what_can_is_not(fields):
    assert ModelConfig(**fields).to_dict().items() >= fields.items()


def test_unknown_fields_are_named():
    with pytest.raises(UserError, match="unknown fields depth, widht"):
        ModelConfig.from_dict({"widht": 8, "depth": 3, "num_heads": 4})


def test_a_configuration_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().width = 256


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_what_they_list(name, size):
    fields = preset(name, size=size).to_dict()
    assert fields.items() >= {**PRESETS[name], **SIZES[size]}.items()
    assert {
        key: fields[key] for key in fields if key not in PRESETS[name] and key not in SIZES[size]
    }.items() <= (ModelConfig().to_dict().items())


def test_presets_and_sizes_that_are_none_are_answered_with_those_that_are():
    with pytest.raises(UserError, match="preset='t2t': allowed: paper, tensor2tensor, graves"):
        preset("t2t")
    with pytest.raises(UserError, match="size='huge': allowed: tiny, small, base, big"):
        preset(size="huge")
