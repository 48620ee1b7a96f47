"""Text that does not fit in memory: encoded once into a store of tokens, from which every run reads its blocks.

In memory are a sample of the lines, the last lines and the lines that are encoded together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from universal_transformer.data.example import Example
from universal_transformer.data.survey import Survey, batches, survey
from universal_transformer.data.text_sources import source_lines
from universal_transformer.data.token_store import StoreWriter, TokenStore, smallest_kind
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.tasks.large import Reading, check_space, learned_note, source_store
from universal_transformer.tasks.lazy import MappedExamples

TOKENIZER = "tokenizer"
"""Name of the tokenizer in a store, for `saved_tokenizer`."""


def map_text(
    source: str, *, learn: Callable[[Sequence[str]], Tokenizer], key: Sequence[Any], held_out: Mapping[str, float]
) -> TokenStore:
    """Return the store of a text: "tokens", with an end id after each line; the last lines are held out.

    `learn` returns the tokenizer, given a sample of the lines; `key` has the values that it depends on. `held_out` has
    the parts that are held out, in their order in the text, and the share of the lines of each.
    """

    def make(writer: StoreWriter) -> None:
        progress = Reading(source)
        found = survey(progress.seen(_lines(source), size=_size, what="first look"), size=_size)
        if not any(map(str.strip, found.sample)):
            raise UserError(f"{show_path(source)}: all lines are blank; expected text")
        held = _last_lines(found, held_out, source=source)
        num_train = found.count - sum(map(len, held.values()))
        sample = found.sample[: -(-num_train // found.stride)]
        tokenizer = learn(sample)
        tokenizer.save(writer.folder / f"{TOKENIZER}.json")
        kind = smallest_kind(len(tokenizer))
        first = next(batches(sample, size=_size))
        tokens = len(tokenizer.encode_lines(first)) / sum(map(_size, first)) * found.characters
        check_space(writer.folder, tokens * np.dtype(kind).itemsize)
        lines = islice(_lines(source), num_train)
        for batch in batches(progress.seen(lines, size=_size, total=found.characters, what="tokens"), size=_size):
            writer.append("tokens", tokenizer.encode_lines(batch), kind=kind)
        writer.held_out = {part: [{"text": line} for line in rows] for part, rows in held.items()}
        writer.notes = learned_note(len(sample), num_train, what="lines")

    return source_store([source], [*key, sorted(held_out.items())], make)


def mapped_blocks(store: TokenStore, *, length: int, padding_id: int) -> MappedExamples:
    """Return the tokens of a text as examples of `length` tokens each; the last may be shorter."""
    tokens = store.arrays["tokens"]
    return MappedExamples(
        lambda index: Example((), tuple(tokens[index * length : (index + 1) * length].tolist()), padding_id=padding_id),
        count=-(-len(tokens) // length),
        sizes=lambda indices: np.minimum(length, len(tokens) - indices * length),
        digest=f"blocks of {length}: {store.digest}",
        longest_target=min(length, len(tokens)),
    )


def _lines(source: str) -> Iterator[str]:
    return (text for _, text in source_lines(source, part="train"))


def _size(line: str) -> int:
    return len(line) + 1


def _last_lines(found: Survey[str], held_out: Mapping[str, float], *, source: str) -> dict[str, list[str]]:
    """Return the lines of each part: its share of all lines, as far as the last lines of the survey go."""
    rest, most, held = found.tail, len(found.tail) // max(1, len(held_out)), {}
    for part, share in reversed(list(held_out.items())):
        size = min(max(round(share * found.count), 1), most)
        held[part], rest = rest[len(rest) - size :], rest[: len(rest) - size]
    empty = any(not any(map(str.strip, lines)) for lines in held.values())
    if empty or sum(map(len, held.values())) >= found.count:
        raise UserError(
            f"{show_path(source)}: too few lines, too long ones or blank ones at the end, to hold some out for "
            f"{' and '.join(held_out)}: "
            f"name a file with --data.{' and --data.'.join(held_out)}"
        )
    return held
