"""What a caller gives to generation, checked: sources become a tensor, prompts become lists of ids."""

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.models.frames import blank_frames, check_frames
from universal_transformer.models.inputs import check_tokens
from universal_transformer.models.model import Model


def sources_of(source: object, *, model: Model) -> Int[Tensor, "batch source"] | Float[Tensor, "batch frame feature"]:
    """Return sources as one tensor on the model's device, padded on the right.

    ``source`` is a tensor [batch, source] or a list of ids for each row; frames are a tensor [batch, frame, feature] or
    an array [frame, feature] for each row. UserError for other shapes and types, for no
    rows, for a row without a token, and for ids outside of the vocabulary.
    """
    vocabulary, device = model.config.vocabulary, next(model.parameters()).device
    if model.config.inputs.kind in ("frames", "patches"):
        return _frames(source, features=model.config.inputs.features).to(device)
    if not isinstance(source, Tensor):
        rows = _lists(source, what="source")
        longest = max(map(len, rows))
        blank = vocabulary.padding_id
        if longest:
            source = torch.tensor([[*row, *[blank] * (longest - len(row))] for row in rows], dtype=torch.long)
        else:
            source = torch.zeros(len(rows), 0, dtype=torch.long)
    check_tokens(source, name="source")
    real = source != vocabulary.padding_id
    empty = (~real.any(dim=1)).nonzero()
    if len(empty):
        raise UserError(
            f"source row {int(empty[0])} is empty: each row needs at least one token, for example the end token"
        )
    least, most = (int(extreme) for extreme in source.aminmax())
    if least < 0 or most >= vocabulary.size:
        raise UserError(f"source: token id {least if least < 0 else most}: allowed are 0 to {vocabulary.size - 1}")
    return source.to(device=device, dtype=torch.long)


def lengths_of(source: Tensor, *, padding_id: int) -> list[int]:
    """Return how many tokens or frames each row has."""
    real = ~blank_frames(source) if source.is_floating_point() else source != padding_id
    lengths: list[int] = real.sum(dim=1).tolist()
    return lengths


def prompts_of(source: object, *, model: Model) -> list[list[int]]:
    """Return prompts as lists of ids that begin with the start token, which is added where it is missing.

    ``source`` is a list of ids for each prompt (an empty one is the start token alone), or a tensor [batch, prompt]
    whose padding is left out. UserError for other shapes and types, for no prompts, and for ids outside of the
    vocabulary.
    """
    config = model.config
    size, padding_id = config.vocabulary.size, config.vocabulary.padding_id
    if isinstance(source, Tensor):
        check_tokens(source, name="prompts")
        rows = [[token for token in row if token != padding_id] for row in source.tolist()]
    else:
        rows = _lists(source, what="prompt")
    prompts = [row if row[:1] == [config.start_id] else [config.start_id, *row] for row in rows]
    for number, prompt in enumerate(prompts):
        for token in prompt[1:]:
            if not 0 <= token < size or token == padding_id:
                raise UserError(f"prompt {number}: token id {token}: allowed are 0 to {size - 1} without {padding_id=}")
    return prompts


def _frames(source: object, *, features: int) -> Float[Tensor, "batch frame feature"]:
    """Return frames as one tensor, padded on the right with NaN; ``source`` has an array [frame, feature] a row."""
    if not isinstance(source, Tensor):
        expected = f"expected an array [frame, {features}] for each row"
        if not isinstance(source, Sequence) or not source:
            raise UserError(f"sources: found {show(source)}; {expected}")
        rows = [torch.as_tensor(row) for row in source]
        if wrong := [list(row.shape) for row in rows if row.ndim != 2]:
            raise UserError(f"sources: found an array of shape {wrong[0]}; {expected}")
        source = pad_sequence([row.float() for row in rows], batch_first=True, padding_value=float("nan"))
    check_frames(source, features=features)
    return source


def _lists(rows: object, *, what: str) -> list[list[int]]:
    """Return rows of ids as lists; UserError for anything else, which says what is expected."""
    expected = f"expected a list of ids for each {what}"
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        raise UserError(f"{what}s: found {show(rows)}; {expected}, or a tensor [batch, {what}]")
    if not rows:
        raise UserError(f"no {what}s: give at least one")
    if any(isinstance(row, int) for row in rows):
        raise UserError(f"{what}s: found {show(list(rows))}; {expected}: write [[…]] for a single one")
    found = []
    for number, row in enumerate(rows):
        ids = row.tolist() if isinstance(row, Tensor) else row
        if not isinstance(ids, Sequence) or any(type(token) is not int for token in ids):
            raise UserError(f"{what} {number}: found {show(ids)}; {expected}, whole numbers")
        if large := [token for token in ids if abs(token) >= 2**63]:
            raise UserError(f"{what} {number}: token id {show(large[0])}: no vocabulary is so large")
        found.append(list(ids))
    return found
