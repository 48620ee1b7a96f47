"""Your own labelled texts: one class for each text.

The data are files of ``text<TAB>label`` lines, or of JSON lines ``{"text": …, "label": …}``. The classes are the sorted
labels of the training file. A text ends with the id of ``<end>``. A row can have two texts, such as a premise and a
hypothesis: ``<end>`` separates them, and each has a segment embedding.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from universal_transformer.data.columns import BETWEEN, Columns, Lines, TextRow
from universal_transformer.data.example import Example
from universal_transformer.data.text_table import TextTable
from universal_transformer.data.tokenizer_files import check_choice, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import show, show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.own_files import Encoded, OwnFiles, classes, input_lines
from universal_transformer.tasks.sides.listed import Classes
from universal_transformer.tasks.sides.side import Sides, unknown_name
from universal_transformer.tasks.sides.tokenized import Text
from universal_transformer.typed import check

MAX_LABELS = 10_000
MANY_ONCE = 10
"""Labels that occur once, from which on they look like texts."""


@dataclass(frozen=True, kw_only=True)
class LabelledData(OwnFiles):
    """Texts from your own files, each with a class."""

    sides: ClassVar[Sides] = (Text, Classes)
    ROWS: ClassVar = "texts"
    needs: ClassVar = ("text<TAB>label lines", "JSON lines")
    FILES: ClassVar[tuple[str, ...]] = ("train", "validation", "test", "tokenizer")
    train: str = ""
    """Training texts: a file of `text<TAB>label` lines, or JSON lines (.jsonl) with "text" and "label"; for two texts
    with one label, `text<TAB>text<TAB>label`, or a "text" of [text, text]. Any file may end in .gz."""
    tokenizer: str = "word"
    """What a token is: character; whitespace (what stands between two blanks); word (a word or punctuation mark); bpe
    (byte pairs merged by frequency); or a file, FILE.json of Hugging Face or FILE.model of SentencePiece."""
    class_weights: str = ""
    """Weights of classes in the loss: balanced, each as if it had as many texts as the others, or LABEL=WEIGHT,… (1 for
    others). Their mean over the training texts is made 1."""
    lower_case: bool = False
    """Turn all text into lower case."""
    group: str = ""
    """Column whose values group the figures: a key of JSON lines, or the number of a TSV column, from 1 on."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice(self.tokenizer, self.vocabulary_size, lower_case=self.lower_case)
        assert self.layout, "a UserError for columns that cannot be"

    @property
    def layout(self) -> Columns:
        chosen, separator = self.columns, self.separator
        return Columns("text", "label", self.group, two_texts=True, chosen=chosen, separator=separator)

    def inputs(self, lines: Lines, *, name: str, codec: Codec[Any, Any]) -> Iterator[tuple[int, str | UserError]]:
        columns = replace(self.layout, two_texts=codec.source.segments > 1)
        yield from input_lines(lines, columns, name=name)

    name = "labelled"
    scored_by = "classes"

    def learn(self, rows: Sequence[TextRow], given: TextTable) -> Codec[Text, Classes]:
        labels = classes([row.second.strip() for row in given.rows], given, what="label", most=MAX_LABELS)
        texts = [text for row in rows for text in row.first.split(BETWEEN)]
        tokenizer = make_tokenizer(
            self.tokenizer, texts, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case
        )
        segments = given.rows[0].first.count(BETWEEN) + 1
        _check_segments(given, segments)
        return Codec(Text(tokenizer, self.max_length, segments=segments), Classes(labels))

    def encode_train(self) -> tuple[Codec[Any, Any], Encoded]:
        codec, encoded = super().encode_train()
        classes_of = [int(example.target) for example in encoded.examples if isinstance(example.target, int)]
        counts = Counter(classes_of)
        if self.class_weights:
            weights = class_weights(self.class_weights, codec.target.labels, counts)
            both = zip(encoded.examples, classes_of, strict=True)
            encoded = replace(encoded, examples=[replace(example, weight=weights[label]) for example, label in both])
        once = [label for label, count in counts.items() if count == 1]
        if len(once) < MANY_ONCE or 4 * len(counts) < len(encoded.examples):
            return codec, encoded
        such = f"{len(once):,} of {len(counts):,} labels occur once, such as {show(codec.render(once[0]))}"
        note = f"{show_path(self.train)}: {such}; if this is no label: --data.columns text=2,label=1"
        return codec, replace(encoded, notes=[*encoded.notes, note])

    def encode(self, codec: Codec[Any, Any], table: TextTable, notes: list[str]) -> list[Example]:
        _check_segments(table, codec.source.segments)
        return super().encode(codec, table, notes)


def class_weights(choice: str, labels: Sequence[str], counts: Mapping[int, int]) -> list[float]:
    """Return ``w_c / Σ_c n_c w_c / n`` for each class, of which there are ``n_c`` texts among n; "balanced" is
    ``w_c = 1 / n_c``.
    """
    given = [1 / counts.get(index, 1) for index in range(len(labels))]
    if choice != "balanced":
        words, where = dict(part.rpartition("=")[::2] for part in choice.split(",")), "--data.class-weights"
        for label, weight in words.items():
            if label not in labels:
                raise UserError(f"{where}: {unknown_name(label, labels, what='label')}")
            if not re.fullmatch(r"\d+(\.\d+)?", weight) or not float(weight):
                raise UserError(f"{where}: {show(f'{label}={weight}')}; expected balanced, or LABEL=WEIGHT above 0")
        given = [float(words.get(label, 1)) for label in labels]
    mean = sum(given[index] * count for index, count in counts.items()) / sum(counts.values())
    return [weight / mean for weight in given]


def _check_segments(table: TextTable, segments: int) -> None:
    for row in table.rows:
        if (found := row.first.count(BETWEEN) + 1) != segments:
            raise UserError(
                f"{table.name}:{row.line}: {found} text{'s' * (found > 1)} before the label; the first row of the "
                f"training file has {segments}, expected as many in every row"
            )
