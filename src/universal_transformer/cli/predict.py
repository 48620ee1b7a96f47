"""``ut predict``: one result for each line of input (for stories: for each question), in order."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from universal_transformer.cli.arguments import (
    USAGE_ERROR,
    Parser,
    add_beams,
    add_depth,
    note,
    number,
    whole,
)
from universal_transformer.data.text import one_line
from universal_transformer.errors import UserError

if TYPE_CHECKING:
    from universal_transformer.data.example import Example
    from universal_transformer.tasks.task import Codec, Prediction

LINES_AT_ONCE = 512


def run(arguments: list[str]) -> int:
    """Predict; return 2 if a line could not be read (its result is an empty line, the reason on standard error)."""
    options = parser().parse(arguments)
    if options.beams > 1 and options.temperature:
        raise UserError("--beams and --temperature: search or sample, not both")
    if not options.temperature and (options.top_k or options.top_p < 1):
        raise UserError(
            "--top-k and --top-p say what to sample from: give --temperature too (1: as it was learned)"
        )
    from universal_transformer.cli.run_folder import open_run, pick_device
    from universal_transformer.decoding import Sampling
    from universal_transformer.evaluation import predict

    run = open_run(Path(options.run), device=pick_device(options.device), recurrence=options.recurrence)
    pending: deque[Example | str] = deque()
    answers = predict(
        run.model,
        run.codec,
        _examples(run.codec, options.file, pending),
        num_choices=options.choices,
        beams=options.beams,
        alpha=options.length_penalty,
        sampling=Sampling(
            temperature=options.temperature, top_k=options.top_k, top_p=options.top_p, seed=options.seed
        ),
        max_new_tokens=options.max_new_tokens,
        max_steps=options.max_steps,
        halting_threshold=options.halting_threshold,
        batch_tokens=options.batch_tokens,
        window=1 if options.file in (None, "-") and sys.stdin.isatty() else LINES_AT_ONCE,
    )
    failures = 0
    for answer in answers:
        failures += _failures(pending, jsonl=options.jsonl)
        example = pending.popleft()
        assert not isinstance(example, str)
        print(_json(run.codec, example, answer) if options.jsonl else one_line(answer.text))
        if not pending:
            sys.stdout.flush()
    return USAGE_ERROR if failures + _failures(pending, jsonl=options.jsonl) else 0


def parser() -> Parser:
    """Return the parser of ``ut predict``."""
    parser = Parser("predict", description="Answer a file or standard input: one result a line.")
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="UTF-8 text, maybe .gz (default: standard input)"
    )
    parser.add_argument("--jsonl", action="store_true", help="one JSON object a line, with scores and steps")
    parser.add_argument(
        "--choices", type=whole(1), default=3, metavar="K", help="best answers in a JSON object (default: 3)"
    )
    add_depth(parser)
    add_beams(parser)
    parser.add_argument(
        "--temperature",
        type=number(least=0.0),
        default=0.0,
        metavar="T",
        help="sample, from 0 on (default: 0, the likeliest)",
    )
    parser.add_argument(
        "--top-k", type=whole(0), default=0, metavar="K", help="sample from K tokens (0: all)"
    )
    parser.add_argument(
        "--top-p",
        type=number(least=0.0, most=1.0, open_below=True),
        default=1.0,
        metavar="P",
        help="sample from the likeliest tokens of this probability",
    )
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of sampling (default: 0)")
    parser.add_argument("--max-new-tokens", type=whole(1), metavar="N", help="longest output")
    parser.add_argument("--batch-tokens", type=whole(1), default=16384, metavar="N", help="positions at once")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    return parser


def _examples(codec: Codec, file: str | None, pending: deque[Example | str]) -> Iterator[Example]:
    """Yield the examples of the input; `pending` gets, for each line, its example or why there is none."""
    from universal_transformer.data.text import read_lines, read_stream
    from universal_transformer.tasks.facts import FactCodec

    stdin = file in (None, "-")
    name = "standard input" if stdin else str(file)
    lines = read_stream(sys.stdin.buffer, name) if stdin else read_lines(name)
    if isinstance(codec, FactCodec):  # a story is many lines: they cannot be taken one by one
        outcomes: Iterable[Example | str] = list(codec.read(lines, name=name))
    else:
        outcomes = _each(codec, lines, name=name)
    for outcome in outcomes:
        pending.append(outcome)
        if not isinstance(outcome, str):
            yield outcome


def _each(codec: Codec, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example | str]:
    for line in lines:
        try:
            missing = f"{name}:{line[0]}: an empty line; expected something to answer"
            yield next(codec.read([line], name=name), missing)
        except UserError as error:
            yield str(error)


def _failures(pending: deque[Example | str], *, jsonl: bool) -> int:
    """Print the results of unreadable lines before the next example; return their number."""
    count = 0
    while pending and isinstance(pending[0], str):
        reason = str(pending.popleft())
        note(f"ut: {one_line(reason)}")
        print(json.dumps({"error": reason}, ensure_ascii=False) if jsonl else "")
        count += 1
    return count


def _json(codec: Codec, example: Example, prediction: Prediction) -> str:
    fields = {
        "text": prediction.text,
        "score": prediction.score,
        "choices": [{"text": text, "score": score} for text, score in prediction.choices],
        "steps": prediction.steps,
        "words": codec.words(example),
    }
    return json.dumps(fields, ensure_ascii=False)
