"""The gradient of a batch that several passes or processes compute, and the module they exchange gradients of.

The module is replicated (DistributedDataParallel) or in shards (FSDP2).

In shards each process keeps a part of every weight, of its gradient and of the state of the optimizer (Rajbhandari et
al. 2020, "ZeRO"; Zhao et al. 2023). All weights are gathered once before the forward pass, and their gradients are
summed and divided once in the backward pass. No module in it is wrapped: the shared block is applied once a step, so
processes whose positions halt at different steps would deadlock.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from universal_transformer.axes import Scalar, Tensor
from universal_transformer.evaluation.report import Side
from universal_transformer.execution.context_parallel import make_context_parallel
from universal_transformer.models.model import Model
from universal_transformer.nn.trace import Trace
from universal_transformer.training.batches import Part, counts_of
from universal_transformer.training.objective import Loss
from universal_transformer.training.processes import Processes

Computed = TypeVar("Computed")


class Replica(nn.Module):
    """A model, called with what computes the loss with it.

    So the loss is computed in the forward pass, and the libraries see the tensor that the backward pass begins with.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[[], Computed]) -> Computed:
        return compute()


def connected(model: Model, *, parallel: str, device: torch.device, processes: Processes) -> nn.Module | None:
    """Return the module to call, whose backward pass takes the mean of gradients; None in a single process.

    With "shards" the weights of `model` are divided over the processes: its parameters are other ones afterwards, so
    that an optimizer is built after this call.
    """
    if processes.size == 1:
        return None
    call: nn.Module = Replica(model)
    if parallel == "shards":
        fully_shard(call, mesh=init_device_mesh(device.type, (processes.size,)), reshard_after_forward=False)
        return call
    if parallel == "positions":
        make_context_parallel(model)
    devices = [device] if device.type == "cuda" else None
    return DistributedDataParallel(call, device_ids=devices, forward_sync_buffers=False)


def exchanging(call: nn.Module, *, gradients: bool) -> AbstractContextManager[object]:
    """Return the context of a forward and backward pass whose gradients are exchanged, or only added up."""
    if isinstance(call, FSDPModule):
        call.set_requires_gradient_sync(gradients)
    elif isinstance(call, DistributedDataParallel) and not gradients:
        return call.no_sync()
    return nullcontext()


@contextmanager
def gathered(call: nn.Module | None) -> Iterator[None]:
    """All weights of a model in shards are whole in every process, so that processes may call it differently often."""
    if call is not None and isinstance(call, FSDPModule):
        call.unshard()
    try:
        yield
    finally:
        if call is not None and isinstance(call, FSDPModule):
            call.reshard()


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor of which each process has a part, whole; any other as it is. All processes make this call."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def divided_as(like: Tensor, tensor: Tensor) -> Tensor:
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


@torch.no_grad()
def make_whole(call: nn.Module | None) -> None:
    """Give a model in shards whole parameters of its own again, in every process."""
    if call is None or not isinstance(call, FSDPModule):
        return
    found: dict[int, nn.Parameter] = {}
    for module in call.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if id(parameter) not in found:
                full = whole(parameter.detach()).clone()
                found[id(parameter)] = nn.Parameter(full, requires_grad=parameter.requires_grad)
            setattr(module, name, found[id(parameter)])


def backward(
    parts: Sequence[Part],
    loss_of: Callable[..., Loss],
    *,
    model: Model,
    call: nn.Module | None,
    processes: Processes,
) -> tuple[dict[str, Scalar], Mapping[Side, Trace]]:
    """Add the gradient of a batch to the parameters of `model`; return the figures of the batch by name, and traces.

    `parts` are those of this process, ``loss_of(batch, counts=)`` is the loss of one, and `call` is the module that
    exchanges gradients between processes. The figures are sums over the parts, whose mean over
    processes is that of the batch, as that of the gradients is. The traces are those of the last part.
    """
    counts = None if len(parts) == processes.size == 1 else counts_of(model, parts, processes=processes)
    figures: dict[str, Scalar] = {}
    for part in parts:

        def compute(part: Part = part) -> tuple[Scalar, Loss]:
            loss = loss_of(part.batch, counts=counts)
            return part.weight * loss.total + (0.0 if call is None else _nothing(model)), loss

        with exchanging(call, gradients=part is parts[-1]) if call is not None else nullcontext():
            total, loss = compute() if call is None else call(compute)
            torch.autograd.backward(total)
        for name, value in loss.figures().items():
            figures[name] = figures.get(name, 0.0) + part.weight * value
    return figures, loss.traces


def _nothing(model: nn.Module) -> Scalar:
    """Return 0, with a gradient of 0 for every parameter: a replica waits for the gradients of all of them."""
    weights = (parameter for parameter in model.parameters() if parameter.requires_grad)
    return sum((0.0 * weight.sum() for weight in weights), torch.zeros(()))
