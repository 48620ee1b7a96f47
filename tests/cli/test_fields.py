"""Fields on the command line: every one can be named, with and without its group, and mistakes are explained."""

import dataclasses
import re
from operator import attrgetter

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from universal_transformer.cli import main
from universal_transformer.cli.fields import (
    ALIASES,
    GROUPS,
    USUAL,
    field_options,
    fields_page,
    given,
    override,
    without_effect,
)
from universal_transformer.cli.parser import options_of
from universal_transformer.cli.train import Train
from universal_transformer.errors import UserError
from universal_transformer.models.components import POSITIONS
from universal_transformer.recipes import RECIPES
from universal_transformer.typed import leaves, replaced

BASE = RECIPES["stories"]()


def change(*arguments, config=BASE):
    return override(config, arguments, prog="ut train stories", also=list(options_of(Train)))


def fields_of(config):
    for group in GROUPS:
        for path in leaves(type(getattr(config, group))):
            if not path.startswith("vocabulary."):
                yield f"{group}.{path}".rpartition(".")[::2], attrgetter(path)(getattr(config, group))


def written(value):
    return [str(item) for item in value] if isinstance(value, tuple) else [str(value)]


@pytest.mark.parametrize("recipe", ["stories", "copy", "pairs", "copy-lstm", "copy-neural-gpu"])
def test_every_field_can_be_given_the_value_it_has(recipe):
    """All at once, so that one parse shows it: the configuration does not change."""
    config = RECIPES[recipe]()
    arguments = []
    for (group, name), value in fields_of(config):
        option = name.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{group}.{option}" if value else f"--{group}.no-{option}")
        else:
            arguments += [f"--{group}.{option}", *written(value)]
    assert change(*arguments, config=config) == config


def test_no_arguments_change_nothing():
    assert change() is BASE


@pytest.mark.parametrize("groups", ["", "model.", "depth.", "model.depth."])
def test_a_field_may_be_written_without_its_groups(groups):
    changed = change(f"--{groups}max-steps", "8")
    assert changed == change(f"--{groups}max_steps=8")
    assert changed == replaced(BASE, {"model.depth.max_steps": 8})


def test_steps_may_be_as_many_as_positions():
    with pytest.raises(UserError, match=r"--max-steps: expected a whole number, .* or one of length, found 'long'"):
        change("--max-steps", "long")
    assert change("--max-steps", "length").model.depth.max_steps == "length"


def test_a_field_of_any_group_may_be_written_by_its_name():
    assert change("--halting.side", "none").model.halting.side == "none"
    assert change("--num-people", "3").data.num_people == 3
    assert change("--minutes", "2").training.minutes == 2.0


def test_booleans_have_two_sides():
    for groups in ("", "model.", "step.", "model.step."):
        assert not change(f"--{groups}no-tied").model.step.tied
        assert change(f"--{groups}tied").model.step.tied


def test_tuples_and_negative_numbers():
    changed = change("--facts", "1", "2", "--halting.bias", "-2.5", "--statements", "9", "12")
    assert changed.data.facts == (1, 2)
    assert changed.data.statements == (9, 12)
    assert changed.model.halting.bias == -2.5


def test_a_field_may_be_given_twice_with_the_same_value():
    assert change("--max-steps", "3", "--model.max-steps", "3").model.max_steps == 3


def test_nothing_else_changes():
    changed = change("--training.seed", "5")
    assert change("--seed", "5") == changed, "not the seed of the data"
    assert dataclasses.replace(changed, training=BASE.training) == BASE
    assert dataclasses.replace(changed.training, seed=BASE.training.seed) == BASE.training


