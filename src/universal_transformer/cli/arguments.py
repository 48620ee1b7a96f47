"""What commands share: options, exit codes, one-line errors and the data folder. Imports no large package."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import printable
from universal_transformer.models.generated import LENGTH_PENALTY
from universal_transformer.typed import Range, expected, typed

FAILED, USAGE_ERROR, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
"""Exit codes: a run or check failed; a user's mistake; Ctrl-C and a closed pipe, as shells number them."""
LONGEST_ERROR = 500
"""Characters of a line of an error."""
RUN = "folder of the run, or the name of a pretrained model (ut models)"
DATA_DIR = "folder with the data sets (default: the environment variable UT_DATA, or else data)"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one-line UserErrors with near matches."""

    def __init__(self, command: str, *, description: str) -> None:
        super().__init__(prog=f"ut {command}", description=description, allow_abbrev=False)
        self._optionals.title = "options"

    def error(self, message: str) -> NoReturn:
        """Raise the message as a UserError."""
        raise UserError(f"{message.removeprefix('argument ')}; {self.prog} --help shows the options")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse all arguments; one that is unknown is a UserError with near matches."""
        known, unknown = self.parse_known_intermixed_args(arguments)
        if unknown:
            options = [name for name in self._option_string_actions if name.startswith("--")]
            first = unknown[0].split("=", 1)[0]
            if not first.startswith("-"):
                raise UserError(f"unexpected {first!r}; {self.prog} --help shows what may follow")
            raise UserError(
                f"unknown option {first}{suggestion(first, options)}; {self.prog} takes {', '.join(options)}"
            )
        return known


def value_of(hint: Any) -> Callable[[str], Any]:
    """Return an argument type: a value of a declared type, in its range."""

    def convert(text: str) -> Any:
        try:
            return typed(convert_word(text, hint), hint, where="")
        except UserError:
            raise argparse.ArgumentTypeError(f"{text!r}: expected {expected(hint)}") from None

    return convert


def whole(least: int) -> Callable[[str], Any]:
    """Return an argument type: a whole number from `least` on."""
    return value_of(Annotated[int, Range(least)])


def number(*, least: float, most: float = math.inf, open_below: bool = False) -> Callable[[str], Any]:
    """Return an argument type: a number from `least` to `most`; without `least` itself if `open_below`."""
    return value_of(Annotated[float, Range(least, most, above=open_below)])


def convert_word(word: str, hint: Any) -> Any:
    """Return the number, None or choice that a word says; the word itself if it says none."""
    if get_origin(hint) is Annotated:
        return convert_word(word, get_args(hint)[0])
    if get_origin(hint) is Literal:
        return next((one for one in get_args(hint) if str(one) == word), word)
    if type(None) in get_args(hint) and word == "None":
        return None
    for part in get_args(hint) or (hint,):
        number = get_args(part)[0] if get_origin(part) is Annotated else part
        if number in (int, float):
            with suppress(ValueError):
                return number(word)
    return Path(word) if hint is Path else word


def add_depth(parser: Parser) -> None:
    """Add the options that change the depth of a trained model."""
    parser.add_argument(
        "--max-steps",
        type=whole(1),
        metavar="T",
        help="number of steps, or cap on the steps of a halting model (default: as trained)",
    )
    parser.add_argument(
        "--halting-threshold",
        type=number(least=0.0, most=1.0, open_below=True),
        metavar="P",
        help="cumulative probability at which a position halts (default: as trained)",
    )
    parser.add_argument(
        "--exit",
        metavar="KIND:X",
        help="stop a position when its state (state_change) or the predicted distribution (output_change) changes by "
        "less than X, or when the largest probability is above X (confidence), for example confidence:0.9 (default: as "
        "trained)",
    )
    parser.add_argument(
        "--no-calibration",
        dest="calibration",
        action="store_false",
        help="use the depth of training and ignore the result of ut calibrate; an option that sets the depth does this "
        "too",
    )
    add_halting_execution(parser)


def add_halting_execution(parser: Parser) -> None:
    """Add the choice of how halted positions are computed."""
    parser.add_argument(
        "--halting-execution",
        "--model.execution.halting-execution",
        dest="halting_execution",
        choices=("auto", "masked"),
        help="auto: leave out halted positions where that saves time; masked: never (default: as trained)",
    )


