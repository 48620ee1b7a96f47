"""The training objective: label-smoothed cross-entropy plus ponder cost (paper, section 2; Graves 2016)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.nn import functional

from universal_transformer.axes import Int, Scalar, Tensor
from universal_transformer.data.batch import Batch
from universal_transformer.evaluation.report import Side
from universal_transformer.evaluation.tensors import inputs_of
from universal_transformer.models.frame_input import blank_frames
from universal_transformer.models.frame_target import Written
from universal_transformer.models.model import Model
from universal_transformer.models.outputs import FrameOutput, ModelOutput
from universal_transformer.nn.context import Kept
from universal_transformer.nn.trace import Trace
from universal_transformer.training.batches import Counts
from universal_transformer.training.step_losses import cross_entropies, deep_supervision, expected_loss, stop_loss

StepLoss = Literal["last", "mean", "increasing"]
Output = ModelOutput | FrameOutput
Precision = Callable[[], AbstractContextManager[object]]
"""Makes the autocast context in which a model is called."""
NEVER = 1.0
"""A threshold that no cumulative probability exceeds: positions take all steps."""
STOP_WEIGHT = 5.0
"""w of `frame_loss`: few positions are the last one, and count more often."""


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
    num_correct: Int[Tensor, ""]
    """Targets that the largest logit names; frames of which it is rightly said whether their position is the last."""
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

    n counts the real targets of the batch: tokens that are not padding, examples of a classifier, or positions of a
    tagger that have a class. q is ``1 - label_smoothing`` at the right answer plus ``label_smoothing / classes``
    everywhere (model.md, section 6). `max_steps` replaces the configured depth. In training with the rule ponder, CE is
    its expectation over the last step, and ``N + R`` a divergence (`rules/ponder.py`). `step_loss`: `deep_supervision`;
    with "stop" (the stage "halting") L is `stop_loss`, and with "expected" CE is the expectation in evaluation too. In
    the calls of both nothing halts.
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
        total, num_correct = frame_loss(output, target)
    else:
        real, step_logits = target != ignored, output.step_logits
        logits = output.logits.to(torch.promote_types(output.logits.dtype, torch.float32))
        total = functional.cross_entropy(
            logits.flatten(0, -2),
            target.flatten(),
            ignore_index=ignored,
            label_smoothing=label_smoothing,
            reduction="sum",
        )
        num_correct = ((logits.detach().argmax(-1) == target) & real).sum()
    count = real.sum().clamp(min=1) if counts is None else counts.targets
    both: dict[Side, Trace | None] = {"encoder": output.encoder, "decoder": output.decoder}
    traces = {side: trace for side, trace in both.items() if trace is not None}
    cross_entropy = total / count
    ponder = output.ponder_cost if counts is None else counts.ponder_cost(traces)
    trained = cross_entropy + ponder_weight * ponder
    read = output.decoder or output.encoder
    if step_logits is not None and read is not None:
        each = cross_entropies(step_logits, target, ignored=ignored, label_smoothing=label_smoothing)
        if step_loss == "stop":
            least = model.config.depth.min_steps
            trained = stop_loss(each.detach(), read, real=real.flatten(), min_steps=least)
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
        num_correct=num_correct,
        mean_steps=mean_steps.detach(),
        steps=steps,
        traces=traces,
    )


def frame_loss(output: FrameOutput, target: Written) -> tuple[Scalar, Int[Tensor, ""]]:
    """The loss of written frames, a sum over real ones, and of how many it is right that they are the last or not.

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
    return ((spectral + stop) * real).sum(), (((logits > 0) == last) & real).sum()
