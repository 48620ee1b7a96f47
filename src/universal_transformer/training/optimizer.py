"""Adam and Muon, learning rate schedules, clipping, and the check that gradients are finite."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from universal_transformer.axes import Scalar, Tensor
from universal_transformer.errors import UserError
from universal_transformer.torch_private import multiply_all
from universal_transformer.training.replica import divided_as, whole
from universal_transformer.training.run_config import TrainingConfig

#: The state for a parameter: update count, mean gradient (m), mean squared gradient (v) of Adam; mean gradient of Muon.
MOMENTS = ("step", "exp_avg", "exp_avg_sq", "momentum_buffer")


class NonFiniteError(UserError):
    """A loss, gradient or weight was infinite or not a number; nothing of it was saved."""


def fraction_done(config: TrainingConfig, *, update: int, seconds: float) -> float:
    """Return the finished part of the run: updates over `max_updates`, or else minutes over `minutes`."""
    if config.max_updates is not None:
        return min(1.0, update / config.max_updates)
    assert config.minutes is not None, "a run has a limit"
    return min(1.0, seconds / (60 * config.minutes))


def nearest_end(config: TrainingConfig, *, update: int, seconds: float) -> float:
    """Return the finished part of the run by the limit that ends it first."""
    by_updates = 0.0 if config.max_updates is None else update / config.max_updates
    by_time = 0.0 if config.minutes is None else seconds / (60 * config.minutes)
    return min(1.0, max(by_updates, by_time))


def learning_rate(config: TrainingConfig, *, update: int, seconds: float) -> float:
    """Return the learning rate of update `update`, which counts from 1.

    For the W warm-up updates it is ``peak · update / W``. Then: constant, ``peak``; inverse_sqrt,
    ``peak · sqrt(max(1, W) / update)``; linear, ``peak · (1 - x)``; cosine, ``peak · (1 + cos πx) / 2``, with
    ``x = (update - 1 - W) / (max_updates - W)``: the update after the last one would have a rate of 0. Without
    `max_updates`, x is the part of the time that has passed: the schedule then depends on the clock, and two runs are
    no longer equal bit for bit.
    """
    peak, warmup = config.learning_rate, config.warmup_updates
    if update < warmup:
        return peak * update / warmup
    if config.schedule == "constant":
        return peak
    if config.schedule == "inverse_sqrt":
        return peak * math.sqrt(max(1, warmup) / update)
    if config.max_updates:
        done = (update - 1 - warmup) / max(1, config.max_updates - warmup)
    else:
        done = fraction_done(config, update=update, seconds=seconds)
    done = min(1.0, max(0.0, done))
    return peak * (1 - done) if config.schedule == "linear" else peak * (1 + math.cos(math.pi * done)) / 2


def build_optimizers(model: nn.Module, config: TrainingConfig) -> list[Optimizer]:
    """Return the optimizers of all parameters, with weight decay on matrices and kernels of linear maps only.

    They are Adam, AdamW, or Muon (Jordan et al. 2024) for the matrices of the block and AdamW for all others. With its
    running mean G of the gradient, Muon subtracts about ``0.2 · lr · sqrt(max(rows, columns)) · U Vᵀ``, where
    ``G = U S Vᵀ``: the size of an update of Adam, so that both have the same rates (Liu et al. 2025, arXiv:2502.16982).
    """
    matrices = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.LSTM)
        for name, parameter in module.named_parameters(recurse=False)
        if name.startswith("weight")
    }
    groups: list[dict[str, Any]] = [
        {"params": [], "weight_decay": config.weight_decay},
        {"params": [], "weight_decay": 0.0},
    ]
    repeated = _matrices_of_blocks(model) if config.optimizer == "muon" else {}
    for parameter in model.parameters():
        if parameter not in repeated:
            groups[id(parameter) not in matrices]["params"].append(parameter)
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    # fused: 0.37 ms an update where foreach takes 1.3 and the loop 1.6 (37 tensors, width 128, one core)
    adam = kind(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        fused=True,
    )
    if not repeated:
        return [adam]
    decay, scale = config.weight_decay, "match_rms_adamw"
    return [adam, torch.optim.Muon(repeated, lr=config.learning_rate, weight_decay=decay, adjust_lr_fn=scale)]


def _matrices_of_blocks(model: nn.Module) -> dict[nn.Parameter, None]:
    blocks = (module for module in model.modules() if getattr(module, "repeats", False))
    return dict.fromkeys(weight for block in blocks for weight in block.parameters() if weight.ndim == 2)


def set_rate(optimizers: Sequence[Optimizer], rate: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate


def step(optimizers: Sequence[Optimizer]) -> None:
    for optimizer in optimizers:
        optimizer.step()


def gradient_norm(model: nn.Module) -> Scalar:
    """``sqrt(Σ g²)`` over all gradients."""
    return whole(torch.nn.utils.get_total_norm(_gradients(model)))


def clip(model: nn.Module, *, norm: float, limit: float | None) -> None:
    """Scale all gradients by ``limit / norm`` if the norm exceeds the limit."""
    if limit is not None and norm > limit:
        multiply_all(_gradients(model), limit / (norm + 1e-6))


def _gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def refuse_non_finite(model: nn.Module, *, update: int, loss: float, norm: float) -> None:
    """Raise NonFiniteError, which names the first faulty parameter, before anything has been changed."""
    if math.isfinite(loss) and math.isfinite(norm):
        return
    faulty = (
        f"; first {what} that is not finite: {name}"
        for name, parameter in model.named_parameters()
        for what, tensor in (("weight", parameter), ("gradient", parameter.grad))
        if tensor is not None and not whole(tensor).isfinite().all()
    )
    found = f"the loss is {loss:g}, the gradient norm {norm:g}{next(faulty, '')}"
    raise NonFiniteError(f"update {update}: {found}; the update was not made")


def refuse_to_save(tensors: Mapping[str, Mapping[str, Tensor]], *, update: int) -> None:
    """Raise NonFiniteError if a tensor of a checkpoint has an infinite number or NaN."""
    for part, values in tensors.items():
        for name, tensor in values.items():
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                raise NonFiniteError(
                    f"update {update}: {part}: {name} has values that are not finite: no checkpoint of it is saved"
                )


def optimizer_tensors(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    return {
        f"{name}/{key}": whole(state[key].detach())
        for name, parameter in model.named_parameters()
        for optimizer in optimizers
        for state in [optimizer.state.get(parameter, {})]
        for key in MOMENTS  # always in this order: that of a file differs between processes
        if key in state
    }


def load_optimizers(model: nn.Module, optimizers: Sequence[Optimizer], *, tensors: Mapping[str, Tensor]) -> None:
    """Undo `optimizer_tensors`."""
    states = {
        parameter: optimizer.state
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in model.named_parameters():
        saved = {key: tensors[f"{name}/{key}"].to(parameter.device) for key in MOMENTS if f"{name}/{key}" in tensors}
        if saved:
            states[parameter][parameter] = {
                key: value if key == "step" else divided_as(parameter, value) for key, value in saved.items()
            }
