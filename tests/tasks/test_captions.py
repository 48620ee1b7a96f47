"""Pictures as columns of pixels: digits, rows of them, distortions, and files of a user."""

import re

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from small_pictures import write_captions, write_digits, write_picture
from universal_transformer.data.handwriting import load_handwriting
from universal_transformer.data.picture_files import encode_png
from universal_transformer.errors import UserError
from universal_transformer.tasks import CaptionsData, Codec
from universal_transformer.tasks import captions as module
from universal_transformer.tasks.captions import distorted


@pytest.fixture
def digits(tmp_path):
    return str(write_digits(tmp_path / "data"))


def load(digits, **fields):
    return CaptionsData(**{"data_dir": digits, "rows": 8, "train_examples": 12, **fields}).load()


def caption(task, example):
    return task.codec.render(example.target[:-1])


def test_a_source_is_the_columns_of_its_pixels_from_0_to_1(digits):
    task, part = load(digits), load_handwriting(digits)["test"]
    for example, picture, digit in zip(task.test["digits"], part.pictures, part.digits, strict=True):
        assert example.source.dtype == np.float32
        assert (np.rint(255 * example.source.T) == picture).all()
        assert caption(task, example) == str(digit)
        assert task.codec.source.input_text(example.source) == "", "a line would be the path of a file"


@pytest.mark.parametrize("part", ["validation", "test"])
def test_a_row_joins_digits_of_its_own_part(part, digits):
    task, given = load(digits, rows=16), load_handwriting(digits)[part]
    rows = task.test["rows"] if part == "test" else task.validation[len(given) :]
    assert len(rows) == (16 if part == "test" else 8)
    for example in rows:
        text = caption(task, example)
        assert example.source.shape == (28 * len(text), 28)
        for place, digit in enumerate(text):
            pixels = np.rint(255 * example.source[28 * place : 28 * place + 28].T)
            assert any((pixels == one).all() for one in given.pictures[given.digits == int(digit)])
    assert {example.group for example in rows} == {f"{length} digits" for length in (3, 4, 5, 6)}


def test_a_training_example_is_a_function_of_the_seed_and_its_number(digits):
    first, again, other = load(digits), load(digits), load(digits, seed=1)
    for number in (0, 1, 7):
        assert (first.train[number].source == again.train[number].source).all()
        assert first.train[number].target == again.train[number].target
        assert (
            len(caption(first, first.train[number])) == 1
            if number % 2 == 0
            else 3 <= len(first.train[number].target) - 1 <= 6
        )
    assert any(first.train[number].target != other.train[number].target for number in range(12))
    assert {len(one.target) for one in load(digits, rows=0).train} == {2}


def test_without_distortion_a_digit_is_itself_and_with_it_moves_little(digits, monkeypatch):
    pictures = load_handwriting(digits)["train"].pictures
    made = distorted(pictures, np.random.default_rng(0))
    assert made.shape == pictures.shape
    assert (made != pictures).any(axis=(1, 2)).all()
    weights = pictures.astype(float).sum(axis=(1, 2)), made.astype(float).sum(axis=(1, 2))
    assert np.abs(weights[1] / weights[0] - 1).max() < 0.35
    for name in ("TURN", "GROWTH", "SHIFT"):
        monkeypatch.setattr(module, name, 0.0)
    assert (distorted(pictures, np.random.default_rng(0)) == pictures).all()


def test_a_whole_shift_moves_pixels_and_lets_black_in():
    class Draw(np.random.Generator):
        def uniform(self, low=0.0, high=1.0, size=None):
            return np.zeros(size) if np.isscalar(size) else np.array([[3.0], [-2.0]])

    picture = np.random.default_rng(0).integers(256, size=(1, 8, 8)).astype(np.uint8)
    expected = np.zeros((8, 8))
    expected[3:, :6] = picture[0, :5, 2:]
    assert (distorted(picture, Draw(np.random.PCG64(0)))[0] == expected).all()


def test_pictures_of_a_user_keep_their_proportions(tmp_path):
    captions = write_captions(tmp_path / "own")
    write_picture(tmp_path / "own" / "3.png", size=(30, 10))
    task = CaptionsData(train=str(captions), height=8, tokenizer="word").load()
    shapes = {example.source.shape for example in [*task.train, *task.validation]}
    assert shapes == {(8, 8), (24, 8)}
    assert any(re.search("1 of 11? pictures are changed; the first is .*3.png", note) for note in task.notes)
    task.codec.save(tmp_path)
    assert Codec.load(tmp_path).model_fields == task.codec.model_fields


def test_captions_take_a_tokenizer_file(tmp_path):
    captions = write_captions(tmp_path / "own")
    own = (
        CaptionsData(train=str(captions), height=8, tokenizer="bpe", vocabulary_size=300).load().codec.target.tokenizer
    )
    library = Tokenizer(models.BPE(vocab={"a": 0, "n": 1}, merges=[]))
    library.save(str(tmp_path / "file.json"))
    codec = CaptionsData(train=str(captions), height=8, tokenizer=str(tmp_path / "file.json")).load().codec
    codec.save(tmp_path)
    assert Codec.load(tmp_path) == codec
    assert codec.target.tokenizer != own


def test_lines_of_paths_are_read_with_a_note_on_what_was_changed(tmp_path, digits):
    codec = load(digits).codec
    pixels = np.full((28, 56), 255, dtype=np.uint8)
    (tmp_path / "a.png").write_bytes(encode_png(pixels))
    path = write_picture(tmp_path / "b.png", mode="RGB", size=(12, 14))
    first, second = codec.read([(1, str(tmp_path / "a.png")), (2, ""), (3, str(path))], name="x")
    assert first.source.shape == (56, 28)
    assert (first.source == 1).all()
    assert first.notes == ()
    assert second.source.shape == (24, 28)
    assert second.notes == (f"{path}: 12 × 14 pixels of mode RGB, read as 24 × 28 grey pixels",)
    with pytest.raises(UserError, match=r"^x:4: .*no such picture$"):
        list(codec.read([(4, str(tmp_path / "missing.png"))], name="x"))
    wide = write_picture(tmp_path / "wide.png", size=(1000, 14))
    with pytest.raises(UserError, match="which is 2,000 × 28 here; at most 448 × 28 are read"):
        list(codec.read([(1, str(wide))], name="x"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"height": 20}, "28 rows of pixels"),
        ({"tokenizer": "word"}, "tokenizer=word: the caption of a row of digits is one word"),
        ({"row": (4, 3)}, "the fewest and the most digits"),
        ({"test": "a.tsv"}, r"data\.train is not set"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        CaptionsData(**fields)
