"""Scores of answers that need no model: what a trained model must beat."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from universal_transformer.data.example import Example, spread
from universal_transformer.data.tokenizer import UNKNOWN
from universal_transformer.errors import UserError
from universal_transformer.evaluation.neighbours import NeighbourTable
from universal_transformer.evaluation.scores import ScoreSums, class_sums, position_sums
from universal_transformer.evaluation.tensors import target_ids
from universal_transformer.evaluation.texts import answer_text, first_sentence, sequence_sums, text_sums
from universal_transformer.files import read_json, show, show_path, write_json
from universal_transformer.models.components import ENCODERS
from universal_transformer.models.config import BaseConfig, ModelConfig
from universal_transformer.tasks.accuracy import until_end
from universal_transformer.tasks.lazy import MappedExamples
from universal_transformer.tasks.pairs import PairsCodec
from universal_transformer.tasks.pictures import FIRST
from universal_transformer.tasks.task import Codec, Measure
from universal_transformer.tasks.trees import flat
from universal_transformer.typed import AtLeastOne, NumberOf, typed

MOST_SHOWN = 40
COUNTED = 10_000


@dataclass(frozen=True, kw_only=True)
class TrivialBaseline:
    """Answers from statistics of the training targets, without reading the input.

    | metric                   | answer                                                                         |
    | ------------------------ | ------------------------------------------------------------------------------ |
    | error, classes, accuracy | the most frequent class                                                        |
    | positions, tags          | the most frequent class, at every position                                     |
    | actions                  | the most frequent action; of the return, actions drawn at random               |
    | sequence, words          | the most frequent target                                                       |
    | bleu                     | the source as it is (another codec than of pairs: the most frequent target)    |
    | rouge                    | the first sentence of the source                                               |
    | brackets                 | one bracket around the sentence, with the label of the most frequent target    |
    | perplexity, last_word    | ``p(token) = (count + 1) / (tokens + vocabulary)``, whatever stands before it  |
    | frames                   | the frame before each position, repeated                                       |
    | intensities              | a table of the intensities by their four neighbours (`NeighbourTable`)         |
    | ranking                  | the text that these probabilities prefer; half of an example if they are equal |
    """

    counts: tuple[NumberOf, ...]
    """How often each class, or each token of the target vocabulary, occurs in the targets, by id."""
    target: tuple[NumberOf, ...] = ()
    """The most frequent target with its end id; empty for classes, for pictures and for a language model."""
    neighbours: NeighbourTable | None = None
    """Of pictures."""
    stride: AtLeastOne = 1
    """Frames of a position, of a model that writes frames."""

    @classmethod
    def learn(cls, examples: Iterable[Example], config: BaseConfig) -> TrivialBaseline:
        """Count the targets of training; `config` is that of the model, with its sizes.

        Of examples that are mapped from disk, `COUNTED` are counted, evenly spread.
        """
        if isinstance(examples, MappedExamples):
            examples = spread(examples, count=COUNTED)
        counts, targets = Counter[int](), []
        for example in examples:
            if not isinstance(example.target, np.ndarray):
                counts.update(target_classes(example))
                targets.append(example.target)
        frequent: tuple[int, ...] = ()
        neighbours = None
        if isinstance(config, ModelConfig) and config.outputs.kind == "frames":
            return cls(counts=(0,) * num_target_ids(config), stride=config.outputs.stride)
        if isinstance(config, ModelConfig) and config.outputs.kind == "raster":
            columns, levels = config.outputs.columns, num_target_ids(config) - FIRST
            pictures = [target for target in targets if isinstance(target, tuple)]
            neighbours = NeighbourTable.learn(pictures, columns=columns, levels=levels)
        elif config.architecture == "encoder_decoder":
            ((found, _),) = Counter(targets).most_common(1)
            assert isinstance(found, tuple)
            frequent = found
        counted = tuple(counts[index] for index in range(num_target_ids(config)))
        return cls(counts=counted, target=frequent, neighbours=neighbours)

    def save(self, path: Path) -> None:
        """Write a JSON file."""
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path, config: BaseConfig) -> TrivialBaseline:
        """Undo `save`; UserError for another file than that of a model with this configuration."""
        found: TrivialBaseline = typed(read_json(path), cls, where=show_path(path))
        size = num_target_ids(config)
        if len(found.counts) != size:
            raise UserError(f"{show_path(path)}: counts: found {len(found.counts)} of them; this model has {size}")
        if wrong := [index for index in found.target if index >= size]:
            raise UserError(f"{show_path(path)}: target: found id {wrong[0]}; this model has {size}")
        return found

    @cached_property
    def nats(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """``-log p`` of each class or token, with one added to every count."""
        counts = np.array(self.counts, dtype=np.float64) + 1
        return np.log(counts.sum()) - np.log(counts)

    @property
    def most_frequent(self) -> int:
        """The most frequent class or token; the smallest id of several."""
        return self.counts.index(max(self.counts))

    def sums(self, examples: Sequence[Example], *, metric: Measure, codec: Codec) -> list[ScoreSums]:
        """Return what the answers to `examples` add to the scores of `metric`."""
        return [self._sums(example, metric=metric, codec=codec) for example in examples]

    def _sums(self, example: Example, *, metric: Measure, codec: Codec) -> ScoreSums:
        match metric:
            case "error" | "classes" | "accuracy" | "actions":
                return class_sums(example, self.most_frequent, metric=metric)
            case "positions" | "tags":
                return position_sums(example, [self.most_frequent] * len(example.source), metric=metric)
            case "sequence":
                return sequence_sums(self.target, example, codec=codec)
            case "bleu" | "rouge" | "words" | "brackets":
                return text_sums(self._text(example, metric, codec), example, metric=metric, codec=codec)
            case "intensities":
                target = target_ids(example)
                assert self.neighbours is not None, "a model of pictures learns this table"
                return ScoreSums(sums={"nats": self.neighbours.nats(target), "pixels": float(len(target))})
            case "frames":
                return self._repeated(example)
            case "ranking":
                wrong = [index for index in example.source if isinstance(index, int)]
                gain = math.fsum(self.nats[wrong]) - math.fsum(self.nats[list(target_ids(example))])
                return ScoreSums(sums={"right": 0.5 if gain == 0 else float(gain > 0)})
        return self._token_sums(target_ids(example), last=metric == "last_word")

    def _repeated(self, example: Example) -> ScoreSums:
        """Return what the frame before each position adds, repeated at all of its frames; at first it is 0."""
        frames = example.target
        assert isinstance(frames, np.ndarray)
        last = np.concatenate([np.zeros_like(frames[:1]), frames[self.stride - 1 :: self.stride]])
        before = last[np.arange(len(frames)) // self.stride]
        difference = np.abs(frames.astype(np.float64) - before).mean(axis=1).sum()
        return ScoreSums(sums={"difference": float(difference), "frames": float(len(frames))})

    def _token_sums(self, target: tuple[int, ...], *, last: bool) -> ScoreSums:
        scored = target[-1:] if last else target
        nats, known = float(self.nats[list(scored)].sum()), float(target[-1] != UNKNOWN)
        right = float(scored.count(self.most_frequent)) * (known if last else 1)
        return ScoreSums(
            sums={
                "nats": nats,
                "right": right,
                "tokens": float(len(scored)),
                "known": known,
                "known_nats": known * nats,
            }
        )

    def _text(self, example: Example, metric: Measure, codec: Codec) -> str:
        frequent = answer_text(until_end(self.target), codec=codec)
        if metric == "brackets":
            return flat(frequent, words=len(example.source))
        if example.written is None:
            return frequent
        return first_sentence(example.written[0]) if metric == "rouge" else example.written[0]

    def describe(self, *, metric: Measure, codec: Codec) -> str:
        """Return in words what is answered."""
        if metric in ("bleu", "rouge") and isinstance(codec, PairsCodec):
            return "the source as it is" if metric == "bleu" else "the first sentence of the source"
        if metric == "brackets":
            return "one bracket around the sentence"
        if metric in ("error", "classes", "accuracy", "positions", "tags"):
            return f"always {show(codec.render(self.most_frequent), limit=MOST_SHOWN)}, the most frequent class"
        if metric == "actions":
            return "actions drawn at random"
        if metric in ("sequence", "bleu", "rouge", "words"):
            text = codec.render(until_end(self.target))
            return f"always {show(text, limit=MOST_SHOWN)}, the most frequent target"
        if metric == "frames":
            return "the frame before each position, repeated"
        if metric == "intensities":
            return "the frequency of each intensity, given four neighbours: left, above, above left and above right"
        return "the frequency of each token, whatever stands before it"


def target_classes(example: Example) -> tuple[int, ...]:
    """Return the ids of a target: one class, or all that are not padding; none of frames."""
    target = example.target
    if isinstance(target, np.ndarray):
        return ()
    return (target,) if isinstance(target, int) else tuple(index for index in target if index != example.padding_id)


def num_target_ids(config: BaseConfig) -> int:
    """Return the number of classes, or of tokens that a target can have."""
    vocabulary = config.vocabulary
    if config.architecture in ENCODERS:
        return vocabulary.num_classes or vocabulary.size
    return vocabulary.target_size or vocabulary.size
