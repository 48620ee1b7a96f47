"""Evaluation: a model and a task give a report; a model and raw input give predictions."""
