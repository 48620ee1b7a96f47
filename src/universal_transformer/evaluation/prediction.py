"""Raw input to answers: what ``ut predict`` prints, with the steps of the words that a user wrote."""

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, zip_longest
from typing import Any, ClassVar, NamedTuple

from torch.nn.functional import logsigmoid

from universal_transformer.axes import Tensor
from universal_transformer.data.batch import collate
from universal_transformer.data.example import ABSENT, PADDING, PRESENT, Example, ids_of, size
from universal_transformer.data.tokenizer import END, SPECIAL
from universal_transformer.decoding import Generated, beam_search, generate, generate_frames
from universal_transformer.decoding.generation import (
    evaluating,
    next_log_probabilities,
    prepared,
    start_generation,
)
from universal_transformer.decoding.ids import Source
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.decoding.sampling import Continuation, extend
from universal_transformer.evaluation.tensors import Called, check_batches, device_of
from universal_transformer.models.model import Model
from universal_transformer.nn.context import Kept
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Prediction, Token
from universal_transformer.typed import Positive, typed

WINDOW = 1024
MOST_ENDS = 3
"""How many times as many ends of lines as lines a language model may write: it may leave lines empty."""
MOST_WEIGHTS = 3 * 2**20
"""Weights of all attention of one side of a call that is watched; of more the mean over heads is kept."""
MOST_NUMBERS = 2**32
"""More examples than there are: another line of one has draws of its own."""


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
    """Yield a prediction for each example, in their order.

    | model           | text                          | score                                                     |
    | --------------- | ----------------------------- | --------------------------------------------------------- |
    | classifier      | the likeliest class           | the natural logarithm of its probability                  |
    |                 | the labels it has             | that of the probability of all answers, yes or no         |
    | tagger          | the likeliest class of each   | the natural logarithm of the probability of all of them   |
    |                 | position                      |                                                           |
    | encoder-decoder | the output found              | the same, of the output with its end                      |
    | language model  | the prompt's continuation     | the same                                                  |
    | model of frames | how many frames it wrote      | 0                                                         |

    `tokens` holds N of each source position, those of a story in reading order (for a language model: of the position
    that predicts each prompt token), `output` the score and N of each token of the answer, and `choices` the
    `num_choices` best answers. `with_words` fills `words`. Examples are read `window` at a time and batched by length
    under `batch_tokens` positions. Sampling depends on the number of an example only: batches change no answer.
    """
    for name, value in (("num_choices", num_choices), ("window", window), ("batch_tokens", batch_tokens)):
        typed(value, Positive, where=name)
    asked = answers_of(model, codec, options or DecodingOptions(), num_choices=num_choices)
    return asked.of_windows(iter(examples), batch_tokens=batch_tokens, window=window)


def answers_of(model: Model, codec: Codec[Any, Any], options: DecodingOptions, *, num_choices: int = 3) -> "Answers":
    """Return what asks `model`; UserError for options that do not fit it."""
    wanted = model.config.architecture, model.writes
    kind = next(kind for kind in ANSWERS if (kind.architecture, kind.writes) == wanted)
    options.check(model)
    return kind(model, codec, options, num_choices)


class Watched(NamedTuple):
    """The answer to one example, and a call of the model that gives it and kept all that a trace may keep."""

    prediction: Prediction
    called: Called
    places: Sequence[int]
    """The positions of the side that is read at which the output stands; none of a class."""


OneAnswer = tuple[str, float]
"""A text, and its probability."""


