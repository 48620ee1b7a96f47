import gzip
import io
import json
import os
import threading
import time
import tracemalloc
import unicodedata
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.errors import UserError
from universal_transformer.files import (
    parse_json,
    printable,
    read_json,
    read_lines,
    read_stream,
    show,
    show_path,
    try_lines,
    try_stream,
    write_json,
    write_text,
)

# what stands inside a line: any character but line ends and NUL, U+2028 and vertical tabs among them
LINE = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=30)
LINES = st.lists(LINE, min_size=1, max_size=8)


def variants(lines):
    """The same lines as different programs would have written them."""
    unix = "\n".join(lines).encode() + b"\n"
    windows = "\r\n".join(lines).encode() + b"\r\n"
    mark = b"\xef\xbb\xbf"
    yield from (unix, windows, mark + unix, mark + windows)
    if lines[-1]:  # otherwise the last line end is the last line
        yield unix[:-1]
        yield windows[:-2]


@given(LINES)
def test_line_ends_and_byte_order_mark_do_not_matter(lines):
    lines = [lines[0].lstrip("\ufeff"), *lines[1:]]
    for content in variants(lines):
        assert list(read_stream(io.BytesIO(content), "x")) == list(enumerate(lines, start=1))


@given(LINES)
def test_a_compressed_file_and_a_stream_read_as_the_file(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("text")
    content = "\n".join(lines).encode() + b"\n"
    (folder / "a.txt").write_bytes(content)
    (folder / "a.txt.gz").write_bytes(gzip.compress(content))
    expected = list(read_stream(io.BytesIO(content), "x"))
    assert list(read_lines(folder / "a.txt")) == expected
    assert list(read_lines(str(folder / "a.txt.gz"))) == expected


@given(st.binary(max_size=60))
def test_any_bytes_are_lines_or_a_one_line_error(content):
    try:
        lines = list(read_stream(io.BytesIO(content), "name.txt"))
    except UserError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert message.startswith("name.txt:")
        assert message.isprintable()
        return
    assert "\n".join(text for _, text in lines).encode() == content.removeprefix(b"\xef\xbb\xbf").replace(
        b"\r\n", b"\n"
    ).removesuffix(b"\n").removesuffix(b"\r" if not content.endswith(b"\n") else b"")


def test_lines_end_at_line_feeds_only():
    assert list(read_stream(io.BytesIO("a\u2028b\x0bc\x85d\re\r\nf".encode()), "x")) == [
        (1, "a\u2028b\x0bc\x85d\re"),
        (2, "f"),
    ]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_huge_line_is_refused_without_reading_it(tmp_path, suffix):
    path = tmp_path / f"huge.txt{suffix}"
    with gzip.open(path, "wb", compresslevel=1) if suffix else path.open("wb") as stream:
        stream.write(b"first\n")
        for _ in range(200):
            stream.write(b"a" * 2**20)
    tracemalloc.start()
    started = time.monotonic()
    with pytest.raises(UserError, match=r"huge\.txt.*:2: a line of more than 1,000,000 characters"):
        list(read_lines(path))
    assert time.monotonic() - started < 5
    assert tracemalloc.get_traced_memory()[1] < 50 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("line", [b"\n", b"a\n", b"I JUMP\tI_JUMP\n"])
def test_a_small_file_that_unpacks_to_gigabytes_is_refused_while_it_is_read(tmp_path, line):
    path = tmp_path / "bomb.tsv.gz"
    with gzip.open(path, "wb", compresslevel=9) as stream:
        for _ in range(8):
            stream.write(line * (2**20 // len(line)))
    with pytest.raises(UserError, match=r"bomb\.tsv\.gz:\d+: 4,19.* more than 100 times the bytes of the .gz file"):
        deque(read_lines(path), maxlen=0)


@pytest.mark.parametrize("letter", ["a", "ä", "€", "𝄞"])
def test_the_longest_line_is_counted_in_characters(letter):
    def read(length):
        return list(read_stream(io.BytesIO((letter * length).encode() + b"\r\n"), "x", max_line=100))

    assert read(100) == [(1, letter * 100)]
    with pytest.raises(UserError, match="x:1: a line of more than 100 characters"):
        read(101)


@given(st.lists(st.sampled_from([b"good", b"\xff", b"a\0b", b"x" * 99, b"x" * 21, "é€".encode()]), max_size=9))
def test_an_invalid_line_is_reported_in_its_place_and_the_others_are_read(lines):
    """Each line is what `read_stream` makes of it alone; lines longer than what is read at once among them."""
    content = b"".join(line + b"\n" for line in lines)
    found = list(try_stream(io.BytesIO(content), "x", max_line=10))
    assert [line.number for line in found] == list(range(1, len(lines) + 1))
    for (number, text, fault), line in zip(found, lines, strict=True):
        try:
            ((_, expected),) = read_stream(io.BytesIO(line), "x", max_line=10)
        except UserError as error:
            expected = str(error).replace("x:1:", f"x:{number}:")
        assert (text or str(fault)) == expected


def test_a_bad_line_of_a_file(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\n\xff\nb")
    first, second, third = try_lines(tmp_path / "a.txt")
    assert (first, third) == ((1, "a", None), (3, "b", None))
    assert isinstance(second.fault, UserError)
    with pytest.raises(UserError, match=r"absent\.txt: no such file"):
        list(try_lines(tmp_path / "absent.txt"))


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(UserError, match=r"absent\.txt: no such file"):
        list(read_lines(tmp_path / "absent.txt"))
    with pytest.raises(UserError, match="this is a directory; expected a text file"):
        list(read_lines(tmp_path))
    with pytest.raises(UserError, match="cannot be read"):
        list(read_lines("a\0b"))
    if os.geteuid():
        (tmp_path / "locked").write_text("x")
        (tmp_path / "locked").chmod(0)
        with pytest.raises(UserError, match="no permission"):
            list(read_lines(tmp_path / "locked"))


def test_an_empty_stream_has_no_lines():
    assert list(read_stream(io.BytesIO(b""), "standard input")) == []


PLAIN = st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)


@given(st.dictionaries(st.text(max_size=5), PLAIN | st.lists(PLAIN, max_size=3), max_size=4))
def test_what_json_writes_is_read_back(value):
    assert parse_json(json.dumps(value), where="x") == value


@given(st.text(max_size=30))
def test_any_text_is_json_or_a_one_line_error(text):
    message = "x:1: "
    try:
        parse_json(text, where="x:1")
    except UserError as error:
        message = str(error)
    assert message.startswith("x:1: ")
    assert message.isprintable()


def test_json_files(tmp_path):
    write_json(tmp_path / "a.json", {"ä": [1, 2.5, None]})
    assert read_json(tmp_path / "a.json") == {"ä": [1, 2.5, None]}
    with pytest.raises(UserError, match="more than 3 bytes"):
        read_json(tmp_path / "a.json", max_bytes=3)
    (tmp_path / "b.json").write_text("[1]")
    with pytest.raises(UserError, match=r"b\.json: found \[1\]; expected a JSON object"):
        read_json(tmp_path / "b.json")
    with pytest.raises(UserError, match=r"c\.json: no such file"):
        read_json(tmp_path / "c.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "new")
    assert [child.name for child in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


@given(st.text())
def test_shown_values_and_paths_are_short_printable_lines(text):
    assert len(show(text)) <= 60
    for shown in (show(text), show_path(text)):
        assert shown.isprintable()
        shown.encode()


@given(st.text(st.characters(categories=["Cc", "Cf", "Lu"])))
def test_what_goes_to_a_terminal_has_no_control_characters(text):
    shown = printable(text)
    assert printable(shown) == shown
    for letter in shown:
        assert letter in "\t\n" or unicodedata.category(letter) != "Cc"
        assert unicodedata.bidirectional(letter) not in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    kept = {letter for letter in text if unicodedata.category(letter) == "Lu"}
    assert kept <= set(shown)


def test_text_of_any_language_is_printed_unchanged():
    text = "naïve\t日本語 עברית العربية \N{ZERO WIDTH NON-JOINER}\N{RIGHT-TO-LEFT MARK} 👩\N{ZERO WIDTH JOINER}🚀\n"
    assert printable(text) == text


def test_what_is_no_file_is_not_replaced_and_a_link_is_not_followed(tmp_path):
    (target := tmp_path / "target").write_text("mine")
    (link := tmp_path / "link").symlink_to(target)
    os.mkfifo(fifo := tmp_path / "fifo")
    for path in (fifo, tmp_path):
        with pytest.raises(UserError, match=f"{path}: no regular file, which is not written to"):
            write_text(path, "new")
    write_text(link, "new")
    assert target.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"target", "link", "fifo"}


def test_json_from_a_fifo_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(UserError, match=r"a\.json: a FIFO; expected a file"):
        read_json(tmp_path / "a.json")


def test_lines_are_read_from_a_fifo(tmp_path):
    """A shell's process substitution, ``ut predict RUN <(command)``, is one."""
    os.mkfifo(tmp_path / "lines")
    writer = threading.Thread(target=(tmp_path / "lines").write_text, args=("a\nb\n",))
    writer.start()
    assert list(read_lines(tmp_path / "lines")) == [(1, "a"), (2, "b")]
    writer.join()
