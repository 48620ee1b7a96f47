"""What a model writes by itself: the base of metrics of free-running output, and of those that read it as text."""

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import ClassVar

from universal_transformer.data.example import Example, ids_of
from universal_transformer.decoding import generate
from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics.metric import Inference, Metric
from universal_transformer.evaluation.scores import Score, ScoreSums
from universal_transformer.evaluation.tensors import batch_of
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.models.model_config import BaseConfig

LEARNED_FROM = 200
EXACT_MATCH = Score("exact_match", "exact match", 3, "high")


class Written(Metric):
    """A metric of free-running output. Answers have the limit of length that prediction has.

    Steps are counted over real source positions and over generated tokens. The baseline answers the most frequent
    target, or the source of a text, whichever is better on `LEARNED_FROM` training examples.
    """

    architecture = "encoder_decoder"
    free_running = True
    copies: ClassVar[str] = "the source as it is"
    """What `copied` returns, in words."""

    def answers(self, inference: Inference, examples: Sequence[Example]) -> list[ScoreSums]:
        model, options = inference.model, inference.options
        batch = batch_of(model, examples)
        assert batch.source is not None
        found = []
        for example, output in zip(examples, generate(model, batch.source, options), strict=True):
            sums = self.sums(output.tokens, example).after(
                encoder=output.source_steps, decoder=output.token_steps if model.config.max_steps else ()
            )
            sums.answer = tuple(output.tokens)
            limit = model.target.limit(len(example.source), most=options.max_new_tokens)
            sums.sums["unreachable"] = float(len(ids_of(example.target)) > limit)
            sums.sums["unfinished"] = float(not output.finished)
            found.append(sums)
        return found

    def text_of(self, sums: ScoreSums, example: Example) -> str:
        del example
        return self.codec.render(sums.answer)

    @abstractmethod
    def sums(self, tokens: Sequence[int], example: Example) -> ScoreSums:
        """What the tokens of an answer add to the scores."""

    def is_unknown(self, token: int) -> bool:
        """Whether a token stands for all words that are not in the vocabulary. In an answer it is never right."""
        return token == self.codec.target.unknown_id

    def learn(self, examples: Iterable[Example], config: BaseConfig) -> TrivialBaseline:
        baseline = super().learn(examples, config)
        try:
            self.check_packages()
        except UserError:  # the model is trained without this score
            return baseline
        copying = dataclasses.replace(baseline, copies=True)
        written = [example for example in islice(examples, LEARNED_FROM) if example.written is not None]
        often, copied = (
            sum(self.example_score(self.trivial(tried, example)) for example in written)
            for tried in (baseline, copying)
        )
        return copying if copied > often else baseline

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        if baseline.copies and example.written is not None:
            return self.of_answer(self.copied(example.written[0]), example)
        return self.sums(baseline.target[:-1], example)

    def copied(self, source: str) -> str:
        """What of a source the baseline answers."""
        return source

    def of_answer(self, text: str, example: Example) -> ScoreSums:
        """What a text, as an answer, adds to the scores."""
        (tokens,) = self.codec.target.encode_many([text], [""])
        return self.sums(tokens[:-1], example)

    def describe(self, baseline: TrivialBaseline) -> str:
        return self.copies if baseline.copies else super().describe(baseline)


class WrittenText(Written):
    """A metric of the text of an answer, which is compared with the reference as the user wrote it."""

    def sums(self, tokens: Sequence[int], example: Example) -> ScoreSums:
        return self.of_text(self.text(tokens), example)

    def of_answer(self, text: str, example: Example) -> ScoreSums:
        return self.of_text(text, example)

    @abstractmethod
    def of_text(self, text: str, example: Example) -> ScoreSums:
        """What the text of an answer adds to the scores."""

    def text(self, tokens: Sequence[int]) -> str:
        """The text of an answer without its unknown tokens."""
        return self.codec.render([token for token in tokens if not self.is_unknown(token)])

    def reference(self, example: Example) -> str:
        """The target as it was written; of generated data, whose tokens are all known, that of the ids."""
        return self.codec.render(ids_of(example.target)[:-1]) if example.written is None else example.written[1]


def exact_match(text: str, reference: str) -> dict[str, float]:
    """1 where both have the same words between blanks, else 0."""
    return {"exact": float(text.split() == reference.split())}
