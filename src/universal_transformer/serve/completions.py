"""``/v1/completions``: what is asked, the text of what has been made, and the answer, as OpenAI's clients have them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from universal_transformer.data.tokenizer import END, SPECIAL
from universal_transformer.decoding.continuous import ContinuousBatch, Request
from universal_transformer.decoding.options import Beams, DecodingOptions
from universal_transformer.errors import UserError, refuse, suggestion
from universal_transformer.evaluation.pipeline import Pipeline
from universal_transformer.models.call import GREEDY, Sampling
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.rules import Exit
from universal_transformer.serve.engine import Engine, Ticket, TokenEvent
from universal_transformer.tasks.codec import Codec
from universal_transformer.typed import NonNegative, Positive, Range, hints, listed, typed

Prompt = str | tuple[str, ...] | tuple[int, ...] | tuple[tuple[int, ...], ...]
NEUTRAL: Mapping[str, Sequence[Any]] = {
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
"""Fields of the protocol that this server does not have, with the values that change nothing."""
MOST_STOPS = 4
MOST_LIKELIEST = 20
CONTEXT = 8
"""Tokens of a prompt that the text of its continuation is read with: a first word has a blank before it or not."""
UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""At the end of a text: the first bytes of a character of which the others follow."""


def fields_of(body: Mapping[str, Any], kind: Any, *, ignored: Sequence[str] = ()) -> Any:
    """Return a dataclass object of the fields of a body; UserError for unknown fields and wrong values.

    A null is a field that was left out.
    """
    known, values = hints(kind), {}
    for name, value in body.items():
        if value is None or name in ignored or value in NEUTRAL.get(name, ()):
            continue
        if name not in known:
            why = "this server has no such choice" if name in NEUTRAL else f"unknown{suggestion(name, known)}"
            raise UserError(f"{name}: {why}; fields: {listed(sorted(known))}")
        values[name] = typed(value, known[name], where=name)
    for each in dataclasses.fields(kind):
        missing = each.default is each.default_factory is dataclasses.MISSING and each.name not in values
        refuse((missing, "missing; expected a JSON object with it"), at=each.name)
    return kind(**values)


def most_steps(config: BaseConfig) -> int:
    """Steps that a client may ask for: a batch that has begun is finished, however long its steps take."""
    return 2 * config.max_steps + 2


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """How one answer is searched; what is None is as the server was started."""

    temperature: NonNegative | None = None
    top_p: Annotated[float, Range(0, 1, above=True)] = 1.0
    top_k: Positive | None = None
    seed: Annotated[int, Range(0)] | None = None
    max_steps: Positive | None = None
    halting_threshold: Annotated[float, Range(0, 1, above=True)] | None = None
    exit: str | None = None

    def sampling(self, given: Sampling) -> Sampling:
        """As given unless a temperature, or what is for sampling alone, is chosen. Without a seed one is drawn."""
        cut = self.top_k is not None or self.top_p < 1.0
        if self.temperature is None and not cut and self.seed is None:
            return given
        temperature = (given.temperature or float(cut)) if self.temperature is None else self.temperature
        if temperature == 0.0:
            return GREEDY
        seed = secrets.randbelow(2**31) if self.seed is None else self.seed
        return Sampling(temperature=temperature, top_k=self.top_k, top_p=self.top_p, seed=seed)

    def of(
        self,
        options: DecodingOptions,
        config: BaseConfig,
        *,
        most: int | None,
        calibrated: bool,
        beams: int | None = None,
    ) -> DecodingOptions:
        """The options of a server with what is chosen here, and at most ``most`` new tokens.

        A chosen depth, or a beam search, does without a calibration: with the depth of training.
        """
        if beams is not None:
            search = {"beams": Beams(beams, options.length_penalty), "sampling": GREEDY} if beams > 1 else {"beams": 1}
            options = dataclasses.replace(options, **search)
        sampling, steps = self.sampling(options.sampling), most_steps(config)
        refuse((self.max_steps is not None and self.max_steps > steps, f"at most {steps} here"), at="max_steps")
        if calibrated and (options.num_beams > 1 or {self.max_steps, self.halting_threshold, self.exit} != {None}):
            options = dataclasses.replace(options, max_steps=None, halting_threshold=None, exit=None)
            calibrated = False
        greedy = "the depth of this server is calibrated for greedy answers; start it with --no-calibration"
        refuse((calibrated and sampling != GREEDY, greedy), at="temperature")
        changes: dict[str, Any] = {"sampling": sampling, "max_new_tokens": most or options.max_new_tokens}
        changes |= {
            name: value for name in ("max_steps", "halting_threshold") if (value := getattr(self, name)) is not None
        }
        if self.exit is not None:
            changes["exit"] = Exit.parse(self.exit)
        return dataclasses.replace(options, **changes)


