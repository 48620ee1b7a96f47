"""A score as values of a line of metrics, and as text."""

from __future__ import annotations

import math

from universal_transformer.evaluation.report import METRICS, Side
from universal_transformer.training.tracking import Value
from universal_transformer.training.validation import Score


def numbers(score: Score) -> dict[str, Value]:
    """Return a score as values of a line of metrics."""
    steps = {steps_name(side): mean for side, mean in score.steps.items()}
    plain = {"cross_entropy": score.cross_entropy, "error": score.error, "mean_steps": score.mean_steps}
    metric: dict[str, Value] = {}
    for name, value in score.metric.items():
        metric = {"metric_name": name, "metric": value}
    return {**plain, **steps, **metric, "perplexity": math.exp(min(score.cross_entropy, 100.0))}


def metric_text(score: Score) -> list[str]:
    """Return the score of the task as a text; an empty list where weights are not chosen by it."""
    return [f"{METRICS[name].title} {value:.{METRICS[name].decimals}f}" for name, value in score.metric.items()]


def steps_name(side: Side) -> str:
    """Return the name that metrics.jsonl has for the mean steps of a side."""
    return f"{side}_steps"
