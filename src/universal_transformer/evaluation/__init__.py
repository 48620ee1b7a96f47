"""Evaluation: a model and a task give a report; a model and raw input give predictions."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from universal_transformer.evaluation.inference import InferenceOptions
    from universal_transformer.evaluation.measure import Progress, evaluate
    from universal_transformer.evaluation.prediction import predict
    from universal_transformer.evaluation.report import BySupports, Report, ScoreRow, StepCounts

_HOME = {
    "BySupports": "report",
    "InferenceOptions": "inference",
    "Progress": "measure",
    "Report": "report",
    "ScoreRow": "report",
    "StepCounts": "report",
    "evaluate": "measure",
    "predict": "prediction",
}

__all__ = [
    "BySupports",
    "InferenceOptions",
    "Progress",
    "Report",
    "ScoreRow",
    "StepCounts",
    "evaluate",
    "predict",
]


def __getattr__(name: str) -> object:
    """Import a name when it is first used, so that tables read reports without torch."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
