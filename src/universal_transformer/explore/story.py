"""One example in detail: the label, the number of steps and the attention of each position."""

from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from math import exp
from typing import Any

import numpy as np
import torch

from universal_transformer.axes import Tensor
from universal_transformer.data.example import NO_CLASS, PADDING, Example, Frames, ids_of, spread
from universal_transformer.data.tokenizer import until_end
from universal_transformer.decoding import DecodingOptions, Sampling
from universal_transformer.decoding.generation import evaluating
from universal_transformer.decoding.options import DEFAULTS
from universal_transformer.errors import UserError
from universal_transformer.evaluation.prediction import predict
from universal_transformer.evaluation.tensors import batch_of
from universal_transformer.explore.canvas import label
from universal_transformer.models.call import DepthOptions
from universal_transformer.models.model import Model
from universal_transformer.nn.context import Kept
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Prediction, Task

SHOWN = range(8, 17)  # numbers of positions that suit a figure
SEARCHED = 256
PROMPT, CONTINUATION = 48, 64


@dataclass(frozen=True, kw_only=True)
class Story:
    """The result of a model on one example.

    A story of facts is in reading order, and has its question as the last position. A sequence has `output_labels`, one
    for each token written, with their steps; a language model's `labels` are its prompt.
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

    @property
    def certainty(self) -> str:
        return "" if self.probability is None else f" ({100 * self.probability:.0f} %)"

    @property
    def mark(self) -> str:
        return "✓" if self.answer == self.output else "✗"

    @property
    def verdict(self) -> str:
        """The output of the model, and the right one if it is known."""
        right = "" if self.answer is None else f" · right answer: {label(self.answer)} {self.mark}"
        return f"model: {label(self.output)}{self.certainty}{right}"


def examine(model: Model, codec: Codec[Any, Any], example: Example, *, options: DecodingOptions = DEFAULTS) -> Story:
    """Run `model` on one example at the depth of `options`; return its steps, attention and output.

    A language model reads the first part of the example and continues it. A picture is sampled at temperature 1: the
    likeliest pixels one after the other are no likely picture.
    """
    config = model.config
    if not config.max_steps:
        raise UserError(f"a model of kind {config.kind} has no depth: there are no steps to show")
    asked = replace(example, target=codec.unanswered)
    if codec.target.draws:
        options = replace(options, sampling=Sampling(temperature=1.0))
    if model.source is None:
        coordinates = config.coordinates
        longest = coordinates.max_positions if coordinates.position == "learned" else PROMPT + CONTINUATION
        prompt = ids_of(example.target)[: max(1, min(PROMPT, longest // 2))]
        asked = replace(example, source=(), target=prompt)
        options = replace(options, max_new_tokens=min(CONTINUATION, longest - len(prompt)))
    (answer,) = predict(model, codec, [asked], options=options)
    places = codec.source.reading_order(len(answer.tokens))
    output_steps = tuple(token.steps or 0.0 for token in answer.output)
    story = Story(
        labels=tuple(token.text for token in answer.tokens),
        steps=tuple(answer.steps),
        max_steps=int(max((*answer.steps, *output_steps))) if config.by_length(decoder=False) else config.max_steps,
        halting=config.halts or options.exit is not None,
        facts=codec.source.several_lines,
        supports=tuple(place for place, row in enumerate(places) if row in example.supports),
        output=answer.text,
        output_labels=tuple(token.text.strip() or "␣" for token in answer.output),
        output_steps=output_steps,
    )
    with evaluating(model):
        complete = _written if config.decodes else _classified
        return complete(story, model, codec, example, answer, options.depth)


def choose_examples(model: Model, task: Task, *, count: int = 1, options: DecodingOptions = DEFAULTS) -> list[Example]:
    """Return test examples to show, the same in each call; none for a model without depth.

    Of questions about facts that fit a page, the first has the most supporting facts, the next one fewer, and so on in
    turn; each is answered correctly with the highest probability. Other examples are evenly spread over the test set.
    """
    if not model.config.max_steps:
        return []
    examples = next((found for found in task.test.values() if len(found)), None)
    if examples is None:
        raise UserError(f"task {task.name}: no examples in test; expected at least one to show")
    if not task.codec.source.several_lines:
        return spread(examples, count=count)
    fitting = [found for found in examples if len(found.source) in SHOWN]
    pool = fitting or sorted(examples, key=lambda found: len(found.source))[:SEARCHED]
    by_supports: dict[int, list[Example]] = {}
    for found in pool:
        by_supports.setdefault(len(found.supports), []).append(found)
    ranked: list[list[Example]] = []
    for supports in sorted(by_supports, reverse=True)[:count]:
        group = by_supports[supports][:SEARCHED]
        answers = list(predict(model, task.codec, group, options=options))
        wrong = [answer.written != found.target for found, answer in zip(group, answers, strict=True)]
        order = sorted(range(len(group)), key=lambda place: (wrong[place], -answers[place].score))
        ranked.append([group[place] for place in order[:count]])
    in_turn = (found for turn in zip_longest(*ranked) for found in turn if found is not None)
    return list(islice(in_turn, count))


def _classified(
    story: Story, model: Model, codec: Codec[Any, Any], example: Example, answer: Prediction, depth: DepthOptions
) -> Story:
    """Return a story with its probability, and the attention of the source positions."""
    text, truth, log_probability = answer.text, example.target, answer.score
    if isinstance(codec.unanswered, tuple):  # of a tagger: positions without a class are not shown
        scored = [place for place, index in enumerate(ids_of(example.target)) if index != PADDING]
        classes = [index if place in scored else PADDING for place, index in enumerate(answer.written)]
        text, log_probability = codec.render(classes), sum(answer.output[place].score or 0.0 for place in scored)
    output = model(_source(example, model), keep=Kept(attention=True), **vars(depth))
    assert output.encoder is not None
    assert output.encoder.self_attention is not None
    order = list(codec.source.reading_order(len(story.labels)))
    recurrence = model.source.recurrence
    alone = len(recurrence.layers) > len(recurrence.blocks)  # layers outside of the steps
    return replace(
        story,
        answer=None if truth == NO_CLASS else codec.render(truth),
        output=text,
        probability=exp(log_probability),
        attention=output.encoder.self_attention[:, 0].float().cpu().numpy()[:, :, order][:, :, :, order],
        layers_per_step=0 if alone else model.config.step.blocks,
        output_labels=(),
        output_steps=(),
    )


def _written(
    story: Story, model: Model, codec: Codec[Any, Any], example: Example, answer: Prediction, depth: DepthOptions
) -> Story:
    """Return a story with the true answer, and the picture or the frames that were read or written."""
    if isinstance(example.target, np.ndarray):
        unfinished = "" if answer.finished else ", without a stop"
        return replace(story, frames=answer.written, true_frames=example.target, output=f"{answer.text}{unfinished}")
    if codec.target.draws:
        return replace(story, pixels=codec.target.picture(answer.written))
    if model.source is None:
        return story
    end = model.config.vocabulary.end_id
    right = codec.render(until_end(ids_of(example.target), end_id=end)) if ids_of(example.target) else None
    pixels = codec.source.picture(example.source)
    if pixels is None:
        return replace(story, answer=right)
    source = _source(example, model)
    written = torch.tensor([[*answer.written, *([end] if answer.finished else [])]], device=source.device)
    output = model(source, written, keep=Kept(attention=True), **vars(depth))
    assert output.decoder is not None
    assert output.decoder.cross_attention is not None
    attention = output.decoder.cross_attention[-1, 0].mean(dim=0).float().cpu().numpy()
    columns_first = attention.reshape(len(attention), -1, model.config.line_of(decoder=False))
    return replace(story, answer=right, pixels=pixels, source_attention=columns_first.transpose(0, 2, 1))


def _source(example: Example, model: Model) -> Tensor:
    source = batch_of(model, [example]).source
    assert source is not None
    return source
