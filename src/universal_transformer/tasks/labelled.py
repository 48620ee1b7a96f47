"""Your own labelled texts: one class for each text.

The data are files of ``text<TAB>label`` lines, or of JSON lines ``{"text": …, "label": …}``. The classes are the sorted
labels of the training file. A text ends with the id of ``<end>``. A row can have two texts, such as a premise and a
hypothesis: ``<end>`` separates them, and each has a segment embedding.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from universal_transformer.data.columns import BETWEEN, Columns, Lines, TextRow
from universal_transformer.data.example import Example
from universal_transformer.data.text_table import TextTable
from universal_transformer.data.tokenizer_files import check_choice, make_tokenizer
from universal_transformer.errors import UserError, refuse
from universal_transformer.files import Line, show, show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.own_files import Encoded, OwnFiles, class_weights, classes, input_lines
from universal_transformer.tasks.sides.listed import Classes, Labels, split_labels
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import Text
from universal_transformer.typed import check

MAX_LABELS = 10_000
MANY_ONCE = 10
"""Labels that occur once, from which on they look like texts."""


@dataclass(frozen=True, kw_only=True)
class LabelledData(OwnFiles):
    """Texts from your own files, each with a class."""

    ROWS: ClassVar = "texts"
    needs: ClassVar = ("text<TAB>label lines", "JSON lines")
    FILES: ClassVar[tuple[str, ...]] = ("train", "validation", "test", "tokenizer")
    train: str = ""
    """Training texts: a file of `text<TAB>label` lines, or JSON lines (.jsonl) with "text" and "label"; for two texts
    with one label, `text<TAB>text<TAB>label`, or a "text" of [text, text]. Any file may end in .gz."""
    tokenizer: str = "word"
    """What a token is: character; whitespace (what stands between two blanks); word (a word or punctuation mark); bpe
    (byte pairs merged by frequency); or a file, FILE.json of Hugging Face or FILE.model of SentencePiece."""
    label_separator: str = ""
    """What stands between several labels of a text, such as '|'; JSON lines may have lists. A text without a label has
    the separator alone, or an empty list. Without this option each text has one label."""
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
        both = self.label_separator and self.class_weights
        refuse(
            (both, "weighs classes of which a text has one; leave it out, or --data.label-separator"),
            at="--data.class-weights",
        )

    @property
    def sides(self) -> Sides:
        return (Text, Labels if self.label_separator else Classes)

    @property
    def scored_by(self) -> str:
        return "labels" if self.label_separator else "classes"

    @property
    def layout(self) -> Columns:
        columns = Columns("text", "label", self.group, two_texts=True, between_labels=self.label_separator)
        return replace(columns, chosen=self.columns, separator=self.separator)

    def inputs(self, lines: Lines, *, name: str, codec: Codec[Any, Any]) -> Iterator[Line]:
        columns = replace(self.layout, two_texts=codec.source.segments > 1)
        yield from input_lines(lines, columns, name=name)

    name = "labelled"

    def learn(self, rows: Sequence[TextRow], given: TextTable) -> Codec[Text, Classes]:
        target = self._target(given)
        texts = [text for row in rows for text in row.first.split(BETWEEN)]
        tokenizer = make_tokenizer(
            self.tokenizer, texts, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case
        )
        segments = given.rows[0].first.count(BETWEEN) + 1
        _check_segments(given, segments)
        return Codec(Text(tokenizer, self.max_length, segments=segments), target)

    def _target(self, given: TextTable) -> Classes:
        """The side of the labels in a training table."""
        columns, separator = [row.second for row in given.rows], self.label_separator
        if not separator:
            return Classes(classes(map(str.strip, columns), given, what="label", most=MAX_LABELS))
        named = [label for column in columns for label in split_labels(column, separator)]
        return Labels(classes(named, given, what="label", least=1, most=MAX_LABELS), separator)

    def encode_train(self) -> tuple[Codec[Any, Any], Encoded]:
        codec, encoded = super().encode_train()
        classes_of = [int(example.target) for example in encoded.examples if isinstance(example.target, int)]
        counts = Counter(classes_of)
        if self.class_weights:
            weights = class_weights(self.class_weights, codec.target.labels, counts, what="label")
            both = zip(encoded.examples, classes_of, strict=True)
            encoded = replace(encoded, examples=[replace(example, weight=weights[label]) for example, label in both])
        held = {row.second.strip() for row in encoded.held_out}
        if held and not self.label_separator and (absent := [one for one in codec.target.labels if one not in held]):
            such = f"{len(absent):,} of {len(codec.target.labels):,} labels are in none of its rows, such as"
            note = f"validation: {such} {show(absent[0])}; --data.validation names a file of your own"
            encoded = replace(encoded, notes=[*encoded.notes, note])
        once = [label for label, count in counts.items() if count == 1]
        if len(once) < MANY_ONCE or 4 * len(counts) < len(encoded.examples):
            return codec, encoded
        such = f"{len(once):,} of {len(counts):,} labels occur once, such as {show(codec.render(once[0]))}"
        note = f"{show_path(self.train)}: {such}; if this is no label: --data.columns text=2,label=1"
        return codec, replace(encoded, notes=[*encoded.notes, note])

    def encode(self, codec: Codec[Any, Any], table: TextTable, notes: list[str]) -> list[Example]:
        _check_segments(table, codec.source.segments)
        return super().encode(codec, table, notes)


def _check_segments(table: TextTable, segments: int) -> None:
    for row in table.rows:
        if (found := row.first.count(BETWEEN) + 1) != segments:
            raise UserError(
                f"{table.name}:{row.line}: {found} text{'s' * (found > 1)} before the label; the first row of the "
                f"training file has {segments}, expected as many in every row"
            )
