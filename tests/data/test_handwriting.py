"""The data set of handwritten digits: its parts, its archive, and smaller pictures."""

import numpy as np
import pytest

from small_pictures import digit, write_digits
from universal_transformer.data.download import check
from universal_transformer.data.handwriting import block_means, load_handwriting
from universal_transformer.errors import UserError


def test_the_parts_are_a_permutation_of_all_digits(tmp_path):
    parts = load_handwriting(write_digits(tmp_path, each=10))
    assert {name: len(part) for name, part in parts.items()} == {"train": 80, "validation": 10, "test": 10}
    order = np.random.default_rng(0).permutation(100)
    assert np.concatenate([part.digits for part in parts.values()]).tolist() == (order // 10).tolist()
    for part in parts.values():
        for picture, number in zip(part.pictures, part.digits, strict=True):
            assert any((picture == digit(number, place)).all() for place in range(10))


def test_the_archive_in_the_place_of_the_files_has_the_same_digits(tmp_path):
    apart, packed = (load_handwriting(write_digits(tmp_path / str(kind), packed=kind)) for kind in (False, True))
    for name in apart:
        assert (apart[name].pictures == packed[name].pictures).all()


def test_missing_digits_are_one_line_that_says_how_to_get_them(tmp_path):
    with pytest.raises(UserError, match="ut data fetch mnist10k"):
        load_handwriting(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b'{"data": [0.5]}', b'{"data": "a"}', b'{"data": [7' + b",0" * 783 + b"]}"]
)
def test_damaged_digits_are_one_line(content, tmp_path):
    write_digits(tmp_path)
    (tmp_path / "mnist10k" / "digits" / "3.json").write_bytes(content)
    with pytest.raises(UserError, match=r"digits/3\.json: found"):
        load_handwriting(tmp_path)


@pytest.mark.parametrize("content", [b"", b"text", b"\xfd7zXZ\x00\x00"])
def test_a_damaged_archive_is_one_line(content, tmp_path):
    write_digits(tmp_path, packed=True)
    (tmp_path / "mnist10k" / "digits.tar.xz").write_bytes(content)
    with pytest.raises(UserError, match="not the archive expected"):
        load_handwriting(tmp_path)


def test_a_changed_archive_is_seen_by_the_check(tmp_path):
    write_digits(tmp_path, packed=True)
    states = check("mnist10k", tmp_path)
    assert {one.state for one in states} == {"changed"}
    assert {one.path.name for one in states} == {"digits.tar.xz"}


@pytest.mark.parametrize("side", [28, 14, 7, 4])
def test_a_smaller_picture_has_rounded_means(side):
    pictures = np.random.default_rng(0).integers(256, size=(3, 28, 28)).astype(np.uint8)
    block = 28 // side
    for made, picture in zip(block_means(pictures, side=side), pictures, strict=True):
        for row in range(side):
            for column in range(side):
                part = picture[row * block : (row + 1) * block, column * block : (column + 1) * block].astype(int)
                assert made[row, column] == int(part.sum() / block**2 + 0.5)


@pytest.mark.usefixtures("shared_data")
def test_the_published_digits_are_counted():
    try:
        parts = load_handwriting()
    except UserError as error:
        pytest.skip(str(error))
    assert [len(part) for part in parts.values()] == [8000, 1000, 1000]
    counts = sum(np.bincount(part.digits, minlength=10) for part in parts.values())
    assert counts.tolist() == [1001, 1127, 991, 1032, 980, 863, 1014, 1070, 944, 978]
