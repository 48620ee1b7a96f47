"""Spoken digits to words: recordings of the Free Spoken Digit Dataset, alone or joined to strings of digits.

A source has frames of mel bands (`data.sound`), a target one token for each digit. A string joins recordings of one
speaker with pauses between them. Training examples are made when they are needed, and each is distorted: its pace by up
to a quarter and the heights of its bands by up to an eighth, its level and its spectral tilt change, noise is added,
and some frames and bands are blanked (SpecAugment, Park et al. 2019, arXiv 1904.08779). Test and validation recordings
are not distorted, and belong to no other part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from universal_transformer.data.example import Example, Frames
from universal_transformer.data.recordings import PARTS, RECORDINGS, Part, RecordedFrames, Recording, recorded_frames
from universal_transformer.data.sound import FLOOR, HEARD
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.lazy import LazyExamples
from universal_transformer.tasks.sides.listed import Names
from universal_transformer.tasks.sides.recording import Heard, scaled
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import NumberOf, Positive, Range, check

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DIGITS = Names((WORDS,))
LONGEST_STRING = 5
LONGEST_PAUSE = 20  # frames
PACE, HEIGHT = 0.25, 0.125
LEVEL, TILT = 1.0, 2.0
"""Largest change of all log energies, and of the difference between those of the highest and the lowest band."""
LOUDEST_NOISE = -4.0
"""Log energy of the bands of the loudest noise that is added; the quietest is that of silence."""
MASKS, WIDEST_MASK = 2, 8

Speaker = Literal["", "george", "jackson", "lucas", "nicolas", "theo", "yweweler"]


@dataclass(frozen=True, kw_only=True)
class SpeechData:
    """Spoken digits of six speakers, alone and joined to strings."""

    sides: ClassVar[Sides] = (Heard, Names)
    unseen_speaker: Speaker = ""
    """A speaker of the test alone; all recordings of this speaker are the test. Empty: the official split, with all
    speakers in all parts."""
    strings: Annotated[float, Range(0, 1)] = 0.0
    """Part of the training examples that are strings of 2 to 5 digits; the others are single digits."""
    distorted: bool = True
    """Distort training examples: pace, heights of bands, level, spectral tilt, noise, blanked frames and bands."""
    train_examples: Positive = 12_000
    """Training examples in an epoch, made when they are needed."""
    validation_strings: Positive = 120
    """Strings of the validation, besides all of its single digits, of a model that is trained on strings."""
    test_strings: Positive = 400
    """Strings of the test set "strings", of each length in turn."""
    seed: NumberOf = 0
    """Chooses the strings and the distortions: the same seed gives the same examples."""

    def __post_init__(self) -> None:
        check(self, field="data")

    def load(self, saved: Saved | None = None) -> Task:
        del saved  # the codec follows from the fields
        unseen = self.unseen_speaker
        digits = "unseen speaker" if unseen else "digits"
        # a model that is not trained on strings is not chosen by them
        validation_strings = self._strings("validation", self.validation_strings)
        return Task(
            name="speech",
            codec=Codec(Heard(), DIGITS),
            train=LazyExamples(self._training_example, count=self.train_examples),
            validation=self._single("validation") + (validation_strings if self.strings else []),
            test={digits: self._single("test"), "strings": self._strings("test", self.test_strings)},
            metric="words",
            notes=(f"all recordings of {unseen} are test recordings",) if unseen else (),
        )

    @cached_property
    def _frames(self) -> RecordedFrames:
        return recorded_frames()

    @cached_property
    def _parts(self) -> Mapping[Part, Mapping[tuple[str, int], Sequence[Recording]]]:
        parts: dict[Part, dict[tuple[str, int], list[Recording]]] = {part: {} for part in PARTS}
        for one in RECORDINGS:
            of_test = one.speaker == self.unseen_speaker
            if of_test or not self.unseen_speaker or one.part != "test":
                part: Part = "test" if of_test else one.part
                parts[part].setdefault((one.speaker, one.digit), []).append(one)
        return parts

    def _single(self, part: Part) -> list[Example]:
        found = [one for recordings in self._parts[part].values() for one in recordings]
        return [_example([self._frames[one]], [one.digit], group=one.speaker) for one in found]

    def _strings(self, part: Part, count: int) -> list[Example]:
        draw = np.random.default_rng((self.seed, list(PARTS).index(part)))
        found = []
        for index in range(count):
            length = 2 + index % (LONGEST_STRING - 1)
            pieces, digits = self._joined(part, length, draw)
            found.append(_example(pieces, digits, group=f"{length} digits"))
        return found

    def _joined(self, part: Part, length: int, draw: np.random.Generator) -> tuple[list[Frames], list[int]]:
        """Draw recordings of one speaker, with pauses around them if there are several."""
        recordings = self._parts[part]
        speakers = sorted({speaker for speaker, _ in recordings})
        speaker = speakers[draw.integers(len(speakers))]
        digits = draw.integers(len(WORDS), size=length).tolist()
        pieces: list[Frames] = []
        for digit in digits:
            chosen = recordings[speaker, digit]
            recording = chosen[int(draw.integers(len(chosen)))]
            pieces += [self._frames[recording], pause(int(draw.integers(LONGEST_PAUSE + 1)))]
        return pieces[:-1], digits

    def _training_example(self, index: int) -> Example:
        draw = np.random.default_rng((self.seed, len(PARTS), index))
        length = int(draw.integers(2, LONGEST_STRING + 1)) if draw.random() < self.strings else 1
        pieces, digits = self._joined("train", length, draw)
        if not self.distorted:
            return _example(pieces, digits)
        around = [pause(int(draw.integers(LONGEST_PAUSE // 2 + 1))) for _ in range(2)]
        frames = tilted(warped(np.concatenate([around[0], *pieces, around[1]]), draw), draw)
        begin = draw.integers(len(self._noise) - len(frames))
        noise = self._noise[begin : begin + len(frames)] + np.float32(draw.uniform(np.log(FLOOR), LOUDEST_NOISE))
        return _example([np.maximum(frames, noise)], digits, draw=draw)

    @cached_property
    def _noise(self) -> Frames:
        """Log energies of noise around 0, longer than any example."""
        draw = np.random.default_rng(self.seed)
        return (draw.standard_normal((10_000, HEARD.bands)) / 2).astype(np.float32)


def pause(length: int) -> Frames:
    return np.full((length, HEARD.bands), np.log(FLOOR), dtype=np.float32)


def warped(frames: Frames, draw: np.random.Generator) -> Frames:
    """Return frames at another pace and with bands at other heights, by linear interpolation in both directions."""
    pace, height = draw.uniform(1 - PACE, 1 + PACE), draw.uniform(1 - HEIGHT, 1 + HEIGHT)
    length, bands = frames.shape
    slow = _mixing(np.linspace(0, length - 1, max(1, round(length * pace))), length) @ frames
    return np.asarray(slow @ _mixing(np.minimum(np.arange(bands) * height, bands - 1), bands).T, dtype=np.float32)


def tilted(frames: Frames, draw: np.random.Generator) -> Frames:
    """Return frames as another microphone might record them: louder or quieter, and duller or brighter."""
    slope = np.linspace(-0.5, 0.5, frames.shape[1]) * draw.uniform(-TILT, TILT)
    louder = frames + np.asarray(draw.uniform(-LEVEL, LEVEL) + slope, dtype=np.float32)
    return np.maximum(louder, np.float32(np.log(FLOOR)))


def _mixing(places: np.ndarray[Any, np.dtype[np.float64]], length: int) -> Frames:
    """Return the matrix [place, row] that gives rows at places between the `length` given rows."""
    return np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(length))).astype(np.float32)


def blanked(frames: Frames, draw: np.random.Generator) -> Frames:
    """Return frames with `MASKS` stretches of frames and as many of bands set to 0, each of at most `WIDEST_MASK`."""
    found = frames.copy()
    for rows in (found, found.T):
        for _ in range(MASKS):
            width = int(draw.integers(min(WIDEST_MASK, len(rows) // 4) + 1))
            begin = int(draw.integers(len(rows) - width + 1))
            rows[begin : begin + width] = 0.0
    return found


def _example(
    pieces: Sequence[Frames], digits: Sequence[int], *, group: str = "", draw: np.random.Generator | None = None
) -> Example:
    """Return the example of frames that follow each other; with `draw`, parts of them are blanked."""
    frames = scaled(np.concatenate(pieces))
    target = DIGITS.encode(*[WORDS[digit] for digit in digits])
    return Example(source=frames if draw is None else blanked(frames, draw), target=target, group=group)
