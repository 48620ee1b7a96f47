"""Words of digits to sound: recordings of the Free Spoken Digit Dataset, said by the speaker that is asked for.

A source is a speaker and a digit, ``theo seven``; a target has the frames of mel bands (`data.sound.SPOKEN`) of a
recording. A recording begins with its first loud frame and ends in `PAUSE` silent ones, so that a model can tell when
it is over; the silence around it differs and is left out. The sound of frames is found by `data.griffin_lim`.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from universal_transformer.data.example import Example, Frames, target_size
from universal_transformer.data.recordings import RECORDINGS, SPEAKERS, Part, recorded_frames
from universal_transformer.data.sound import FLOOR, RATE, SPOKEN, log_mel
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.lazy import DeferredExamples
from universal_transformer.tasks.sides.listed import Names
from universal_transformer.tasks.sides.recording import Spoken, scaled
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.speech import WORDS
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import NumberOf, check

SPEAKER_AND_DIGIT = Names((SPEAKERS, WORDS))
QUIET = 7.0
"""A frame is loud if the logarithm of its energy is less than this below that of the loudest frame (30 dB)."""
MARGIN, PAUSE = 2, 4
"""Frames before the first and after the last loud one that are kept, and silent ones at the end."""
LONGEST = 90
"""Frames of the longest recording that is trained on: 1.1 seconds."""


@dataclass(frozen=True, kw_only=True)
class VoiceData:
    """Spoken digits of six speakers (`ut data fetch fsdd`), in the official split."""

    sides: ClassVar[Sides] = (Names, Spoken)
    limit: NumberOf = 0
    """Use at most so many recordings of each part, evenly spread; 0: all."""

    def __post_init__(self) -> None:
        check(self, field="data")

    def load(self, saved: Saved | None = None) -> Task:
        del saved  # the codec follows from the fields
        return Task(
            name="voice",
            codec=Codec(SPEAKER_AND_DIGIT, Spoken()),
            train=DeferredExamples(lambda: [one for one in self._examples("train") if target_size(one) <= LONGEST]),
            validation=self._examples("validation"),
            test={"digits": self._examples("test")},
            metric="frames",
            notes=(f"recordings of more than {LONGEST * SPOKEN.hop / RATE:.1f} seconds are not trained on",),
        )

    def _examples(self, part: Part) -> list[Example]:
        recordings = [one for one in RECORDINGS if one.part == part]
        count = min(self.limit or len(recordings), len(recordings))
        recorded = recorded_frames()
        return [
            Example(
                source=SPEAKER_AND_DIGIT.encode(one.speaker, WORDS[one.digit]),
                target=spoken_frames(recorded.sound(one).samples),
                group=one.speaker,
            )
            for one in (recordings[place * len(recordings) // count] for place in range(count))
        ]


def spoken_frames(samples: Frames) -> Frames:
    """Return the frames of a clip as a model writes them: without what is quiet around it, and silent at the end."""
    frames = log_mel(samples, bands=SPOKEN)
    energies = np.log(np.exp(frames.astype(np.float64)).sum(axis=1))
    (loud,) = np.nonzero(energies > energies.max() - QUIET)
    kept = frames[max(0, loud[0] - MARGIN) : loud[-1] + 1 + MARGIN]
    silence = np.full((PAUSE, SPOKEN.bands), np.log(FLOOR), dtype=np.float32)
    return scaled(np.concatenate([kept, silence]))