@dataclass(frozen=True)
class Answers(ABC):
    """How models of one architecture that write one kind of thing are asked."""

    architecture: ClassVar[str]
    writes: ClassVar[str]
    model: Model
    codec: Codec[Any, Any]
    options: DecodingOptions
    num_choices: int

    @abstractmethod
    def answers(self, examples: Sequence[Example], numbers: Sequence[int]) -> list[Prediction]:
        """Return the answers to examples of these numbers."""

    @abstractmethod
    def watched(self, example: Example, made: Generated | None = None) -> Watched:
        """Return the answer to an example, with the call that gives it. `made`: what was written for it already."""

    def called(self, example: Example) -> Called:
        """A call that keeps all that a trace may keep."""
        sizes, step = self.model.config.sizes, self.model.config.step
        layers = self.options.step_limit(self.model) * step.blocks
        few = layers * sizes.num_heads * size(example) ** 2 <= MOST_WEIGHTS
        keep = Kept(attention=few or "mean", states=True)
        return Called.with_examples(self.model, [example], self.options, keep=keep)

    def writing(self, example: Example) -> Iterator[Generated]:
        """Yield what is written of the greedy or sampled answer after each token; nothing where it is made at once."""
        del example
        return iter(())

    def after_steps(self, called: Called) -> list[list[OneAnswer]]:
        """Return the best answer of the states after each step of a call for one example: one, or one a position."""
        logits = called.output.step_logits
        return [] if logits is None else [self.best(each[0], called) for each in logits]

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.double().softmax(-1)

    def best(self, logits: Tensor, called: Called) -> list[OneAnswer]:
        """Return the best answers of logits of one example, ``[classes]`` or ``[position, classes]``."""
        del called
        probabilities, indices = (values.tolist() for values in self.probabilities(logits).max(-1))
        names = {index: self.name_of(index) for index in {*indices}}
        return [(names[index], probability) for index, probability in zip(indices, probabilities, strict=True)]

    def of_windows(self, examples: Iterator[Example], *, batch_tokens: int, window: int) -> Iterator[Prediction]:
        """Yield the answers to each window of examples, shorter ones first, as soon as all before them are known."""
        first = 0
        while chunk := list(islice(examples, window)):
            batches = check_batches(self.model, list(map(self.positions, chunk)), batch_tokens=batch_tokens)
            found: dict[int, Prediction] = {}
            shown = 0
            with evaluating(self.model):
                ready = dataclasses.replace(self, model=prepared(self.model))
            for indices in batches:
                batch = [chunk[index] for index in indices]
                with evaluating(self.model):  # not while the caller has an answer
                    found |= zip(indices, ready.answers(batch, [first + index for index in indices]), strict=True)
                while shown in found:
                    yield found.pop(shown)
                    shown += 1
            first += len(chunk)

    def positions(self, example: Example) -> int:
        """Return the positions of an example in memory, its longest output included."""
        given, most = max(1, size(example)), self.options.max_new_tokens
        return (given + (self.model.config.generation.limit(given) if most is None else most)) * self.options.num_beams

    def name_of(self, index: int) -> str:
        """Return the text of a class, a tag or a token."""
        return self.codec.render([index])

    def tokens(self, example: Example, steps: Sequence[float]) -> list[Token]:
        """Return the source positions of an example in reading order with their steps."""
        names = self._names(example)
        taken = zip(names, steps, strict=True) if steps else ((name, None) for name in names)
        tokens = [Token(name, made) for name, made in taken]
        return [tokens[place] for place in self.codec.source.reading_order(len(tokens))]

    def _names(self, example: Example) -> list[str]:
        """Return a label for each source position: of frames that of the first that it joins, of patches a number."""
        if isinstance(example.source, tuple):
            return self.codec.words(example)
        inputs = self.model.config.inputs
        joined = self.codec.words(example)[:: inputs.stride]
        if inputs.kind != "patches":
            return joined
        return list(map(str, range(len(joined) * (inputs.features // inputs.stride))))


class ClassAnswers(Answers):
    """The likeliest classes of each example."""

    architecture, writes = "classifier", "classes"

    def positions(self, example: Example) -> int:
        return max(1, size(example))

    def answers(self, examples: Sequence[Example], numbers: Sequence[int]) -> list[Prediction]:
        del numbers
        return self.of_call(Called.with_examples(self.model, examples, self.options), examples)

    def watched(self, example: Example, made: Generated | None = None) -> Watched:
        del made
        called = self.called(example)
        return Watched(self.of_call(called, [example])[0], called, self.places(example))

    def places(self, example: Example) -> Sequence[int]:
        """Return the positions that have an answer of their own."""
        del example
        return ()

    def best(self, logits: Tensor, called: Called) -> list[OneAnswer]:
        return super().best(logits.unsqueeze(0), called)

    def of_call(self, called: Called, examples: Sequence[Example]) -> list[Prediction]:
        """Return the answers that the output of a call gives."""
        scores, steps = called.logits.double().log_softmax(-1), called.source_steps
        best, classes = scores.topk(min(self.num_choices, scores.shape[-1]), dim=-1)
        found = []
        for example, values, ids, taken in zip(examples, best.tolist(), classes.tolist(), steps, strict=True):
            choices = [(self.codec.render(index), value) for index, value in zip(ids, values, strict=True)]
            text, score = choices[0]
            tokens = self.tokens(example, taken)
            found.append(Prediction(text=text, score=score, tokens=tokens, choices=choices, written=ids[0]))
        return found


class LabelAnswers(ClassAnswers):
    """The labels that are likelier than not, which are the output, each with its probability."""

    writes = "labels"

    def best(self, logits: Tensor, called: Called) -> list[OneAnswer]:
        del called
        written = tuple(PRESENT if logit > 0 else ABSENT for logit in logits.tolist())
        return [(self.codec.render(written), float(logsigmoid(logits.double().abs()).sum().exp()))]

    def of_call(self, called: Called, examples: Sequence[Example]) -> list[Prediction]:
        logits, found = called.logits.double(), []
        certain = logsigmoid(logits.abs())
        for example, row, values, taken in zip(
            examples, logits.tolist(), certain.tolist(), called.source_steps, strict=True
        ):
            written = tuple(PRESENT if logit > 0 else ABSENT for logit in row)
            text, score, names = self.codec.render(written), sum(values), self.codec.target.pieces(written)
            given = [value for value, label in zip(values, written, strict=True) if label == PRESENT]
            found.append(
                Prediction(
                    text=text,
                    score=score,
                    tokens=self.tokens(example, taken),
                    output=[Token(name, None, value) for name, value in zip(names, given, strict=True)],
                    choices=[(text, score)],
                    written=written,
                )
            )
        return found


class TagAnswers(ClassAnswers):
    """The likeliest class of each position. A class that is the target of a position is kept: it was given."""

    architecture = "tagger"

    def places(self, example: Example) -> Sequence[int]:
        return self.codec.source.word_places(ids_of(example.source))

    def best(self, logits: Tensor, called: Called) -> list[OneAnswer]:
        given, found = called.batch.target[0].tolist(), Answers.best(self, logits, called)
        return [(self.name_of(index), 1.0) if index else one for index, one in zip_longest(given, found)]

    def of_call(self, called: Called, examples: Sequence[Example]) -> list[Prediction]:
        values, best = called.logits.double().log_softmax(-1).max(dim=-1)
        found = []
        for example, scores, ids, taken in zip(
            examples, values.tolist(), best.tolist(), called.source_steps, strict=True
        ):
            assert isinstance(example.source, tuple)
            places, tokens = self.codec.source.word_places(example.source), self.tokens(example, taken)
            given = ids_of(example.target) or (PADDING,) * len(example.source)
            classes = [given[place] or ids[place] for place in places]
            certain = [0.0 if given[place] else scores[place] for place in places]
            text, score = self.codec.render(classes), sum(certain)
            output = [
                Token(self.codec.render([index]), token.steps, value)
                for index, token, value in zip(classes, [tokens[place] for place in places], certain, strict=True)
            ]
            choices = [(text, score)]
            found.append(
                Prediction(text=text, score=score, tokens=tokens, output=output, choices=choices, written=classes)
            )
        return found


class TokenAnswers(Answers):
    """The best sequences that a search finds for each source."""

    architecture, writes = "encoder_decoder", "tokens"

    def answers(self, examples: Sequence[Example], numbers: Sequence[int]) -> list[Prediction]:
        source = self.sources(examples, numbers)
        if self.options.num_beams > 1:
            results = min(self.num_choices, self.options.num_beams)
            found = beam_search(self.model, source, self.options, num_results=results)
        else:
            found = [[row] for row in generate(self.model, source, self.options, indices=numbers)]
        self.complete(found, source, numbers)
        return self.predictions(examples, found)

    def predictions(self, examples: Sequence[Example], found: list[list[Generated]]) -> list[Prediction]:
        """Return the answers that were found for examples, the best first."""
        names = dict[int, str]()
        return [
            Prediction(
                text=self.codec.render(best[0].tokens),
                score=best[0].score,
                finished=best[0].finished or self.model.config.generation.fixed_length,
                tokens=self.tokens(example, taken),
                output=self._output(best[0], names),
                content=self.codec.target.content(best[0].tokens),
                choices=[(self.codec.render(row.tokens), row.score) for row in best],
                written=best[0].tokens,
            )
            for example, taken, best in zip(examples, self.source_steps(examples, found), found, strict=True)
        ]

    def complete(self, found: list[list[Generated]], source: Source, numbers: Sequence[int]) -> None:
        """Continue what is found for a source and is no whole answer yet."""

    def watched(self, example: Example, made: Generated | None = None) -> Watched:
        (found,) = self.answers([example], [0]) if made is None else self.predictions([example], [[made]])
        first = len(self.prompt(example))
        called = self.called(dataclasses.replace(example, target=self.whole(example, found)))
        return Watched(found, called, range(first, first + len(found.output)))

    def writing(self, example: Example) -> Iterator[Generated]:
        batch = start_generation(self.model, self.sources([example], [0]), self.options)
        result, end_id = Generated(source_steps=batch.source_steps[0]), self.model.config.vocabulary.end_id
        row = Continuation(batch.limits[0], end_id, self.options.sampling, 0, result)
        chosen = extend([row], batch.log_probabilities, batch.steps)
        yield result
        while not row.done:
            batch.advance(chosen)
            chosen = extend([row], batch.log_probabilities, batch.steps)
            yield result

    def prompt(self, example: Example) -> tuple[int, ...]:
        """Return the tokens that an answer goes on from."""
        del example
        return ()

    def whole(self, example: Example, found: Prediction) -> Any:
        """Return the target of which an answer is the end, with the end token if there is one."""
        ended = len(found.output) > len(found.written)
        return (*self.prompt(example), *found.written, *[self.model.config.vocabulary.end_id] * ended)

    def name_of(self, index: int) -> str:
        return SPECIAL[END] if index == self.model.config.vocabulary.end_id else super().name_of(index)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return those that the scores of answers are made of: 0 for tokens that are never written."""
        return next_log_probabilities(logits, config=self.model.config).double().exp()

    def sources(self, examples: Sequence[Example], numbers: Sequence[int]) -> Source:
        """Return what the model reads."""
        source = collate(examples, indices=numbers).to(device_of(self.model)).source
        assert source is not None
        return source

    def source_steps(self, examples: Sequence[Example], found: list[list[Generated]]) -> list[list[float]]:
        """Return N of each position that was read."""
        del examples
        return [best[0].source_steps for best in found]

    def _output(self, found: Generated, names: dict[int, str]) -> list[Token]:
        """Return the tokens of an answer with their scores and steps, the end included; `names` has their texts."""
        for token in found.tokens:
            if token not in names:
                names[token] = self.codec.render([token])
        texts = [names[token] for token in found.tokens] + [SPECIAL[END]] * found.finished
        depth = self.model.config.max_steps > 0
        parts = zip(texts, found.token_steps, found.token_scores, strict=True)
        return [Token(name, made if depth else None, score) for name, made, score in parts]


class Continuations(TokenAnswers):
    """The best continuations of prompts, which are the targets of examples."""

    architecture = "language_model"

    def prompt(self, example: Example) -> tuple[int, ...]:
        return ids_of(example.target)

    def sources(self, examples: Sequence[Example], numbers: Sequence[int]) -> Source:
        del numbers
        return [list(ids_of(example.target)) for example in examples]

    def complete(self, found: list[list[Generated]], source: Source, numbers: Sequence[int]) -> None:
        """Continue what has too few lines, as a prompt of its own."""
        for prompt, best, number in zip(source, found, numbers, strict=True):
            best[0] = self._with_lines(list(prompt), best[0], number)

    def _with_lines(self, prompt: list[int], written: Generated, number: int) -> Generated:
        end_id, most = self.model.config.vocabulary.end_id, self.options.max_new_tokens
        for again in range(1, MOST_ENDS * self.options.lines):
            tokens = pairwise([end_id, *written.tokens, end_id])
            lines = sum(after == end_id != before for before, after in tokens)
            left = None if most is None else most - len(written.token_scores)
            if not written.finished or lines >= self.options.lines or left == 0:
                break
            context = [*prompt, *written.tokens, end_id][-self.model.config.generation.limit(0) // 2 :]
            options = dataclasses.replace(self.options, max_new_tokens=left)
            (more,) = generate(self.model, [context], options, indices=[number + again * MOST_NUMBERS])
            written = dataclasses.replace(
                written,
                tokens=[*written.tokens, end_id, *more.tokens],
                finished=more.finished,
                token_scores=[*written.token_scores, *more.token_scores],
                token_steps=[*written.token_steps, *more.token_steps],
            )
        return written

    def source_steps(self, examples: Sequence[Example], found: list[list[Generated]]) -> list[list[float]]:
        """Return N of the positions that predict the tokens of each prompt."""
        del found
        if not any(example.target for example in examples):
            return [[] for _ in examples]
        return Called.with_examples(self.model, examples, self.options).target_steps


class FrameAnswers(TokenAnswers):
    """Frames as the content of files; the tokens of an answer are its positions."""

    writes = "frames"

    def whole(self, example: Example, found: Prediction) -> Any:
        del example
        return found.written

    def writing(self, example: Example) -> Iterator[Generated]:
        del example
        return iter(())

    def after_steps(self, called: Called) -> list[list[OneAnswer]]:
        del called
        return []

    def answers(self, examples: Sequence[Example], numbers: Sequence[int]) -> list[Prediction]:
        rows = generate_frames(self.model, self.sources(examples, numbers), self.options)
        return [
            Prediction(
                text=f"{len(row.frames)} frames",
                score=0.0,
                finished=row.finished,
                tokens=self.tokens(example, row.source_steps),
                output=[Token(f"{place}", steps) for place, steps in enumerate(row.steps)],
                content=self.codec.target.content(row.frames),
                written=row.frames,
            )
            for example, row in zip(examples, rows, strict=True)
        ]


ANSWERS: tuple[type[Answers], ...] = (ClassAnswers, LabelAnswers, TagAnswers, TokenAnswers, Continuations, FrameAnswers)


def with_words(prediction: Prediction, *, codec: Codec[Any, Any], line: str, example: Example) -> Prediction:
    """Return a prediction with the words of the `line` that it answers, those that the codec does not know, and answers
    that repeat words of the line.
    """
    words = words_of(prediction.tokens, codec=codec, line=line)
    prediction = dataclasses.replace(prediction, words=words, unknown=list(example.unknown))
    target = codec.target
    choices = [(target.completed(text, line), score) for text, score in prediction.choices]
    return dataclasses.replace(prediction, text=target.completed(prediction.text, line), choices=choices)


def words_of(tokens: Sequence[Token], *, codec: Codec[Any, Any], line: str) -> list[Token]:
    """Return the words of `line`, what stands between blanks, each with the mean steps of its tokens.

    The tokens themselves are returned where the codec does not say where they stand: its tokens are words or facts.
    """
    spans = codec.source.spans(line)
    if len(tokens) != len(spans):
        return list(tokens)
    words = list(re.finditer(r"\S+", line))
    word_at = {place: number for number, word in enumerate(words) for place in range(*word.span())}
    steps: list[list[float]] = [[] for _ in words]
    for token, span in zip(tokens, spans, strict=True):
        for number in {word_at[place] for place in range(*span) if place in word_at}:
            steps[number] += [] if token.steps is None else [token.steps]
    return [
        Token(word.group(), sum(taken) / len(taken) if taken else None)
        for word, taken in zip(words, steps, strict=True)
    ]
