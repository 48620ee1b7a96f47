r"""Reading and writing of files: text and JSON are read strictly, and a file is written completely or not at all.

A file with LF, CRLF, a byte order mark or no final newline gives the same lines. A line ends at ``\n`` only
(`str.splitlines` would also split at U+2028, a vertical tab and more); one ``\r`` before it is dropped.
"""

import gzip
import json
import math
import os
import shlex
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from universal_transformer.errors import UserError

MAX_LINE = 1_000_000  # characters
MAX_WRITTEN_LINE = 8 * MAX_LINE  # of a row of lines as JSON, which writes up to six characters for one
MAX_JSON_BYTES = 64 * 2**20
MOST_UNPACKED = 100
"""How many times its own size a ``.gz`` file may unpack to; of text it is 2 to 10 times, of repeated lines more."""
ALWAYS_UNPACKED = 4 * 2**20
"""Characters to which any ``.gz`` file may unpack."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@runtime_checkable
class Bytes(Protocol):
    """A source of lines of bytes: a file, a decompressor, ``sys.stdin.buffer``."""

    def readline(self, limit: int = -1, /) -> bytes:
        """Return bytes up to and with the next line feed, at most `limit`."""


class Line(NamedTuple):
    """A numbered line of text, without its end, or what is wrong with it."""

    number: int
    text: str = ""
    fault: UserError | None = None


def is_gzip(path: str | Path) -> bool:
    return str(path).lower().endswith(".gz")


def read_lines(path: str | Path, *, max_line: int = MAX_LINE) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end) of a UTF-8 file; ``.gz`` is read transparently.

    Raises `UserError`, naming file and line, for a file that is missing, empty, a directory or not readable,
    for a byte that is not UTF-8, a NUL character, damaged gzip data, a ``.gz`` file that unpacks to more than
    `MOST_UNPACKED` times its size, and a line of more than `max_line` characters (found without reading the line to its
    end).
    """
    yield from _strict(try_lines(path, max_line=max_line))


def try_lines(path: str | Path, *, max_line: int = MAX_LINE) -> Iterator[Line]:
    """`read_lines` that goes on after a line that is not valid; a fault of the whole file is raised."""
    name = show_path(path)
    number, unpacked, most = 0, 0, math.inf
    try:
        with (gzip.open if is_gzip(path) else open)(path, "rb") as stream:
            if is_gzip(path):
                most = most_unpacked(path)
            for line in try_stream(stream, name, max_line=max_line):
                number = line.number
                yield line
                unpacked += 1 + len(line.text)
                if unpacked > most:
                    break
    except (OSError, EOFError, zlib.error, ValueError) as error:  # ValueError: a path with a NUL character
        place = f"{name}:{number + 1}" if number or _damaged(error, path) else name
        raise UserError(f"{place}: {_reason(error, path)}") from error
    if unpacked > most:
        raise unpacks_to_too_much(f"{name}:{number}: {unpacked:,} characters up to this line")
    if number == 0:
        raise UserError(f"{name}:1: the file is empty; expected at least one line of text")


def most_unpacked(path: str | Path) -> int:
    return max(MOST_UNPACKED * os.stat(path).st_size, ALWAYS_UNPACKED)


def unpacks_to_too_much(found: str) -> UserError:
    meant = "if that is meant, unpack it (gunzip) and name the result"
    return UserError(f"{found}, more than {MOST_UNPACKED} times the bytes of the .gz file; {meant}")


def read_stream(stream: Bytes, name: str, *, max_line: int = MAX_LINE) -> Iterator[tuple[int, str]]:
    """`read_lines` for a binary stream such as ``sys.stdin.buffer``; an empty stream gives no lines."""
    yield from _strict(try_stream(stream, name, max_line=max_line))


def _strict(lines: Iterator[Line]) -> Iterator[tuple[int, str]]:
    for number, text, fault in lines:
        if fault:
            raise fault
        yield number, text


def _reason(error: Exception, path: str | Path) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "this is a directory; expected a text file"
    if isinstance(error, PermissionError):
        return "no permission to read this file"
    if _damaged(error, path):
        return f"damaged gzip data ({show(str(error))}); expected a whole .gz file, or a name without .gz"
    return f"cannot be read ({show(str(error))})"


def _damaged(error: Exception, path: str | Path) -> bool:
    """Whether the error is about the content of a .gz file, not about access to it."""
    damage = isinstance(error, OSError | EOFError | zlib.error) and not getattr(error, "errno", None)
    return damage and is_gzip(path)


def try_stream(stream: Bytes, name: str, *, max_line: int = MAX_LINE) -> Iterator[Line]:
    """`read_stream` that goes on after a line that is not valid."""
    limit = 4 * max_line + 8  # bytes: four a character, a byte order mark, a line end
    number = 0
    while raw := stream.readline(limit):
        number += 1
        where = f"{name}:{number}"
        if number == 1 and raw.startswith(BYTE_ORDER_MARK):
            raw = raw[len(BYTE_ORDER_MARK) :]
            if not raw:
                return
        if len(raw) >= limit - len(BYTE_ORDER_MARK) and not raw.endswith(b"\n"):
            yield Line(number, fault=_too_long(where, max_line))
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(limit)
            continue
        try:
            line = Line(number, _line(raw, where=where, max_line=max_line))
        except UserError as error:
            line = Line(number, fault=error)
        yield line


def _line(raw: bytes, *, where: str, max_line: int) -> str:
    text = _decode(raw, where=where).removesuffix("\n").removesuffix("\r")
    if len(text) > max_line:
        raise _too_long(where, max_line)
    if "\0" in text:
        raise UserError(
            f"{where}: a NUL character at character {text.index(chr(0)) + 1}; expected UTF-8 text "
            "(is this a binary or UTF-16 file?)"
        )
    return text


