"""Batches of examples to what they add to the scores: classes, free-running sequences, tokens, or ranked texts."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from universal_transformer.axes import Float, Tensor
from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import UNKNOWN
from universal_transformer.decoding import Generated, generate, generate_frames
from universal_transformer.decoding.generation import free_positions, steps_of
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.report import Side
from universal_transformer.evaluation.scores import ScoreSums, class_sums, position_sums
from universal_transformer.evaluation.tensors import (
    device_of,
    finite,
    real_positions,
    target_ids,
)
from universal_transformer.evaluation.texts import answer_text, sequence_sums, text_sums
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Codec, Measure

Logits = Float[Tensor, "batch target classes"]


@dataclass(frozen=True)
class Scorer:
    """Turns batches of examples into sums for the scores."""

    model: Model
    codec: Codec
    metric: Measure
    options: DecodingOptions
    whole: bool = False
    """Whether `answer` has all tokens of an answer where those after the length of its target decide no score."""

    def __call__(self, examples: Sequence[Example]) -> list[ScoreSums]:
        model = self.model
        if model.writes == "classes":
            at_positions = model.config.architecture == "tagger"
            return self._positions(examples) if at_positions else self._classes(examples)
        if model.writes == "frames":
            return self._frames(examples)
        if model.config.architecture == "language_model":
            return self._ranks(examples) if self.metric == "ranking" else self._tokens(examples)
        return self._intensities(examples) if self.metric == "intensities" else self._sequences(examples)

    def _batch(self, examples: Sequence[Example]) -> Batch:
        return collate(examples, indices=range(len(examples))).to(device_of(self.model))

    def _classes(self, examples: Sequence[Example]) -> list[ScoreSums]:
        return [
            class_sums(example, answer, metric=self.metric, steps=steps)
            for example, answer, steps in self._answers(examples)
        ]

    def _positions(self, examples: Sequence[Example]) -> list[ScoreSums]:
        return [
            position_sums(example, answers[: len(example.source)], metric=self.metric, steps=steps)
            for example, answers, steps in self._answers(examples)
        ]

    def _answers(self, examples: Sequence[Example]) -> Iterator[tuple[Example, Any, dict[Side, Counter[int]]]]:
        """Return each example with the likeliest class, or that of each position, and the steps of its positions."""
        batch = self._batch(examples)
        assert batch.source is not None
        output = self.options.run(self.model, batch.source)
        given = finite(output.logits).argmax(-1).tolist()
        taken = steps_of(output.encoder, real=real_positions(self.model, batch.source))
        for example, answer, steps in zip(examples, given, taken, strict=True):
            yield example, answer, {"encoder": Counter(map(int, steps))}

    def _sequences(self, examples: Sequence[Example]) -> list[ScoreSums]:
        batch = self._batch(examples)
        assert batch.source is not None
        options, limits = self.options, [self._limit(example) for example in examples]
        bounds = lengths = limits
        if self.metric == "sequence":  # an output longer than its target is wrong, whatever follows
            bounds = [min(limit, len(target_ids(one))) for limit, one in zip(limits, examples, strict=True)]
            lengths = limits if self.whole else bounds
            options = dataclasses.replace(options, max_new_tokens=max(lengths))
        found = generate(self.model, batch.source, options)
        result = []
        for example, whole, limit, length, bound in zip(examples, found, limits, lengths, bounds, strict=True):
            answer, output = cut(whole, length=length), cut(whole, length=bound)
            if self.metric == "sequence":
                sums = sequence_sums(output.tokens, example, codec=self.codec)
            else:
                text = answer_text(output.tokens, codec=self.codec)
                sums = text_sums(text, example, metric=self.metric, codec=self.codec)
            decoder = map(int, output.token_steps if self.model.config.max_steps else ())
            sums.steps = {"encoder": Counter(map(int, output.source_steps)), "decoder": Counter(decoder)}
            sums.answer = tuple(answer.tokens)
            at_limit = self.metric != "sequence" or len(output.tokens) >= limit
            sums.sums["unfinished"] = float(at_limit and not output.finished)
            result.append(sums)
        return result

    def _intensities(self, examples: Sequence[Example]) -> list[ScoreSums]:
        """Return what the probabilities of the pixels of each picture add, given its text and the pixels before."""
        batch = self._batch(examples)
        assert batch.source is not None
        output = self.options.run(self.model, batch.source, batch.target)
        nats = cross_entropy(finite(output.logits).float().transpose(1, 2), batch.target, reduction="none").double()
        read = steps_of(output.encoder, real=real_positions(self.model, batch.source))
        written = steps_of(output.decoder, real=torch.ones_like(batch.target, dtype=torch.bool))
        return [
            ScoreSums(
                sums={"nats": total, "pixels": float(batch.target.shape[1])},
                steps={"encoder": Counter(map(int, of_text)), "decoder": Counter(map(int, of_pixels))},
            )
            for total, of_text, of_pixels in zip(nats.sum(1).tolist(), read, written, strict=True)
        ]

    def _frames(self, examples: Sequence[Example]) -> list[ScoreSums]:
        """Return the differences of the frames given those before, and whether frames written freely stop."""
        batch = self._batch(examples)
        assert batch.source is not None
        output = self.options.run(self.model, batch.source, batch.target)
        difference = (finite(output.frames).double() - batch.target).abs().mean(-1)
        written = generate_frames(self.model, batch.source, self.options)
        return [
            ScoreSums(
                sums={
                    "difference": total,
                    "frames": float(len(example.target)) if isinstance(example.target, np.ndarray) else 0.0,
                    "stopped": float(row.finished),
                    "unfinished": float(not row.finished),
                },
                steps={"encoder": Counter(map(int, row.source_steps)), "decoder": Counter(map(int, row.steps))},
            )
            for example, row, total in zip(examples, written, difference.nansum(1).tolist(), strict=True)
        ]

    def _limit(self, example: Example) -> int:
        """Return how many tokens the answer may have, as in prediction."""
        if self.options.max_new_tokens is not None:
            return self.options.max_new_tokens
        limit = self.model.config.generation.limit(len(example.source))
        free = free_positions(self.model, fed=1)
        return limit if free is None else min(limit, free)

    def _tokens(self, examples: Sequence[Example]) -> list[ScoreSums]:
        batch = self._batch(examples)
        output = self.options.run(self.model, batch.target)
        real = batch.target != batch.padding_id
        scored = real
        if self.metric == "last_word":
            scored = real & (real.long().cumsum(1) == real.sum(1, keepdim=True))
        logits, targets = finite(output.logits[scored]).float(), batch.target[scored]
        given = logits.argmax(-1)
        right = given == targets
        if self.metric == "last_word":
            right &= targets != UNKNOWN
        nats = cross_entropy(logits, targets, reduction="none").double()
        sums = nats.new_zeros(len(examples), 3).index_add_(
            0, scored.nonzero()[:, 0], torch.stack((nats, right.double(), torch.ones_like(nats)), dim=1)
        )
        result = [
            ScoreSums(
                sums=dict(zip(("nats", "right", "tokens"), of_row, strict=True)),
                steps={"decoder": Counter(map(int, taken))},
                answer=tuple(answer.tolist()),
            )
            for of_row, taken, answer in zip(
                sums.tolist(),
                steps_of(output.decoder, real=real),
                torch.split(given, scored.sum(1).tolist()),
                strict=True,
            )
        ]
        if self.metric == "last_word":
            for example, one in zip(examples, result, strict=True):
                known = float(target_ids(example)[-1] != UNKNOWN)
                one.sums |= {"known": known, "known_nats": known * one.sums["nats"]}
        return result

    def _ranks(self, examples: Sequence[Example]) -> list[ScoreSums]:
        """Whether the text with the right form (the target) is likelier than the one with a wrong form (the source)."""
        right = [target_ids(example) for example in examples]
        wrong = [tuple(id_ for id_ in example.source if isinstance(id_, int)) for example in examples]
        if not all(wrong):
            raise UserError("these are single texts: ranking needs texts with a right and a wrong form each")
        logits, steps = self._logits(right, padding_id=examples[0].padding_id)
        if all(good[:-1] == bad[:-1] for good, bad in zip(right, wrong, strict=True)):
            # of two texts that differ in their last word, the likelier one has the larger logit there
            ends = [logits[row, len(ids) - 1] for row, ids in enumerate(right)]
            pairs = zip(ends, right, wrong, strict=True)
            above = [bool(end[good[-1]] > end[bad[-1]]) for end, good, bad in pairs]
        else:
            others, _ = self._logits(wrong, padding_id=examples[0].padding_id)
            sums = zip(log_probabilities(logits, right), log_probabilities(others, wrong), strict=True)
            above = [good > bad for good, bad in sums]
        return [
            ScoreSums(sums={"right": float(hit)}, steps={"decoder": Counter(map(int, taken))}, answer=(int(hit),))
            for hit, taken in zip(above, steps, strict=True)
        ]

    def _logits(self, texts: Sequence[tuple[int, ...]], *, padding_id: int) -> tuple[Logits, list[list[float]]]:
        batch = self._batch([Example(source=(), target=text, padding_id=padding_id) for text in texts])
        output = self.options.run(self.model, batch.target)
        return finite(output.logits), steps_of(output.decoder, real=batch.target != batch.padding_id)


def log_probabilities(logits: Logits, texts: Sequence[tuple[int, ...]]) -> list[float]:
    """``Σ_i log p(token_i | tokens before it)`` of each row, in double precision."""
    return [
        float(row[: len(ids)].double().log_softmax(-1)[range(len(ids)), ids].sum())
        for row, ids in zip(logits, texts, strict=True)
    ]


def cut(output: Generated, *, length: int) -> Generated:
    """Return an output cut to `length` tokens, the end token included, as a search for that length gives it.

    A batch is generated up to the length of its longest target. Cut to its own, an output has the same tokens, and so
    the same scores and steps, in every batch. Where the target ends in an end token, the cut changes no score: an
    output that has not ended there is longer than the target.
    """
    scores = output.token_scores[:length]
    return dataclasses.replace(
        output,
        tokens=output.tokens[:length],
        length_penalty=0.0,
        finished=output.finished and len(output.tokens) < length,
        token_scores=scores,
        token_steps=output.token_steps[:length],
    )
