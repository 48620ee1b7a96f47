"""The training objective: label-smoothed cross-entropy plus ponder cost (Graves 2016).

Some losses read what a model predicts after every step, not its output alone. CE_t is the cross-entropy of the head on
the state ``H^t`` (``Kept(states=True)``). A row is a target: a token, or the class of a sequence.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.nn import functional

from universal_transformer.axes import Bool, Float, Int, Scalar, Tensor
from universal_transformer.data.batch import Batch
from universal_transformer.data.example import PRESENT
from universal_transformer.evaluation.report import Side
from universal_transformer.evaluation.tensors import inputs_of
from universal_transformer.models.frame_input import blank_frames
from universal_transformer.models.frame_target import Written
from universal_transformer.models.model import Model
from universal_transformer.models.outputs import FrameOutput, ModelOutput
from universal_transformer.nn.context import Kept
from universal_transformer.nn.trace import Trace
from universal_transformer.training.batches import Counts

StepLoss = Literal["last", "mean", "increasing"]
Output = ModelOutput | FrameOutput
Precision = Callable[[], AbstractContextManager[object]]
"""Makes the autocast context in which a model is called."""
NEVER = 1.0
"""A threshold that no cumulative probability exceeds: positions take all steps."""
STOP_WEIGHT = 5.0
"""w of `frame_loss`: few positions are the last one, and count more often."""
MARGIN = 0.005
"""δ of `stop_targets`, in nats (that of Ouro's target, arXiv 2510.25741)."""
LEAST = 1e-7
"""The least probability whose logarithm is taken."""
StepLosses = Float[Tensor, "step row"]
Reduction = Literal["none", "sum"]


@dataclass(frozen=True)
class Loss:
    """A batch's loss and its parts; `total` is differentiable, the rest is detached."""

    total: Scalar
    """The cross-entropy (that of all steps, if asked for) + ponder_weight · ponder; in the stage "halting" another."""
    cross_entropy: Scalar
    """That of the output: mean over real targets, smoothed as asked."""
    ponder: Scalar
    """N + R, mean over real positions, encoder and decoder; 0 for a fixed depth."""
    num_targets: Int[Tensor, ""]
    """Target tokens that are not padding; for a classifier, examples whose class is known; for a tagger, positions
    whose class is; frames."""
    right: Bool[Tensor, "*batch"]
    """Which targets the largest logit names; of which frames it is rightly said whether their position is the last."""
    mean_steps: Scalar
    """N, mean over the real positions of encoder and decoder together."""
    steps: Mapping[Side, Scalar]
    """N, mean over the real positions of each side that has a recurrence over depth."""
    traces: Mapping[Side, Trace]
    """The traces of the same sides."""

    def figures(self) -> dict[str, Scalar]:
        """The values of a line of metrics, by name."""
        sides = {f"{side}_steps": value for side, value in self.steps.items()}
        shared = {name: getattr(self, name) for name in ("cross_entropy", "ponder", "mean_steps")}
        return {"loss": self.total.detach(), **shared, **sides}


def objective(
    model: Model,
    batch: Batch,
    *,
    counts: Counts | None = None,
    label_smoothing: float,
    ponder_weight: float,
    max_steps: int | None = None,
    step_loss: StepLoss | Literal["stop", "expected"] = "last",
) -> Loss:
    """``L = CE + ponder_weight · (N + R)`` with ``CE = -1/n Σ_i Σ_c q_ic log p_ic``, with teacher forcing.

    n counts the real targets of the batch: tokens that are not padding, examples of a classifier, positions of a tagger
    that have a class, or labels of examples that may have several (`label_losses`). Terms have the weights of their
    examples, if these have some (`Batch.weights`). q is ``1 - label_smoothing`` at the right answer plus
    ``label_smoothing / classes`` everywhere (model.md, section 6).
    `max_steps` replaces the configured depth. In training with the rule ponder, CE is its expectation over the last
    step, and ``N + R`` a divergence (`rules/ponder.py`). `step_loss`: `deep_supervision`; with "stop" (the stage
    "halting") L is `stop_loss`, and with "expected" CE is the expectation in evaluation too. In the calls of both
    nothing halts.
    With `counts` the batch is a part of a larger one, whose numbers all means are taken by: the figures of its parts
    add up to those of the larger batch, times the number of processes. Of a model that writes frames, CE is the loss of
    `frame_loss`.
    """
    depth: dict[str, Any] = {} if max_steps is None else {"max_steps": max_steps}
    if step_loss in ("stop", "expected"):
        depth["halting_threshold"] = NEVER
    expected, target = model.training and model.config.expects_loss, batch.target
    if step_loss != "last" or expected:
        depth["keep"] = Kept(states=True)
    output = model(*inputs_of(batch, model=model), **depth)
    ignored = batch.ignored
    if isinstance(output, FrameOutput):
        real, step_logits = ~blank_frames(target), None
        total, right = frame_loss(output, target)
    else:
        real, step_logits = target != ignored, output.step_logits
        logits, weights = output.logits.to(torch.promote_types(output.logits.dtype, torch.float32)), batch.weights
        losses, names = LOSSES.get(model.writes, (cross_entropies, of_largest))
        (total,) = losses(
            logits.unsqueeze(0),
            target,
            ignored=ignored,
            label_smoothing=label_smoothing,
            reduction="sum" if weights is None else "none",
        )
        total = total if weights is None else (weights.flatten() * total).sum()
        right = names(logits.detach(), target) & real
    count = real.sum().clamp(min=1) if counts is None else counts.targets
    both: dict[Side, Trace | None] = {"encoder": output.encoder, "decoder": output.decoder}
    traces = {side: trace for side, trace in both.items() if trace is not None}
    cross_entropy = total / count
    ponder = output.ponder_cost if counts is None else counts.ponder_cost(traces)
    trained = cross_entropy + ponder_weight * ponder
    read = output.decoder or output.encoder
    if step_logits is not None and read is not None:
        each = losses(step_logits, target, ignored=ignored, label_smoothing=label_smoothing)
        if weights is not None and step_loss != "stop":
            each = each * weights.flatten()
        if step_loss == "stop":
            least = model.config.depth.min_steps
            trained = stop_loss(each.detach(), read, real=real.flatten()[: each.shape[1]], min_steps=least)
            trained = trained * (real.sum().clamp(min=1) / count)
        elif step_loss == "expected" or expected:
            trained = expected_loss(each, read) / count + ponder_weight * ponder
        elif step_loss != "last":
            supervised = deep_supervision(each, read, weights=step_loss) / count
            if read.probability is not None:  # the output mixes these states
                supervised = (supervised + cross_entropy) / 2
            trained = supervised + ponder_weight * ponder
    with torch.no_grad():
        steps = {side: trace.mean_steps() for side, trace in traces.items()}
        mean_steps = output.mean_steps
        if counts is not None:
            steps = {side: counts.mean_steps({side: trace}) for side, trace in traces.items()}
            mean_steps = counts.mean_steps(traces)
    return Loss(
        total=trained,
        cross_entropy=cross_entropy.detach(),
        ponder=ponder.detach(),
        num_targets=real.sum(),
        right=right,
        mean_steps=mean_steps.detach(),
        steps=steps,
        traces=traces,
    )


def frame_loss(output: FrameOutput, target: Written) -> tuple[Scalar, Bool[Tensor, "batch frame"]]:
    """The loss of written frames, a sum over real ones, and of which it is right that they are the last or not.

    With ``Y`` the frames of the target, ``Ŷ`` those of the model, F features, the stop logit ``z`` of the position that
    wrote a frame, and ``e`` 1 for the frames of the last position and 0 for others:

        Σ_i [ 1/F Σ_f (|Ŷ_if - Y_if| + (Ŷ_if - Y_if)²) - w e_i log σ(z_i) - (1 - e_i) log(1 - σ(z_i)) ]

    The absolute difference gives weak bands more weight, and the square gives loud bands more weight.
    """
    real = ~blank_frames(target)
    wide = torch.promote_types(output.frames.dtype, torch.float32)
    difference = output.frames.to(wide) - target.nan_to_num()
    spectral = (difference.abs() + difference.square()).mean(-1)
    place = output.places
    last = place == (place * real).amax(dim=1, keepdim=True)
    logits = output.stop.to(wide)[:, place]
    weight = torch.tensor(STOP_WEIGHT, dtype=wide, device=logits.device)
    stop = functional.binary_cross_entropy_with_logits(logits, last.to(wide), pos_weight=weight, reduction="none")
    return ((spectral + stop) * real).sum(), ((logits > 0) == last) & real


def cross_entropies(
    step_logits: Float[Tensor, "step *batch classes"],
    target: Int[Tensor, "*batch"],
    *,
    ignored: int,
    label_smoothing: float = 0.0,
    reduction: Reduction = "none",
) -> Float[Tensor, "step *row"]:
    """CE_t of every row, 0 where the target is `ignored`, or their sum."""
    return torch.stack(
        [
            functional.cross_entropy(
                logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2),
                target.flatten(),
                ignore_index=ignored,
                label_smoothing=label_smoothing,
                reduction=reduction,
            )
            for logits in step_logits
        ]
    )


