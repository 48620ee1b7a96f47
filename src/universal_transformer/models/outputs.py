"""What a model returns."""

from dataclasses import dataclass

import torch

from universal_transformer.axes import Float, Int, Scalar, Tensor
from universal_transformer.nn.trace import Trace


class _OverDepth:
    """What the traces of both sides give."""

    encoder: Trace | None
    decoder: Trace | None

    @property
    def answers(self) -> Tensor:
        """The first field: what the model predicts."""
        answers: Tensor = next(iter(vars(self).values()))
        return answers

    @property
    def traces(self) -> list[Trace]:
        """Those of the sides that have a depth."""
        return [trace for trace in (self.encoder, self.decoder) if trace is not None]

    @property
    def ponder_cost(self) -> Scalar:
        """Mean over real positions of ``N + R``, encoder term plus decoder term; 0 without halting."""
        terms = [trace.ponder_cost for trace in self.traces]
        return sum(terms[1:], terms[0]) if terms else self.answers.new_zeros(())

    @property
    def mean_steps(self) -> Scalar:
        """Mean steps over the real positions of both sides; 0 where there is no depth."""
        made = sum((trace.steps.sum() for trace in self.traces), self.answers.new_zeros(()))
        return made / sum((trace.num_positions() for trace in self.traces), torch.zeros_like(made)).clamp(min=1)


@dataclass(frozen=True)
class ModelOutput(_OverDepth):
    """Logits (``[batch, target, classes]``, ``[batch, classes]`` of a classifier, ``[batch, source, classes]`` of a
    tagger) and the traces over depth.

    ``step_logits``, on request: the same map of the states after each step, ``H^1 … H^T`` of the side that is read.
    """

    logits: Float[Tensor, "*batch classes"]
    encoder: Trace | None = None
    decoder: Trace | None = None
    step_logits: Float[Tensor, "step *batch classes"] | None = None


@dataclass(frozen=True)
class FrameOutput(_OverDepth):
    """Frames, the logit with which each position ends them, and the traces over depth."""

    frames: Float[Tensor, "batch target output"]
    stop: Float[Tensor, "batch new"]
    stride: int
    """Frames that a position writes."""
    encoder: Trace | None = None
    decoder: Trace | None = None

    @property
    def places(self) -> Int[Tensor, " target"]:
        """The position of each frame."""
        return torch.arange(self.frames.shape[1], device=self.frames.device) // self.stride
