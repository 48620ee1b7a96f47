"""The calibration of a run: what each setting of depth costs on examples, and the setting that a run then uses.

It is ``RUN/calibration.json``, written by ``ut calibrate``.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.evaluation.metrics import METRICS, check_metric
from universal_transformer.evaluation.report import columns
from universal_transformer.evaluation.settings import DepthRule, Setting
from universal_transformer.files import quoted, read_json, show_path, write_json
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.models.pretrained import WEIGHTS
from universal_transformer.typed import NonNegative, Positive, Range, Share, typed

CALIBRATION = "calibration.json"
"""Name of the file in the folder of a run."""
Probability = Annotated[float, Range(0, 1)]
LossKind = Literal["drop", "changed"]
"""What an example loses: score, or the answer that it had (`depth_curves.losses`)."""
Measure = Literal["steps", "seconds"]
"""Of what the chosen setting has least."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a calibration looks for."""

    tolerance: Share
    """The largest expected loss of an example."""
    confidence: Share = 0.95
    """The probability that the expected loss is within the tolerance."""
    loss: LossKind = "drop"
    """Of what the expectation is bounded."""
    cheapest: Measure = "steps"
    rule: DepthRule | None = None
    """The only rule that is tested; None: each that the model serves."""
    quick: bool = False
    """Whether only every fourth setting of a rule is tested, and time is measured once."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a depth gives and takes, as means over the examples."""

    score: Probability
    """Mean score of an example (`Metric.example_score`)."""
    mean_steps: NonNegative
    """Mean steps of all positions, of both sides."""
    seconds: NonNegative
    """Measured time for an example, in batches."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting, in the order of testing."""

    setting: Setting
    cost: Cost
    loss: Probability
    """Mean loss."""
    p_value: Probability
    accepted: bool
    """Whether the test accepts this setting and all of this rule before it."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The outcome of `depth_curves.calibrate`."""

    weights: str
    """SHA-256 of the weights, which it is valid for."""
    task: str
    split: str
    metric: str
    count: Positive
    """Examples."""
    goal: Goal
    trained: Cost
    """The depth of training."""
    points: tuple[Point, ...]
    """Rule by rule, the settings of each in the order of testing."""
    chosen: Setting | None
    """None: no setting is within the tolerance, and the run keeps the depth of training."""
    device: str
    batch_tokens: Positive

    @property
    def rules(self) -> dict[DepthRule, list[Point]]:
        rules: dict[DepthRule, list[Point]] = {}
        for point in self.points:
            rules.setdefault(point.setting.rule, []).append(point)
        return rules

    @property
    def delta(self) -> float:
        """The level of the test of one rule, ``(1 - confidence) / number of rules`` (Bonferroni)."""
        return (1 - self.goal.confidence) / len(self.rules)

    @property
    def point(self) -> Point | None:
        return next((point for point in self.points if point.setting == self.chosen), None)

    @property
    def promise(self) -> str:
        """What holds of the chosen setting, in words."""
        goal = self.goal
        most, sure = percent(goal.tolerance), f"with confidence {percent(goal.confidence)}"
        if goal.loss == "changed":
            return f"at most {most} of the predictions change, {sure}"
        if METRICS[self.metric].right_or_wrong:
            return f"at most {most} of the answers turn from right to wrong, {sure}"
        return f"the score of an example falls by at most {100 * goal.tolerance:.4g} points of 100 in the mean, {sure}"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def save(self, run: Path) -> None:
        write_json(run / CALIBRATION, self.to_dict())

    @classmethod
    def load(cls, run: Path) -> Calibration:
        """Undo `save`; a missing, unknown or wrongly typed field is a UserError that names it."""
        place = show_path(run / CALIBRATION)
        found: Calibration = typed(read_json(run / CALIBRATION), cls, where=place)
        check_metric(found.metric, where=f"{place}: metric")
        return found

    def lines(self) -> list[str]:
        rules = len(self.rules)
        level = f" ({percent(1 - self.delta)} for each of {rules} rules)" if rules > 1 else ""
        return [
            f"{self.task} · {self.split} · {self.count:,} examples · {self.promise}{level}",
            *columns([["rule", "value", "steps", "ms/example", "score", "loss", "p", "result"], *self._rows()]),
            self.outcome,
        ]

    def _rows(self) -> Iterator[list[str]]:
        yield ["as trained", "", *_shown(self.trained), "", "", ""]
        for point in self.points:
            mark = "chosen" if point.setting == self.chosen else "accepted" if point.accepted else ""
            tail = [percent(point.loss), f"{point.p_value:.2g}", mark]
            yield [point.setting.rule, f"{point.setting.value:g}", *_shown(point.cost), *tail]

    @property
    def outcome(self) -> str:
        if (point := self.point) is None:
            if any(point.accepted for point in self.points):
                fewer = "less time" if self.goal.cheapest == "seconds" else "fewer steps"
                return f"no accepted setting takes {fewer}: the run keeps the depth of training"
            return (
                f"no setting with fewer steps is within {percent(self.goal.tolerance)} with confidence "
                f"{percent(self.goal.confidence)}: the run keeps the depth of training"
            )
        before, now = self.trained, point.cost
        slower = "" if now.seconds < before.seconds else " (it saves no time here; --cheapest seconds chooses by time)"
        return (
            f"chosen: {self.chosen}: {now.mean_steps:.2f} steps instead of {before.mean_steps:.2f}, "
            f"{1000 * now.seconds:.3g} ms for an example instead of {1000 * before.seconds:.3g}{slower}; {self.promise}"
        )


def weights_of(model: Path) -> str:
    with (model / WEIGHTS).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def calibrated(run: Path, options: DecodingOptions, *, model: Path, unlike: str = "") -> tuple[DecodingOptions, str]:
    """Return the options with the depth that the run was calibrated to, and a note that says so or why not.

    The options stay as they are, without a note, where there is no calibration, where it chose no setting, and where
    they have a depth of their own. They also stay, and the note says why, where the weights in `model` have changed
    since, and where the calibration does not cover the call: a beam search, sampling, or what the caller names as
    `unlike` the calibration (such as text that a language model writes, because only given text was scored).
    """
    if options.depth.chosen or not (run / CALIBRATION).is_file():
        return options, ""
    found, place = Calibration.load(run), show_path(run / CALIBRATION)
    if found.chosen is None:
        return options, ""
    if found.weights != weights_of(model):
        return options, f"{place} is of other weights and is not used: run ut calibrate {quoted(run)} again"
    if unlike := unlike or ("" if options.is_greedy else options.search_name):
        return options, f"{place} does not cover {unlike}: the depth of training is used"
    promise = f"on data like {found.task} · {found.split}, {found.promise}"
    return found.chosen.of(options), f"{found.chosen} by {place}: {promise}; --no-calibration turns it off"


def written_freely(config: BaseConfig) -> str:
    """Return what a model writes and a calibration does not cover, because it scored given text, pictures or frames."""
    kind = config.outputs.kind
    if not config.reads or kind != "tokens":
        what = {"tokens": "text", "raster": "pictures"}.get(kind, kind)
        return f"{what} that the model writes"
    return ""


def percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _shown(cost: Cost) -> list[str]:
    return [f"{cost.mean_steps:.2f}", f"{1000 * cost.seconds:.3g}", f"{cost.score:.4f}"]
