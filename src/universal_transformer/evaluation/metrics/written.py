"""What a model writes by itself: the base of metrics of free-running output, and of those that read it as text."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from universal_transformer.data.example import Example
from universal_transformer.decoding import Generated, generate
from universal_transformer.evaluation.metrics.metric import Inference, Metric
from universal_transformer.evaluation.scores import Score, ScoreSums
from universal_transformer.evaluation.tensors import batch_of, target_ids
from universal_transformer.evaluation.trivial import TrivialBaseline

EXACT_MATCH = Score("exact_match", "exact match", 3, "high")


class Written(Metric):
    """A metric of free-running output. Answers have the limit of length that prediction has.

    Steps are counted over real source positions and over generated tokens. The baseline answers the most frequent
    target.
    """

    architecture = "encoder_decoder"
    free_running = True
    up_to_target = False
    """Whether an answer is not read further than its target, because a longer one is wrong anyway."""

    def answers(self, inference: Inference, examples: Sequence[Example]) -> list[ScoreSums]:
        model, options = inference.model, inference.options
        batch = batch_of(model, examples)
        assert batch.source is not None
        most = options.max_new_tokens
        bounds = lengths = limits = [model.target.limit(len(example.source), most=most) for example in examples]
        if self.up_to_target:
            bounds = [min(limit, len(target_ids(one))) for limit, one in zip(limits, examples, strict=True)]
            lengths = limits if inference.whole else bounds
            options = dataclasses.replace(options, max_new_tokens=max(lengths))
        found = []
        written = generate(model, batch.source, options)
        for example, output, limit, length, bound in zip(examples, written, limits, lengths, bounds, strict=True):
            scored = cut(output, length=bound)
            sums = self.sums(scored.tokens, example).after(
                encoder=scored.source_steps, decoder=scored.token_steps if model.config.max_steps else ()
            )
            sums.answer = tuple(cut(output, length=length).tokens)
            at_limit = not self.up_to_target or len(scored.tokens) >= limit
            sums.sums["unfinished"] = float(at_limit and not scored.finished)
            found.append(sums)
        return found

    @abstractmethod
    def sums(self, tokens: Sequence[int], example: Example) -> ScoreSums:
        """What the tokens of an answer add to the scores."""

    def is_unknown(self, token: int) -> bool:
        """Whether a token stands for all words that are not in the vocabulary. In an answer it is never right."""
        return token == self.codec.target.unknown_id

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        return self.sums(baseline.target[:-1], example)


class WrittenText(Written):
    """A metric of the text of an answer, which is compared with the reference as the user wrote it."""

    of_source: ClassVar[tuple[str, Callable[[str], str]] | None] = None
    """What the baseline answers to a source that was written, in words and as a function of it; None: as to other
    sources, the most frequent target."""

    def sums(self, tokens: Sequence[int], example: Example) -> ScoreSums:
        return self.of_text(self.text(tokens), example)

    @abstractmethod
    def of_text(self, text: str, example: Example) -> ScoreSums:
        """What the text of an answer adds to the scores."""

    def text(self, tokens: Sequence[int]) -> str:
        """The text of an answer without its unknown tokens."""
        return self.codec.render([token for token in tokens if not self.is_unknown(token)])

    def reference(self, example: Example) -> str:
        """The target as it was written; of generated data, whose tokens are all known, that of the ids."""
        return self.codec.render(target_ids(example)[:-1]) if example.written is None else example.written[1]

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        if self.of_source is None or example.written is None:
            return super().trivial(baseline, example)
        return self.of_text(self.of_source[1](example.written[0]), example)

    def describe(self, baseline: TrivialBaseline) -> str:
        shown = next((some[0] for some in (*self.task.test.values(), self.task.validation) if len(some)), None)
        if self.of_source is None or shown is None or shown.written is None:
            return super().describe(baseline)
        return self.of_source[0]


def exact_match(text: str, reference: str) -> dict[str, float]:
    """1 where both have the same words between blanks, else 0."""
    return {"exact": float(text.split() == reference.split())}


def cut(output: Generated, *, length: int) -> Generated:
    """Return an output cut to `length` tokens, the end token included, as a search for that length gives it.

    A batch is generated up to its longest target. Cut to its own, an output has the same scores and steps in every
    batch. The cut changes no score: an output that has not ended at the end of its target is longer than it.
    """
    return dataclasses.replace(
        output,
        tokens=output.tokens[:length],
        length_penalty=0.0,
        finished=output.finished and len(output.tokens) < length,
        token_scores=output.token_scores[:length],
        token_steps=output.token_steps[:length],
    )
