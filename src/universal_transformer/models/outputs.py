"""What a model returns."""

from dataclasses import dataclass

from universal_transformer.axes import Float, Scalar, Tensor
from universal_transformer.nn.trace import Trace


@dataclass(frozen=True)
class ModelOutput:
    """Logits (``[batch, target, classes]``, ``[batch, classes]`` of a classifier, ``[batch, source, classes]`` of a
    tagger) and the traces over depth.

    ``step_logits``, on request: the same map of the states after each step, ``H^1 … H^T`` of the side that is read.
    """

    logits: Float[Tensor, "*batch classes"]
    encoder: Trace | None = None
    decoder: Trace | None = None
    step_logits: Float[Tensor, "step *batch classes"] | None = None

    @property
    def ponder_cost(self) -> Scalar:
        """Mean over real positions of ``N + R``, encoder term plus decoder term; 0 without halting."""
        terms = [trace.ponder_cost() for trace in (self.encoder, self.decoder) if trace is not None]
        return sum(terms[1:], terms[0]) if terms else self.logits.new_zeros(())

    @property
    def mean_steps(self) -> Scalar:
        """Mean steps over the real positions of both sides; 0 where there is no depth."""
        traces = [trace for trace in (self.encoder, self.decoder) if trace is not None]
        if not traces:
            return self.logits.new_zeros(())
        made = sum(trace.steps.sum() for trace in traces)
        real = sum(trace.steps.numel() if trace.padding is None else (~trace.padding).sum() for trace in traces)
        return (self.logits.new_zeros(()) + made) / real
