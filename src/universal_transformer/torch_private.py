"""Interfaces of torch that are not public, all in one file. Tested with torch 2.10 and 2.13.

================================ ====================================================== ================================
function                         what it needs                                          without it
================================ ====================================================== ================================
`is_unchanged`                   ``Module._forward_hooks`` and its kin                  hooks would not be noticed
`has_global_hooks`               ``_global_forward_hooks`` and its kin                  hooks would not be noticed
`in_transform`                   ``torch._C._are_functorch_transforms_active``          `torch.func` fails in compaction
`backward_pass`                  ``torch._C._current_graph_task_id``                    gradients of passes would mix
`has_onednn`, `pack`, `product`  ``torch.ops.mkldnn``                                   plain products: the same numbers
`multiply_all`                   ``torch._foreach_mul_``                                a loop over tensors
`not_compiled`                   ``torch._C._dynamo.eval_frame.set_code_exec_strategy`` a model compiles for two shapes
`while_loop`                     ``torch._higher_order_ops.while_loop``                 no export of halting models
================================ ====================================================== ================================
"""

import platform
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Compiled = TypeVar("Compiled", bound=Callable[..., Any])
ONEDNN = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")


def is_unchanged(module: nn.Module) -> bool:
    """Whether a call of ``module`` is one of its class's ``forward``: no hooks and no ``forward`` of its own.

    A parametrized module has a class of its own, and so has one wrapped by ``torch.compile``.
    """
    parts = module.__dict__
    return not (
        "forward" in parts
        or parts["_forward_hooks"]
        or parts["_forward_pre_hooks"]
        or parts["_backward_hooks"]
        or parts["_backward_pre_hooks"]
    )


def has_global_hooks() -> bool:
    """Whether a hook is called for every module."""
    shared = torch.nn.modules.module
    return bool(
        shared._global_forward_hooks
        or shared._global_forward_pre_hooks
        or shared._global_backward_hooks
        or shared._global_backward_pre_hooks
    )


def in_transform() -> bool:
    """Whether a transform of ``torch.func`` is active: it does not serve our own backward passes."""
    return bool(torch._C._are_functorch_transforms_active())


def backward_pass() -> int:
    """A number of the backward pass that runs."""
    return int(torch._C._current_graph_task_id())


def has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN computes products of this type with packed matrices: on an x86 CPU."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    if not all(hasattr(torch.ops.mkldnn, name) for name in ONEDNN):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))


def pack(weight: Tensor, *, rows: int) -> Tensor:
    """``weight`` in the layout in which oneDNN reads it for products with about ``rows`` rows."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, rows)


def product(states: Tensor, weight: Tensor, bias: Tensor | None, *, then: str = "none") -> Tensor:
    """``f(x W^T + b)`` by oneDNN, where f is ``then``: "none" or "relu". ``weight`` may be packed."""
    return torch.ops.mkldnn._linear_pointwise(states, weight, bias, then, [], "")


def multiply_all(tensors: Sequence[Tensor], factor: float) -> None:
    """Multiply every tensor by ``factor`` in place."""
    torch._foreach_mul_(list(tensors), factor)


def frame_not_compiled(function: Compiled) -> Compiled:
    """Let ``torch.compile`` of a caller leave out this function, and still compile what it calls, as
    ``torch.compiler.disable(function, recursive=False)`` does, which imports the compiler for 1.4 s.
    """
    return _skipped(function, inside="DEFAULT")


def not_compiled(function: Compiled) -> Compiled:
    """The same, and what it calls is left out too."""
    return _skipped(function, inside="SKIP")


def _skipped(function: Compiled, *, inside: str) -> Compiled:
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        actions = frames._FrameAction
        skipped = frames._FrameExecStrategy(actions.SKIP, getattr(actions, inside))
        frames.set_code_exec_strategy(function.__code__, skipped)
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def while_loop(
    runs: Callable[..., Tensor], body: Callable[..., tuple[Tensor, ...]], carried: tuple[Tensor, ...]
) -> Any:
    """``body`` while ``runs``, as one operation of an exported graph."""
    from torch._higher_order_ops import while_loop as loop

    return loop(runs, body, carried)  # type: ignore[no-untyped-call]
