"""What a model answers to examples without answers: classes, continued prompts, or translated sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from universal_transformer.data.batch import collate
from universal_transformer.data.example import Example, sizes
from universal_transformer.data.sampler import BucketSampler
from universal_transformer.decoding import Generated, Sampling, beam_search, generate
from universal_transformer.models.build import Model
from universal_transformer.models.classifier import Classifier
from universal_transformer.models.language_model import LanguageModel
from universal_transformer.tasks.task import Codec, Prediction

MAX_CHOICES = 5


@dataclass(frozen=True, kw_only=True)
class Answering:
    """How answers are found; depth as trained where it is None."""

    beams: int = 1
    length_penalty: float = 0.6
    sampling: Sampling
    max_new_tokens: int | None = None
    max_steps: int | None = None
    halting_threshold: float | None = None
    batch_tokens: int = 4096


def answer(
    model: Model, codec: Codec, examples: Sequence[Example], *, how: Answering, first: int = 0
) -> list[Prediction]:
    """Return one prediction for each example, in order; `first` is the number of the first one among all."""
    found: dict[int, Prediction] = {}
    model.eval()
    lengths = [max(1, size) for size in sizes(examples)]
    for batch in BucketSampler(lengths, batch_tokens=how.batch_tokens, seed=0, shuffle=False).epoch(0):
        rows = [examples[index] for index in batch]
        with torch.no_grad():
            if isinstance(model, Classifier):
                predictions = _classes(model, codec, rows, how=how)
            else:
                predictions = _sequences(
                    model, codec, rows, how=how, numbers=[first + index for index in batch]
                )
            found |= dict(zip(batch, predictions, strict=True))
    return [found[index] for index in range(len(examples))]


def _classes(model: Classifier, codec: Codec, rows: list[Example], *, how: Answering) -> Iterator[Prediction]:
    batch = collate(rows, indices=range(len(rows))).to(next(model.parameters()).device)
    output = model(batch.source, max_steps=how.max_steps, halting_threshold=how.halting_threshold)
    scores = output.logits.float().log_softmax(-1)
    best = scores.topk(min(MAX_CHOICES, scores.shape[-1]))
    assert output.encoder is not None
    steps = output.encoder.steps.tolist()
    for row, example in enumerate(rows):
        pairs = zip(best.indices[row].tolist(), best.values[row].tolist(), strict=True)
        choices = [(codec.render(index), score) for index, score in pairs]
        text, score = choices[0]
        yield Prediction(text=text, score=score, steps=steps[row][: len(example.source)], choices=choices)


def _sequences(
    model: Model, codec: Codec, rows: list[Example], *, how: Answering, numbers: list[int]
) -> Iterator[Prediction]:
    assert not isinstance(model, Classifier)
    if isinstance(model, LanguageModel):
        prompts = [example.target if isinstance(example.target, tuple) else () for example in rows]
        source: torch.Tensor | list[list[int]] = [[model.config.start_id, *prompt] for prompt in prompts]
    else:
        prompts = [()] * len(rows)
        batch = collate(rows, indices=range(len(rows))).to(next(model.parameters()).device)
        assert batch.source is not None
        source = batch.source
    for prompt, found in zip(prompts, _decode(model, source, how=how, numbers=numbers), strict=True):
        choices = [(codec.render([*prompt, *one.tokens]), one.score) for one in found]
        yield Prediction(
            text=choices[0][0],
            score=found[0].log_probability,
            steps=found[0].source_steps or [found[0].steps],
            choices=choices,
        )


def _decode(
    model: Model, source: torch.Tensor | list[list[int]], *, how: Answering, numbers: list[int]
) -> list[list[Generated]]:
    """Return the best sequences of each row, best first."""
    assert not isinstance(model, Classifier)
    if how.beams > 1:
        return beam_search(
            model,
            source,
            beams=how.beams,
            alpha=how.length_penalty,
            num_results=min(how.beams, MAX_CHOICES),
            max_new_tokens=how.max_new_tokens,
            max_steps=how.max_steps,
            halting_threshold=how.halting_threshold,
        )
    generated = generate(
        model,
        source,
        max_new_tokens=how.max_new_tokens,
        sampling=how.sampling,
        indices=numbers,
        max_steps=how.max_steps,
        halting_threshold=how.halting_threshold,
    )
    return [[one] for one in generated]


__all__ = ["Answering", "answer"]
