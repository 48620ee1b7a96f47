"""Losses that read what a model predicts after every step, not its output alone.

CE_t is the cross-entropy of the head on the state ``H^t`` (``Kept(states=True)``). A row is a target: a token, or the
class of a sequence.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional

from universal_transformer.axes import Bool, Float, Int, Scalar, Tensor
from universal_transformer.nn.trace import Trace

MARGIN = 0.005
"""δ of `stop_targets`, in nats (that of Ouro's target, arXiv 2510.25741)."""

LEAST = 1e-7
"""The least probability whose logarithm is taken."""

StepLosses = Float[Tensor, "step row"]


def cross_entropies(
    step_logits: Float[Tensor, "step *batch classes"],
    target: Int[Tensor, "*batch"],
    *,
    ignored: int,
    label_smoothing: float = 0.0,
) -> StepLosses:
    """CE_t of every row, 0 where the target is `ignored`."""
    return torch.stack(
        [
            functional.cross_entropy(
                logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2),
                target.flatten(),
                ignore_index=ignored,
                label_smoothing=label_smoothing,
                reduction="none",
            )
            for logits in step_logits
        ]
    )


def deep_supervision(each: StepLosses, trace: Trace, *, weights: Literal["mean", "increasing"]) -> Scalar:
    """``Σ_i Σ_t v_t CE_it / Σ_t v_t`` over rows i and the steps ``t = 1 … N_i`` that the row made.

    v_t is 1 ("mean": Palm, Paquet and Winther 2018, Recurrent Relational Networks) or t ("increasing": Schuster et al.
    2022, Confident Adaptive Language Modeling). The rows of `each` are the positions of the trace, or its sequences:
    N_i is then that of the position with most steps.
    """
    made = trace.steps.flatten() if trace.steps.numel() == each.shape[1] else trace.steps.amax(-1)
    step = torch.arange(1, len(each) + 1, device=each.device).unsqueeze(1)
    value = (step <= made) * (1.0 if weights == "mean" else step.to(each.dtype))
    return ((value * each).sum(0) / value.sum(0).clamp(min=1.0)).sum()


def expected_loss(each: StepLosses, trace: Trace) -> Scalar:
    """``Σ_i Σ_t p_it CE_it`` over rows i, p_it the probability that step t is the last one (PonderNet).

    The rows of `each` are the positions of the trace, or its sequences, of which all positions have the same p.
    """
    assert trace.weight is not None
    return (_of_rows(trace.weight, each) * each).sum()


def _of_rows(values: Float[Tensor, "step batch position"], each: StepLosses) -> StepLosses:
    """Return values of positions for the rows of `each`: positions, or sequences whose positions have equal values."""
    by_position = values.flatten(1)
    return by_position if by_position.shape[1] == each.shape[1] else values.amax(-1)


def stop_targets(each: StepLosses) -> Bool[Tensor, "before row"]:
    """Whether to stop after step t, for ``t = 1 … T - 1``: ``min_{t' > t} CE_t' >= CE_t - δ``.

    The target of RecurTrace (arXiv 2609.03379), where it is the probability of going on.
    """
    later = each.flip(0).cummin(0).values.flip(0)[1:]
    return later >= each[:-1] - MARGIN


def stop_loss(each: StepLosses, trace: Trace, *, real: Bool[Tensor, " row"], min_steps: int = 1) -> Scalar:
    """``mean BCE(p_t, s_t)`` over real rows and over the steps ``min_steps … T - 1``, s_t of `stop_targets`.

    p_t is the probability of the halting unit after step t in a call in which nothing halts. The rows of `each` are the
    positions of the trace, or its sequences: then all positions of a sequence have the same p_t.
    """
    assert trace.probability is not None
    probability = _of_rows(trace.probability, each)[min_steps - 1 : -1]
    stop = stop_targets(each)[min_steps - 1 :]
    terms = -torch.where(stop, probability, 1.0 - probability).clamp(min=LEAST).log()
    return (terms * real).sum() / (real.sum().clamp(min=1) * len(terms))
