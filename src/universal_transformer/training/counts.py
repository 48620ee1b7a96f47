"""The numbers that the loss of a batch is divided by, where several passes or processes compute its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from universal_transformer.axes import Scalar, Tensor
from universal_transformer.data.batch import Batch
from universal_transformer.evaluation.report import Side
from universal_transformer.models.components import ENCODERS
from universal_transformer.models.frame_input import blank_frames, join_blank
from universal_transformer.models.model import Model
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.source import SourceSide
from universal_transformer.nn.trace import Trace
from universal_transformer.training.batches import Part
from universal_transformer.training.processes import Processes


@dataclass(frozen=True)
class Counts:
    """What one of the parts is divided by: the number of the whole batch, over the number of processes.

    The gradient of a run is the mean over processes, so that the sum of the parts is divided by the number of the whole
    batch.
    """

    targets: Scalar
    """Targets (tokens, frames) that are not padding."""
    positions: dict[Side, Scalar]
    """Real positions of encoder and decoder."""
    sequences: Scalar | None = None
    """Sequences, of a model whose ponder cost is a mean over them."""

    def ponder_cost(self, traces: Mapping[Side, Trace]) -> Scalar:
        """Return the share of a part in the ponder cost (`ModelOutput.ponder_cost`)."""
        shares = {side: trace.num_positions() / self.positions[side] for side, trace in traces.items()}
        if self.sequences is not None:
            shares = {side: len(trace.steps) / self.sequences for side, trace in traces.items()}
        terms = [trace.ponder_cost * shares[side] for side, trace in traces.items()]
        return sum(terms, self.targets.new_zeros(()))

    def mean_steps(self, traces: Mapping[Side, Trace]) -> Scalar:
        """Return the share of a part in the mean number of steps of these sides."""
        made = sum((trace.steps.sum() for trace in traces.values()), self.targets.new_zeros(()))
        return made / sum((self.positions[side] for side in traces), self.targets.new_zeros(())).clamp(min=1e-9)


def counts_of(model: Model, parts: Sequence[Part], *, processes: Processes) -> Counts:
    """Return the counts of a batch from its parts in all processes."""
    found = torch.stack([_count(model, part.batch) * part.weight for part in parts]).sum(0)
    targets, encoder, decoder, sequences = (processes.sum(found) / processes.size).clamp(min=1e-9)
    by_sequence = sequences if _ponders_by_sequence(model) else None
    return Counts(targets, {"encoder": encoder, "decoder": decoder}, by_sequence)


def _ponders_by_sequence(model: Model) -> bool:
    """Return whether the ponder cost is a mean over sequences, whose positions stop together (`PonderUnit.cost`)."""
    config = model.config
    if not isinstance(config, ModelConfig) or not config.expects_loss:
        return False
    return config.architecture == "classifier" or config.halting.scope == "sequence"


def _count(model: Model, batch: Batch) -> Tensor:
    """Return the number of targets, of real positions of encoder and decoder, and of sequences."""
    config = model.config
    if frames := batch.target.is_floating_point():
        targets = ~blank_frames(batch.target)
    else:
        targets = batch.target != batch.ignored
    counted = isinstance(config, ModelConfig) and config.ponders_padding
    encoder = decoder = targets.new_zeros((1,))
    if isinstance(side := getattr(model, "source", None), SourceSide) and batch.source is not None:
        encoder = side.input.padding(batch.source).logical_not() | counted
    if frames:
        assert isinstance(config, ModelConfig)
        decoder = ~join_blank(~targets, stride=config.outputs.stride)
    elif config.architecture not in ENCODERS:
        decoder = targets | counted
    sequences = targets.new_ones(len(targets))
    return torch.stack([each.sum() for each in (targets, encoder, decoder, sequences)]).double()
