"""What a caller gives to generation, checked: sources become a tensor, prompts become lists of ids."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.data.example import Frames
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.models.frame_input import blank_frames, check_frames
from universal_transformer.models.inputs import check_ids, check_tokens
from universal_transformer.models.model import Model

Source = Tensor | Sequence[Sequence[int] | Tensor | Frames]
"""Ids of sources or prompts: [batch, position], padded, or one list for each row; or frames, an array for each row."""


def are_texts(source: object) -> bool:
    """Whether ``source`` is a list of texts; UserError for one text, and for texts among ids."""
    if isinstance(source, str):
        raise UserError("source: found one text; expected a list of texts: write [text]")
    texts = [isinstance(row, str) for row in source] if isinstance(source, list | tuple) else []
    if any(texts) and not all(texts):
        raise UserError("source: found texts and ids in one list; expected one kind")
    return any(texts)


def encoded(texts: Sequence[str], *, model: Model) -> list[Any]:
    """The ids, or the frames of the file, that the codec of a model gives to each text."""
    if model.codec is None:
        raise UserError(
            "this model has no tokenizer: give ids, or open the run with load(RUN), whose model takes texts too"
        )
    rows: list[Any] = []
    for number, text in enumerate(texts):
        example = next(model.codec.read([(number, text)], name="texts"), None)
        if example is None:
            raise UserError(f"texts:{number}: an empty text; expected input")
        rows.append(example.source if len(example.source) else example.target)
    return rows


def sources_of(source: object, *, model: Model) -> Int[Tensor, "batch source"] | Float[Tensor, "batch frame feature"]:
    """Sources as one tensor on the model's device, padded on the right.

    ``source`` is a tensor [batch, source] or a list of ids for each row; frames are a tensor [batch, frame, feature] or
    an array [frame, feature] for each row. UserError for other shapes and types, for no rows, for a row without a
    token, and for ids outside of the vocabulary.
    """
    vocabulary, device = model.config.vocabulary, next(model.parameters()).device
    if model.config.inputs.features is not None:
        return _frames(source, features=model.config.inputs.features).to(device)
    if not isinstance(source, Tensor):
        rows = [torch.tensor(row, dtype=torch.long) for row in _lists(source, what="source")]
        source = pad_sequence(rows, batch_first=True, padding_value=vocabulary.padding_id)
    check_tokens(source, name="source")
    empty = (source == vocabulary.padding_id).all(dim=1).nonzero()
    if len(empty):
        raise UserError(
            f"source row {int(empty[0])} is empty: each row needs at least one token, for example the end token"
        )
    check_ids(source.cpu(), size=vocabulary.size)
    return source.to(device=device, dtype=torch.long)


def lengths_of(source: Tensor, *, padding_id: int) -> list[int]:
    """How many tokens or frames each row has."""
    real = ~blank_frames(source) if source.is_floating_point() else source != padding_id
    lengths: list[int] = real.sum(dim=1).tolist()
    return lengths


def prompts_of(source: object, *, model: Model) -> list[list[int]]:
    """Prompts as lists of ids that begin with the start token, which is added where it is missing.

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
    """Frames as one tensor, padded on the right with NaN; ``source`` has an array [frame, feature] a row."""
    if not isinstance(source, Tensor):
        expected = f"expected an array [frame, {features}] for each row"
        if not isinstance(source, Sequence) or not source:
            raise UserError(f"sources: found {show(source)}; {expected}")
        rows = [torch.as_tensor(row).float() for row in source]
        if wrong := [list(row.shape) for row in rows if row.ndim != 2]:
            raise UserError(f"sources: found an array of shape {wrong[0]}; {expected}")
        source = pad_sequence(rows, batch_first=True, padding_value=float("nan"))
    check_frames(source, features=features)
    return source


def _lists(rows: object, *, what: str) -> list[list[int]]:
    """Rows of ids as lists; UserError for anything else, which says what is expected."""
    expected = f"expected a list of ids for each {what}"
    if not isinstance(rows, Sequence):
        raise UserError(f"{what}s: found {show(rows)}; {expected}, or a tensor [batch, {what}]")
    if not rows:
        raise UserError(f"no {what}s: give at least one")
    if any(isinstance(row, int) for row in rows):
        raise UserError(f"{what}s: found {show(list(rows))}; {expected}: write [[…]] for a single one")
    lists = [row.tolist() if isinstance(row, Tensor) else row for row in rows]
    for number, ids in enumerate(lists):
        if not isinstance(ids, Sequence) or any(type(token) is not int or abs(token) >= 2**63 for token in ids):
            raise UserError(f"{what} {number}: found {show(ids)}; {expected}, whole numbers below 2^63")
    return [list(ids) for ids in lists]
