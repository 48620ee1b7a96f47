"""The Free Spoken Digit Dataset: ten digits by six speakers, fifty recordings of each.

The official split is by the number of a recording: 0 to 4 are the test, 5 to 49 are for training. Here 5 to 7 are the
validation. The recordings lie in the folder ``recordings``, or in ``recordings.tar.xz``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Literal

from universal_transformer.data.download import LocalDataset, find
from universal_transformer.data.example import Frames
from universal_transformer.data.sound import Sound, decode_sound, log_mel

Part = Literal["test", "validation", "train"]
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
PARTS: Mapping[Part, range] = {"test": range(5), "validation": range(5, 8), "train": range(8, 50)}
"""Numbers of the recordings of a part."""
FOLDER = "recordings"


@dataclass(frozen=True)
class Recording:
    """A recording by its name."""

    digit: int
    speaker: str
    number: int

    @property
    def path(self) -> str:
        return f"{FOLDER}/{self.digit}_{self.speaker}_{self.number}.wav"

    @property
    def part(self) -> Part:
        return next(part for part, numbers in PARTS.items() if self.number in numbers)


RECORDINGS = tuple(Recording(*named) for named in product(range(10), SPEAKERS, range(50)))


class RecordedFrames(dict[Recording, Frames]):
    """The frames of mel bands of the recordings, each made when it is first asked for; UserError for one not there."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._files = LocalDataset("fsdd", folder.parent)

    def __missing__(self, recording: Recording) -> Frames:
        self[recording] = log_mel(self.sound(recording).samples)
        return self[recording]

    def sound(self, recording: Recording) -> Sound:
        where, content = self._files[recording.path]
        return decode_sound(content, where=where)


_recorded = lru_cache(maxsize=1)(RecordedFrames)


def recorded_frames() -> RecordedFrames:
    """Return the recordings of the data folder; UserError, which says how to get them, where there is none."""
    return _recorded(find("fsdd"))
