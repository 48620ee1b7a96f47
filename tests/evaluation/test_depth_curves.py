"""What fewer steps cost: losses against a scripted model, and against the evaluation of real models."""

import dataclasses
from collections import Counter

import pytest
import torch
from torch.nn.functional import one_hot

from configs import with_fields
from small_task_models import TINY, letters, model_for
from universal_transformer.data.example import Example
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation import depth_curves
from universal_transformer.evaluation.calibration import Cost, Goal, Point, percent
from universal_transformer.evaluation.depth_curves import Outcome, Trials, calibrate, cheapest, losses
from universal_transformer.evaluation.measure import Selection, evaluate
from universal_transformer.evaluation.metrics import METRICS
from universal_transformer.evaluation.risk import p_value
from universal_transformer.evaluation.scores import ScoreSums
from universal_transformer.evaluation.settings import Setting, served
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.universal import Classifier
from universal_transformer.nn.trace import Trace
from universal_transformer.registry import build
from universal_transformer.tasks.labelled import LabelledData
from universal_transformer.tasks.task import Task
from universal_transformer.typed import replaced

GOAL = Goal(tolerance=0.05, confidence=0.9)
EXITS = ("state_change", "output_change", "confidence")


class Scripted(Classifier):
    """Gives the class of the first token from as many steps on as the second says; class 0 before. It counts calls."""

    calls = 0

    def forward(self, source, *, max_steps=None, **_):
        self.calls += 1
        steps = max_steps or self.config.max_steps
        given = torch.where(source[:, 1] <= steps, source[:, 0], 0)
        made = torch.full(source.shape, float(steps))
        logits = one_hot(given, self.config.vocabulary.num_classes).float()
        return ModelOutput(logits, Trace(made, torch.zeros_like(made), None, torch.tensor(0.0)), None)


def scripted(**changes):
    config = with_fields(
        TINY, architecture="classifier", vocabulary_size=10, num_classes=10, halting=False, max_steps=4
    )
    return Scripted(with_fields(config, **changes))


def task_of(*needs, truth=3, metric="error"):
    """Examples of class 3 that need so many steps for the right answer."""
    examples = [Example(source=(3, need), target=truth) for need in needs]
    return Task("scripted", letters(), (), examples, {"test": examples, "other": examples[:60]}, metric)


def run(model, task, goal=GOAL, *, rule="max_steps", **choices):
    examples = Selection(choices.pop("split", "validation"), choices.pop("limit", None))
    goal = dataclasses.replace(goal, rule=rule)
    return dataclasses.replace(calibrate(model, task, examples, goal=goal, **choices), weights="0" * 64)


def test_the_losses_of_a_model_whose_answers_are_known():
    """80 of 100 examples need one step, 15 two, 2 three, 2 four; one needs five and is never right."""
    found = run(scripted(), task_of(*[1] * 80, *[2] * 15, *[3] * 2, *[4] * 2, 5), Goal(tolerance=0.1, confidence=0.9))
    assert [str(point.setting) for point in found.points] == ["max_steps 3", "max_steps 2", "max_steps 1"]
    assert [point.loss for point in found.points] == pytest.approx([0.02, 0.04, 0.19])
    assert [point.cost.score for point in found.points] == pytest.approx([0.97, 0.95, 0.8])
    assert (found.trained.score, found.trained.mean_steps) == (0.99, 4.0)
    assert [point.cost.mean_steps for point in found.points] == [3, 2, 1]
    for point, wrong in zip(found.points, (2, 4, 19), strict=True):
        assert point.p_value == pytest.approx(p_value([1.0] * wrong + [0.0] * (100 - wrong), tolerance=0.1))
        assert point.cost.seconds > 0
    assert [point.accepted for point in found.points] == [True, True, False]
    strict = run(scripted(), task_of(*[1] * 80, *[2] * 15, *[3] * 2, *[4] * 2, 5))
    assert [point.accepted for point in strict.points] == [False]  # 2 errors of 100 have p = 0.118
    assert strict.chosen is None
    assert "keeps the depth of training" in strict.outcome


@pytest.mark.parametrize(
    ("needs", "chosen"),
    [
        ([1] * 100, 1),
        ([1] * 99 + [3], 1),
        ([1] * 98 + [3] * 2, 3),
        ([1] * 98 + [2] * 2, 2),
        ([4] * 100, None),
        ([1] * 50 + [2] * 50, 2),
    ],
)
def test_the_cheapest_accepted_number_of_steps_is_chosen(needs, chosen):
    found = run(scripted(), task_of(*needs))
    assert found.chosen == (chosen and Setting("max_steps", float(chosen)))
    if chosen:
        assert found.point.accepted
        assert found.chosen.of(DecodingOptions()) == DecodingOptions(max_steps=chosen)
        assert f"chosen: max_steps {chosen}: {chosen}.00 steps instead of 4.00" in found.lines()[-1]


