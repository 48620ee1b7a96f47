"""Models with the choices of official checkpoints (tensor2tensor): their sides embed the problem and see padding."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from universal_transformer.axes import Int, Padding, Positions, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.interop.tensor2tensor_config import OfficialConfig
from universal_transformer.interop.tensor2tensor_parts import OfficialRecurrence
from universal_transformer.models.generated import Generated
from universal_transformer.models.model import Output
from universal_transformer.models.positions.numbering import default_positions
from universal_transformer.models.source import Source, SourceSide
from universal_transformer.models.target import TargetSide
from universal_transformer.models.universal import Classifier, EncoderDecoder, LanguageModel, Tagger


def check_space(target_space: int, *, spaces: int) -> int:
    """``target_space``; UserError unless there is an embedding of this problem, or it is 0 where there are none."""
    if type(target_space) is not int or not 0 <= target_space < max(1, spaces):
        allowed = f"0 to {spaces - 1}" if spaces else "none but 0, because this model has no embedding of problems"
        raise UserError(
            f"target_space={target_space}: allowed are {allowed} (tensor2tensor.num_target_spaces={spaces})"
        )
    return target_space


class OfficialSource(SourceSide):
    """A source to each position of which the vector of a problem is added: ``target_space`` is its number."""

    config: OfficialConfig
    recurrence: OfficialRecurrence

    def __init__(self, config: OfficialConfig) -> None:
        super().__init__(config)
        self.spaces, self.target_space = config.tensor2tensor.num_target_spaces, 0
        self.space = nn.Parameter(torch.zeros(self.spaces, config.sizes.width)) if self.spaces else None

    @contextmanager
    def problem(self, target_space: int | None) -> Iterator[None]:
        """Sources inside are of this problem; None: of that of the calls around."""
        before = self.target_space
        self.target_space = before if target_space is None else check_space(target_space, spaces=self.spaces)
        try:
            yield
        finally:
            self.target_space = before

    def embed(self, source: Source) -> States:
        states = super().embed(source)
        return states if self.space is None else states + self.space[self.target_space]

    def positions(self, source: Source, *, drawn: Positions | None = None) -> Positions:
        """Positions of the tokens; where padding ponders, it is counted like them."""
        if drawn is None and self.config.ponders_padding:
            drawn = default_positions(self.length(source), padding=None, device=source.device)
        return super().positions(source, drawn=drawn)


class OfficialTarget(TargetSide):
    """A target in which no token is padding, where padding ponders."""

    recurrence: OfficialRecurrence

    def padding(self, labels: Int[Tensor, "batch target"]) -> Padding | None:
        return None if self.config.ponders_padding else super().padding(labels)


class OfficialEncoderDecoder(EncoderDecoder):
    """An encoder-decoder whose source is of one of several problems (``target_space``)."""

    config_kind = OfficialConfig
    source_side, target_side = OfficialSource, OfficialTarget
    config: OfficialConfig
    source: OfficialSource
    target: OfficialTarget

    def forward(self, *inputs: Tensor, target_space: int | None = None, **options: Any) -> Output:
        with self.source.problem(target_space):
            return super().forward(*inputs, **options)

    def start(self, source: Tensor | None = None, *, target_space: int | None = None, **options: Any) -> Any:
        with self.source.problem(target_space):
            return super().start(source, **options)

    def generate(self, source: Any, *, target_space: int | None = None, **options: Any) -> list[Generated]:
        with self.source.problem(target_space):
            return super().generate(source, **options)


class OfficialLanguageModel(LanguageModel):
    """The decoder alone."""

    config_kind = OfficialConfig
    target_side = OfficialTarget
    target: OfficialTarget


class OfficialClassifier(Classifier):
    """The encoder alone, and one class."""

    config_kind = OfficialConfig
    source_side = OfficialSource


class OfficialTagger(Tagger):
    """The encoder alone, and one class for each position."""

    config_kind = OfficialConfig
    source_side = OfficialSource
