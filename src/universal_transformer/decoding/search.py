"""One entry for every kind of search: `model.generate`, evaluation and ``ut predict`` call it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from universal_transformer.axes import Tensor
from universal_transformer.data.example import Frames
from universal_transformer.decoding.beam import beam_search
from universal_transformer.decoding.generation import Source
from universal_transformer.decoding.options import DEFAULTS, DecodingOptions
from universal_transformer.decoding.sampling import generate
from universal_transformer.errors import UserError
from universal_transformer.models.generated import LENGTH_PENALTY, Generated
from universal_transformer.models.model import Model


def search(
    model: Model,
    source: Source,
    options: DecodingOptions = DEFAULTS,
    *,
    indices: Sequence[int] | None = None,
    num_results: int = 1,
) -> list[list[Generated]]:
    """Return the sequences found for each row, best first: one without beams, at most ``num_results`` with beams.

    ``indices`` number the rows for sampling. UserError for what `generate` and `beam_search` refuse.
    """
    if options.num_beams > 1:
        return beam_search(model, source, options, num_results=min(num_results, options.num_beams))
    if options.length_penalty != LENGTH_PENALTY:
        raise UserError(f"length_penalty={options.length_penalty} is for a beam search: give 2 beams or more")
    return [[one] for one in generate(model, source, options, indices=indices)]


def answer(model: Model, source: Source | Sequence[str], options: DecodingOptions = DEFAULTS) -> list[Generated]:
    """Return the best sequence for each row of ids, or for each text if the model has a codec (`model.generate`)."""
    texts, codec = not isinstance(source, Tensor) and _are_texts(source), model.codec
    if texts and codec is None:
        raise UserError(
            "this model has no tokenizer: give ids, or open the run with load(RUN), whose model takes texts too"
        )
    rows: Any = [_encoded(text, number, model) for number, text in enumerate(source)] if texts else source
    found = [best[0] for best in search(model, rows, options)]
    if not texts:
        return found
    return [dataclasses.replace(one, text=codec.render(one.tokens)) for one in found]


def _are_texts(source: Any) -> bool:
    if isinstance(source, str):
        raise UserError("source: found one text; expected a list of texts: write [text]")
    if not isinstance(source, Sequence):
        return False
    kinds = {isinstance(one, str) for one in source}
    if len(kinds) == 2:
        raise UserError("source: found texts and ids in one list; expected one kind")
    return kinds == {True}


def _encoded(text: str, number: int, model: Any) -> list[int] | Frames:
    """Return the ids, or the frames of the file, that the codec of a model gives to one text."""
    example = next(model.codec.read([(number, text)], name="texts"), None)
    if example is None:
        raise UserError(f"texts:{number}: an empty text; expected input")
    chosen = example.source if len(example.source) else example.target
    return chosen if isinstance(chosen, np.ndarray) else list(chosen)