def test_answers_that_turn_right_do_not_make_up_for_answers_that_turn_wrong():
    """Of class 0 a model is right before it can give class 3: half of the answers change, none is lost."""
    task = task_of(*[1] * 50, *[4] * 50, truth=0)
    drop, changed = (
        run(scripted(), task, Goal(tolerance=0.05, confidence=0.9, loss=loss)) for loss in ("drop", "changed")
    )
    assert [point.loss for point in drop.points] == [0, 0, 0]
    assert [point.loss for point in changed.points] == [0.5]


@pytest.mark.parametrize("metric", ["intensities", "frames"])
def test_answers_that_are_numbers_have_no_share_of_changes(metric):
    with pytest.raises(UserError, match='loss="changed": the answers of this task are numbers'):
        run(scripted(), task_of(*[1] * 50, metric=metric), Goal(tolerance=0.05, loss="changed"))


def test_time_steps_of_an_episode_are_no_independent_examples():
    with pytest.raises(UserError, match="the time steps of an episode depend on each other"):
        run(scripted(), task_of(*[1] * 50, metric="actions"), Goal(tolerance=0.05))


def test_losses_of_scores_and_of_answers():
    task = task_of(1)
    before = Outcome(scores=[1.0, 0.5, 0.2], answers=[(1, 2), (3, 4), (5, 6)])
    after = Outcome(scores=[0.4, 0.8, 0.2], answers=[(1, 2), (3, 5), (7,)])
    assert losses(before, after, loss="drop", metric=METRICS["bleu"](task)) == [0.6, 0.0, 0.0]
    assert losses(before, after, loss="changed", metric=METRICS["bleu"](task)) == [0, 1, 1]
    after.answers[-1] = (7, 8)
    assert losses(before, after, loss="changed", metric=METRICS["perplexity"](task)) == [0, 0.5, 1]


def test_the_score_of_one_example():
    def example_score(sums, *, metric):
        return METRICS[metric](task_of(1)).example_score(sums)

    for metric in ("error", "classes", "accuracy"):
        assert example_score(ScoreSums(sums={"wrong": 1.0}), metric=metric) == 0
    assert example_score(ScoreSums(sums={"right": 1.0}), metric="ranking") == 1
    assert example_score(ScoreSums(sums={"right": 3.0, "tokens": 4.0}), metric="perplexity") == 0.75
    assert example_score(ScoreSums(sums={"sequences": 1.0}), metric="sequence") == 1
    cells = ScoreSums(sums={"right": 3.0, "positions": 4.0, "sequences": 0.0})
    assert (example_score(cells, metric="positions"), example_score(cells, metric="tags")) == (0, 0.75)
    pytest.importorskip("sacrebleu")
    assert example_score(ScoreSums(texts=[("a red hat", "a red hat")]), metric="bleu") == pytest.approx(1)
    assert 0 < example_score(ScoreSums(texts=[("a red hat", "a blue hat")]), metric="bleu") < 1


def check_against_evaluation(model, task, found, score):
    """Each point has the score and the steps of an evaluation with its setting: the real model ran."""
    for point in found.points[::9]:
        options = point.setting.of(DecodingOptions())
        report = evaluate(model, task, Selection(split=found.split), options=options)
        assert point.cost.score == pytest.approx(score(report.totals[0].metrics))
        assert point.cost.mean_steps == pytest.approx(report.mean_steps)


@pytest.mark.parametrize("rule", ["halting_threshold", "confidence"])
def test_points_of_a_classifier_that_halts_are_evaluations(stories, rule):
    model = model_for(stories)
    found = run(model, stories, Goal(tolerance=0.5), rule=rule)
    check_against_evaluation(model, stories, found, lambda metrics: 1 - metrics["error"] / 100)
    steps = [point.cost.mean_steps for point in found.points]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < steps[0]
    small = run(model, stories, Goal(tolerance=0.5), rule=rule, batch_tokens=40)
    assert [(point.loss, point.cost.mean_steps) for point in found.points] == [
        (point.loss, pytest.approx(point.cost.mean_steps)) for point in small.points
    ]


