"""Your own pairs of texts: translation, rewriting, any source line with its target line.

The data are one file of ``source<TAB>target``, one of JSON lines ``{"source": …, "target": …}``, or two files with the
same number of lines. Source and target end with the id of ``<end>``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Literal

from universal_transformer.data.columns import Columns, Record, TextRow
from universal_transformer.data.hub import is_hub
from universal_transformer.data.text_sources import IN_MEMORY, is_large, source_rows
from universal_transformer.data.text_table import TextTable, collect
from universal_transformer.data.token_store import TokenStore
from universal_transformer.data.tokenizer_files import check_choice, choice_key, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.large_pairs import map_pairs, mapped_pairs
from universal_transformer.tasks.lazy import Examples
from universal_transformer.tasks.own_files import Encoded, OwnFiles
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import Text
from universal_transformer.tasks.stores import check_same
from universal_transformer.tasks.synthetic import CAVEATS, Synthetic, synthetic_pairs
from universal_transformer.tasks.task import BleuTokenizer, Saved, Task
from universal_transformer.typed import NumberOf, Positive, check

PairsCodec = Codec[Text, Text]


@dataclass(frozen=True, kw_only=True)
class PairsData(OwnFiles):
    """Pairs of a source and a target text from your own files."""

    sides: ClassVar[Sides] = (Text, Text)
    ROWS: ClassVar = "pairs"
    needs: ClassVar = ("source<TAB>target lines", "JSON lines", "the source side")
    FILES: ClassVar[tuple[str, ...]] = (
        *("train", "train_target", "validation", "validation_target", "test", "test_target"),
        *("tokenizer", "target_tokenizer"),
    )
    train: str = ""
    """Training pairs: a file of `source<TAB>target` lines, JSON lines (.jsonl) with "source" and "target", or
    the source side alone (`train_target` then names the other). Any file may end in .gz. Or a folder of such
    files, read in the order of their names, or hf:NAME[:CONFIG[:SPLIT]], a data set of the hub, or hf:FOLDER."""
    train_target: str = ""
    """Target side of `train`, if it is a file of its own: line n belongs to line n."""
    validation_target: str = ""
    """Target side of `validation`, if it is a file of its own."""
    test_target: str = ""
    """Target side of `test`, if it is a file of its own."""
    tokenizer: str = "bpe"
    """What a token is: character; whitespace (what stands between two blanks); word (a word or punctuation mark); bpe
    (byte pairs merged by frequency); or a file, FILE.json of Hugging Face or FILE.model of SentencePiece."""
    target_tokenizer: str = ""
    """What a token of a target is, where it is another than that of a source: each side then has its own vocabulary."""
    vocabulary_size: int = 8000
    shared_vocabulary: bool = True
    """One vocabulary and one embedding table for both sides; otherwise one for each."""
    lower_case: bool = False
    """Turn all text into lower case."""
    group: str = ""
    """Column whose values group the figures: a key of JSON lines, or the number of a TSV column, from 1 on."""
    metric: Literal["bleu", "sequence", "rouge", "words", "characters", "phonemes"] = "bleu"
    """Score by BLEU (translation), by the part of targets that are right as a whole, by ROUGE (summaries), or by the
    error rate (edit distance) of words, characters or phonemes (what stands between blanks)."""
    bleu_tokenizer: BleuTokenizer = "13a"
    """How sacreBLEU cuts texts into words: zh for Chinese, ja-mecab for Japanese, ko-mecab for Korean (the last two
    need extra packages), char for characters, flores200 for many languages (downloads a model), none for blanks."""
    memory_mb: NumberOf = IN_MEMORY
    """Training pairs of more megabytes are not read into memory: they are encoded once, into files in the folder
    `tokens` of the data folder, with a tokenizer learned from a sample, and at most about 5,000 are held out."""

    synthetic: Literal["none"] | Synthetic = "none"
    """Synthetic pairs for a first try, if no training file is named: summaries, records or treatments."""
    train_pairs: Positive = 20_000
    """Synthetic pairs to train on."""
    test_pairs: Positive = 500
    """Synthetic pairs to validate on, and as many to test on."""

    def __post_init__(self) -> None:
        check(self, field="data")
        for choice in self._tokenizers:
            check_choice(choice, self.vocabulary_size, lower_case=self.lower_case)
        for part in ("train", "validation", "test"):
            if getattr(self, f"{part}_target") and not getattr(self, part):
                raise UserError(f"--data.{part}-target is set without --data.{part}, the source side")
            if getattr(self, f"{part}_target") and is_hub(getattr(self, part)):
                raise UserError(f"--data.{part}-target: {show_path(getattr(self, part))} has both sides; leave it out")
        assert self.layout, "a UserError for columns that cannot be"
        if self.bleu_tokenizer != "13a" and self.metric != "bleu":
            raise UserError(
                f"--data.bleu-tokenizer {self.bleu_tokenizer} changes nothing with --data.metric {self.metric}: "
                "leave it out"
            )

    def unread(self) -> Iterator[tuple[str, str]]:
        yield from super().unread()
        if self.train:
            yield "synthetic", "data.train names the pairs to train on"
        if self.target_tokenizer:
            yield "shared_vocabulary", "data.target_tokenizer gives each side its own"
        if not self._is_synthetic:
            yield from ((field, "applies only to synthetic pairs") for field in ("train_pairs", "test_pairs"))

    @property
    def name(self) -> str:
        return "pairs" if self.synthetic == "none" else self.synthetic

    @property
    def scored_by(self) -> str:
        return self.metric

    @property
    def layout(self) -> Columns:
        return Columns("source", "target", self.group, chosen=self.columns, separator=self.separator)

    def has(self, part: str) -> bool:
        return bool(getattr(self, part)) or self._is_synthetic

    def load(self, saved: Saved | None = None) -> Task:
        return replace(super().load(saved), bleu_tokenizer=self.bleu_tokenizer)

    def encode_train(self) -> tuple[PairsCodec, Encoded]:
        if not self._is_large:
            return super().encode_train()
        codec, store = self._mapped()
        records = [Record(number, fields=fields) for number, fields in enumerate(store.index.held_out["validation"], 1)]
        held = tuple(self.layout.kept.row(record, self.train) for record in records)
        return codec, Encoded(mapped_pairs(store, padding_id=codec.padding_id), store.index.notes, held)

    def encode_train_again(self, saved: Saved) -> Examples:
        """Read the pairs; UserError for a store that is not encoded with the saved codec."""
        if not self._is_large:
            return super().encode_train_again(saved)
        codec, store = self._mapped()
        check_same(codec, saved.codec, source=self.train)
        return mapped_pairs(store, padding_id=codec.padding_id)

    @property
    def _is_large(self) -> bool:
        return is_large(self.train, self.train_target, limit=self.memory_mb)

    def _mapped(self) -> tuple[PairsCodec, TokenStore]:
        sizes: dict[str, Any] = {"vocabulary_size": self.vocabulary_size, "lower_case": self.lower_case}
        choice = [key for tokenizer in self._tokenizers for key in choice_key(tokenizer, **sizes)]
        rows, sources = partial(self._rows, "train"), (self.train, self.train_target)
        return map_pairs(self, rows, sources=sources, key=[*choice, self.shared_vocabulary])

    def _rows(self, part: str) -> Iterator[TextRow]:
        path, target = getattr(self, part), getattr(self, f"{part}_target")
        for option in ("group", "columns", "separator") if target else ():
            if value := getattr(self, option):
                one = f"{show_path(path)} has one column; leave --data.{option} out"
                raise UserError(f"--data.{option} {value}: {one}")
        return source_rows(path, target, columns=self.layout, part=part)

    def caveats(self) -> Iterator[str]:
        if self.metric == "sequence":
            if self._tokenizers[-1] != "character":
                yield "character accuracy is over tokens, place by place"
            if self.lower_case:
                yield "targets are turned into lower case: an answer is right whatever the case of its target"
        elif self.lower_case:
            scored = f"--data.metric {self.metric} compares them with targets as they were written"
            yield f"answers are in lower case, and {scored}"
        if self._is_synthetic:
            yield "all training examples are synthetic, and scores say nothing about real texts"
        if self.synthetic in CAVEATS:
            yield CAVEATS[self.synthetic]

    @property
    def _is_synthetic(self) -> bool:
        return self.synthetic != "none" and not self.train

    def read(self, part: str) -> TextTable:
        if self.synthetic != "none" and not getattr(self, part):
            count = self.train_pairs if part == "train" else self.test_pairs
            pairs = islice(synthetic_pairs(self.synthetic, part, seed=self.seed), count)
            rows = [TextRow(number, *pair) for number, pair in enumerate(pairs, start=1)]
            return TextTable(f"synthetic ({part})", tuple(rows))
        return collect(show_path(getattr(self, part)), self._rows(part), columns=self.layout.names)

    def learn(self, rows: Sequence[TextRow], given: TextTable | None = None) -> PairsCodec:
        del given
        texts = [[row.first for row in rows], [row.second for row in rows]]
        if self.shared_vocabulary and not self.target_tokenizer:
            texts = [texts[0] + texts[1]]
        sizes: dict[str, Any] = {"vocabulary_size": self.vocabulary_size, "lower_case": self.lower_case}
        tokenizers = [
            make_tokenizer(choice, part, **sizes) for choice, part in zip(self._tokenizers, texts, strict=False)
        ]
        special = {(one.padding_id, one.start_id, one.end_id) for one in tokenizers}
        if len(special) > 1:
            found = " and ".join(map(str, sorted(special)))
            raise UserError(
                f"--data.target-tokenizer: padding, start and end have the ids {found}; expected equal ones"
            )
        sides = [Text(tokenizer, self.max_length) for tokenizer in tokenizers]
        return Codec(sides[0], sides[-1])

    @property
    def _tokenizers(self) -> list[str]:
        return [self.tokenizer, self.target_tokenizer or self.tokenizer]

    def written(self, row: TextRow) -> tuple[str, str]:
        return row.first, row.second
