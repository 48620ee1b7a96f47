"""The tokens of a text, each given those before it: all of them, or the last one alone."""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch.nn.functional import cross_entropy

from universal_transformer.axes import Bool, Tensor
from universal_transformer.data.example import Example, ids_of
from universal_transformer.evaluation.metrics.metric import Inference, Metric, share_changed
from universal_transformer.evaluation.scores import ACCURACY, Score, ScoreSums
from universal_transformer.evaluation.tensors import Called, finite
from universal_transformer.evaluation.trivial import TrivialBaseline

PERPLEXITY = Score("perplexity", "perplexity", 2, "low")
BITS = Score("bits_per_character", "bits per character", 3, "low")
_LARGEST_EXPONENT = 700.0  # of a number in double precision


class Perplexity(Metric):
    """``exp(-1/n Σ log p)``, accuracy and, of characters, bits for each, teacher-forced, over n tokens. Unknown tokens
    are wrong.

    The baseline gives ``p(token) = (count + 1) / (tokens + vocabulary)``, whatever stands before it.
    """

    architecture = "language_model"
    shown: ClassVar[tuple[Score, ...]] = (PERPLEXITY, ACCURACY, BITS)
    decisive = "perplexity"
    trivial_answer = "the frequency of each token, whatever stands before it"
    chosen_by_loss = True

    def scored(self, real: Bool[Tensor, "batch target"]) -> Bool[Tensor, "batch target"]:
        """Which of the real tokens are scored."""
        return real

    def answers(self, inference: Inference, examples: Sequence[Example]) -> list[ScoreSums]:
        called = Called.with_examples(inference.model, examples, inference.options)
        scored = self.scored(called.real_target)
        logits, targets = finite(called.output.logits[scored]).float(), called.batch.target[scored]
        given = logits.argmax(-1)
        nats = cross_entropy(logits, targets, reduction="none").double()
        unknown = targets == self.unknown_id
        parts = torch.stack((nats, (given == targets) & ~unknown, torch.ones_like(nats), unknown), dim=1)
        sums = nats.new_zeros(len(examples), 4).index_add_(0, scored.nonzero()[:, 0], parts)
        answers = torch.split(given, scored.sum(1).tolist())
        return [
            ScoreSums(sums=self.sums(*of_row), answer=tuple(answer.tolist())).after(decoder=steps)
            for of_row, steps, answer in zip(sums.tolist(), called.target_steps, answers, strict=True)
        ]

    @property
    def unknown_id(self) -> int:
        """The id of all tokens that are not in the vocabulary; -1 if there is none."""
        found = self.codec.target.unknown_id
        return -1 if found is None else found

    def sums(self, nats: float, right: float, tokens: float, unknown: float) -> dict[str, float]:
        """What one example adds, given the sums over its tokens."""
        return {"nats": nats, "right": right, "tokens": tokens, "unknown": unknown}

    def notes(self, sums: ScoreSums) -> list[str]:
        unknown, tokens = sums.sums.get("unknown", 0), sums.sums["tokens"]
        found = f"{unknown:,.0f} of {tokens:,.0f} tokens ({unknown / tokens:.1%}) are not in the vocabulary"
        return [f"{found}: never right, and <unknown> in the perplexity"] * bool(unknown)

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        nats = sums.ratio("nats", over="tokens")
        scores = {"perplexity": exponential(nats), "accuracy": sums.ratio("right", over="tokens")}
        if self.codec.target.by_character:
            scores["bits_per_character"] = nats / math.log(2)
        return scores

    def example_score(self, sums: ScoreSums) -> float:
        return sums.ratio("right", over="tokens")

    def changed(self, before: Sequence[int], after: Sequence[int]) -> float:
        return share_changed(before, after)

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        row = torch.tensor([ids_of(example.target)])
        targets = row[self.scored(torch.ones_like(row, dtype=torch.bool))]
        nats, unknown = float(baseline.nats[targets.numpy()].sum()), targets == self.unknown_id
        right = (targets == baseline.most_frequent) & ~unknown
        return ScoreSums(sums=self.sums(nats, float(right.sum()), float(len(targets)), float(unknown.sum())))


class LastWord(Perplexity):
    """Perplexity and accuracy over the last token of each example alone.

    known_perplexity: of those whose last token is not unknown; 1 where there is none.
    """

    shown = (PERPLEXITY, ACCURACY, Score("known_perplexity", "perplexity, known words", 2, "low"))
    chosen_by_loss = False

    def scored(self, real: Bool[Tensor, "batch target"]) -> Bool[Tensor, "batch target"]:
        return real & (real.long().cumsum(1) == real.sum(1, keepdim=True))

    def sums(self, nats: float, right: float, tokens: float, unknown: float) -> dict[str, float]:
        known = tokens - unknown
        return super().sums(nats, right, tokens, unknown) | {"known": known, "known_nats": known * nats}

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        known = exponential(sums.ratio("known_nats", over="known"))
        return super().scores(sums) | {"known_perplexity": known}


def exponential(nats: float) -> float:
    return math.exp(min(_LARGEST_EXPONENT, nats))
