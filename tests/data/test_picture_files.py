"""Picture files are read as grey pixels, and what cannot be read is refused in one line before it is decoded."""

import os
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from small_pictures import write_picture
from universal_transformer.data.picture_files import MOST_PIXELS, encode_png, note_changes, read_pixels
from universal_transformer.errors import UserError


def test_a_grey_picture_is_read_as_it_was_written(tmp_path):
    pixels = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
    (tmp_path / "a.png").write_bytes(encode_png(pixels))
    assert (read_pixels(tmp_path / "a.png", height=4) == pixels).all()
    assert note_changes(tmp_path / "a.png", height=4) == ""


@pytest.mark.parametrize(
    ("mode", "colour", "grey"),
    [
        ("RGB", (255, 0, 0), 76),
        ("RGB", (0, 255, 0), 150),
        ("RGB", (10, 10, 10), 10),
        ("RGBA", (200, 200, 200, 255), 200),
        ("RGBA", (255, 255, 255, 0), 0),
        ("LA", (255, 128), 128),
        ("1", 1, 255),
        ("P", 7, None),
    ],
)
def test_other_modes_become_grey_and_transparent_is_black(mode, colour, grey, tmp_path):
    picture = Image.new(mode, (3, 2), colour)
    if mode == "P":
        picture.putpalette([index for index in range(256) for _ in range(3)])
        grey = 7
    picture.save(tmp_path / "a.png")
    assert np.abs(read_pixels(tmp_path / "a.png", height=2).astype(int) - grey).max() <= 1
    assert f"of mode {mode}" in note_changes(tmp_path / "a.png", height=2)


def test_of_16_bits_the_upper_ones_are_read(tmp_path):
    levels = np.linspace(0, 65535, 24).astype(np.uint16).reshape(4, 6)
    Image.fromarray(levels).save(tmp_path / "a.png")
    assert (read_pixels(tmp_path / "a.png", height=4) == levels >> 8).all()
    assert "of mode I" in note_changes(tmp_path / "a.png", height=4)


def test_a_transparent_level_of_grey_is_black(tmp_path):
    pixels = np.array([[255, 255, 40], [255, 90, 255]], dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png", transparency=255)
    assert read_pixels(tmp_path / "a.png", height=2).tolist() == [[0, 0, 40], [0, 90, 0]]
    assert "of mode L with transparency" in note_changes(tmp_path / "a.png", height=2)


@pytest.mark.parametrize("suffix", ["jpg", "webp"])
def test_a_photograph_is_turned_as_its_metadata_say(tmp_path, suffix):
    pixels = np.zeros((16, 32), dtype=np.uint8)
    pixels[:8] = 255  # the upper half is stored bright; a quarter turn to the right makes it the right half
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / f"a.{suffix}", exif=exif, quality=100)
    read = read_pixels(tmp_path / f"a.{suffix}", height=32)
    assert read.shape == (32, 16)
    assert read[:, 10:].min() > 200
    assert read[:, :6].max() < 50


def test_a_smaller_picture_has_the_means_of_the_pixels_of_the_larger_one(tmp_path):
    pixels = np.random.default_rng(0).integers(256, size=(8, 12)).astype(np.uint8)
    path = write_picture(tmp_path / "a.png", pixels)
    expected = pixels.reshape(4, 2, 6, 2).mean(axis=(1, 3))
    assert np.abs(read_pixels(path, height=4) - expected).max() <= 1.0  # rounded in each direction
    assert read_pixels(path, height=4, width=4).shape == (4, 4)
    assert note_changes(path, height=4) == f"{path}: 12 × 8 pixels, read as 6 × 4 grey pixels"


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "webp"])
def test_each_format_is_read(suffix, tmp_path):
    path = write_picture(tmp_path / f"a.{suffix}")
    assert read_pixels(path, height=4).shape == (4, 6)


def huge_png(path, *, width, height):
    """A PNG of a few bytes whose head states a size."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )


def animated(path):
    frames = [Image.new("L", (4, 4), value) for value in (0, 255)]
    frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:])


def truncated(path):
    write_picture(path, np.random.default_rng(0).integers(256, size=(64, 64)).astype(np.uint8))
    path.write_bytes(path.read_bytes()[:1500])


BAD = {
    "missing": (lambda path: path.with_name("other.png").touch(), "no such picture"),
    "empty": (lambda path: path.touch(), "not a whole picture"),
    "text": (lambda path: path.write_text("a seven"), "not a whole picture"),
    "truncated": (truncated, "not a whole picture"),
    "animated": (animated, "an animated picture; expected a single one"),
    "wide": (lambda path: huge_png(path, width=30_000, height=28), "30,000 × 28 pixels; expected at most 4,096"),
    "large": (lambda path: huge_png(path, width=12_000, height=12_000), "12,000 × 12,000 pixels"),
    "a bomb": (
        lambda path: huge_png(path, width=100_000, height=100_000),
        "('Image size (10000000000 pixels) exceeds limit",
    ),
    "FIFO": (os.mkfifo, "a FIFO; expected a file"),
    "folder": (lambda path: path.mkdir(), "Is a directory"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_single_picture_of_usual_size_is_one_line(name, tmp_path):
    make, message = BAD[name]
    path = tmp_path / "a.png"
    make(path)
    with pytest.raises(UserError) as caught:
        read_pixels(path, height=28)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_size_is_refused_before_anything_is_decoded(tmp_path, monkeypatch):
    def refuse(*arguments, **named):
        raise AssertionError("decoded")

    path = tmp_path / "a.png"
    huge_png(path, width=MOST_PIXELS + 1, height=4)
    write_picture(tmp_path / "b.png", size=(600, 4))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", refuse)
    for one, most in ((path, MOST_PIXELS), (tmp_path / "b.png", 500)):
        with pytest.raises(UserError, match="at most"):
            read_pixels(one, height=4, most_columns=most)


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UserError, match=r"pip install 'universal-transformer\[pictures\]'"):
        read_pixels(tmp_path / "a.png", height=4)
