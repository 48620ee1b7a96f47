"""Raw input to answers: what ``ut predict`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from universal_transformer.data.batch import collate
from universal_transformer.data.example import Example, size
from universal_transformer.decoding import (
    GREEDY,
    Generated,
    Request,
    Sampling,
    beam_search,
    generate,
    generate_stream,
)
from universal_transformer.decoding.continuous import PROBE
from universal_transformer.decoding.session import Source, check_model, evaluating, prepared
from universal_transformer.errors import UserError
from universal_transformer.evaluation.room import check_batch_tokens, check_batches
from universal_transformer.evaluation.scoring import (
    Depth,
    device_of,
    finite,
    ids_of,
    real_positions,
    steps_of,
)
from universal_transformer.models.build import Model
from universal_transformer.models.encoder_decoder import EncoderDecoder
from universal_transformer.models.language_model import LanguageModel
from universal_transformer.models.roles import AllAtOnce, AnyClassifier, AnyEncoderDecoder, AnyLanguageModel
from universal_transformer.execution.stream import stream_obstacle
from universal_transformer.tasks.task import Codec, Prediction

WINDOW = 1024


@dataclass(frozen=True, kw_only=True)
class _Search:
    """How answers are looked for."""

    beams: int
    alpha: float
    sampling: Sampling
    num_choices: int
    max_new_tokens: int | None
    depth: Depth


def predict(
    model: Model,
    codec: Codec,
    examples: Iterable[Example],
    *,
    num_choices: int = 3,
    beams: int = 1,
    alpha: float = 0.6,
    sampling: Sampling = GREEDY,
    max_new_tokens: int | None = None,
    max_steps: int | None = None,
    halting_threshold: float | None = None,
    batch_tokens: int = 16384,
    window: int = WINDOW,
) -> Iterator[Prediction]:
    """Yield one prediction an example, in the order of the examples.

    | model           | text                          | score                                                     |
    | --------------- | ----------------------------- | --------------------------------------------------------- |
    | classifier      | the likeliest class           | its probability                                           |
    | encoder-decoder | the output found              | its log probability (over the length penalty with beams)  |
    | language model  | the prompt's continuation     | the same                                                  |

    `steps` holds N of each source position (of each prompt token for a language model: of the position that predicts
    it), and `choices` the `num_choices` best answers that were looked at. More than one beam and a `sampling` that is
    not greedy exclude each other. Examples are read `window` at a time and batched by length under `batch_tokens`
    positions; what is drawn for an example depends on its number only, so that batches change no answer.
    """
    if beams > 1 and sampling.temperature > 0:
        raise UserError(f"beams={beams} and temperature={sampling.temperature}: choose beams or sampling")
    if num_choices < 1 or window < 1:
        raise UserError(f"num_choices={num_choices}, window={window}: expected at least 1")
    if max_new_tokens is not None and max_new_tokens < 1:
        raise UserError(f"max_new_tokens={max_new_tokens}: at least 1")
    if model.config.architecture == "classifier" and (beams > 1 or sampling.temperature > 0):
        raise UserError(
            f"beams={beams}, temperature={sampling.temperature:g}: a classifier writes no text to search or to "
            "sample; leave them out"
        )
    check_batch_tokens(batch_tokens)
    depth = Depth(max_steps=max_steps, halting_threshold=halting_threshold)
    depth.check(model)
    search = _Search(
        beams=beams,
        alpha=alpha,
        sampling=sampling,
        num_choices=num_choices,
        max_new_tokens=max_new_tokens,
        depth=depth,
    )
    return _predictions(model, codec, iter(examples), search, batch_tokens=batch_tokens, window=window)


def _predictions(
    model: Model,
    codec: Codec,
    examples: Iterator[Example],
    search: _Search,
    *,
    batch_tokens: int,
    window: int,
) -> Iterator[Prediction]:
    first = 0
    while chunk := list(islice(examples, window)):
        room = [_positions(model, example, search) for example in chunk]
        sampler = check_batches(model, room, batch_tokens=batch_tokens)
        ahead = _ahead(model, chunk, search, room=room, first=first, batch_tokens=batch_tokens)
        found: list[Prediction | None] = [None] * len(chunk)
        with evaluating(model):
            ready = prepared(model)
            for indices in sampler.epoch(0):
                batch = [chunk[index] for index in indices]
                numbers = [first + index for index in indices]
                answers = _answer(ready, codec, batch, search, numbers, ahead=ahead)
                for index, answer in zip(indices, answers, strict=True):
                    found[index] = answer
        first += len(chunk)
        for prediction in found:
            assert prediction is not None
            yield prediction


def _ahead(
    model: Model,
    examples: Sequence[Example],
    search: _Search,
    *,
    room: Sequence[int],
    first: int,
    batch_tokens: int,
) -> dict[int, Generated]:
    """Outputs by number of the example, where a halting decoder finds them faster for all examples in one stream."""
    if not isinstance(model, EncoderDecoder | LanguageModel) or search.beams > 1 or len(examples) <= PROBE:
        return {}
    if model.target.recurrence.halting is None or stream_obstacle(model.target.recurrence) is not None:
        return {}
    order = sorted(range(len(examples)), key=lambda index: -room[index])  # what takes longest begins first
    requests = [Request(first + index, _given(model, examples[index])) for index in order]
    found = generate_stream(
        model,
        requests,
        slots=min(len(examples), max(1, batch_tokens // max(room))),
        capacity=max(room) + 2,  # a prompt's start token, and twice that among the new ones
        sampling=search.sampling,
        max_new_tokens=search.max_new_tokens,
        max_steps=search.depth.max_steps,
        halting_threshold=search.depth.halting_threshold,
    )
    return dict(found)


def _given(model: AnyEncoderDecoder | AnyLanguageModel, example: Example) -> list[int]:
    """The prompt, or the source."""
    if isinstance(model, AnyLanguageModel):
        return [model.config.start_id, *ids_of(example)]
    return [token for token in example.source if isinstance(token, int)]


def _positions(model: Model, example: Example, search: _Search) -> int:
    """Positions an example takes in memory while it is worked on, the output it may get included."""
    given = max(1, size(example))
    if isinstance(model, AnyClassifier):
        return given
    new = 2 * given + 10 if search.max_new_tokens is None else search.max_new_tokens
    return (given + new) * search.beams


def _answer(
    model: Model,
    codec: Codec,
    examples: Sequence[Example],
    search: _Search,
    numbers: Sequence[int],
    *,
    ahead: Mapping[int, Generated],
) -> list[Prediction]:
    """Answers to examples numbered ``numbers``; ``ahead`` holds outputs that are known already."""
    if ahead and not isinstance(model, AnyLanguageModel):
        known = [ahead[number] for number in numbers]
        return [_prediction(codec, [one], steps=one.source_steps) for one in known]
    match model:
        case AnyClassifier():
            return _classes(model, codec, examples, search)
        case AnyEncoderDecoder() | AllAtOnce():
            batch = collate(examples, indices=numbers).to(device_of(model))
            assert batch.source is not None
            found = _generate(model, batch.source, search, numbers=numbers)
            return [_prediction(codec, best, steps=best[0].source_steps) for best in found]
        case AnyLanguageModel():
            prompts = [_given(model, example) for example in examples]
            if ahead:
                found = [[ahead[number]] for number in numbers]
            else:
                found = _generate(model, prompts, search, numbers=numbers)
            steps = _prompt_steps(model, examples, search)
            return [_prediction(codec, best, steps=taken) for best, taken in zip(found, steps, strict=True)]


def _classes(
    model: AnyClassifier, codec: Codec, examples: Sequence[Example], search: _Search
) -> list[Prediction]:
    batch = collate(examples, indices=range(len(examples))).to(device_of(model))
    assert batch.source is not None
    output = model(
        batch.source,
        max_steps=search.depth.max_steps,
        halting_threshold=search.depth.halting_threshold,
    )
    probabilities = finite(output.logits).double().softmax(-1)
    best, classes = probabilities.topk(min(search.num_choices, probabilities.shape[-1]), dim=-1)
    steps = steps_of(output.encoder, real=real_positions(model, batch.source))
    predictions = []
    for scores, names, taken in zip(best.tolist(), classes.tolist(), steps, strict=True):
        choices = [(codec.render(name), score) for name, score in zip(names, scores, strict=True)]
        predictions.append(Prediction(text=choices[0][0], score=choices[0][1], steps=taken, choices=choices))
    return predictions


def _generate(
    model: AnyEncoderDecoder | AnyLanguageModel | AllAtOnce,
    source: Source,
    search: _Search,
    *,
    numbers: Sequence[int],
) -> list[list[Generated]]:
    """Return the sequences found for each row, best first."""
    if search.beams > 1:
        check_model(model)
        assert not isinstance(model, AllAtOnce)
        return beam_search(
            model,
            source,
            beams=search.beams,
            alpha=search.alpha,
            num_results=min(search.num_choices, search.beams),
            max_new_tokens=search.max_new_tokens,
            max_steps=search.depth.max_steps,
            halting_threshold=search.depth.halting_threshold,
        )
    found = generate(
        model,
        source,
        max_new_tokens=search.max_new_tokens,
        sampling=search.sampling,
        indices=numbers,
        max_steps=search.depth.max_steps,
        halting_threshold=search.depth.halting_threshold,
    )
    return [[one] for one in found]


def _prompt_steps(model: AnyLanguageModel, examples: Sequence[Example], search: _Search) -> list[list[float]]:
    """N of the positions that predict the tokens of each prompt."""
    if not any(example.target for example in examples):
        return [[] for _ in examples]
    batch = collate(examples, indices=range(len(examples))).to(device_of(model))
    output = model(
        batch.target,
        max_steps=search.depth.max_steps,
        halting_threshold=search.depth.halting_threshold,
    )
    return steps_of(output.decoder, real=batch.target != model.config.padding_id)


def _prediction(codec: Codec, found: Sequence[Generated], *, steps: list[float]) -> Prediction:
    choices = [(codec.render(one.tokens), one.score) for one in found]
    return Prediction(text=choices[0][0], score=choices[0][1], steps=steps, choices=choices)
