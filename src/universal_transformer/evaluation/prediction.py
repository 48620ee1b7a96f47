"""Raw input to answers: what ``ut predict`` prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from universal_transformer.data.batch import collate
from universal_transformer.data.example import PADDING, Example, size
from universal_transformer.data.tokenizer import END, SPECIAL
from universal_transformer.decoding import Generated, beam_search, generate, generate_frames
from universal_transformer.decoding.generation import evaluating, prepared, steps_of
from universal_transformer.decoding.ids import Source
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.memory_check import check_batches
from universal_transformer.evaluation.tensors import (
    device_of,
    finite,
    real_positions,
    target_ids,
)
from universal_transformer.evaluation.words import source_names
from universal_transformer.models.model import Model
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Prediction, Token
from universal_transformer.typed import AtLeastOne, typed

WINDOW = 1024


def predict(
    model: Model,
    codec: Codec[Any, Any],
    examples: Iterable[Example],
    *,
    options: DecodingOptions | None = None,
    num_choices: int = 3,
    batch_tokens: int = 16384,
    window: int = WINDOW,
) -> Iterator[Prediction]:
    """Yield one prediction an example, in the order of the examples.

    | model           | text                          | score                                                     |
    | --------------- | ----------------------------- | --------------------------------------------------------- |
    | classifier      | the likeliest class           | the natural logarithm of its probability                  |
    | tagger          | the likeliest class of each   | the natural logarithm of the probability of all of them   |
    |                 | position                      |                                                           |
    | encoder-decoder | the output found              | the same, of the output with its end                      |
    | language model  | the prompt's continuation     | the same                                                  |
    | model of frames | how many frames it wrote      | 0                                                         |

    `tokens` holds N of each source position (for a language model: of the position that predicts each prompt token),
    `output` the score and N of each token of the answer, and `choices` the `num_choices` best answers that were found.
    `words` is left empty: `with_words` fills it from the line of the example. Examples are read `window` at a time and
    batched by length under `batch_tokens` positions. Sampling for an example depends on its number only, so that
    batches change no answer.
    """
    options = options or DecodingOptions()
    for name, value in (("num_choices", num_choices), ("window", window), ("batch_tokens", batch_tokens)):
        typed(value, AtLeastOne, where=name)
    if model.writes == "classes" and not options.is_greedy:
        raise UserError(
            f"beams={options.num_beams}, temperature={options.sampling.temperature:g}: a {model.config.architecture} "
            "writes no text to search or to sample; leave them out"
        )
    options.check(model)
    predictor = _Predictor(model, codec, options, num_choices, batch_tokens)
    return predictor.predictions(iter(examples), window=window)


@dataclass(frozen=True)
class _Predictor:
    model: Model
    codec: Codec[Any, Any]
    options: DecodingOptions
    num_choices: int
    batch_tokens: int
    names: dict[int, str] = field(default_factory=dict)
    """Tokens of answers as text, once each."""

    @property
    def _continues(self) -> bool:
        """Whether answers continue prompts, which are the targets of examples."""
        return self.model.config.architecture == "language_model"

    def predictions(self, examples: Iterator[Example], *, window: int) -> Iterator[Prediction]:
        """Yield the predictions of each window of examples when the window is full."""
        first = 0
        while chunk := list(islice(examples, window)):
            sizes = [self._positions(example) for example in chunk]
            sampler = check_batches(self.model, sizes, batch_tokens=self.batch_tokens)
            found: dict[int, Prediction] = {}
            with evaluating(self.model):
                ready = dataclasses.replace(self, model=prepared(self.model))
                for indices in sampler.epoch(0):
                    batch = [chunk[index] for index in indices]
                    answers = ready.answer(batch, [first + index for index in indices])
                    found |= zip(indices, answers, strict=True)
            first += len(chunk)
            yield from (found[index] for index in range(len(chunk)))

    def answer(self, examples: Sequence[Example], numbers: Sequence[int]) -> list[Prediction]:
        """Return the answers to examples of these numbers."""
        model = self.model
        if model.writes == "classes":
            return self._tags(examples) if model.config.architecture == "tagger" else self._classes(examples)
        if model.writes == "frames":
            return self._frames(examples)
        source: Source | None = (
            [list(target_ids(example)) for example in examples]
            if self._continues
            else collate(examples, indices=numbers).to(device_of(model)).source
        )
        assert source is not None
        if self.options.num_beams > 1:
            results = min(self.num_choices, self.options.num_beams)
            found = beam_search(model, source, self.options, num_results=results)
        else:
            found = [[row] for row in generate(model, source, self.options, indices=numbers)]
        steps = self._prompt_steps(examples) if self._continues else [best[0].source_steps for best in found]
        return [
            Prediction(
                text=self.codec.render(best[0].tokens),
                score=best[0].score,
                finished=best[0].finished or model.config.generation.fixed_length,
                tokens=self._tokens(example, taken),
                output=self._output(best[0]),
                content=self.codec.target.content(best[0].tokens),
                choices=[(self.codec.render(one.tokens), one.score) for one in best],
            )
            for example, taken, best in zip(examples, steps, found, strict=True)
        ]

    def _tokens(self, example: Example, steps: Sequence[float]) -> list[Token]:
        """Return the source positions of an example with their steps."""
        names = source_names(example, codec=self.codec, config=self.model.config)
        if not steps:
            return [Token(name, None) for name in names]
        return [Token(name, made) for name, made in zip(names, steps, strict=True)]

    def _output(self, found: Generated) -> list[Token]:
        """Return the tokens of an answer with their scores and steps, the end included."""
        names = [self._name(token) for token in found.tokens] + [SPECIAL[END]] * found.finished
        depth = self.model.config.max_steps > 0
        parts = zip(names, found.token_steps, found.token_scores, strict=True)
        return [Token(name, made if depth else None, score) for name, made, score in parts]

    def _name(self, token: int) -> str:
        """Return one token of an answer as text."""
        if token not in self.names:
            self.names[token] = self.codec.render([token])
        return self.names[token]

    def _positions(self, example: Example) -> int:
        """Return the positions of an example in memory, its longest output included."""
        given = max(1, size(example))
        if self.model.writes == "classes":
            return given
        most = self.options.max_new_tokens
        return (given + (self.model.config.generation.limit(given) if most is None else most)) * self.options.num_beams

    def _classes(self, examples: Sequence[Example]) -> list[Prediction]:
        batch = collate(examples, indices=range(len(examples))).to(device_of(self.model))
        assert batch.source is not None
        output = self.options.run(self.model, batch.source)
        scores = finite(output.logits).double().log_softmax(-1)
        best, classes = scores.topk(min(self.num_choices, scores.shape[-1]), dim=-1)
        steps = steps_of(output.encoder, real=real_positions(self.model, batch.source))
        found = []
        for example, values, names, taken in zip(examples, best.tolist(), classes.tolist(), steps, strict=True):
            choices = [(self.codec.render(name), value) for name, value in zip(names, values, strict=True)]
            tokens = self._tokens(example, taken)
            found.append(Prediction(text=choices[0][0], score=choices[0][1], tokens=tokens, choices=choices))
        return found

    def _tags(self, examples: Sequence[Example]) -> list[Prediction]:
        """Return the classes of all positions. A class that is the target of a position is kept: it was given."""
        batch = collate(examples, indices=range(len(examples))).to(device_of(self.model))
        assert batch.source is not None
        output = self.options.run(self.model, batch.source)
        values, best = finite(output.logits).double().log_softmax(-1).max(dim=-1)
        steps = steps_of(output.encoder, real=real_positions(self.model, batch.source))
        found = []
        for example, scores, ids, taken in zip(examples, values.tolist(), best.tolist(), steps, strict=True):
            length = len(example.source)
            given = target_ids(example) or (PADDING,) * length
            classes = [known or index for known, index in zip(given, ids[:length], strict=True)]
            certain = [0.0 if known else score for known, score in zip(given, scores[:length], strict=True)]
            tokens = self._tokens(example, taken)
            text, score = self.codec.render(classes), sum(certain)
            written = [
                Token(self._name(index), one.steps, value)
                for index, one, value in zip(classes, tokens, certain, strict=True)
            ]
            found.append(Prediction(text=text, score=score, tokens=tokens, output=written, choices=[(text, score)]))
        return found

    def _frames(self, examples: Sequence[Example]) -> list[Prediction]:
        """Return frames as the content of files; the tokens of an answer are its positions."""
        source = collate(examples, indices=range(len(examples))).to(device_of(self.model)).source
        assert source is not None
        return [
            Prediction(
                text=f"{len(row.frames)} frames",
                score=0.0,
                finished=row.finished,
                tokens=self._tokens(example, row.source_steps),
                output=[Token(f"{place}", steps) for place, steps in enumerate(row.steps)],
                content=self.codec.target.content(row.frames),
            )
            for example, row in zip(examples, generate_frames(self.model, source, self.options), strict=True)
        ]

    def _prompt_steps(self, examples: Sequence[Example]) -> list[list[float]]:
        """N of the positions that predict the tokens of each prompt."""
        if not any(example.target for example in examples):
            return [[] for _ in examples]
        batch = collate(examples, indices=range(len(examples))).to(device_of(self.model))
        output = self.options.run(self.model, batch.target)
        return steps_of(output.decoder, real=batch.target != self.model.config.vocabulary.padding_id)
