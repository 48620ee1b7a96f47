"""The intensities of pixels, given the text and the pixels before them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from torch.nn.functional import cross_entropy

from universal_transformer.data.example import FIRST, Example
from universal_transformer.evaluation.metrics.metric import Inference, Metric
from universal_transformer.evaluation.metrics.neighbours import NeighbourTable
from universal_transformer.evaluation.scores import Score, ScoreSums
from universal_transformer.evaluation.tensors import Called, target_ids
from universal_transformer.evaluation.trivial import TrivialBaseline, counted, num_target_ids
from universal_transformer.models.model_config import BaseConfig, ModelConfig


@dataclass(frozen=True, kw_only=True)
class PictureBaseline(TrivialBaseline):
    """A table of the intensities by their neighbours."""

    loss_of: ClassVar[str] = "four neighbours of each pixel"
    neighbours: NeighbourTable

    @classmethod
    def learn(cls, examples: Iterable[Example], config: BaseConfig) -> PictureBaseline:
        assert isinstance(config, ModelConfig)
        targets, levels = list(map(target_ids, counted(examples))), num_target_ids(config) - FIRST
        assert config.outputs.columns is not None, "a raster has columns"
        table = NeighbourTable.learn(targets, columns=config.outputs.columns, levels=levels)
        counts = Counter(chain.from_iterable(targets))
        return cls(counts=tuple(counts[index] for index in range(FIRST + levels)), neighbours=table)

    def loss(self, targets: Sequence[tuple[int, ...]]) -> float:
        return sum(map(self.neighbours.nats, targets)) / sum(map(len, targets))


class Intensities(Metric):
    """``-1/n Σ log2 p`` over n pixels, teacher-forced. The baseline is a table of the intensities by their four
    neighbours (`NeighbourTable`).
    """

    architecture = "encoder_decoder"
    shown, decisive = (Score("bits_per_pixel", "bits per pixel", 3, "low"),), "bits_per_pixel"
    chosen_by_loss = numeric = True
    statistics = PictureBaseline
    trivial_answer = "the frequency of each intensity, given four neighbours: left, above, above left and above right"

    def answers(self, inference: Inference, examples: Sequence[Example]) -> list[ScoreSums]:
        called = Called.with_examples(inference.model, examples, inference.options)
        target = called.batch.target
        nats = cross_entropy(called.logits.float().transpose(1, 2), target, reduction="none").double()
        steps = zip(nats.sum(1).tolist(), called.source_steps, called.target_steps, strict=True)
        return [
            ScoreSums(sums={"nats": total, "pixels": float(target.shape[1])}).after(encoder=of_text, decoder=of_pixels)
            for total, of_text, of_pixels in steps
        ]

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        return {"bits_per_pixel": sums.ratio("nats", over="pixels") / math.log(2)}

    def example_score(self, sums: ScoreSums) -> float:
        """The geometric mean of the probabilities of the pixels."""
        return math.exp(-sums.ratio("nats", over="pixels"))

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        assert isinstance(baseline, PictureBaseline)
        target = target_ids(example)
        return ScoreSums(sums={"nats": baseline.neighbours.nats(target), "pixels": float(len(target))})
