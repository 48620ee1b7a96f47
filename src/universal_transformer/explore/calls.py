"""What the page asks of its engine: a trace, a trace whose tokens arrive as they are made, and a whole test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp
from typing import Any

from universal_transformer.data.example import Example, spread
from universal_transformer.data.tokenizer import END, SPECIAL
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.evaluation.measure import batches
from universal_transformer.evaluation.metrics import Inference, metric_of
from universal_transformer.evaluation.pipeline import Pipeline
from universal_transformer.evaluation.prediction import answers_of
from universal_transformer.evaluation.scores import ScoreSums
from universal_transformer.explore.input_trace import trace_input
from universal_transformer.models.call import Generated
from universal_transformer.serve.engine import WholeCall
from universal_transformer.tasks.task import Task


@dataclass(eq=False, kw_only=True)
class TraceCall(WholeCall):
    """The trace of one input."""

    example: Example
    options: DecodingOptions
    name: str
    right: str | None

    made: Generated | None = None
    """What the model wrote for it already."""

    def begin(self, pipeline: Pipeline, *, batch_tokens: int) -> Iterator[dict[str, Any]]:
        del batch_tokens
        yield trace_input(
            pipeline.model,
            pipeline.codec,
            self.example,
            options=self.options,
            name=self.name,
            right=self.right,
            made=self.made,
        ).to_dict()


@dataclass(eq=False, kw_only=True)
class StreamCall(TraceCall):
    """The same, after the tokens of the answer: each enters ``events`` as it is made, and None at the end."""

    events: asyncio.Queue[dict[str, Any] | None]

    def begin(self, pipeline: Pipeline, *, batch_tokens: int) -> Iterator[dict[str, Any]]:
        loop, codec = self.answers.get_loop(), pipeline.codec
        for result in answers_of(pipeline.model, codec, self.options).writing(self.example):
            self.made = result
            text = SPECIAL[END] if result.finished else codec.render(result.tokens[-1:])
            token = {"token": text, "steps": result.token_steps[-1], "probability": exp(result.token_scores[-1])}
            loop.call_soon_threadsafe(self.events.put_nowait, token)
            yield token
        yield from super().begin(pipeline, batch_tokens=batch_tokens)


@dataclass(eq=False, kw_only=True)
class TestCall(WholeCall):
    """Error and steps of each of ``limit`` examples of every test set, evenly spread."""

    task: Task
    options: DecodingOptions
    limit: int

    def begin(self, pipeline: Pipeline, *, batch_tokens: int) -> Iterator[dict[str, Any]]:
        metric, inference = metric_of(self.task), Inference(pipeline.model, self.options)
        metric.check(pipeline.model, self.options)
        for name, examples in self.task.test.items():
            numbers = spread(range(len(examples)), count=self.limit)
            chosen = [examples[number] for number in numbers]
            for indices in batches(pipeline.model, chosen, batch_tokens=batch_tokens):
                found = metric.answers(inference, [chosen[index] for index in indices])
                for index, sums in zip(indices, found, strict=True):
                    wrong = 1.0 - metric.example_score(sums)
                    yield {"set": name, "number": numbers[index], "wrong": wrong} | _row(chosen[index], sums)


def _row(example: Example, sums: ScoreSums) -> dict[str, Any]:
    steps = [n for counts in sums.steps.values() for n in counts.elements()]
    return {
        "group": example.group,
        "supports": len(example.supports),
        "steps": sum(steps) / max(1, len(steps)),
        "most": max(steps, default=0),
    }
