"""Frames of numbers, such as those of a sound, given the frames before them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from universal_transformer.data.example import Example, target_size
from universal_transformer.decoding import generate_frames
from universal_transformer.evaluation.metrics.metric import Inference, Metric
from universal_transformer.evaluation.scores import Score, ScoreSums
from universal_transformer.evaluation.tensors import Called, finite
from universal_transformer.evaluation.trivial import TrivialBaseline, num_target_ids
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.typed import Positive


@dataclass(frozen=True, kw_only=True)
class FrameBaseline(TrivialBaseline):
    """The frame before each position, repeated: nothing is learned."""

    stride: Positive
    """Frames of a position."""

    @classmethod
    def learn(cls, examples: Iterable[Example], config: BaseConfig) -> FrameBaseline:
        del examples
        return cls(counts=(0,) * num_target_ids(config), stride=config.outputs.stride)


class FrameErrors(Metric):
    """Mean absolute difference of the numbers of each frame, given those of the positions before, and share of
    free-running answers that stop before their limit. The baseline repeats the frame before each position.
    """

    architecture, writes = "encoder_decoder", "frames"
    shown = (Score("frame_error", "frame error", 3, "low"), Score("stopped", "stopped", 3, "high"))
    decisive = "frame_error"
    free_running = chosen_by_loss = numeric = True
    statistics = FrameBaseline
    trivial_answer = "the frame before each position, repeated"

    def answers(self, inference: Inference, examples: Sequence[Example]) -> list[ScoreSums]:
        model, options = inference.model, inference.options
        called = Called.with_examples(model, examples, options)
        difference = (finite(called.output.frames).double() - called.batch.target).abs().mean(-1)
        assert called.batch.source is not None
        written = generate_frames(model, called.batch.source, options)
        return [
            ScoreSums(
                sums={
                    "difference": total,
                    "frames": float(target_size(example)),
                    "stopped": float(row.finished),
                    "unfinished": float(not row.finished),
                }
            ).after(encoder=row.source_steps, decoder=row.steps)
            for example, row, total in zip(examples, written, difference.nansum(1).tolist(), strict=True)
        ]

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        stopped = {"stopped": sums.mean("stopped")} if "stopped" in sums.sums else {}
        return {"frame_error": sums.ratio("difference", over="frames"), **stopped}

    def example_score(self, sums: ScoreSums) -> float:
        """``exp(-error)``."""
        return math.exp(-sums.ratio("difference", over="frames"))

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        assert isinstance(baseline, FrameBaseline)
        frames, stride = example.target, baseline.stride
        assert isinstance(frames, np.ndarray)
        last = np.concatenate([np.zeros_like(frames[:1]), frames[stride - 1 :: stride]])
        before = last[np.arange(len(frames)) // stride]
        difference = np.abs(frames.astype(np.float64) - before).mean(axis=1).sum()
        return ScoreSums(sums={"difference": float(difference), "frames": float(len(frames))})
