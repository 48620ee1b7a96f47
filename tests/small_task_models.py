"""Models of a task small enough to evaluate on the spot, and a codec for tasks made by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from configs import config_of, with_fields
from universal_transformer.registry import build
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.sides.side import Side

TINY = config_of(width=16, filter_width=32, num_heads=2, max_steps=4, halting=True, dropout=0.0)


def model_for(task, *, seed=0, **changes):
    torch.manual_seed(seed)
    model = build(task.configure(with_fields(TINY, **changes)))
    with torch.no_grad():  # larger weights, so that positions differ in what they say and how long they think
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)
    return model.eval()


@dataclass(frozen=True)
class Letters(Side):
    """Classes that are named by `letters`, of a model with `fields`."""

    kind: ClassVar[str] = "letters"
    letters: str = "abcdefghij"
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source_fields(self):
        return self.fields

    @property
    def target_fields(self):
        return {}

    def render(self, target):
        return "".join(self.letters[index] for index in target)

    def names(self, positions):
        return [str(token) for token in positions]


def letters(**given):
    """The codec of `Letters`."""
    return Codec.shared(Letters(**given))
