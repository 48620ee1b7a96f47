"""A language model as lm-evaluation-harness asks it: how likely a text is, and what follows a prompt. Needs lm_eval."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from operator import eq
from typing import Any, NamedTuple

import torch
from lm_eval.api.model import LM
from lm_eval.models.utils import normalize_gen_kwargs

from universal_transformer.data.example import Example, size
from universal_transformer.decoding.generation import evaluating
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.pipeline import Pipeline
from universal_transformer.evaluation.prediction import predict
from universal_transformer.evaluation.tensors import Called, check_batches, finite


class Window(NamedTuple):
    """Tokens of text ``number``, of which the last ``scored`` are predicted from those before them."""

    number: int
    example: Example
    scored: int


class HarnessModel(LM):
    """``log p(continuation | context)``, in windows of the block length of training, and greedy answers.

    A line break is the end of a line, as in training, so that an answer is the rest of a line. ``tokens`` counts those
    that were scored, and ``unknown`` those among them that the tokenizer does not know.
    """

    def __init__(self, pipeline: Pipeline, *, writing: DecodingOptions, batch_tokens: int) -> None:
        super().__init__()
        self.model, self.codec, self.options = pipeline.model, pipeline.codec, pipeline.options
        self.writing, self.batch_tokens = writing, batch_tokens
        self.tokenizer, self.block_length = self.codec.target.tokenizer, self.codec.target.block_length
        self.tokens = self.unknown = 0

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """The score of each continuation, and whether each of its tokens is the likeliest one."""
        return self._scores([self._pair(*request.args) for request in requests])

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """The score of each text."""
        return [score for score, _ in self._scores([(self._ids(*request.args), 0) for request in requests])]

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """The rest of the line of each context, up to the first of its stops. Prompt and answer fit into a block."""
        found, limits = dict[int, str](), dict[int, list[int]]()
        chosen = [normalize_gen_kwargs(request.args[1]) for request in requests]
        for number, options in enumerate(chosen):
            if options["do_sample"]:
                raise UserError("a task asks for samples (do_sample); answers are greedy here")
            most = min(options["max_gen_toks"], self.writing.max_new_tokens or self.block_length // 2)
            limits.setdefault(most, []).append(number)
        for most, numbers in limits.items():
            writing = DecodingOptions(**vars(self.writing) | {"max_new_tokens": most})
            contexts = [requests[number].args[0] for number in numbers]
            prompts = [self._example(self._ids(text)[-max(1, self.block_length - most) :]) for text in contexts]
            answers = predict(self.model, self.codec, prompts, options=writing, batch_tokens=self.batch_tokens)
            for number, context, answer in zip(numbers, contexts, answers, strict=True):
                line = context.rpartition("\n")[2]
                text = self.codec.target.shown(answer.text, answer.written, line).removeprefix(line)
                for stop in filter(None, chosen[number]["until"]):
                    text = text.partition(stop)[0]
                found[number] = text
        return [found[number] for number in range(len(requests))]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode_lines(text.split("\n"))[:-1].tolist()
        return ids

    def _pair(self, context: str, continuation: str) -> tuple[list[int], int]:
        """The ids of both, and how many of them are the context's; blanks between them belong to the continuation."""
        whole, before = self._ids(context + continuation), self._ids(context.rstrip())
        return whole, sum(1 for _ in takewhile(bool, map(eq, before, whole)))

    def _example(self, ids: Sequence[int]) -> Example:
        return Example(source=(), target=tuple(ids), padding_id=self.codec.padding_id)

    def _windows(self, texts: Sequence[tuple[list[int], int]]) -> Iterator[Window]:
        """Yield the windows of texts, of each from its token ``first`` on; the last has as many before it as fit."""
        for number, (ids, first) in enumerate(texts):
            for begin in range(first, len(ids), self.block_length):
                end = min(begin + self.block_length, len(ids))
                yield Window(number, self._example(ids[max(0, end - self.block_length) : end]), end - begin)

    def _scores(self, texts: Sequence[tuple[list[int], int]]) -> list[tuple[float, bool]]:
        """``Σ_{i ≥ first} log p(token_i | tokens before it)`` of each text, and whether these are the likeliest."""
        windows = list(self._windows(texts))
        scores, likeliest = [0.0] * len(texts), [True] * len(texts)
        sizes = [size(window.example) for window in windows]
        with evaluating(self.model):
            for batch in check_batches(self.model, sizes, batch_tokens=self.batch_tokens):
                called = Called.with_examples(self.model, [windows[index].example for index in batch], self.options)
                logits = finite(called.output.logits)
                for row, (number, example, scored) in enumerate(windows[index] for index in batch):
                    length = size(example)
                    targets = called.batch.target[row, length - scored : length]
                    values = logits[row, length - scored : length].double().log_softmax(-1)
                    known = targets != self.tokenizer.unknown_id
                    scores[number] += float(values.gather(1, targets.unsqueeze(1)).sum())
                    likeliest[number] &= bool((known & (values.argmax(-1) == targets)).all())
                    self.tokens, self.unknown = self.tokens + scored, self.unknown + int(torch.sum(~known))
        return list(zip(scores, likeliest, strict=True))
