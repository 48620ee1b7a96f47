"""The spoken digits: parts without a recording in common, from a folder or from an archive."""

import io
import shutil
import tarfile

import pytest

from small_sounds import sound_file, tone
from universal_transformer.data import recordings
from universal_transformer.data.recordings import (
    PARTS,
    RECORDINGS,
    SPEAKERS,
    RecordedFrames,
    Recording,
    recorded_frames,
)
from universal_transformer.errors import UserError

FEW = tuple(one for one in RECORDINGS if one.number == 0 and one.speaker in SPEAKERS[:2])


def content_of(one):
    return sound_file(tone(hertz=200 + 50 * one.digit + 500 * SPEAKERS.index(one.speaker)))


@pytest.fixture
def few(monkeypatch, tmp_path):
    """A data set of twenty recordings in ``fsdd/recordings``."""
    monkeypatch.setattr(recordings, "RECORDINGS", FEW)
    monkeypatch.setenv("UT_DATA", str(tmp_path))
    (tmp_path / "fsdd" / "recordings").mkdir(parents=True)
    for one in FEW:
        (tmp_path / "fsdd" / one.path).write_bytes(content_of(one))
    return tmp_path / "fsdd"


def all_of(few):
    """The frames of all recordings, as bytes."""
    found = RecordedFrames(few)
    return [found[one].tobytes() for one in FEW]


def archive(few, *, left_out=(), content=None):
    """Move the recordings into an archive."""
    with tarfile.open(few / "recordings.tar.xz", "w:xz") as tar:
        for one in FEW:
            if one.path not in left_out:
                found = (few / one.path).read_bytes() if content is None else content
                member = tarfile.TarInfo(one.path)
                member.size = len(found)
                tar.addfile(member, io.BytesIO(found))
    shutil.rmtree(few / "recordings")
    (few / "README.md").write_text("about\n")


def test_the_official_split_has_300_test_recordings_and_every_recording_one_part():
    assert len(RECORDINGS) == 3000
    assert [one.number for one in RECORDINGS if one.part == "test"] == list(range(5)) * 60
    assert sum(len(numbers) for numbers in PARTS.values()) == 50
    assert {number for numbers in PARTS.values() for number in numbers} == set(range(50))


def test_an_archive_gives_the_same_recordings_as_the_folder(few):
    before = all_of(few)
    archive(few)
    assert all_of(few) == before
    assert len(set(before)) == len(FEW)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda few: (few / FEW[3].path).unlink(), "ut data fetch fsdd"),
        (lambda few: (few / FEW[3].path).write_bytes(b"RIFF"), f"{FEW[3].path}: not a whole WAV"),
        (lambda few: archive(few, left_out=[FEW[3].path]), "ut data fetch fsdd"),
        (lambda few: archive(few, content=bytes(2**20 + 1)), "not a whole WAV"),
        (lambda few: archive(few, content=b"none"), f"{FEW[0].path}: not a whole WAV"),
        (lambda few: (archive(few), (few / "recordings.tar.xz").write_bytes(b"none")), "not the archive expected"),
    ],
    ids=["missing", "damaged", "missing in archive", "large in archive", "damaged in archive", "no archive"],
)
def test_a_bad_data_set_gives_one_line(few, harm, message):
    harm(few)
    with pytest.raises(UserError, match=message) as caught:
        all_of(few)
    assert str(caught.value).isprintable()


def test_a_missing_data_set_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("UT_DATA", str(tmp_path))
    with pytest.raises(UserError, match="ut data fetch fsdd"):
        recorded_frames()


def test_published_recordings_are_read(shared_data):
    found = recorded_frames()
    assert found[Recording(0, "george", 0)].shape == (30, 40)
    assert found[Recording(9, "yweweler", 49)].shape == (39, 40)
    assert found[Recording(0, "george", 0)] is found[Recording(0, "george", 0)], "made once"
