"""``ut predict``: one result for each line of input (for stories: for each question), in order."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from universal_transformer.cli.arguments import Parser, add_depth, note, number, whole
from universal_transformer.errors import UserError

if TYPE_CHECKING:
    import argparse

    from universal_transformer.cli.answers import Answering
    from universal_transformer.cli.run_folder import Run
    from universal_transformer.data.example import Example
    from universal_transformer.tasks.task import Codec, Prediction

LINES_AT_ONCE = 512
USAGE_ERROR = 2


def run(arguments: list[str]) -> int:
    """Predict; return 2 if a line could not be read (its result is an empty line, the reason on standard error)."""
    options = _parser().parse(arguments)
    from universal_transformer.cli.run_folder import open_run, pick_device

    run = open_run(Path(options.run), device=pick_device(options.device))
    how = _how(options)
    name = options.file if options.file not in (None, "-") else "standard input"
    lines = _lines(options.file)
    if _is_stories(run.codec):
        # facts stand on lines of their own, so that lines cannot be taken one by one
        parts: Iterator[Sequence[Example | str]] = iter([list(run.codec.read(lines, name=name))])
    else:
        at_once = 1 if options.file in (None, "-") and sys.stdin.isatty() else LINES_AT_ONCE
        parts = _parts(run.codec, lines, name=name, at_once=at_once)
    return _answer(run, parts, how=how, jsonl=options.jsonl)


def _parser() -> Parser:
    parser = Parser("predict", description="Answer a file or standard input: one result a line.")
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="UTF-8 text, maybe .gz (default: standard input)"
    )
    parser.add_argument("--jsonl", action="store_true", help="one JSON object a line, with scores and steps")
    add_depth(parser)
    parser.add_argument(
        "--beams", type=whole(1), default=1, metavar="K", help="beam search (default: greedy)"
    )
    parser.add_argument(
        "--length-penalty",
        type=number(least=0.0, most=10.0),
        default=0.6,
        metavar="A",
        help="of a beam search, 0 to 10 (default: 0.6)",
    )
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
        help="sample from the likeliest P",
    )
    parser.add_argument("--seed", type=whole(0), default=0, help="of sampling (default: 0)")
    parser.add_argument("--max-new-tokens", type=whole(1), metavar="N", help="longest output")
    parser.add_argument(
        "--batch-tokens", type=whole(1), default=4096, metavar="N", help="positions worked on at once"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    return parser


def _how(options: argparse.Namespace) -> Answering:
    from universal_transformer.cli.answers import Answering
    from universal_transformer.decoding import Sampling

    if options.beams > 1 and options.temperature:
        raise UserError("--beams and --temperature: search or sample, not both")
    return Answering(
        beams=options.beams,
        length_penalty=options.length_penalty,
        sampling=Sampling(
            temperature=options.temperature, top_k=options.top_k, top_p=options.top_p, seed=options.seed
        ),
        max_new_tokens=options.max_new_tokens,
        max_steps=options.max_steps,
        halting_threshold=options.halting_threshold,
        batch_tokens=options.batch_tokens,
    )


def _lines(file: str | None) -> Iterator[tuple[int, str]]:
    from universal_transformer.data.text import read_lines, read_stream

    if file in (None, "-"):
        return read_stream(sys.stdin.buffer, "standard input")
    return read_lines(file)


def _is_stories(codec: Codec) -> bool:
    from universal_transformer.tasks.facts import FactCodec

    return isinstance(codec, FactCodec)


def _parts(
    codec: Codec, lines: Iterable[tuple[int, str]], *, name: str, at_once: int
) -> Iterator[Sequence[Example | str]]:
    """Yield examples some lines at a time; of a line that cannot be read, the reason."""
    lines = iter(lines)
    while part := list(islice(lines, at_once)):
        yield [_read_one(codec, line, name=name) for line in part]


def _read_one(codec: Codec, line: tuple[int, str], *, name: str) -> Example | str:
    try:
        return next(
            codec.read([line], name=name), f"{name}:{line[0]}: an empty line; expected something to answer"
        )
    except UserError as error:
        return str(error)


def _answer(run: Run, parts: Iterator[Sequence[Example | str]], *, how: Answering, jsonl: bool) -> int:
    from universal_transformer.cli.answers import answer

    count = failures = 0
    for part in parts:
        examples = [example for example in part if not isinstance(example, str)]
        predictions = iter(answer(run.model, run.codec, examples, how=how, first=count))
        for example in part:
            if isinstance(example, str):
                failures += 1
                note(f"ut: {example}")
                print(json.dumps({"error": example}, ensure_ascii=False) if jsonl else "")
            elif jsonl:
                print(_json(run.codec, example, next(predictions)))
            else:
                print(_one_line(next(predictions).text))
        count += len(part)
        sys.stdout.flush()
    return USAGE_ERROR if failures else 0


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def _json(codec: Codec, example: Example, prediction: Prediction) -> str:
    fields = {
        "text": prediction.text,
        "log_probability": round(prediction.score, 6),
        "choices": [{"text": text, "score": round(score, 6)} for text, score in prediction.choices],
        "steps": [round(steps, 4) for steps in prediction.steps],
        "words": codec.words(example),
    }
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


__all__ = ["run"]
