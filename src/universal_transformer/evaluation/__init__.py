"""Evaluation: a model and a task give a report; a model and raw input give predictions."""

from universal_transformer.evaluation.measure import Progress, evaluate
from universal_transformer.evaluation.prediction import predict
from universal_transformer.evaluation.report import BySupports, Report, Row, StepCounts

__all__ = ["BySupports", "Progress", "Report", "Row", "StepCounts", "evaluate", "predict"]
