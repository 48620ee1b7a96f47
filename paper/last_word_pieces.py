"""The last word of a text as a sequence of pieces: its probability among all words, and whether greedy choice is it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch

from paper.tasks.pieces import LAST_WORD_PIECES
from universal_transformer.axes import Float, Tensor
from universal_transformer.data.example import Example, ids_of
from universal_transformer.data.tokenizer import BLANK
from universal_transformer.evaluation.metrics import METRICS
from universal_transformer.evaluation.metrics.metric import Inference
from universal_transformer.evaluation.metrics.perplexity import PERPLEXITY, Perplexity
from universal_transformer.evaluation.scores import ACCURACY, ScoreSums
from universal_transformer.evaluation.tensors import Called
from universal_transformer.evaluation.trivial import TrivialBaseline


class LastWordPieces(Perplexity):
    """``p(word) = p(x_1) / B_0 · p(x_2) ⋯ p(x_k) · B_k`` over the pieces x_1 … x_k of the last word of each text.

    ``B_i`` is the probability that a word begins after i of them: the sum over the pieces that begin with a blank, and
    the end of the text. The division says that the word before has ended, so that the probabilities of all sequences of
    pieces that are one word add up to 1. Perplexity is that of words. A word is right if x_1 is the likeliest of the
    pieces that begin a word, each other one the likeliest piece, and the likeliest piece after x_k begins a word.

    The baseline has the frequency of each piece, where ``B_0 = B_k``.
    """

    shown = (PERPLEXITY, ACCURACY)
    chosen_by_loss = False

    @cached_property
    def begins(self) -> Tensor:
        """Which pieces begin a word, or end the text."""
        tokenizer = self.codec.target.tokenizer
        pieces = [tokenizer.decode([index])[:1] == BLANK for index in range(len(tokenizer))]
        pieces[tokenizer.end_id] = True
        return torch.tensor(pieces)

    def first_piece(self, ids: Sequence[int]) -> int:
        """The place of the first piece of the last word."""
        return max(place for place, index in enumerate(ids) if self.begins[index])

    def answers(self, inference: Inference, examples: Sequence[Example]) -> list[ScoreSums]:
        ids = [ids_of(example.target) for example in examples]
        end_id = self.codec.target.tokenizer.end_id
        longer = [replace(example, target=(*of_one, end_id)) for example, of_one in zip(examples, ids, strict=True)]
        called = Called.with_examples(inference.model, longer, inference.options)
        found = []
        for row, of_one, steps in zip(called.logits, ids, called.target_steps, strict=True):
            first = self.first_piece(of_one)
            nats, given = self.word(row[first : len(of_one) + 1], of_one[first:])
            right = given[:-1] == of_one[first:] and bool(self.begins[given[-1]])
            sums = {"nats": nats, "right": float(right), "tokens": 1.0}
            found.append(ScoreSums(sums=sums, answer=given).after(decoder=steps))
        return found

    def word(self, logits: Float[Tensor, "pieces classes"], pieces: Sequence[int]) -> tuple[float, tuple[int, ...]]:
        """``-log p`` of a word, and the likeliest piece at each of its places and after it."""
        begins = self.begins.to(logits.device)
        log_p = logits.double().log_softmax(-1)
        log_b = log_p.masked_fill(~begins, float("-inf"))
        total = log_p[range(len(pieces)), list(pieces)].sum() - log_b[0].logsumexp(-1) + log_b[-1].logsumexp(-1)
        given = (int(log_b[0].argmax()), *log_p[1:].argmax(-1).tolist())
        return -float(total), given

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        ids = ids_of(example.target)
        word = ids[self.first_piece(ids) :]
        frequent = baseline.most_frequent
        right = bool(self.begins[frequent]) and word == (frequent,)
        return ScoreSums(sums={"nats": float(baseline.nats[list(word)].sum()), "right": float(right), "tokens": 1.0})


METRICS[LAST_WORD_PIECES] = LastWordPieces
