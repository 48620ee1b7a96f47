"""Your own pairs of texts: translation, rewriting, any source line with its target line.

The data are one file of ``source<TAB>target``, one of JSON lines ``{"source": …, "target": …}``, or two files with the
same number of lines. Source and target end with the id of ``<end>``, so that an empty line still has a position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

from universal_transformer.data.example import Example
from universal_transformer.data.hub import is_hub
from universal_transformer.data.text_sources import IN_MEMORY, is_large, source_rows
from universal_transformer.data.text_table import Columns, TextRow, TextTable, check_file, collect
from universal_transformer.data.token_store import TokenStore
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.data.tokenizer_files import check_choice, choice_key, make_tokenizer, saved_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import one_line, show, show_path, write_json
from universal_transformer.tasks.codecs import CODEC_FILE, read_kind, read_sources, special_ids, token_fields
from universal_transformer.tasks.large import check_same
from universal_transformer.tasks.large_pairs import PairsSource, map_pairs, mapped_pairs
from universal_transformer.tasks.lazy import DeferredExamples, Examples
from universal_transformer.tasks.synthetic import Synthetic, synthetic_pairs
from universal_transformer.tasks.tables import Encoded, OwnTables
from universal_transformer.tasks.task import BleuTokenizer, Codec, Saved, Task
from universal_transformer.typed import AtLeastOne, AtLeastTwo, NumberOf, Share, check


@dataclass(frozen=True)
class PairsCodec:
    """Two tokenisers (the same object if the vocabulary is shared) and the limit of a source."""

    kind: ClassVar[str] = "pairs"
    source: Tokenizer
    target: Tokenizer
    max_length: int

    @property
    def unknown_target(self) -> int:
        """The id of what is not in the vocabulary of targets."""
        return self.target.unknown_id

    @property
    def model_fields(self) -> dict[str, Any]:
        target_size = None if self.source is self.target else len(self.target)
        fields = token_fields("encoder_decoder", size=len(self.source), target_size=target_size)
        return fields | special_ids(self.source)

    @property
    def tokens_by_side(self) -> Mapping[str, Sequence[str]]:
        return {"source": self.source.tokens(), "target": self.target.tokens()}

    def save(self, folder: Path) -> None:
        shared = self.source is self.target
        self.source.save(folder / "tokenizer.json")
        if not shared:
            self.target.save(folder / "target_tokenizer.json")
        write_json(
            folder / CODEC_FILE,
            {"kind": self.kind, "shared_vocabulary": shared, "max_length": self.max_length},
        )

    @classmethod
    def load(cls, folder: Path) -> PairsCodec:
        match fields := read_kind(folder, kind=cls.kind):
            case {"shared_vocabulary": bool(shared), "max_length": int(max_length)}:
                pass
            case _:
                raise UserError(
                    f"{show_path(folder / CODEC_FILE)}: found {show(fields)}; expected "
                    '{"shared_vocabulary": true or false, "max_length": a number}'
                )
        source = saved_tokenizer(folder, "tokenizer")
        target = source if shared else saved_tokenizer(folder, "target_tokenizer")
        return cls(source=source, target=target, max_length=max_length)

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Return one example without a target for every line, an empty one included."""
        return read_sources(lines, self.source, name=name, what="source", limit=self.max_length)

    def render(self, target: int | Sequence[int]) -> str:
        """Return the text of target ids, on one line."""
        assert not isinstance(target, int), "a target is a sequence of ids"
        return one_line(self.target.decode(target))

    def spans(self, text: str) -> list[tuple[int, int]]:
        return [*self.source.spans(text), (len(text), len(text))]

    @property
    def vocabulary(self) -> str:
        sizes = f"{len(self.source):,} tokens"
        return (
            f"{sizes} for both sides" if self.source is self.target else f"source {sizes}, target {len(self.target):,}"
        )

    def pieces(self, example: Example) -> tuple[list[str], list[str]]:
        target = () if isinstance(example.target, int) else example.target
        source = [self.source.piece(index) for index in example.source if isinstance(index, int)]
        return source, [self.target.piece(index) for index in target]

    def words(self, example: Example) -> list[str]:
        return [self.source.label(index) for index in example.source if isinstance(index, int)]


