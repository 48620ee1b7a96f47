"""A run that starts from the weights of another run (``ut train RECIPE --from RUN``, ``ut train RUN --stage halting``).

With ``--from``, tensors of equal names and shapes are copied. Rows of embeddings, of logits and of classes are copied
by token: the row of a token that both codecs know, whatever its ids. All rows are copied where the codecs are equal.
The rest keeps its initial values.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError, refuse
from universal_transformer.files import show_path
from universal_transformer.manifest import MODEL, entry_of
from universal_transformer.models.model import Model
from universal_transformer.models.pretrained import WEIGHTS
from universal_transformer.registry import load_pretrained
from universal_transformer.tasks.codec import Codec
from universal_transformer.training.run_config import RunConfig, WarmStart
from universal_transformer.typed import listed

ROWS: dict[str, str] = {
    "source.input.weight": "source",
    "target.embedding.weight": "target",
    "target.output.weight": "target",
    "target.bias": "target",
    "head.weight": "classes",
    "head.bias": "classes",
}
"""Tensor -> what its rows stand for."""


def warm_start_of(run: Path) -> WarmStart:
    """Return what a configuration records of the run that it starts from: its place, and the digest of its weights."""
    path = run / MODEL / WEIGHTS
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"--from {show_path(run)}: no weights in it ({show_path(path)}: {error.strerror})") from None
    return WarmStart(run=str(run.resolve()), weights=entry_of(data).sha256)


@torch.no_grad()
def starting_weights(model: Model, codec: Codec[Any, Any], config: RunConfig) -> list[str]:
    """Copy what a run starts from into `model`; return lines that say what was taken over, none of a run that is new.

    Raises UserError if nothing fits, or if the weights are no longer those that the configuration records. A second
    stage takes all but the halting unit: UserError for data or a model that are not those of the run.
    """
    if config.warm_start is None:
        return []
    place = show_path(config.warm_start.run)
    found, trained = _trained(config.warm_start)
    wanted, ours, theirs = model.tensors(), codec.tokens_by_side, trained.tokens_by_side
    whole, lines, fresh = [], [], []
    for name, tensor in wanted.items():
        side, other = ROWS.get(name, ""), found.get(name)
        if other is None or tensor.shape[1:] != other.shape[1:]:
            fresh.append(name)
        elif side in ours and side in theirs and (len(tensor), len(other)) == (len(ours[side]), len(theirs[side])):
            copied = _copy_rows(tensor, other, ours=ours[side], theirs=theirs[side])
            lines.append(f"{name}: {copied:,} of {len(tensor):,} rows taken over, by token")
        elif tensor.shape == other.shape and (not side or codec == trained):
            tensor.copy_(other)
            whole.append(name)
        else:
            fresh.append(name)
    unused = [name for name in found if name not in wanted]
    staged = config.training.stage == "halting"
    unlike = [name for name in sorted({*fresh, *unused}) if "halting" not in name.split(".")]
    tokens = f"the data have other tokens or classes than those that {place} was trained on"
    refuse(
        (staged and dict(ours) != dict(theirs), f"--stage halting: {tokens}"),
        (staged and unlike, f"--stage halting: tensors that are not those of {place}: {listed(unlike)}"),
        (
            not any(wanted[name].dim() > 1 for name in whole),  # a few biases are no start
            f"--from {place}: nothing to start from: no matrix has a name and a shape of this model",
        ),
    )
    if staged:
        return [f"from {place}: all weights but those of the halting unit, which alone are trained"]
    lines.insert(0, f"from {place}: {len(whole)} of {len(wanted)} tensors taken over whole")
    lines += [f"not taken over, initialised: {listed(fresh)}"] * bool(fresh)
    return lines + [f"not used of that run: {listed(unused)}"] * bool(unused)


def _trained(start: WarmStart) -> tuple[dict[str, Tensor], Codec[Any, Any]]:
    """Return the tensors and the codec of a trained run; UserError if it was trained further."""
    run = Path(start.run)
    if warm_start_of(run).weights != start.weights:
        raise UserError(f"--from {show_path(run)}: its weights have changed since this run was begun")
    with torch.random.fork_rng(devices=[]):  # building it draws initial weights
        earlier = load_pretrained(run / MODEL)
    return earlier.tensors(), Codec.load(run / MODEL)


def _copy_rows(tensor: Tensor, other: Tensor, *, ours: Sequence[str], theirs: Sequence[str]) -> int:
    places = {token: index for index, token in enumerate(theirs)}
    pairs = [(index, places[token]) for index, token in enumerate(ours) if token in places]
    if pairs:
        at, of = (torch.tensor(indices, device=tensor.device) for indices in zip(*pairs, strict=True))
        tensor[at] = other.to(tensor.device)[of]
    return len(pairs)