def add_beams(parser: Parser) -> None:
    """Add the options of a beam search."""
    parser.add_argument("--beams", type=whole(1), default=1, metavar="K", help="beam search (default: greedy)")
    parser.add_argument(
        "--length-penalty",
        type=number(least=0.0, most=10.0),
        metavar="A",
        help=f"length penalty of a beam search, 0 to 10 (default: {LENGTH_PENALTY})",
    )


def add_answer_limit(parser: Parser) -> None:
    """Add the limit of the length of answers."""
    parser.add_argument(
        "--max-new-tokens",
        type=whole(1),
        metavar="N",
        help="largest number of tokens of an answer (default: max(L + L/4 + 10, 2 S + 10), where L is the length of "
        "the longest answer in training and S that of the input)",
    )


def add_batches(parser: Parser) -> None:
    """Add the size of batches and the device."""
    parser.add_argument("--batch-tokens", type=whole(1), default=16384, metavar="N", help="positions of a batch")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")


def add_own_tests(parser: Parser) -> None:
    """Add the options that name test files."""
    parser.add_argument(
        "--data.test",
        dest="test",
        nargs="+",
        action="extend",
        default=[],
        metavar="[NAME=]FILE",
        help="use these files in place of the test of the run, each as a test set of its own (pairs, text, labelled, "
        "tagged, parsing, pictures, captions)",
    )
    parser.add_argument(
        "--data.test-target",
        dest="test_target",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="target sides of the test files, one for each, if they are files of their own (pairs)",
    )


def search_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `add_beams` as an argument of `DecodingOptions`; a penalty without beams is refused."""
    from universal_transformer.decoding.options import Beams

    if options.length_penalty is not None and options.beams == 1:
        raise UserError("--length-penalty is for a beam search: give --beams too (2 or more)")
    length_penalty = LENGTH_PENALTY if options.length_penalty is None else options.length_penalty
    return {"beams": Beams(options.beams, length_penalty)}


def take(arguments: list[str], *, values: Sequence[str], flags: Sequence[str]) -> dict[str, str | None]:
    """Remove options of these names from `arguments`; return option -> value (None for a flag)."""
    taken: dict[str, str | None] = {}
    rest: list[str] = []
    tokens = iter(arguments)
    for token in tokens:
        name, equals, value = token.partition("=")
        if name in flags:
            if equals:
                raise UserError(f"{name} takes no value, found {value!r}")
            taken[name] = None
        elif name in values:
            found = value if equals else next(tokens, "")
            if not found or (not equals and found.startswith("--")):
                raise UserError(f"{name} needs a value")
            taken[name] = found
        else:
            rest.append(token)
    arguments[:] = rest
    return taken


@contextmanager
def data_dir(folder: str | None) -> Iterator[None]:
    """Use `folder` as the data folder inside the context, as if UT_DATA named it."""
    before = os.environ.get("UT_DATA")
    if folder:
        os.environ["UT_DATA"] = folder
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("UT_DATA", None)
        else:
            os.environ["UT_DATA"] = before


def check_writable(option: str, file: str) -> None:
    """Refuse a file that cannot be written, before the work whose result it is to hold."""
    if Path(file).is_dir() or not Path(file).parent.is_dir():
        what = "this is a folder" if Path(file).is_dir() else f"there is no folder {Path(file).parent}"
        raise UserError(f"{option} {file}: {what}; expected the name of a file to write")


def note(text: str) -> None:
    """Print a line to standard error, so that a pipe receives only results; of several processes the first one does."""
    if is_first():
        print(printable(text), file=sys.stderr)


def is_first() -> bool:
    """Whether this process was started alone, or is the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def first_alone_speaks() -> Iterator[None]:
    """Leave standard output to the first of several processes; a UserError of another names the process."""
    if is_first():
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        try:
            yield
        except UserError as error:
            raise UserError(f"process {os.environ['RANK']}: {error}") from error


def say(text: str) -> None:
    """Print to standard output: to a terminal without control characters, to a file or a pipe unchanged."""
    print(printable(text) if sys.stdout.isatty() else text)


def error_line(message: str) -> str:
    """Return the line that reports an error; of a longer one than `LONGEST_ERROR` the middle is left out.

    The end stays because it says what is wrong and what is allowed.
    """
    line = printable(" ".join(f"ut: {message}".split()))
    kept = LONGEST_ERROR // 2
    return line if len(line) <= LONGEST_ERROR else f"{line[:kept]}…{line[1 + kept - LONGEST_ERROR :]}"
