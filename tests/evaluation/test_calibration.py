"""The calibration of a run: its file, and where it is used."""

import dataclasses
import json

import pytest

from small_task_models import model_for
from universal_transformer import DecodingOptions, Sampling, load
from universal_transformer.errors import UserError
from universal_transformer.evaluation.calibration import (
    CALIBRATION,
    Calibration,
    Cost,
    Goal,
    Point,
    calibrated,
    weights_of,
    written_freely,
)
from universal_transformer.evaluation.settings import Setting
from universal_transformer.recipes import RECIPES

TRAINED = Cost(score=0.9, mean_steps=4.0, seconds=0.002)


def point(value, *, accepted):
    steps = float(value)
    cost = Cost(score=0.9, mean_steps=steps, seconds=steps / 1000)
    return Point(
        setting=Setting("max_steps", float(value)),
        cost=cost,
        loss=0.001,
        p_value=0.01 if accepted else 0.5,
        accepted=accepted,
    )


def calibration(**changes):
    found = Calibration(
        weights="0" * 64,
        task="stories",
        split="validation",
        metric="error",
        count=1000,
        goal=Goal(tolerance=0.005),
        trained=TRAINED,
        points=(point(3, accepted=True), point(2, accepted=True), point(1, accepted=False)),
        chosen=Setting("max_steps", 2.0),
        device="cpu",
        batch_tokens=100,
    )
    return dataclasses.replace(found, **changes)


def test_a_calibration_is_read_as_it_was_written(tmp_path):
    for found in (calibration(), calibration(chosen=None), calibration(goal=Goal(tolerance=0.1, loss="changed"))):
        found.save(tmp_path)
        assert Calibration.load(tmp_path) == found


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("extra",), 1, "unknown: extra"),
        (("goal", "tolerance"), 2, "goal.tolerance: expected a number"),
        (("goal", "loss"), "all", "goal.loss: expected one of drop, changed"),
        (("points", 0, "setting", "rule"), "luck", r"points\[0\].setting.rule: expected one of"),
        (("chosen", "value"), 2.5, "chosen: expected Setting or None, found"),
        (("trained", "mean_steps"), -1.0, "trained.mean_steps"),
        (("count",), 0, "count: expected a whole number, at least 1"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_the_field(tmp_path, path, value, message):
    fields = calibration().to_dict()
    fields = json.loads(json.dumps(fields))
    inside = fields
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    (tmp_path / CALIBRATION).write_text(json.dumps(fields))
    with pytest.raises(UserError, match=f"calibration.json: .*{message}"):
        Calibration.load(tmp_path)


def test_the_table_has_every_setting_and_the_chosen_one():
    lines = calibration().lines()
    assert lines[0] == (
        "stories · validation · 1,000 examples · at most 0.5 % of the answers turn from right to wrong, with "
        "confidence 95 %"
    )
    assert [line.split() for line in lines[1:-1]] == [
        ["rule", "value", "steps", "ms/example", "score", "loss", "p", "result"],
        ["as", "trained", "4.00", "2", "0.9000"],
        ["max_steps", "3", "3.00", "3", "0.9000", "0.1", "%", "0.01", "accepted"],
        ["max_steps", "2", "2.00", "2", "0.9000", "0.1", "%", "0.01", "chosen"],
        ["max_steps", "1", "1.00", "1", "0.9000", "0.1", "%", "0.5"],
    ]
    assert lines[-1] == (
        "chosen: max_steps 2: 2.00 steps instead of 4.00, 2 ms for an example instead of 2 (it saves no time here; "
        "--cheapest seconds chooses by time); at most 0.5 % of the answers turn from right to wrong, with confidence "
        "95 %"
    )
    slower = calibration(chosen=None)
    assert slower.lines()[-1] == "no accepted setting takes fewer steps: the run keeps the depth of training"
    refused = tuple(dataclasses.replace(point, accepted=False) for point in slower.points)
    assert dataclasses.replace(slower, points=refused).lines()[-1] == (
        "no setting with fewer steps is within 0.5 % with confidence 95 %: the run keeps the depth of training"
    )


@pytest.mark.parametrize(
    ("changes", "promise"),
    [
        ({"metric": "sequence"}, "at most 0.5 % of the answers turn from right to wrong"),
        ({"metric": "bleu"}, "the score of an example falls by at most 0.5 points of 100 in the mean"),
        ({"goal": Goal(tolerance=0.02, loss="changed")}, "at most 2 % of the predictions change"),
    ],
)
def test_what_is_promised_is_what_was_tested(changes, promise):
    assert calibration(**changes).promise == f"{promise}, with confidence 95 %"


@pytest.fixture
def run(tmp_path, stories):
    """The folder of a run on stories with a calibration."""
    model = model_for(stories, halting=False)
    model.save_pretrained(tmp_path / "model")
    stories.codec.save(tmp_path / "model")
    calibration(weights=weights_of(tmp_path / "model")).save(tmp_path)
    return tmp_path


STORY = "1 Clara went to the attic.\n2 Where is Clara?"


def used(run, options=None, **choices):
    return calibrated(run, options or DecodingOptions(), model=run / "model", **choices)


def test_a_calibrated_run_takes_its_steps(run):
    options, note = used(run)
    assert options == DecodingOptions(max_steps=2)
    assert "max_steps 2 by" in note
    assert "at most 0.5 % of the answers turn from right to wrong, with confidence 95 %; --no-calibration" in note
    answers = load(run)
    assert (answers.options, answers.note) == (options, note)
    assert answers(STORY).steps == [2.0, 2.0]
    assert answers(STORY, options=DecodingOptions()).steps == [4.0, 4.0]
    plain = load(run, calibration=False)
    assert (plain(STORY).steps, plain.note) == ([4.0, 4.0], "")
    assert load(run / "model")(STORY).steps == [4.0, 4.0]  # not the folder of the run


def test_options_of_depth_replace_the_calibration(run):
    for options in (DecodingOptions(max_steps=3), DecodingOptions(max_steps=4)):
        assert used(run, options) == (options, "")


def test_without_a_chosen_setting_or_a_file_the_depth_is_that_of_training(run):
    calibration(chosen=None, weights=weights_of(run / "model")).save(run)
    assert used(run) == (DecodingOptions(), "")
    (run / CALIBRATION).unlink()
    assert used(run) == (DecodingOptions(), "")


def test_a_calibration_of_other_weights_is_not_used(run, stories):
    model_for(stories, seed=1, halting=False).save_pretrained(run / "model")
    options, note = used(run)
    assert options == DecodingOptions()
    assert "is of other weights and is not used: run ut calibrate" in note
    assert (load(run).note, load(run)(STORY).steps) == (note, [4.0, 4.0])


@pytest.mark.parametrize(
    ("recipe", "what"),
    [
        ("text", "text that the model writes"),
        ("voice", "frames that the model writes"),
        ("pairs", ""),
        ("stories", ""),
    ],
)
def test_what_a_model_writes_is_covered_only_if_it_was_scored(recipe, what):
    assert written_freely(RECIPES[recipe]().model) == what


@pytest.mark.parametrize(
    ("options", "choices", "reason"),
    [
        (DecodingOptions(beams=4), {}, "4 beams, length penalty 0.6"),
        (DecodingOptions(sampling=Sampling(temperature=0.7)), {}, "sampling"),
        (DecodingOptions(), {"unlike": "text that the model writes"}, "text that the model writes"),
    ],
)
def test_a_calibration_covers_greedy_answers_alone(run, options, choices, reason):
    found, note = used(run, options, **choices)
    assert found == options
    assert f"does not cover {reason}: the depth of training is used" in note
