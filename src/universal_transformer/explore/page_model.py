"""What a page says of a model and offers of its depth, whether a server answers it or a graph in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from universal_transformer.data.example import spread
from universal_transformer.errors import UserError
from universal_transformer.evaluation.settings import served
from universal_transformer.models.model import Model
from universal_transformer.pretrained_models import is_pretrained
from universal_transformer.pretrained_models.card import read_card
from universal_transformer.rules import stops_at
from universal_transformer.serve.completions import most_steps
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Task

CARD = "the card of the model"
"""The set of the inputs that a model of the package brings, where its test data are missing."""
COMPARED = 20
"""Examples of a set by which two tests are compared."""


def page_model(name: str, model: Model, codec: Codec[Any, Any]) -> dict[str, Any]:
    """JSON values: the form of its input, its trained depth, and the settings that each rule of depth offers.

    ``limits``: what the page does not offer of the depth.
    """
    config = model.config
    try:
        rules = {rule: [each.value for each in settings] for rule, settings in served(model).items()}
    except UserError:
        rules = {}
    return {
        "name": name,
        "view": {"form": "tokens"} if codec.target.continues else codec.source.view,
        "writes": config.decodes,
        "reads_files": bool(codec.source.suffixes),
        "max_steps": config.max_steps,
        "least_steps": 1,
        "most_steps": most_steps(config) if config.step.tied else config.max_steps,
        "halts": config.halts,
        "threshold": stops_at(config.halting) if config.halts else None,
        "rules": rules,
        "limits": "",
    }


def brought_inputs(folder: Path) -> list[str]:
    """The inputs that the model in a folder brings: the example of its card, where it has one."""
    return [read_card(folder).example[0]] if is_pretrained(folder) else []


def same_test(*tests: tuple[Task | None, Codec[Any, Any]]) -> bool:
    """Whether two models have the same test: sets of the same names and sizes, with equal inputs."""
    first, second = (_test(task, codec) for task, codec in tests)
    return first == second and first is not None


def _test(task: Task | None, codec: Codec[Any, Any]) -> object:
    if task is None:
        return None
    found = []
    for name, examples in task.test.items():
        some = [examples[number] for number in spread(range(len(examples)), count=COMPARED)]
        found.append((name, len(examples), [sorted(codec.words(each)) for each in some]))
    return found