@dataclass(frozen=True, kw_only=True)
class PairsData:
    """Pairs of a source and a target text from your own files."""

    codec_class: ClassVar[type[Codec]] = PairsCodec
    FILES: ClassVar[tuple[str, ...]] = (
        *("train", "train_target", "validation", "validation_target", "test", "test_target", "tokenizer"),
    )
    train: str = ""
    """Training pairs: a file of `source<TAB>target` lines, JSON lines (.jsonl) with "source" and "target", or
    the source side alone (then name the other in train_target). Any file may end in .gz. Or a folder of such
    files, read in the order of their names, or hf:NAME[:CONFIG[:SPLIT]], a data set of the hub, or hf:FOLDER."""
    train_target: str = ""
    """Target side of `train`, if it is a file of its own: line n belongs to line n."""
    validation: str = ""
    """Validation pairs, like `train`; without it a part of the training pairs is held out."""
    validation_target: str = ""
    """Target side of `validation`, if it is a file of its own."""
    test: str = ""
    """Test pairs, like `train`; without it the validation pairs are scored."""
    test_target: str = ""
    """Target side of `test`, if it is a file of its own."""
    tokenizer: str = "bpe"
    """What a token is: character; whitespace (what stands between two blanks); word (a word or punctuation mark); bpe
    (byte pairs merged by frequency); or a file, FILE.json of Hugging Face or FILE.model of SentencePiece."""
    vocabulary_size: int = 8000
    """At most so many different tokens."""
    shared_vocabulary: bool = True
    """One vocabulary and one embedding table for both sides; otherwise one for each."""
    lower_case: bool = False
    """Turn all text into lower case."""
    max_length: AtLeastTwo = 256
    """Tokens of the longest source or target, <end> included; longer pairs are left out and counted."""
    validation_fraction: Share = 0.05
    """Part of the training pairs held out if no validation file is named."""
    seed: NumberOf = 0
    """Seed of what is held out."""
    group: str = ""
    """Column whose values group the figures: a key of JSON lines, or the number of a TSV column, from 1 on."""
    metric: Literal["bleu", "sequence", "rouge"] = "bleu"
    """Score by BLEU (translation), by the part of targets that are right as a whole, or by ROUGE (summaries)."""
    bleu_tokenizer: BleuTokenizer = "13a"
    """How sacreBLEU cuts texts into words: zh for Chinese, ja-mecab for Japanese, ko-mecab for Korean (the last two
    need extra packages), char for characters, flores200 for many languages (downloads a model), none for blanks."""
    memory_mb: NumberOf = IN_MEMORY
    """Training pairs of more megabytes are not read into memory: they are encoded once, into files in the folder
    `tokens` of the data folder, with a tokenizer learned from a sample, and at most about 5,000 are held out."""

    synthetic: Literal["none"] | Synthetic = "none"
    """Synthetic pairs for a first try, if no training file is named: summaries or records."""
    train_pairs: AtLeastOne = 20_000
    """Synthetic pairs to train on."""
    test_pairs: AtLeastOne = 500
    """Synthetic pairs to validate on, and as many to test on."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice(self.tokenizer, self.vocabulary_size, lower_case=self.lower_case)
        for part in ("train", "validation", "test"):
            if getattr(self, f"{part}_target") and not getattr(self, part):
                raise UserError(f"--data.{part}-target is set without --data.{part}, the source side")
            if getattr(self, f"{part}_target") and is_hub(getattr(self, part)):
                raise UserError(f"--data.{part}-target: {show_path(getattr(self, part))} has both sides; leave it out")
        if self.bleu_tokenizer != "13a" and self.metric != "bleu":
            raise UserError(
                f"--data.bleu-tokenizer {self.bleu_tokenizer} changes nothing with --data.metric {self.metric}: "
                "leave it out"
            )

    def load(self) -> Task:
        """Read the files, learn the tokenisers from the training pairs, encode all pairs."""
        if self.synthetic == "none":
            check_file("train", self.train, needs=("source<TAB>target lines", "JSON lines", "the source side"))
        if is_large(self.train, self.train_target, limit=self.memory_mb):
            codec, store = self._stored()
            train = mapped_pairs(store, padding_id=codec.source.padding_id)
            found = self._tables.encode_others(store, train, partial(self.encode, codec))
            return self._task(codec, found)
        tables, notes = self._tables.split(self._tables.given())
        codec = self.learn(tables["train"].rows)
        return self._task(codec, self._tables.encode(tables, notes, partial(self.encode, codec)))

    def reload(self, saved: Saved) -> Task:
        """Read the test pairs and encode them with the saved codec."""
        codec = saved.codec
        assert isinstance(codec, PairsCodec)
        found = self._tables.encode_again(saved, partial(self.encode, codec))
        if is_large(self.train, self.train_target, limit=self.memory_mb):
            found = replace(found, train=DeferredExamples(partial(self._mapped_again, codec)))
        return self._task(codec, found)

    def _mapped_again(self, codec: PairsCodec) -> Examples:
        """Return the pairs of the store of the training file; UserError if it is not encoded with the saved codec."""
        found, store = self._stored()
        check_same([found.source, found.target], [codec.source, codec.target], source=self.train)
        return mapped_pairs(store, padding_id=codec.source.padding_id)

    def _stored(self) -> tuple[PairsCodec, TokenStore]:
        """Open the store of the training pairs, or make it."""
        pairs = PairsSource(
            source=self.train,
            target=self.train_target,
            columns=self._columns,
            held_out=0.0 if self.validation else self.validation_fraction,
            seed=self.seed,
        )
        choice = choice_key(self.tokenizer, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case)
        store = map_pairs(pairs, learn=self.learn, key=[*choice, self.shared_vocabulary, self.max_length])
        assert store.folder is not None
        return PairsCodec.load(store.folder), store

    @property
    def _tables(self) -> OwnTables:
        return OwnTables(
            columns=self._columns,
            read=self._read,
            named=[part for part in ("train", "validation", "test") if getattr(self, part) or self._is_synthetic],
            fraction=self.validation_fraction,
            seed=self.seed,
            what="pairs",
        )

    def _task(self, codec: PairsCodec, found: Encoded) -> Task:
        found = replace(found, notes=(*found.notes, *self._caveats()))
        name = "pairs" if self.synthetic == "none" else self.synthetic
        task = found.task(name, codec=codec, metric=self.metric, model_fields=codec.model_fields)
        return replace(task, bleu_tokenizer=self.bleu_tokenizer)

    def _caveats(self) -> Iterator[str]:
        """Say what the scores do not mean."""
        if self.metric == "sequence":
            if self.tokenizer != "character":
                yield "character accuracy is over tokens, place by place"
            if self.lower_case:
                yield "targets are turned into lower case: an answer is right whatever the case of its target"
        elif self.lower_case:
            score = self.metric.upper()
            yield f"answers are in lower case, and {score} compares them with targets as they were written"
        if self._is_synthetic:
            yield "all training examples are synthetic, and scores say nothing about real texts"

    @property
    def _is_synthetic(self) -> bool:
        return self.synthetic != "none" and not self.train

    def _read(self, part: str) -> TextTable:
        if self.synthetic != "none" and not getattr(self, part):
            count = self.train_pairs if part == "train" else self.test_pairs
            pairs = islice(synthetic_pairs(self.synthetic, part, seed=self.seed), count)
            rows = [TextRow(number, *pair) for number, pair in enumerate(pairs, start=1)]
            return TextTable(f"synthetic ({part})", tuple(rows))
        path, target = getattr(self, part), getattr(self, f"{part}_target")
        if target and self.group:
            raise UserError(f"--data.group {self.group}: {show_path(path)} has one column; leave --data.group out")
        found = source_rows(path, target, columns=self._columns, part=part)
        return collect(show_path(path), found, columns=self._columns.names)

    @property
    def _columns(self) -> Columns:
        return Columns("source", "target", group=self.group)

    def learn(self, rows: Sequence[TextRow]) -> PairsCodec:
        """Learn the tokenisers from rows of training pairs."""
        texts = [[row.first for row in rows], [row.second for row in rows]]
        if self.shared_vocabulary:
            texts = [texts[0] + texts[1]]
        learned = [
            make_tokenizer(self.tokenizer, part, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case)
            for part in texts
        ]
        return PairsCodec(source=learned[0], target=learned[-1], max_length=self.max_length)

    def encode(self, codec: PairsCodec, table: TextTable, notes: list[str]) -> list[Example]:
        """Encode a table; `notes` get how many pairs are too long, and how many targets are not in the vocabulary."""
        sources = codec.source.encode_many([row.first for row in table.rows])
        targets = codec.target.encode_many([row.second for row in table.rows])
        examples = [
            Example(
                source=(*source, codec.source.end_id),
                target=(*target, codec.target.end_id),
                group=row.group,
                written=(row.first, row.second),
                padding_id=codec.source.padding_id,
            )
            for source, target, row in zip(sources, targets, table.rows, strict=True)
            if max(len(source), len(target)) < self.max_length
        ]
        notes += table.note_skipped(kept=len(examples), max_length=self.max_length, what="pair")
        if unknown := sum(codec.unknown_target in target for target in targets):
            notes.append(
                f"{table.name}: {unknown:,} of {len(targets):,} targets have parts that are not in the vocabulary; an "
                "answer never has them"
            )
        return examples