@dataclass(frozen=True, kw_only=True)
class Completion(Chosen):
    """The body of a request."""

    prompt: Prompt
    model: str = ""
    max_tokens: Positive | None = None
    n: Annotated[int, Range(1, 128)] = 1
    stop: str | tuple[str, ...] = ()
    stream: bool = False
    stream_options: dict[str, bool] = field(default_factory=dict)
    logprobs: Annotated[int, Range(0, MOST_LIKELIEST)] | None = None

    def __post_init__(self) -> None:
        stops = self.stops
        wrong = len(stops) > MOST_STOPS or not all(stops)
        refuse(
            (wrong, f"stop: expected at most {MOST_STOPS} texts of one character or more"),
            (not self.prompts, "prompt: expected one prompt or more"),
            (self.stream_options and not self.stream, "stream_options: they are for a stream"),
        )

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else self.stop

    @property
    def prompts(self) -> Sequence[str | tuple[int, ...]]:
        """Each prompt, a text or ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)  # type: ignore[arg-type]


@dataclass
class ChoiceText:
    """The text of a choice, from its tokens so far. What is sent is never taken back."""

    codec: Codec[Any, Any]
    prompt: Sequence[int]
    """The ids before it, of a target that continues."""
    stops: Sequence[str]
    made: list[TokenEvent] = field(default_factory=list)
    sent: int = 0
    reason: str | None = None

    def __post_init__(self) -> None:
        self._before = list(self.prompt[-CONTEXT:]) if self.codec.target.continues else []
        self._text_before = self.codec.render(self._before) if self._before else ""

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text that tokens add to that of the prompt."""
        if not tokens:
            return ""
        whole: str = self.codec.render([*self._before, *tokens])
        if whole.startswith(self._text_before):
            return whole.removeprefix(self._text_before)
        return self.codec.render(tokens)

    @property
    def tokens(self) -> list[int]:
        """Its tokens, without an end."""
        return [made.token for made in self.made if made.token is not None]

    def add(self, made: TokenEvent, *, streamed: bool) -> str:
        """Take the next token. Returns what can be sent of the text, and sets ``reason`` at its end."""
        self.made.append(made)
        self.reason = made.finish
        if not (self.stops or streamed or self.reason):
            return ""
        self.text = self.text_of(self.tokens)
        places = [place for stop in self.stops if (place := self.text.find(stop)) >= 0]
        if places:
            self.text, self.reason = self.text[: min(places)], "stop"
        if not (streamed or self.reason) or not (self.reason or self.codec.target.in_order):
            return ""
        until = len(self.text) if self.reason else len(self.text) - self._held()
        new, self.sent = self.text[self.sent : until], max(self.sent, until)
        return new

    def _held(self) -> int:
        """Characters at the end of the text that further tokens may change: parts of a character, and of a stop."""
        whole = self.text.rstrip(UNFINISHED)
        parts = (size for stop in self.stops for size in range(1, len(stop)) if whole.endswith(stop[:size]))
        return len(self.text) - len(whole) + max(parts, default=0)

    def logprobs(self, first: int) -> dict[str, Any]:
        """Tokens from ``first`` on with their scores, as the protocol has them."""
        made, tokens = self.made[first:], self.tokens
        offsets = [len(self.text_of(tokens[:place])) for place in range(first, first + len(made))]
        best = [{self._name(token): score for token, score in reversed(one.likeliest) if score > -1e30} for one in made]
        return {
            "tokens": [self._name(one.token) for one in made],
            "token_logprobs": [one.score for one in made],
            "top_logprobs": best if any(best) else None,
            "text_offset": offsets,
        }

    def _name(self, token: int | None) -> str:
        return SPECIAL[END] if token is None else self.codec.render([token])


