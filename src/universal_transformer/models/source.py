"""The source side of a model: inputs to refined states."""

from typing import Any

import torch
from torch import nn

from universal_transformer.axes import Bool, Float, Int, Padding, Positions, States, Tensor
from universal_transformer.models.depth import recurrence
from universal_transformer.models.inputs import INPUTS
from universal_transformer.models.model import Call, EncodedSource
from universal_transformer.models.model_config import BaseConfig, ModelConfig
from universal_transformer.models.positions.numbering import (
    count_separators,
    default_positions,
    restart_positions,
    without_padding,
)
from universal_transformer.nn.context import Context, key_mask
from universal_transformer.rules.length import of_lengths

Source = Int[Tensor, "batch source *words"] | Float[Tensor, "batch frame feature"]
"""Token ids, ids of the words of facts, or frames."""


class InputSide(nn.Module):
    """What sides that read a source have in common: their input, of states with ``width`` channels."""

    def __init__(self, config: BaseConfig, width: int) -> None:
        super().__init__()
        self.config: Any = config
        self.input = INPUTS[config.inputs.kind](config, width)

    def check(self, source: Tensor) -> None:
        """UserError unless ``source`` has the type and the axes that the input reads."""
        self.input.check(source)

    def padding(self, source: Source) -> Padding | None:
        return without_padding(self.input.padding(source))

    def length(self, source: Source) -> int:
        return self.input.padding(source).shape[1]


class SourceSide(InputSide):
    """Inputs, refined over depth by the encoder's recurrence."""

    config: ModelConfig

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.sizes.width)
        self.part = nn.Parameter(torch.zeros(config.sizes.width)) if config.vocabulary.separators else None
        self.dropout = nn.Dropout(config.step.dropout)
        self.recurrence = recurrence(config, decoder=False)

    def positions(self, source: Source, *, drawn: Positions | None = None) -> Positions:
        """Positions of the tokens: ``drawn``, or 0, 1, 2 …; after each separator they start again."""
        padding = self.input.padding(source)
        if drawn is None:
            drawn = default_positions(padding.shape[1], padding=without_padding(padding), device=padding.device)
        if self.part is None:
            return drawn
        return restart_positions(drawn, separators=self._separators(source), padding=padding)

    def _separators(self, source: Source) -> Bool[Tensor, "batch source"]:
        """Where the tokens stand after which positions start again."""
        return torch.stack([source == separator for separator in self.config.vocabulary.separators]).any(dim=0)

    def embed(self, source: Source) -> States:
        """The inputs of the recurrence, before dropout."""
        states: States = self.input(source)
        if self.part is None:
            return states
        return states + count_separators(self._separators(source)).unsqueeze(-1).to(states.dtype) * self.part

    def forward(self, source: Source, call: Call) -> EncodedSource:
        """The refined states ``[batch, source, width]``."""
        padding, positions = self.padding(source), self.positions(source, drawn=call.positions[0])
        states = self.embed(source)
        context = self.context(states.shape[1], call, padding=padding, positions=positions)
        states, trace = self.recurrence(self.dropout(states), context)
        return EncodedSource(states, padding, positions, trace)

    def context(self, length: int, call: Call, *, padding: Padding | None, positions: Positions) -> Context:
        """The context of ``length`` positions."""
        context = Context(
            depth=call.depth.of(self.recurrence, head=call.read, scope="sequence" if call.together else "position"),
            encoding=self.recurrence.coordinates.position(positions, padding=padding),
            padding=padding,
            mask=None if padding is None else key_mask(padding),
            record=call.keep.record(),
            keep_states=call.keep.states and call.read is not None,
        )
        if self.config.by_length(decoder=False) and call.depth.max_steps is None:
            return of_lengths(context, positions=length)
        return context