def test_sequences_are_what_the_model_writes_by_itself(copying):
    model = model_for(copying)
    found = run(model, copying, Goal(tolerance=0.6, confidence=0.8, loss="changed"))
    check_against_evaluation(model, copying, found, lambda metrics: metrics["sequence_accuracy"])


def test_texts_lose_shares_of_tokens(text_task):
    task = text_task("character")
    model = model_for(task)
    found = run(model, task, Goal(tolerance=0.5), limit=20)
    assert all(0 <= point.loss <= 1 for point in found.points)
    everything = run(model, task, Goal(tolerance=0.5, loss="changed"), limit=20)
    shared = list(zip(found.points, everything.points, strict=False))  # each ends at its first rejection
    assert shared
    assert all(one.loss <= other.loss for one, other in shared)


def test_encoder_and_decoder_of_different_depth_lose_steps_together():
    config = with_fields(TINY, vocabulary_size=12, halting=False, max_steps=6)
    model = build(replaced(config, {"depth.decoder_max_steps": 3}))
    assert [setting.value for setting in served(model)["max_steps"]] == [3, 2, 1]


def test_exits_that_can_stop_no_position_early_are_left_out():
    model = build(replaced(with_fields(TINY, vocabulary_size=12, max_steps=6), {"depth.decoder_max_steps": 2}))
    assert list(served(model)) == ["max_steps", "halting_threshold", "state_change", "confidence"]


def test_settings_do_not_depend_on_data():
    model = scripted()
    assert [str(setting) for setting in served(model)["max_steps"]] == ["max_steps 3", "max_steps 2", "max_steps 1"]
    assert served(model) == served(model)
    for rule, settings in served(model_of(max_steps=6)).items():
        values = [setting.value for setting in settings]
        assert values == sorted(set(values), reverse=rule not in ("state_change", "output_change"))


def model_of(**changes):
    return build(with_fields(TINY, **({"vocabulary_size": 12} | changes)))


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({"max_steps": 2}, ["max_steps", "halting_threshold", "confidence"]),
        ({"max_steps": 4}, ["max_steps", "halting_threshold", "state_change", "output_change", "confidence"]),
        ({"max_steps": 5, "halting": False}, ["max_steps", *EXITS]),
        ({"max_steps": "length", "architecture": "classifier", "num_classes": 3}, ["halting_threshold", *EXITS]),
        ({"max_steps": 5, "architecture": "language_model", "plain_layers_after": 1},
         ["max_steps", "halting_threshold", "state_change"]),
    ],
)  # fmt: skip
def test_a_model_serves_the_rules_that_it_can(changes, rules):
    assert list(served(model_of(**changes))) == rules


def test_thresholds_are_shares_of_the_models_own():
    for rule, own in (("act", 0.99), ("ponder", 0.5)):
        config = with_fields(TINY, vocabulary_size=12, architecture="language_model")
        model = build(replaced(config, {"halting.rule": rule, "halting.output": "mean" if rule == "act" else "final"}))
        values = [setting.value for setting in served(model)["halting_threshold"]]
        assert values == pytest.approx([own * (1 - place / 20) for place in range(1, 20)])


def test_a_rule_ends_at_the_first_setting_that_loses_too_much():
    """No later one could be accepted."""
    for needs, calls in ((4, 2), (3, 3)):
        model = scripted()
        run(model, task_of(*[needs] * 100), dataclasses.replace(GOAL, quick=True))
        assert model.calls == calls  # as trained, and those up to the first that is rejected


def test_a_quick_calibration_tests_every_fourth_setting_and_says_how_long_all_take():
    seconds = []
    goal = Goal(tolerance=0.9, confidence=0.5, rule="max_steps", quick=True)
    model = scripted(max_steps=14)
    found = calibrate(model, task_of(*[1] * 40), Selection("validation"), goal=goal, announce=seconds.append)
    assert [point.setting.value for point in found.points] == [10, 6, 2]
    assert seconds == [pytest.approx(3 * found.trained.seconds * 40)]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"goal": Goal(tolerance=0.005)}, r"validation: 100 examples are too few for a tolerance of 0.5 % with "
         r"confidence 95 %: at least 598 are needed, and more if some lose; give more examples"),
        ({"goal": Goal(tolerance=0.01), "split": "other"}, "other: 60 examples .* at least 299"),
        ({"rule": "halting_threshold"}, "nothing to calibrate: halting_threshold=.*trained without halting"),
        ({"split": "train"}, "no examples in train"),
        ({"batch_tokens": 0}, "batch_tokens: expected a whole number, at least 1"),
    ],
)  # fmt: skip
def test_mistakes_are_errors_of_one_line(choices, message):
    with pytest.raises(UserError, match=message):
        run(scripted(), task_of(*[1] * 100), **choices)


