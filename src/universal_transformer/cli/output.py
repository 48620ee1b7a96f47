"""What commands print and return: exit codes, lines for people, one-line errors. Imports no large package."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from universal_transformer.errors import UserError, refuse
from universal_transformer.files import printable, quoted

FAILED, USAGE_ERROR, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
"""Exit codes: a run or check failed; a user's mistake; Ctrl-C and a closed pipe, as shells number them."""
LONGEST_ERROR = 500
"""Characters of a line of an error."""


@runtime_checkable
class Result(Protocol):
    """What a command found."""

    def lines(self) -> Sequence[str]:
        """Return it for people."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""


@contextmanager
def data_dir(folder: str) -> Iterator[None]:
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


def check_writable(option: str, file: str, *, read: Iterable[Path] = ()) -> None:
    """Refuse, before the work whose result it is to hold, a file that cannot be written, or is in what is `read`."""
    path, others = Path(file), (one for place in read for one in (place, *place.rglob("*")) if one.exists())
    what = "this is a folder" * path.is_dir() or f"there is no folder {path.parent}" * (not path.parent.is_dir())
    if not what and path.exists() and any(map(path.samefile, others)):
        what = "this file is read, and would be overwritten"
    refuse((what, f"{option} {file}: {what}; expected the name of a file to write"))


def note(text: str) -> None:
    """Print a line to standard error, so that a pipe receives only results; of several processes the first one does."""
    if is_first():
        print(printable(text), file=sys.stderr)


def program() -> str:
    """How this program is started: ``ut``, or a script with members of its own, which later commands need as well."""
    script = Path(sys.argv[0])
    return f"python {quoted(script)}" if script.suffix == ".py" and script.name != "__main__.py" else "ut"


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


def show_result(result: Result, *, as_json: bool) -> None:
    """Print a result before it is written: the disk may be full, or the folder of another user."""
    if as_json:
        print(json.dumps(result.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        say("\n".join(result.lines()))
    sys.stdout.flush()


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
