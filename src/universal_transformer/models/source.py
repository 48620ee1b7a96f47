"""The source side of a model: inputs to refined states."""

import torch
from torch import nn

from universal_transformer.axes import Bool, Float, Int, Padding, Positions, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.depth import recurrence
from universal_transformer.models.inputs import source_input
from universal_transformer.models.positions import (
    check_positions,
    count_separators,
    default_positions,
    draw_positions,
    restart_positions,
    without_padding,
)
from universal_transformer.nn.progress import Depth
from universal_transformer.nn.trace import NOTHING, Kept, Trace

Source = Int[Tensor, "batch source *words"] | Float[Tensor, "batch frame feature"]
"""Token ids, ids of the words of facts, or frames."""


class SourceSide(nn.Module):
    """Inputs (and the problem's embedding), refined over depth by the encoder's recurrence."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.input = source_input(config, config.sizes.width)
        self.space = None
        if config.tensor2tensor.num_target_spaces:
            self.space = nn.Parameter(torch.zeros(config.tensor2tensor.num_target_spaces, config.sizes.width))
        self.part = nn.Parameter(torch.zeros(config.sizes.width)) if config.vocabulary.separator_id else None
        self.dropout = nn.Dropout(config.step.dropout)
        self.recurrence = recurrence(config, decoder=False)

    def check_positions(self, positions: Tensor | None, *, of: Source) -> None:
        """UserError unless there is a position for each state that the input makes of a source."""
        if positions is not None:
            check_positions(positions, of=self.input.padding(of), name="source_positions")

    def draw_positions(self, source: Source) -> Positions:
        """Return random positions, to train on."""
        rows, length = self.input.padding(source).shape
        return draw_positions(self.config.coordinates, rows, length, device=source.device)

    def positions(self, source: Source, *, drawn: Positions | None = None) -> Positions:
        """Positions of the tokens: ``drawn``, or 0, 1, 2 …; after each separator they start again."""
        padding = self.input.padding(source)
        if drawn is None:
            seen = None if self.config.tensor2tensor.ponder_padding else without_padding(padding)
            drawn = default_positions(padding.shape[1], padding=seen, device=padding.device)
        if self.part is None:
            return drawn
        return restart_positions(drawn, separators=self._separators(source), padding=padding)

    def _separators(self, source: Source) -> Bool[Tensor, "batch source"]:
        """Where the tokens stand after which positions start again."""
        first, last = self.config.vocabulary.separator_id, self.config.vocabulary.last_separator_id
        return (source >= first) & (source <= (last or first))

    def forward(
        self,
        source: Source,
        *,
        positions: Positions | None = None,
        target_space: int = 0,
        depth: Depth | None = None,
        keep: Kept = NOTHING,
    ) -> tuple[States, Padding | None, Trace]:
        """States ``[batch, source, width]``, the padding (None when there is none), and the trace.

        ``depth``: from `recurrence`, by default as trained.
        """
        padding = without_padding(self.input.padding(source))
        states = self.input(source)
        spaces = self.config.tensor2tensor.num_target_spaces
        if not 0 <= target_space < max(1, spaces):
            raise UserError(f"target_space={target_space}: tensor2tensor.num_target_spaces={spaces}; leave it out or 0")
        if self.space is not None:
            states = states + self.space[target_space]
        if self.part is not None:
            parts = count_separators(self._separators(source))
            states = states + parts.unsqueeze(-1).to(states.dtype) * self.part
        if positions is None:
            positions = self.positions(source)
        states, trace = self.recurrence(
            self.dropout(states),
            encoding=self.recurrence.coordinates.encode(positions, padding=padding),
            padding=padding,
            ponder_padding=self.config.tensor2tensor.ponder_padding,
            depth=depth,
            keep=keep,
        )
        return states, padding, trace
