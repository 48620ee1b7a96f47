"""One entry for every kind of search: `model.generate`, evaluation and ``ut predict`` call it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from universal_transformer.axes import Tensor
from universal_transformer.data.example import Frames
from universal_transformer.decoding.beam import beam_search
from universal_transformer.decoding.continuous import DecodingOptions
from universal_transformer.decoding.generation import Generator, Source, check_model
from universal_transformer.decoding.sampling import generate
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.models.generated import LENGTH_PENALTY, Generated
from universal_transformer.models.roles import NonAutoregressive
from universal_transformer.typed import typed

DEFAULTS = DecodingOptions()


def search(
    model: Generator | NonAutoregressive,
    source: Source,
    *,
    beams: int = 1,
    length_penalty: float = LENGTH_PENALTY,
    num_results: int = 1,
    indices: Sequence[int] | None = None,
    options: DecodingOptions = DEFAULTS,
) -> list[list[Generated]]:
    """Return the sequences found for each row, best first: one without beams, at most ``num_results`` with beams.

    ``length_penalty`` is its exponent α in a beam search; ``indices`` number the rows for sampling.

    Raises UserError for what `generate` and `beam_search` refuse, and for beams together with sampling.
    """
    temperature = options.sampling.temperature
    if beams == 1:
        return [[one] for one in generate(model, source, indices=indices, **vars(options))]
    if temperature > 0:
        raise UserError(f"beams={beams} and temperature={temperature}: choose beams or sampling")
    check_model(model)
    assert not isinstance(model, NonAutoregressive)
    return beam_search(
        model,
        source,
        beams=beams,
        length_penalty=length_penalty,
        num_results=min(num_results, beams),
        max_new_tokens=options.max_new_tokens,
        max_steps=options.max_steps,
        halting_threshold=options.halting_threshold,
        exit=options.exit,
        target_space=options.target_space,
    )


def answer(
    model: Generator | NonAutoregressive,
    source: Source | Sequence[str],
    *,
    beams: int = 1,
    length_penalty: float | None = None,
    options: DecodingOptions = DEFAULTS,
) -> list[Generated]:
    """Return the best sequence for each row of ids, or for each text if the model has a codec (`model.generate`)."""
    texts, codec = not isinstance(source, Tensor) and _are_texts(source), model.codec
    if texts and codec is None:
        raise UserError(
            "this model has no tokenizer: give ids, or open the run with load(RUN), whose model takes texts too"
        )
    if length_penalty is not None and beams == 1:
        raise UserError(f"length_penalty={length_penalty} is for a beam search: give beams too, 2 or more")
    if type(beams) is not int:
        raise UserError(f"beams={show(beams)}: at least 1, a whole number")
    penalty = typed(LENGTH_PENALTY if length_penalty is None else length_penalty, float, where="length_penalty")
    rows: Any = [_encoded(text, number, model) for number, text in enumerate(source)] if texts else source
    found = [best[0] for best in search(model, rows, beams=beams, length_penalty=penalty, options=options)]
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