def test_an_exit_that_the_model_cannot_serve_is_an_error():
    with pytest.raises(UserError, match=r"nothing to calibrate: exit state_change.* at least 3 steps .* there are 2"):
        run(scripted(max_steps=2), task_of(*[1] * 100), rule="state_change")


def test_several_rules_need_more_examples(stories):
    with pytest.raises(UserError, match=r"at least 228 are needed, .*; one rule alone \(--rule\) needs 149"):
        run(model_for(stories), stories, Goal(tolerance=0.02), split="test", rule=None)


def test_the_level_is_divided_among_the_rules(stories, monkeypatch):
    """A setting that one rule alone would accept is not accepted where several are tested."""
    monkeypatch.setattr(depth_curves, "p_value", lambda *_, **__: 0.06)
    goal, model = Goal(tolerance=0.3, confidence=0.9), model_for(stories)
    assert run(model, stories, goal, split="test").chosen is not None
    several = run(model, stories, goal, split="test", rule=None)
    rules = len(several.rules)
    assert rules > 1
    assert several.chosen is None
    assert several.delta == pytest.approx(0.1 / rules)
    assert several.lines()[0].endswith(f"({percent(1 - 0.1 / rules)} for each of {rules} rules)")


def test_mean_steps_are_those_of_all_positions_of_both_sides():
    assert Outcome(scores=[1.0], answers=[()], steps=Counter({6: 2, 3: 1, 1: 1}), seconds=1.0).cost.mean_steps == 4.0


def test_a_model_of_one_step_has_nothing_to_calibrate():
    with pytest.raises(UserError, match="nothing to calibrate: max_steps: the model makes too few steps, 1"):
        run(scripted(max_steps=1), task_of(*[1] * 100))


def test_a_model_without_depth_has_nothing_to_calibrate(tmp_path):
    from universal_transformer.baselines.baseline_config import LstmConfig

    path = tmp_path / "train.tsv"
    path.write_text("".join(f"a b {n}\t{'xy'[n % 2]}\n" for n in range(100)))
    task = LabelledData(train=str(path), vocabulary_size=300).load()
    with pytest.raises(UserError, match="nothing to calibrate: rule max_steps: a model of kind lstm has no depth"):
        run(build(task.configure(LstmConfig(architecture="classifier", width=8))), task)


def test_the_choice_among_rules_is_by_steps_or_by_seconds():
    def point(rule, value, steps, seconds, *, accepted=True):
        cost = Cost(score=1.0, mean_steps=steps, seconds=seconds)
        return Point(setting=Setting(rule, float(value)), cost=cost, loss=0.0, p_value=0.0, accepted=accepted)

    points = [
        point("max_steps", 3, 3.0, 0.3),
        point("max_steps", 2, 2.0, 0.2),
        point("max_steps", 1, 1.0, 0.1, accepted=False),
        point("halting_threshold", 0.9, 1.9, 0.25),
        point("halting_threshold", 0.8, 1.8, 0.35),
    ]
    trained = Cost(score=1.0, mean_steps=4.0, seconds=0.15)
    assert cheapest(points, trained, by="steps") == Setting("halting_threshold", 0.8)
    assert cheapest(points, trained, by="seconds") is None
    slow = Cost(score=1.0, mean_steps=4.0, seconds=0.4)
    assert cheapest(points, slow, by="seconds") == Setting("max_steps", 2.0)


def test_the_time_of_what_may_be_chosen_is_the_shortest_of_three(monkeypatch):
    """A first measurement that other work has disturbed does not decide."""
    measured = {None: [9.0, 6.0, 8.0], 3: [4.0, 5.0, 5.0], 2: [7.0, 3.0, 2.0], 1: [1.0]}
    once = Trials.run

    def disturbed(self, options):
        outcome = once(self, options)
        outcome.seconds = measured[options.depth.max_steps].pop(0)
        return outcome

    monkeypatch.setattr(Trials, "run", disturbed)
    goal = dataclasses.replace(GOAL, cheapest="seconds")
    found = run(scripted(), task_of(*[1] * 80, *[2] * 120), goal)
    assert measured == {None: [], 3: [], 2: [], 1: []}, "max_steps 1 is not accepted, and is measured once"
    assert found.trained.seconds == pytest.approx(6.0 / 200)
    assert [point.cost.seconds for point in found.points] == pytest.approx([4.0 / 200, 2.0 / 200, 1.0 / 200])
    assert found.chosen == Setting("max_steps", 2.0)
