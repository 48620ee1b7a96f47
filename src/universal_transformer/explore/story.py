"""One example in detail: the label, the number of steps and the attention of each position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from universal_transformer.axes import Tensor
from universal_transformer.data.batch import collate
from universal_transformer.data.example import NO_CLASS, PADDING, Example, Frames, spread
from universal_transformer.data.tokenizer import until_end
from universal_transformer.decoding import DecodingOptions, Sampling, generate
from universal_transformer.decoding.frame_generation import generate_frames
from universal_transformer.decoding.generation import evaluating
from universal_transformer.errors import UserError
from universal_transformer.evaluation.prediction import predict
from universal_transformer.evaluation.words import source_names
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.model import Model
from universal_transformer.nn.context import Kept
from universal_transformer.nn.trace import Trace
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Task

SHOWN = range(8, 17)  # numbers of positions that suit a figure
SEARCHED = 256
PROMPT, CONTINUATION = 48, 64


@dataclass(frozen=True, kw_only=True)
class Story:
    """The result of a model on one example.

    A story of facts has its question as the last position. A sequence has `output_labels`, one for each token
    written, with their steps; a language model's `labels` are its prompt.
    """

    labels: tuple[str, ...]
    """Text of each source position."""
    steps: tuple[float, ...]
    """N of each source position."""
    max_steps: int
    halting: bool
    facts: bool = False
    """Positions are facts, and the last one is the question."""
    supports: tuple[int, ...] = ()
    """Indices into `labels` of the supporting facts."""
    answer: str | None = None
    """The right answer, if it is known."""
    output: str = ""
    """The output of the model."""
    probability: float | None = None
    """Probability of the predicted class."""
    output_labels: tuple[str, ...] = ()
    output_steps: tuple[float, ...] = ()
    attention: np.ndarray | None = None
    """Self-attention [layer application, head, query, key] of the source positions (classifiers)."""
    layers_per_step: int = 1
    """Layer applications in one step; 0 where layers stand before or after the recurrence."""
    pixels: np.ndarray | None = None
    """Grey picture [row, column] that was read or written; a written one has the `output_steps` of its pixels."""
    source_attention: np.ndarray | None = None
    """Attention of each token written to the patches of `pixels` [token, row, column], the mean over heads."""
    frames: Frames | None = None
    """Frames that were written [frame, band], with the `output_steps` of their positions."""
    true_frames: Frames | None = None
    """Those of the example, if they are known."""


def examine(model: Model, codec: Codec[Any, Any], example: Example) -> Story:
    """Run `model` on one example and return its steps, attention and output.

    A language model reads the first part of the example and continues it.
    """
    with evaluating(model):
        if not model.config.max_steps:
            raise UserError(f"a model of kind {model.config.kind} has no depth: there are no steps to show")
        if model.writes == "classes":
            return _classify(model, codec, example)
        if model.writes == "frames":
            return _write_frames(model, codec, example)
        if model.source is None:
            return _continue(model, codec, example)
        if model.config.outputs.kind == "raster":
            return _draw(model, codec, example)
        return (_caption if model.config.inputs.kind == "patches" else _translate)(model, codec, example)


def choose_examples(model: Model, task: Task, *, count: int = 1) -> list[Example]:
    """Return test examples to show, the same in each call; none for a model without depth.

    Of questions about facts that fit a page, they have the most supporting facts, and are answered correctly with the
    highest probability. Other examples are evenly spread over the test set.
    """
    if not model.config.max_steps:
        return []
    examples = next((found for found in task.test.values() if len(found)), None)
    if examples is None:
        raise UserError(f"task {task.name}: no examples in test; expected at least one to show")
    if model.config.inputs.kind != "facts":
        return spread(examples, count=count)
    fitting = [found for found in examples if len(found.source) in SHOWN]
    pool = fitting or sorted(examples, key=lambda found: len(found.source))[:SEARCHED]
    most = max(len(found.supports) for found in pool)
    pool = [found for found in pool if len(found.supports) == most][:SEARCHED]
    answers = list(predict(model, task.codec, pool))
    right = [
        isinstance(found.target, int) and answer.text == task.codec.render(found.target)
        for found, answer in zip(pool, answers, strict=True)
    ]
    order = sorted(range(len(pool)), key=lambda place: (not right[place], -answers[place].score))
    return [pool[place] for place in order[:count]]


def _classify(model: Model, codec: Codec[Any, Any], example: Example) -> Story:
    output = model(_source(example, model), keep=Kept(attention=True))
    assert output.encoder is not None
    assert output.encoder.self_attention is not None
    values, best = output.logits[0].double().log_softmax(-1).max(dim=-1)
    assert not isinstance(example.target, np.ndarray)
    answer, classes, config = example.target, best.tolist(), model.config
    if isinstance(answer, tuple):  # positions without a class are not shown
        values = values[torch.tensor(answer) != PADDING].sum()
        classes = [index if truth != PADDING else PADDING for truth, index in zip(answer, classes, strict=True)]
    recurrence = model.source.recurrence
    alone = len(recurrence.layers) > len(recurrence.blocks)  # layers outside of the steps
    return Story(
        labels=tuple(source_names(example, codec=codec, config=model.config)),
        steps=_steps(output.encoder),
        max_steps=_most_steps(config, _steps(output.encoder)),
        halting=config.halts,
        facts=config.inputs.kind == "facts",
        supports=example.supports,
        answer=None if answer == NO_CLASS else codec.render(answer),
        output=codec.render(classes),
        probability=float(values.exp()),
        attention=output.encoder.self_attention[:, 0].float().cpu().numpy(),
        layers_per_step=0 if alone else config.step.blocks,
    )


def _translate(model: Model, codec: Codec[Any, Any], example: Example) -> Story:
    assert isinstance(example.target, tuple)
    source, end = _source(example, model), model.config.vocabulary.end_id
    found = generate(model, source)[0]
    written = [*found.tokens, *([end] if found.finished else [])]
    output = model(source, torch.tensor([written], device=source.device))
    assert output.decoder is not None
    return Story(
        labels=tuple(source_names(example, codec=codec, config=model.config)),
        steps=tuple(found.source_steps),
        max_steps=_most_steps(model.config, (*found.source_steps, *_steps(output.decoder))),
        halting=model.config.halts,
        answer=codec.render(until_end(example.target, end_id=end)) if example.target else None,
        output=codec.render(found.tokens),
        output_labels=_labels(codec, written, model),
        output_steps=_steps(output.decoder),
    )


def _draw(model: Model, codec: Codec[Any, Any], example: Example) -> Story:
    """Return a picture sampled at temperature 1: the likeliest pixels one after the other are no likely picture."""
    found = generate(model, _source(example, model), DecodingOptions(sampling=Sampling(temperature=1.0)))[0]
    return Story(
        labels=tuple(codec.words(example)),
        steps=tuple(found.source_steps),
        max_steps=_most_steps(model.config, (*found.source_steps, *found.token_steps)),
        halting=model.config.halts,
        output=f"a picture of {codec.target.side} × {codec.target.side} pixels",
        output_steps=tuple(found.token_steps),
        pixels=codec.target.pixels(found.tokens),
    )


def _caption(model: Model, codec: Codec[Any, Any], example: Example) -> Story:
    """Return the caption of a picture, and where the decoder attends to at the last step of each token."""
    assert isinstance(example.target, tuple)
    assert isinstance(example.source, np.ndarray)
    source, end = _source(example, model), model.config.vocabulary.end_id
    found = generate(model, source)[0]
    written = [*found.tokens, *([end] if found.finished else [])]
    output = model(source, torch.tensor([written], device=source.device), keep=Kept(attention=True))
    assert output.decoder is not None
    assert output.decoder.cross_attention is not None
    attention = output.decoder.cross_attention[-1, 0].mean(dim=0).float().cpu().numpy()
    columns_first = attention.reshape(len(written), -1, model.config.line_of(decoder=False))
    return Story(
        labels=(),
        steps=(),
        max_steps=_most_steps(model.config, (*found.source_steps, *_steps(output.decoder))),
        halting=model.config.halts,
        answer=codec.render(until_end(example.target, end_id=end)) if example.target else None,
        output=codec.render(found.tokens),
        output_labels=_labels(codec, written, model),
        output_steps=_steps(output.decoder),
        pixels=np.rint(255 * example.source.T).astype(np.uint8),
        source_attention=columns_first.transpose(0, 2, 1),
    )


def _write_frames(model: Model, codec: Codec[Any, Any], example: Example) -> Story:
    (row,) = generate_frames(model, _source(example, model))
    true = example.target
    return Story(
        labels=tuple(codec.words(example)),
        steps=tuple(row.source_steps),
        max_steps=_most_steps(model.config, (*row.source_steps, *row.steps)),
        halting=model.config.halts,
        output=f"{len(row.frames)} frames" + ("" if row.finished else ", without a stop"),
        output_steps=tuple(row.steps),
        frames=row.frames,
        true_frames=true if isinstance(true, np.ndarray) else None,
    )


def _most_steps(config: ModelConfig, steps: Sequence[float]) -> int:
    """The largest number of steps that a picture has to show, of positions that took ``steps``."""
    return int(max(steps)) if config.by_length(decoder=False) else config.max_steps


def _continue(model: Model, codec: Codec[Any, Any], example: Example) -> Story:
    assert isinstance(example.target, tuple)
    coordinates = model.config.coordinates
    longest = coordinates.max_positions if coordinates.position == "learned" else PROMPT + CONTINUATION
    prompt = example.target[: max(1, min(PROMPT, longest // 2))]
    most = min(CONTINUATION, longest - len(prompt))
    found = generate(model, [[model.config.start_id, *prompt]], DecodingOptions(max_new_tokens=most))[0]
    written = [*found.tokens, *([model.config.vocabulary.end_id] if found.finished else [])]
    output = model(torch.tensor([[*prompt, *written]], device=next(model.parameters()).device))
    assert output.decoder is not None
    steps = _steps(output.decoder)
    return Story(
        labels=tuple(codec.words(Example(source=(), target=prompt))),
        steps=steps[: len(prompt)],
        max_steps=model.config.max_steps,
        halting=model.config.halts,
        output=codec.render(found.tokens),
        output_labels=_labels(codec, written, model),
        output_steps=steps[len(prompt) :],
    )


def _source(example: Example, model: Model) -> Tensor:
    source = collate([example], indices=[0]).source
    assert source is not None
    return source.to(next(model.parameters()).device)


def _steps(trace: Trace) -> tuple[float, ...]:
    return tuple(trace.steps[0].tolist())


def _labels(codec: Codec[Any, Any], ids: Sequence[int], model: Model) -> tuple[str, ...]:
    end = model.config.vocabulary.end_id
    return tuple("<end>" if index == end else codec.render([index]).strip() or "␣" for index in ids)
