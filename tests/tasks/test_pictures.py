"""Captions and pictures as ids and back, from the handwritten digits and from files of a user."""

import numpy as np
import pytest
from PIL import Image

from small_pictures import write_captions, write_digits, write_picture
from universal_transformer.data.example import FIRST
from universal_transformer.data.handwriting import block_means, load_handwriting
from universal_transformer.data.tokenizer import END
from universal_transformer.errors import UserError
from universal_transformer.runs.folder import keep_held_out
from universal_transformer.tasks import Codec, PicturesData
from universal_transformer.tasks.pictures import NAMES
from universal_transformer.tasks.task import Saved


@pytest.fixture
def digits(tmp_path):
    return str(write_digits(tmp_path / "data"))


@pytest.mark.parametrize(("side", "levels"), [(14, 256), (28, 16), (7, 2)])
def test_the_target_of_a_digit_is_its_pixels_row_by_row(side, levels, digits):
    task = PicturesData(data_dir=digits, side=side, levels=levels).load()
    part = load_handwriting(digits)["test"]
    for example, picture, digit in zip(
        task.test["test"], block_means(part.pictures, side=side), part.digits, strict=True
    ):
        assert example.target == tuple(FIRST + int(value) * levels // 256 for row in picture for value in row)
        assert task.codec.source.tokenizer.decode(example.source[:-1]).strip() == NAMES[digit] == example.group
        assert example.source[-1] == END
    assert task.codec.model_fields["outputs.columns"] == side
    assert task.codec.model_fields["generation.max_new_tokens"] == side**2
    assert task.codec.model_fields["vocabulary.target_size"] == FIRST + levels


@pytest.mark.parametrize("levels", [2, 16, 256])
def test_pixels_come_back_from_the_ids_of_all_intensities(levels, tmp_path, digits):
    codec = PicturesData(data_dir=digits, side=28, levels=levels).load().codec
    pixels = np.arange(784).reshape(28, 28) % 256
    ids = codec.target.ids(pixels.astype(np.uint8))
    assert min(ids) == FIRST
    assert max(ids) == FIRST + levels - 1
    assert np.abs(codec.target.picture(ids).astype(int) - pixels).max() <= 256 / levels
    assert codec.target.ids(codec.target.picture(ids)) == ids
    (tmp_path / "a.png").write_bytes(codec.target.content(ids))
    with Image.open(tmp_path / "a.png") as picture:
        assert (np.array(picture) == codec.target.picture(ids)).all()
    rows = codec.render(ids).split()
    assert [[int(row[place : place + 2], 16) + FIRST for place in range(0, 56, 2)] for row in rows] == np.array(
        ids
    ).reshape(28, 28).tolist()


def test_a_codec_comes_back_from_its_folder(tmp_path, digits):
    codec = PicturesData(data_dir=digits).load().codec
    codec.save(tmp_path)
    found = Codec.load(tmp_path)
    assert (found.target.side, found.target.levels, found.model_fields) == (14, 256, codec.model_fields)
    (example,) = found.read([(1, "a seven")], name="x")
    assert found.words(example) == ["a", "seven", "<end>"]


def test_pictures_of_a_user_are_scaled_and_said_to_be(tmp_path):
    captions = write_captions(tmp_path / "own")
    write_picture(tmp_path / "own" / "3.png", mode="RGB", size=(30, 20))
    data = PicturesData(train=str(captions), side=4, levels=16)
    task = data.load()
    assert len(task.train) + len(task.validation) == 12
    assert all(len(example.target) == 16 for example in [*task.train, *task.validation])
    assert any("11 of 11 pictures are changed" in note for note in task.notes)
    keep_held_out(tmp_path, task.held_out)
    again = data.load(Saved(codec=task.codec, held_out=tmp_path / "held_out"))
    assert list(again.validation) == list(task.validation)


def test_a_caption_of_a_missing_picture_is_one_line(tmp_path):
    captions = write_captions(tmp_path)
    held_out = r"( \(held out\))?"  # the part of a row depends on its text, here the folder of the test
    (tmp_path / "7.png").unlink()
    with pytest.raises(UserError, match=rf"^{captions}{held_out}:8: {tmp_path / '7.png'}: no such picture; this line"):
        PicturesData(train=str(captions)).load()
    (tmp_path / "7.png").write_bytes(b"\x89PNG")
    said = rf"^{captions}{held_out}:8: {tmp_path / '7.png'}: not a whole picture.*this line names it$"
    with pytest.raises(UserError, match=said):
        PicturesData(train=str(captions)).load()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"side": 10}, "the digits have 28 × 28 pixels"),
        ({"side": 65}, "side"),
        ({"levels": 257}, "levels"),
        ({"validation": "a.tsv"}, r"data\.train is not set"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        PicturesData(**fields)