def of_largest(logits: Float[Tensor, "*batch classes"], target: Int[Tensor, "*batch"]) -> Bool[Tensor, "*batch"]:
    """Whether the largest logit names the target."""
    return logits.argmax(-1) == target


def label_losses(
    step_logits: Float[Tensor, "step batch label"],
    target: Int[Tensor, "batch label"],
    *,
    ignored: int,
    label_smoothing: float = 0.0,
    reduction: Reduction = "none",
) -> Float[Tensor, "step *row"]:
    """``-Σ_k [q_k log σ(z_tk) + (1 - q_k) log(1 - σ(z_tk))]`` of every example, q_k the smoothed 0 or 1 of label k: the
    cross-entropy of K answers, yes or no.
    """
    del ignored  # of an example all labels are known
    wide = step_logits.to(torch.promote_types(step_logits.dtype, torch.float32))
    wanted = (target == PRESENT).to(wide.dtype) * (1 - label_smoothing) + label_smoothing / 2
    rows = functional.binary_cross_entropy_with_logits(wide, wanted.expand_as(wide), reduction="none").sum(-1)
    return rows.sum(-1) if reduction == "sum" else rows


def of_sign(logits: Float[Tensor, "batch label"], target: Int[Tensor, "batch label"]) -> Bool[Tensor, "batch label"]:
    """Whether the sign of a logit says if the label is present."""
    return (logits > 0) == (target == PRESENT)


LOSSES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {"labels": (label_losses, of_sign)}
"""What a model writes -> the loss of each row after each step, and which targets are right; others have classes."""


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
