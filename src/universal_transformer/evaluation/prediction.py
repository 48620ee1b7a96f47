"""Raw input to answers: what ``ut predict`` prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from universal_transformer.data.batch import collate
from universal_transformer.data.example import Example, size
from universal_transformer.decoding import DecodingOptions, Generated, Request, generate_stream
from universal_transformer.decoding.generation import Source, evaluating, prepared, steps_of
from universal_transformer.errors import UserError
from universal_transformer.evaluation.inference import InferenceOptions
from universal_transformer.evaluation.memory_check import check_batches
from universal_transformer.evaluation.tensors import (
    device_of,
    finite,
    real_positions,
    target_ids,
)
from universal_transformer.execution import policy
from universal_transformer.execution.stream import stream_obstacle
from universal_transformer.models.encoder_decoder import EncoderDecoder
from universal_transformer.models.language_model import LanguageModel
from universal_transformer.models.roles import AnyClassifier, AnyEncoderDecoder, AnyLanguageModel
from universal_transformer.registry import Model
from universal_transformer.tasks.task import Codec, Prediction
from universal_transformer.typed import AtLeastOne, typed

WINDOW = 1024


def predict(
    model: Model,
    codec: Codec,
    examples: Iterable[Example],
    *,
    options: InferenceOptions | None = None,
    num_choices: int = 3,
    batch_tokens: int = 16384,
    window: int = WINDOW,
) -> Iterator[Prediction]:
    """Yield one prediction an example, in the order of the examples.

    | model           | text                          | score                                                     |
    | --------------- | ----------------------------- | --------------------------------------------------------- |
    | classifier      | the likeliest class           | its probability                                           |
    | encoder-decoder | the output found              | its log probability (over the length penalty with beams)  |
    | language model  | the prompt's continuation     | the same                                                  |

    `steps` holds N of each source position (for a language model: of the position that predicts each prompt token), and
    `choices` the `num_choices` best answers that were found. Examples are read `window` at a time and batched by length
    under `batch_tokens` positions. Sampling for an example depends on its number only, so that batches change no
    answer.
    """
    options = options or InferenceOptions()
    for name, value in (("num_choices", num_choices), ("window", window), ("batch_tokens", batch_tokens)):
        typed(value, AtLeastOne, where=name)
    if model.config.architecture == "classifier" and (options.beams > 1 or options.sampling.temperature > 0):
        raise UserError(
            f"beams={options.beams}, temperature={options.sampling.temperature:g}: a classifier writes no text to "
            "search or to sample; leave them out"
        )
    options.check(model)
    predictor = _Predictor(model, codec, options, num_choices, batch_tokens)
    return predictor.predictions(iter(examples), window=window)


@dataclass(frozen=True)
class _Predictor:
    model: Model
    codec: Codec
    options: InferenceOptions
    num_choices: int
    batch_tokens: int

    def predictions(self, examples: Iterator[Example], *, window: int) -> Iterator[Prediction]:
        """Yield the predictions of each window of examples when the window is full."""
        first = 0
        while chunk := list(islice(examples, window)):
            sizes = [self._positions(example) for example in chunk]
            sampler = check_batches(self.model, sizes, batch_tokens=self.batch_tokens)
            generated = self._continuous(chunk, sizes=sizes, first=first)
            found: dict[int, Prediction] = {}
            with evaluating(self.model):
                ready = dataclasses.replace(self, model=prepared(self.model))
                for indices in sampler.epoch(0):
                    batch = [chunk[index] for index in indices]
                    answers = ready.answer(batch, [first + index for index in indices], generated)
                    found |= zip(indices, answers, strict=True)
            first += len(chunk)
            yield from (found[index] for index in range(len(chunk)))

    def answer(
        self, examples: Sequence[Example], numbers: Sequence[int], generated: Mapping[int, Generated]
    ) -> list[Prediction]:
        """Return the answers to examples of these numbers; `generated` has the outputs that exist already."""
        model = self.model
        if isinstance(model, AnyClassifier):
            return self._classes(model, examples)
        if generated:
            found = [[generated[number]] for number in numbers]
        else:
            source: Source | None = (
                [_given(model, example) for example in examples]
                if isinstance(model, AnyLanguageModel)
                else collate(examples, indices=numbers).to(device_of(model)).source
            )
            assert source is not None
            found = self.options.generate(model, source, indices=numbers, num_results=self.num_choices)
        if isinstance(model, AnyLanguageModel):
            steps = self._prompt_steps(model, examples)
        else:
            steps = [best[0].source_steps for best in found]
        texts = [[(self.codec.render(one.tokens), one.score) for one in best] for best in found]
        return [
            _prediction(choices, taken, finished=best[0].finished)
            for choices, taken, best in zip(texts, steps, found, strict=True)
        ]

    def _positions(self, example: Example) -> int:
        """Return the positions of an example in memory, its longest output included."""
        given = max(1, size(example))
        if isinstance(self.model, AnyClassifier):
            return given
        most = self.options.max_new_tokens
        return (given + (self.model.config.generation.limit(given) if most is None else most)) * self.options.beams

    def _continuous(self, examples: Sequence[Example], *, sizes: Sequence[int], first: int) -> dict[int, Generated]:
        """Return outputs by number of the example, where continuous batching serves a halting decoder; else nothing."""
        model, options = self.model, self.options
        if not isinstance(model, EncoderDecoder | LanguageModel) or options.beams > 1:
            return {}
        recurrence = model.target.recurrence
        if (
            len(examples) <= policy.PROBED_REQUESTS
            or recurrence.halting is None
            or stream_obstacle(recurrence) is not None
        ):
            return {}
        longest_first = sorted(range(len(examples)), key=lambda index: -sizes[index])
        requests = [Request(first + index, _given(model, examples[index])) for index in longest_first]
        found = generate_stream(
            model,
            requests,
            slots=min(len(examples), max(1, self.batch_tokens // max(sizes))),
            capacity=max(sizes) + 2,  # the start token of a prompt, and twice that among the new tokens
            options=DecodingOptions(
                sampling=options.sampling,
                max_new_tokens=options.max_new_tokens,
                max_steps=options.max_steps,
                halting_threshold=options.halting_threshold,
            ),
        )
        return dict(found)

    def _classes(self, model: AnyClassifier, examples: Sequence[Example]) -> list[Prediction]:
        batch = collate(examples, indices=range(len(examples))).to(device_of(model))
        assert batch.source is not None
        output = self.options.run(model, batch.source)
        probabilities = finite(output.logits).double().softmax(-1)
        best, classes = probabilities.topk(min(self.num_choices, probabilities.shape[-1]), dim=-1)
        steps = steps_of(output.encoder, real=real_positions(model, batch.source))
        return [
            _prediction([(self.codec.render(name), score) for name, score in zip(names, scores, strict=True)], taken)
            for scores, names, taken in zip(best.tolist(), classes.tolist(), steps, strict=True)
        ]

    def _prompt_steps(self, model: AnyLanguageModel, examples: Sequence[Example]) -> list[list[float]]:
        """N of the positions that predict the tokens of each prompt."""
        if not any(example.target for example in examples):
            return [[] for _ in examples]
        batch = collate(examples, indices=range(len(examples))).to(device_of(model))
        output = self.options.run(model, batch.target)
        return steps_of(output.decoder, real=batch.target != model.config.vocabulary.padding_id)


def _given(model: AnyEncoderDecoder | AnyLanguageModel, example: Example) -> list[int]:
    if isinstance(model, AnyLanguageModel):
        return [model.config.vocabulary.start_id, *target_ids(example)]
    return [token for token in example.source if isinstance(token, int)]


def _prediction(choices: list[tuple[str, float]], steps: list[float], *, finished: bool = True) -> Prediction:
    return Prediction(text=choices[0][0], score=choices[0][1], finished=finished, steps=steps, choices=choices)