MISTAKES = {
    "no such field": (["--max-step", "8"], "unknown option --max-step .*did you mean --max-steps"),
    "far from any": (["--frobnicate", "8"], "unknown option --frobnicate; ut train stories --help"),
    "wrong group": (["--model.minutes", "3"], "did you mean --training.minutes"),
    "wrong field of a group": (["--model.max-stps", "3"], "did you mean --model.max-steps"),
    "own option misspelled": (["--dry-rum"], "did you mean --dry-run"),
    "in two groups of the model": (["--bias", "3"], "--model.attention.bias or --model.halting.bias"),
    "of the data": (["--model.vocabulary.padding-id", "3"], "the tokenizer and the data determine it"),
    "of the data, without its group": (["--model.padding-id", "3"], "the tokenizer and the data determine it"),
    "no value": (["--max-steps"], "--max-steps: expected one argument"),
    "two values": (["--max-steps", "1", "2"], "unexpected '2'"),
    "not a number": (["--max-steps", "eight"], "--max-steps: expected a whole number, .*found 'eight'"),
    "not whole": (["--max-steps", "8.5"], "--max-steps: expected a whole number, .*found '8.5'"),
    "no choice": (["--schedule", "cosin"], "expected one of inverse_sqrt, .*did you mean cosine"),
    "value of a boolean": (["--step.tied=yes"], "--step.tied: ignored explicit argument 'yes'"),
    "too few": (["--statements", "3"], "--statements: expected 2 arguments"),
    "part of a tuple": (
        ["--statements", "3", "x"],
        r"--statements\[1\]: expected .*at least 1 and at most 100,000, found 'x'",
    ),
    "no option": (["8"], "unexpected '8'; ut train stories --help shows what may follow"),
    "out of bounds": (
        ["--learning-rate", "-1"],
        "--learning-rate: expected a number, more than 0, found -1.0",
    ),
    "not finite": (["--learning-rate", "nan"], "expected a number, more than 0, found nan"),
    "does not divide": (["--num-heads", "3"], "num_heads=3: must divide width"),
    "refused by the data": (
        ["--facts", "4"],
        r"facts must be different numbers out of 1, 2 and 3, found \(4,\)",
    ),
    "epochs": (["--epochs", "3"], "--epochs: .* --training.max-updates N or --training.minutes M"),
    "batch size": (["--training.batch-size", "3"], "--training.batch-size: .* --training.batch-tokens N, positions"),
    "of like meaning": (["--clipping-of-gradients", "3"], "did you mean --training.clip-norm"),
    "of like meaning in a text": (["--gpu"], "did you mean --training.device"),
    "no limit": (["--minutes", "None"], "minutes and training.max_updates are both None"),
    "yes and no": (["--no-tied", "--model.tied"], "--model.tied contradicts an earlier value of --model.step.tied"),
    "twice": (["--layers", "8", "--max-steps", "3"], "--max-steps contradicts an earlier value of --model.depth"),
    "limit and none": (["--minutes", "none", "--minutes", "3"], "--minutes contradicts .* --training.minutes"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_is_allowed(mistake, capsys):
    arguments, expected = MISTAKES[mistake]
    with pytest.raises(UserError, match=expected) as found:
        change(*arguments)
    assert "\n" not in str(found.value)
    assert capsys.readouterr() == ("", "")


def test_a_field_that_needs_another_is_not_blamed_for_a_third():
    arguments = ["--data.train-target", "t.txt", "--data.train", "s.txt", "--training.minutes", "abc"]
    with pytest.raises(UserError, match=r"^--training\.minutes: expected a number, more than 0 or None, found 'abc'$"):
        change(*arguments, config=RECIPES["pairs"]())


@drawn(st.lists(st.text(max_size=12), max_size=4))
def test_whatever_is_typed_is_a_configuration_or_one_line(arguments):
    said = ""
    try:
        change(*arguments)
    except UserError as error:
        said = str(error)
    assert len(said.splitlines()) <= 1


@pytest.mark.parametrize("word", ["none", "None", "NONE"])
def test_no_limit_is_none(word):
    assert change("--max-updates", "5", "--minutes", word).training.minutes is None
    assert change("--halting.side", word.lower()).model.halting.side == "none"


@pytest.mark.parametrize(
    ("alias", "path", "value"),
    [
        ("--lr", "training.learning_rate", 0.25),
        ("--hidden", "model.sizes.width", 64),
        ("--layers", "model.depth.max_steps", 3),
        ("--heads", "model.sizes.num_heads", 2),
        ("--early-stopping", "training.patience", 7),
    ],
)
def test_a_name_of_other_programs_is_the_field_of_the_same_meaning(alias, path, value):
    assert change(alias, str(value)) == replaced(BASE, {path: value})


def shown(*, everything):
    return fields_page(BASE, prog="ut train stories", usage="", description="", options=[], everything=everything)


def test_help_shows_every_field_with_what_it_says_and_its_value():
    page = shown(everything=True)
    for (group, name), _ in fields_of(BASE):
        assert f"--{group}.{name.replace('_', '-')}" in page
    assert all(option.text for option in field_options(BASE))
    assert "T: the number of steps of a fixed depth" in page
    assert "padding-id" not in page
    assert "(default: 8 14)" in page


@pytest.mark.parametrize("recipe", ["stories", "pairs", "copy-lstm"])
def test_help_shows_at_first_the_fields_that_people_use(recipe, capsys):
    assert main(["train", recipe, "--help"]) == 0
    page = capsys.readouterr().out
    names = [option.name for option in field_options(RECIPES[recipe]()) if option.name in page.split()]
    assert 8 <= len(names) <= 20
    assert "--training.minutes" in names
    assert "--help-all shows all" in page
    assert page.count("\n") < 95
    assert main(["train", recipe, "--help-all"]) == 0
    assert capsys.readouterr().out.count("\n") > page.count("\n")


def test_the_fields_that_people_use_are_fields():
    every = {option.field for recipe in ("pairs", "stories") for option in field_options(RECIPES[recipe]())}
    assert {*USUAL, *ALIASES} <= every


def test_fields_of_halting_are_named_where_no_side_halts():
    off = replaced(RECIPES["stories"](), {"model.halting.side": "none"})
    paths = ["model.halting.rule", "training.ponder_weight", "model.halting.side", "model.depth.max_steps"]
    why = "without effect: no side halts (model.halting.side none)"
    assert list(without_effect(off, paths)) == [f"note: model.halting.rule, training.ponder_weight: {why}"]
    assert list(without_effect(RECIPES["stories"](), paths)) == []
    named = without_effect(RECIPES["copy-lstm"](), ["training.halting_delay"])
    assert list(named) == [f"note: training.halting_delay: {why}"]


@pytest.mark.parametrize(
    ("recipe", "arguments", "field", "why"),
    [
        ("copy", ["--prenet-dropout", "0.1"], "model.outputs.prenet_dropout", "applies only to outputs.kind"),
        ("copy", ["--box-columns", "3"], "model.coordinates.box_columns", "applies only to coordinates.position"),
        ("stories", ["--no-tie-output"], "model.outputs.tie_output", "this model writes no tokens"),
        ("stories", ["--max-new-tokens", "9"], "model.generation.max_new_tokens", "a classifier writes no text"),
        ("copy", ["--position", "rotary", "--injection", "input"], "model.coordinates.injection", "adds nothing"),
        ("copy", ["--layers", "1", "--no-tied"], "model.step.tied", "one step has the same blocks"),
        ("pairs", ["--data.train", "a.tsv", "--train-pairs", "9"], "data.train_pairs", "applies only to synthetic"),
        ("parsing", ["--data.train", "trees", "--longer", "9", "9"], "data.longer", "applies only to generated"),
        ("copy", ["--optimizer", "adamw"], "training.optimizer", "adam and adamw differ in training.weight_decay"),
    ],
)
def test_a_field_that_changes_nothing_is_named_with_the_reason(recipe, arguments, field, why):
    config = RECIPES[recipe]()
    values = given(config, arguments, prog=f"ut train {recipe}")
    named = [text for text in without_effect(replaced(config, values), values) if f"note: {field}: " in text]
    assert len(named) == 1
    assert why in named[0]
    assert not any(field in text for text in without_effect(replaced(config, values), []))


def test_a_page_of_help_names_the_members_of_a_registry_and_no_decision():
    options = {option.field: option.text for option in field_options(RECIPES["copy"]())}
    assert options["model.coordinates.position"].startswith(f"How positions are encoded, one of {', '.join(POSITIONS)}")
    assert not [text for text in options.values() if "an entry of" in text or re.match(r"D\d", text)]
    assert "none means no limit" in options["training.minutes"]
