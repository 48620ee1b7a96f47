import ast
import dataclasses
import inspect
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from universal_transformer.errors import UserError
from universal_transformer.recipes import RECIPES
from universal_transformer.tasks import TASKS
from universal_transformer.training.run_config import RunConfig, TrainingConfig
from universal_transformer.typed import replaced

from .tiny import run_config


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("minutes", -1.0),
        ("minutes", float("nan")),
        ("minutes", 0.0),
        ("max_updates", 0),
        ("ema_decay", 0.0),
        ("average_checkpoints", 1),
        ("batch_tokens", 0),
        ("learning_rate", 0.0),
        ("betas", (0.9, 1.0)),
        ("label_smoothing", 1.0),
        ("validate_every", 0),
        ("seed", -1),
        ("seed", 2**63),
    ],
)
def test_a_bad_value_is_named_with_its_field_and_what_is_allowed(field, value):
    with pytest.raises(UserError, match=rf"training\.{field}.*: expected "):
        TrainingConfig(**{"max_updates": 1, field: value})


@pytest.mark.parametrize("field", ["optimizer", "schedule", "precision", "device"])
def test_an_unknown_choice_is_named_with_what_is_allowed(field):
    # under the type-checking hook the checker speaks first
    with pytest.raises((UserError, TypeCheckError), match=field):
        TrainingConfig(**{"max_updates": 1, field: "other"})


def test_a_number_of_examples_for_no_metric_is_refused():
    with pytest.raises(UserError, match=r"^training.select_examples=50 changes nothing without training.select_by"):
        TrainingConfig(max_updates=1, select_examples=50)
    assert TrainingConfig(max_updates=1, select_by="metric", select_examples=50).select_examples == 50


def test_random_depth_needs_one_number_of_steps_for_both_sides():
    with pytest.raises(UserError, match=r"training\.depth='random': draws one number of steps for both sides"):
        replaced(run_config(), {"training.depth": "random", "model.depth.decoder_max_steps": 5})


def test_a_run_without_end_is_refused():
    with pytest.raises(UserError, match="give one"):
        TrainingConfig()


@given(
    minutes=st.floats(0.01, 1e6),
    rate=st.floats(1e-9, 1e3),
    beta=st.floats(0, 0.999),
    schedule=st.sampled_from(["inverse_sqrt", "cosine", "linear", "constant"]),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_configuration_survives_json(minutes, rate, beta, schedule, seed):
    config = run_config(minutes=minutes, learning_rate=rate, betas=(beta, 0.9), schedule=schedule, seed=seed)
    again = RunConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert again.digest() == config.digest()


@pytest.mark.parametrize("name", TASKS)
def test_data_of_every_task_survive_json(name):
    try:
        data = TASKS[name]()
    except (UserError, TypeError):
        pytest.skip("this task has no defaults for everything")
    config = dataclasses.replace(run_config(), data=data)
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_how_it_is_computed_enters_the_digest_when_it_is_chosen():
    config = run_config()
    digests = {config.digest()}
    for change in ({"halting_execution": "masked"}, {"activation_checkpointing": True}):
        chosen = replaced(config, {f"model.execution.{name}": value for name, value in change.items()})
        assert RunConfig.from_dict(json.loads(json.dumps(chosen.to_dict()))) == chosen
        digests.add(chosen.digest())
    assert len(digests) == 3


@pytest.mark.parametrize("part", ["", "data", "model", "training"])
def test_unknown_and_missing_fields_are_refused_by_name(part):
    def inside(fields):
        return fields[part] if part else fields

    fields = run_config().to_dict()
    inside(fields)["surprise"] = 1
    with pytest.raises(UserError, match="unknown: surprise"):
        RunConfig.from_dict(fields)
    fields = run_config().to_dict()
    gone = sorted(inside(fields))[0]
    del inside(fields)[gone]
    with pytest.raises(UserError, match=f"missing: {gone}|{gone}"):
        RunConfig.from_dict(fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", "1"), ("seed", 1.5), ("seed", True), ("betas", [0.9]), ("optimizer", "sgd"), ("minutes", "1")],
)
def test_a_value_of_the_wrong_type_is_named(field, value):
    fields = run_config().to_dict()
    fields["training"][field] = value
    with pytest.raises(UserError, match=rf"training\.{field}: expected .* found"):
        RunConfig.from_dict(fields)


def test_an_unknown_task_is_named():
    fields = run_config().to_dict()
    fields["data"]["task"] = "chess"
    with pytest.raises(UserError, match="'chess' is no task; known are stories"):
        RunConfig.from_dict(fields)


def test_the_digest_changes_with_every_training_field():
    base = run_config(select_by="metric")  # without it select_examples changes nothing
    other = {float: 0.123, int: 77, bool: True, tuple: (0.5, 0.6), type(None): 77}
    named = {"ema_decay": 0.5, "tracker": "tensorboard"}
    for field in dataclasses.fields(TrainingConfig):
        value = getattr(base.training, field.name)
        if isinstance(value, str):
            continue
        change = named.get(field.name, other[type(value)])
        changed = dataclasses.replace(base.training, **{field.name: change})
        assert dataclasses.replace(base, training=changed).digest() != base.digest(), field.name


@pytest.mark.parametrize("kind", [TrainingConfig, RunConfig])
def test_every_field_says_what_it_is(kind):
    body = ast.parse(inspect.getsource(kind)).body[0].body
    for first, second in itertools.pairwise(body):
        if isinstance(first, ast.AnnAssign):
            assert isinstance(second, ast.Expr), f"{first.target.id} has no docstring"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ('{"a": NaN}', "NaN"),
        ("[1]", "expected a JSON object"),
        ("{", "not valid JSON"),
    ],
)
def test_a_configuration_is_read_strictly(tmp_path: Path, text, problem):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UserError, match=problem) as caught:
        RunConfig.load(path)
    assert str(path) in str(caught.value)


def test_configurations_need_no_torch():
    code = "import sys, universal_transformer.training.run_config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("recipe", "changes", "reason"),
    [
        ("babi", {"model.transition.kind": "separable_convolution"}, "reads neighbours"),
        ("babi", {"training.compile": True}, "does not compile an exchange"),
        ("copy-lstm", {}, "one after the other"),
    ],
)
def test_positions_are_not_divided_where_that_would_change_the_result(recipe, changes, reason):
    given = replaced(RECIPES[recipe](), changes)
    with pytest.raises(UserError, match=f"training.parallel='positions': .*{reason}"):
        replaced(given, {"training.parallel": "positions"})