@dataclass
class CompletionChoices:
    """The choices of a completion while they are made."""

    engine: Engine
    asked: Completion
    name: str
    prompts: Sequence[Sequence[int]]
    tickets: Sequence[Ticket]
    events: asyncio.Queue[TokenEvent]
    ident: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        codec, stops = self.engine.pipeline.codec, self.asked.stops
        n = self.asked.n
        self.choices = [ChoiceText(codec, self.prompts[ticket.choice // n], stops) for ticket in self.tickets]

    async def made(self) -> AsyncIterator[tuple[int, str]]:
        """The number of a choice and what its text has got, for each token, until all choices have ended."""
        left = len(self.tickets)
        while left:
            event = await self.events.get()
            choice = self.choices[event.choice]
            if event.error is not None:
                raise event.error
            if choice.reason is not None:  # made before the engine knew of a stop
                continue
            yield event.choice, choice.add(event, streamed=self.asked.stream)
            if self.choices[event.choice].reason is not None:
                left -= 1
                self.engine.cancel([self.tickets[event.choice]])

    def body(self, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What answers and parts of a stream have in common."""
        return {
            "id": self.ident,
            "object": "text_completion",
            "created": self.created,
            "model": self.name,
            "choices": list(choices),
        }

    def choice(self, number: int, text: str, *, first: int = 0) -> dict[str, Any]:
        """A choice from its token ``first`` on; its mean steps at its end."""
        written = self.choices[number]
        steps = [made.steps for made in written.made]
        found = {
            "index": number,
            "text": text,
            "finish_reason": written.reason,
            "logprobs": None if self.asked.logprobs is None else written.logprobs(first),
            "steps": steps[first:],
        }
        return found | ({} if written.reason is None else {"mean_steps": sum(steps) / len(steps)})

    def usage(self) -> dict[str, int]:
        """Tokens read and made, ends included."""
        read, made = sum(map(len, self.prompts)), sum(len(choice.made) for choice in self.choices)
        return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}

    async def whole(self) -> dict[str, Any]:
        """The answer when all of it is made."""
        async for _ in self.made():
            pass
        choices = [self.choice(number, written.text) for number, written in enumerate(self.choices)]
        return self.body(choices) | {"usage": self.usage()}

    async def parts(self) -> AsyncIterator[str]:
        """The events of a stream: each token as it is made."""
        async for number, text in self.made():
            part = self.choice(number, text, first=len(self.choices[number].made) - 1)
            yield event_of(self.body([part]))
        if self.asked.stream_options.get("include_usage"):
            yield event_of(self.body([]) | {"usage": self.usage()})
        yield "data: [DONE]\n\n"


def event_of(value: Mapping[str, Any]) -> str:
    """An event of a stream."""
    return f"data: {json.dumps(value, allow_nan=False)}\n\n"


def is_calibrated(pipeline: Pipeline) -> bool:
    """Whether the depth is that of a calibration, which covers greedy answers alone."""
    return bool(pipeline.note) and bool(pipeline.options.depth.chosen)


def ids_of(prompt: str | tuple[int, ...], *, pipeline: Pipeline, number: int) -> list[int]:
    """The ids of a prompt."""
    if not isinstance(prompt, str):
        return list(prompt)
    example = pipeline.example(prompt, number)
    continues = pipeline.codec.target.continues
    if example is None:
        refuse((not continues, "an empty text; expected input"), at=f"prompt {number}")
        return []
    return list(example.target if continues else example.source)  # type: ignore[arg-type]


def requests_of(asked: Completion, batch: ContinuousBatch, *, pipeline: Pipeline) -> Iterator[Request]:
    """The request of each choice; the number of a choice and the seed decide its draws."""
    options = dataclasses.replace(pipeline.options, beams=1)
    for place, prompt in enumerate(asked.prompts):
        ids = ids_of(prompt, pipeline=pipeline, number=place)
        chosen = asked.of(options, pipeline.model.config, most=asked.max_tokens, calibrated=is_calibrated(pipeline))
        if chosen.max_new_tokens is None:
            chosen = dataclasses.replace(chosen, max_new_tokens=batch.room(ids))
        for choice in range(asked.n):
            request = Request(place * asked.n + choice, ids, chosen, asked.logprobs or 0)
            batch.limit(request)
            yield request
