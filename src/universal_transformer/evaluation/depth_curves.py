"""What fewer steps cost a trained model: its loss, steps and time by rule and setting, and the cheapest within a goal.

The model itself runs with each setting. A simulation from the states of full depth would be another policy: where
positions stop one by one, others see the last state of a position that has stopped.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import fsum, inf
from operator import itemgetter

from universal_transformer.data.example import Example
from universal_transformer.decoding.generation import evaluating
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.calibration import Calibration, Cost, Goal, LossKind, Measure, Point, percent
from universal_transformer.evaluation.measure import Progress, Selection, batches, select_examples
from universal_transformer.evaluation.metrics import Inference, Metric, metric_of
from universal_transformer.evaluation.risk import least_count, num_accepted, p_value
from universal_transformer.evaluation.settings import Setting, served
from universal_transformer.evaluation.tensors import device_of
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Task

TIMED, FASTEST = 3, 3
"""How often the time of a setting that may be chosen is measured, and how many settings these are."""
QUICK = 4
"""A quick calibration tests every so-many-th setting of a rule that has as many."""


@dataclass
class Outcome:
    """What a model gave with one setting of depth, by example."""

    scores: list[float] = field(default_factory=list)
    answers: list[tuple[int, ...]] = field(default_factory=list)
    steps: Counter[int] = field(default_factory=Counter)
    """How many positions, of both sides, took a number of steps."""
    seconds: float = 0.0
    """For all examples."""

    @property
    def cost(self) -> Cost:
        return Cost(
            score=min(1.0, sum(self.scores) / len(self.scores)),
            mean_steps=sum(n * count for n, count in self.steps.items()) / max(1, self.steps.total()),
            seconds=self.seconds / len(self.scores),
        )


def losses(before: Outcome, after: Outcome, *, loss: LossKind, metric: Metric) -> list[float]:
    """Return the loss in [0, 1] of each example, from what it was with the depth of training.

    ``drop`` is ``max(0, score before - score after)``. ``changed`` is `Metric.changed` of both answers.
    """
    if loss == "drop":
        return [max(0.0, one - other) for one, other in zip(before.scores, after.scores, strict=True)]
    return list(map(metric.changed, before.answers, after.answers))


@dataclass
class Trials:
    """Runs a model on the same batches with one setting after the other."""

    model: Model
    metric: Metric
    batches: list[list[Example]]
    progress: Progress | None
    total: int
    """Examples of all trials."""
    done: int = 0

    def run(self, options: DecodingOptions) -> Outcome:
        found, inference = Outcome(), Inference(self.model, options)
        with evaluating(self.model):
            for batch in self.batches:
                start = time.perf_counter()
                sums = self.metric.answers(inference, batch)
                found.seconds += time.perf_counter() - start
                for one in sums:
                    found.scores.append(self.metric.example_score(one))
                    found.answers.append(one.answer)
                    for counts in one.steps.values():
                        found.steps.update(counts)
                self.done += len(batch)
                if self.progress is not None:
                    self.progress(self.done, self.total)
        return found


VALIDATION = Selection("validation")


def calibrate(
    model: Model,
    task: Task,
    examples: Selection = VALIDATION,
    *,
    goal: Goal,
    batch_tokens: int = 16384,
    progress: Progress | None = None,
    announce: Callable[[float], object] | None = None,
) -> Calibration:
    """Run `model` on a split of `task` with settings of depth, and choose the cheapest within the `goal`.

    The settings of a rule are tested in their order, at the level ``(1 - confidence) / number of rules``, up to the
    first that is not accepted (`risk`), after which none can be: the risks of all accepted settings are then within the
    tolerance with the stated confidence. The time of the depth of training and of the `FASTEST` accepted settings is
    the shortest of `TIMED` measurements, because other work of the machine can only make it longer. `announce` is
    called with the seconds that all settings take at most, once the depth of training has been timed. The field
    `weights` is left to the caller.

    UserError for a model without a depth to choose, or that does not serve the rule, and for too few examples.
    """
    metric, options = metric_of(task), DecodingOptions()
    if reason := metric.uncalibrated(goal.loss):
        raise UserError(reason)
    metric.check(model, options)
    settings = {
        rule: (goal.quick and of_rule[QUICK - 1 :: QUICK]) or of_rule
        for rule, of_rule in served(model, wanted=goal.rule).items()
    }
    sets, _ = select_examples(task, examples)
    chosen = [example for part in sets.values() for example in part]
    delta = (1 - goal.confidence) / len(settings)
    check_count(len(chosen), goal=goal, rules=len(settings), name=examples.split)
    batched = [[chosen[index] for index in one] for one in batches(model, chosen, batch_tokens=batch_tokens)]
    again = 0 if goal.quick else TIMED - 1
    runs = 1 + sum(map(len, settings.values())) + again * (1 + FASTEST)
    trials = Trials(model, metric, batched, progress, runs * len(chosen))
    before = trials.run(options)
    if announce is not None:
        announce((runs - 1) * before.seconds)
    found, lost, p_values, good = dict[Setting, Outcome](), dict[Setting, list[float]](), dict[Setting, float](), []
    for of_rule in settings.values():
        for place, setting in enumerate(of_rule, start=1):
            found[setting] = trials.run(setting.of(options))
            lost[setting] = losses(before, found[setting], loss=goal.loss, metric=metric)
            p_values[setting] = p_value(lost[setting], tolerance=goal.tolerance)
            if not num_accepted([p_values[setting]], delta=delta):
                trials.total -= (len(of_rule) - place) * len(chosen)
                break
            good.append(setting)
    fastest = sorted(good, key=lambda setting: _amount(found[setting].cost, goal.cheapest))[:FASTEST]
    for _ in range(again if good else 0):
        for outcome, timed in ((before, options), *((found[setting], setting.of(options)) for setting in fastest)):
            outcome.seconds = min(outcome.seconds, trials.run(timed).seconds)
    points = tuple(
        Point(
            setting=setting,
            cost=outcome.cost,
            loss=fsum(lost[setting]) / len(chosen),
            p_value=p_values[setting],
            accepted=setting in good,
        )
        for setting, outcome in found.items()
    )
    return Calibration(
        weights="",
        task=task.name,
        split=examples.split,
        metric=task.metric,
        count=len(chosen),
        goal=goal,
        trained=before.cost,
        points=points,
        chosen=cheapest(points, before.cost, by=goal.cheapest),
        device=device_of(model).type,
        batch_tokens=batch_tokens,
    )


def check_count(count: int, *, goal: Goal, rules: int, name: str) -> None:
    """UserError if the examples are too few for a goal, even if none of them lost anything."""
    needed, alone = (
        least_count(tolerance=goal.tolerance, delta=(1 - goal.confidence) / number) for number in (rules, 1)
    )
    if count < needed:
        one = f"; one rule alone (--rule) needs {alone:,}" if rules > 1 else ""
        raise UserError(
            f"{name}: {count:,} examples are too few for a tolerance of {percent(goal.tolerance)} with confidence "
            f"{percent(goal.confidence)}: at least {needed:,} are needed, and more if some lose{one}; give more "
            "examples (ut calibrate: a larger --limit, --validation-size for data that are generated, --data.test for "
            "files), a larger tolerance or a lower confidence"
        )


def cheapest(points: Sequence[Point], trained: Cost, *, by: Measure) -> Setting | None:
    """Return the accepted setting of least steps or seconds; None if none has less than the depth of training."""
    accepted = [(_amount(point.cost, by), point.setting) for point in points if point.accepted]
    least, setting = min(accepted, key=itemgetter(0), default=(inf, None))
    return setting if least < _amount(trained, by) else None


def _amount(cost: Cost, by: Measure) -> float:
    return cost.mean_steps if by == "steps" else cost.seconds
