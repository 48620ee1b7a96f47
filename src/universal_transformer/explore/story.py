"""Examples of a test: which ones are shown, and what a model does with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from universal_transformer.data.example import NO_CLASS, Example, ids_of, spread
from universal_transformer.data.tokenizer import until_end
from universal_transformer.decoding import DecodingOptions
from universal_transformer.decoding.options import DEFAULTS
from universal_transformer.errors import UserError
from universal_transformer.evaluation.pipeline import sampling_of
from universal_transformer.evaluation.prediction import MOST_WEIGHTS, predict
from universal_transformer.explore.input_trace import InputTrace, traced
from universal_transformer.explore.story_figures import (
    attention_maps,
    drawn_picture,
    ponder_map,
    read_picture,
    written_frames,
)
from universal_transformer.models.model import Model
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Prediction, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = range(8, 17)  # numbers of positions that suit a figure
SEARCHED = 256
PROMPT, CONTINUATION = 48, 64


class Given(NamedTuple):
    """An input: its text, its example without an answer, and the right answer, if it is known."""

    text: str
    example: Example
    right: str | None


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What a model does with an example."""

    title: str
    text: str
    """The input, where it is a text."""
    trace: InputTrace
    figures: Mapping[str, Figure]
    """Figures for files, by the beginnings of their names."""
    pictured: bool
    """Whether a page shows the figures, because the example is a picture or frames, and not the trace."""


def given(example: Example, codec: Codec[Any, Any]) -> Given:
    """A test example as an input: where it is a text, read as if this were typed. Of the text of a language model the
    first part is a prompt.
    """
    target = example.target
    if codec.target.continues:
        prompt = ids_of(target)[: max(1, min(PROMPT, len(ids_of(target)) // 2))]
        return Given(codec.render(prompt), replace(example, target=prompt), None)
    ended = target if isinstance(target, int) or codec.target.names_classes else until_end(ids_of(target))
    known = bool(ids_of(target)) and target != NO_CLASS and not codec.target.draws
    right = codec.render(ended) if known else None
    if codec.source.suffixes or not isinstance(example.source, tuple):
        return Given("", replace(example, target=codec.unanswered), right)
    text = example.written[0] if example.written else codec.source.input_text(example.source)
    (typed,) = codec.read(enumerate(text.split("\n"), start=1), name="example")
    return Given(text, replace(typed, source=example.source, supports=example.supports), right)


def examine(
    model: Model,
    codec: Codec[Any, Any],
    example: Example,
    *,
    options: DecodingOptions = DEFAULTS,
    name: str = "",
    most_weights: int = MOST_WEIGHTS,
) -> Examined:
    """Run `model`, called `name`, on a test example at the depth of `options`. UserError for a model without depth."""
    asked = given(example, codec)
    if codec.target.draws:
        options = replace(options, sampling=sampling_of(codec))
    if codec.target.continues:
        coordinates = model.config.coordinates
        longest = coordinates.max_positions if coordinates.position == "learned" else PROMPT + CONTINUATION
        most = min(CONTINUATION, longest - len(ids_of(asked.example.target)))
        options = replace(options, max_new_tokens=most)
    trace, answer = traced(model, codec, asked.example, options=options, most_weights=most_weights)
    trace = replace(trace, model=name, right=asked.right)
    pictures = _pictures(trace, answer, codec, example, line=model.config.line_of(decoder=False))
    facts = codec.source.several_lines and not pictures
    return Examined(
        title=f"One story: {trace.sides[0].tokens[-1]}?" if facts else next(iter(pictures), "sample").capitalize(),
        text=asked.text,
        trace=trace,
        figures=_maps(trace) if facts else pictures,
        pictured=bool(pictures),
    )


def _maps(trace: InputTrace) -> dict[str, Figure]:
    whole = trace.sides[0].self_attention.shape[-1] == len(trace.sides[0].tokens)
    maps = {"ponder_map": ponder_map} if trace.halting else {}
    return {name: draw(trace) for name, draw in (maps | ({"attention": attention_maps} if whole else {})).items()}


def _pictures(
    trace: InputTrace, answer: Prediction, codec: Codec[Any, Any], example: Example, *, line: int | None
) -> dict[str, Figure]:
    """The figure of the picture or the frames that were read or written, if there are any. ``line``: patches of a
    column of the picture that was read.
    """
    if isinstance(example.target, np.ndarray):
        return {"frames": written_frames(trace, answer.written, true_frames=example.target)}
    if codec.target.draws:
        return {"picture": drawn_picture(trace, codec.target.picture(answer.written))}
    pixels, attention = codec.source.picture(example.source), trace.sides[-1].cross_attention
    if pixels is None or line is None or attention is None or attention.shape[-1] < len(trace.sides[0].tokens):
        return {}
    return {"picture": read_picture(trace, pixels, line=line)}


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