def _too_long(where: str, max_line: int) -> UserError:
    return UserError(f"{where}: a line of more than {max_line:,} characters; split it into shorter lines")


def _decode(raw: bytes, *, where: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "convert it with iconv -f ITS_ENCODING -t UTF-8"
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            hint = "this looks like UTF-16; convert it with iconv -f UTF-16 -t UTF-8"
        elif raw.startswith(b"\x1f\x8b"):
            hint = "this looks like gzip data; give the file a name ending in .gz"
        byte = f"byte 0x{raw[error.start]:02x} at byte {error.start + 1} of the line"
        raise UserError(f"{where}: {byte} is not UTF-8; expected UTF-8 text ({hint})") from error


def show(value: object, *, limit: int = 60) -> str:
    """Return `value` for a message of one line: quoted, escaped, cut to `limit` characters."""
    try:
        text = repr(value[: 4 * limit] if isinstance(value, str) else value)
    except RecursionError:
        text = f"a {type(value).__name__} nested very deeply"
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def counted(number: int | float, noun: str) -> str:
    """Return ``1 update``, ``1,234 updates``."""
    return f"{number:,.0f} {noun}{'s' * (round(number) != 1)}"


def show_path(path: str | Path) -> str:
    """Return a path for a message of one line: control characters and broken bytes escaped."""
    text = str(path).encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def quoted(path: str | Path) -> str:
    """Return a path for a command that a message recommends: as `show_path`, in quotes where a shell needs them."""
    return shlex.quote(show_path(path))


def from_here(path: str | Path) -> str:
    """Return a path as seen from the current folder if it lies in it, for commands and records; else as it is."""
    path, here = Path(path), Path.cwd()
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else str(path)


#: C0 and C1 control characters but tab and line feed, and the characters that reverse the direction of text.
_CONTROLS = dict.fromkeys(
    {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {ord("\t"), ord("\n")}
)


def printable(text: str) -> str:
    """Return text for a terminal: without the control characters that a terminal would obey."""
    return text.translate(_CONTROLS)


def one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def parse_json(text: str, *, where: str) -> Any:
    """Parse JSON; a repeated key, NaN, an infinite number or very deep nesting is a `UserError` at `where`."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated = next(key for index, key in enumerate(keys) if key in keys[:index])
            raise UserError(f"{where}: the key {show(repeated)} stands twice in one JSON object; expected once")
        return fields

    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise UserError(f"{where}: the number {show(number)} in JSON; expected a finite number")
        return value

    try:
        return json.loads(text, object_pairs_hook=once, parse_float=finite, parse_constant=finite)
    except UserError:
        raise
    except RecursionError as error:
        raise UserError(f"{where}: JSON nested too deeply; expected a few levels") from error
    except ValueError as error:  # also an integer of thousands of digits
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number of too many digits"
        raise UserError(f"{where}: not valid JSON ({reason}); found {show(text)}") from error


def parse_object(text: str, *, where: str) -> dict[str, Any]:
    """`parse_json` of one JSON object."""
    fields = parse_json(text, where=where)
    if not isinstance(fields, dict):
        raise UserError(f"{where}: found {show(fields)}; expected a JSON object")
    return fields


def refuse_special(path: str | Path) -> None:
    """UserError for a FIFO, a socket or a device, which would have to be read to see that it has no end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # opening it says why
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a FIFO" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise UserError(f"{show_path(path)}: {kind}; expected a file")


def read_json(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Read a file of one JSON object, as strict as `parse_json`, of at most `max_bytes`."""
    return decode_json(read_bytes(path, max_bytes=max_bytes, what="a JSON file"), where=show_path(path))


def read_bytes(path: Path, *, max_bytes: int = MAX_JSON_BYTES, what: str) -> bytes:
    """Read a whole file of at most `max_bytes`; an error says that `what` is expected."""
    name = show_path(path)
    refuse_special(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise UserError(f"{name}: {_reason(error, path)}") from error
    if len(raw) > max_bytes:
        raise UserError(f"{name}: more than {max_bytes:,} bytes; expected {what} within that size")
    return raw


def decode_json(raw: bytes, *, where: str) -> dict[str, Any]:
    """Return the JSON object that the bytes of a file hold, as strict as `parse_json`."""
    return parse_object(_decode(raw, where=where), where=where)


def encode_json(fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file; a surrogate, which UTF-8 does not have, is written as its escape."""
    text = json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Write one JSON object to `path`, whole or not at all."""
    write_bytes(path, encode_json(fields))


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text to `path`, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write `path` whole or not at all: a temporary file in its folder, one rename, both on the disk at the end.

    A link is replaced by the file, and its target is not touched. UserError for anything else but a file: a device
    would be replaced.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{show_path(path)}: no regular file, which is not written to; name another place")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write_synced(temporary, data)
            set_usual_mode(temporary)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:  # name the file that was asked for, not the temporary one
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a folder ``.NAME.partial`` to write into, which gets the name of `target` at the end, whole or not at all.

    A folder `target` is replaced; while it is, it is called ``.NAME.old.partial``. With an error it stays as it was.
    """
    staging, old = (target.with_name(f".{target.name}{ending}") for ending in (".partial", ".old.partial"))
    for left in (staging, old):
        shutil.rmtree(left, ignore_errors=True)
    staging.mkdir()
    try:
        yield staging
        if target.exists():
            target.rename(old)
        try:
            staging.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file in place and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_usual_mode(path: Path) -> None:
    """Give a temporary file, which only its owner may read, the permissions of a new file."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)
