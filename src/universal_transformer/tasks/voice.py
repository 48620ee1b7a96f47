"""Words of digits to sound: recordings of the Free Spoken Digit Dataset, said by the speaker that is asked for.

A source is a speaker and a digit, ``theo seven``; a target has the frames of mel bands (`data.sound.SPOKEN`) of a
recording. A recording begins with its first loud frame and ends in `PAUSE` silent ones, so that a model can tell when
it is over; the silence around it differs and is left out. The sound of frames is found by `data.griffin_lim`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from universal_transformer.data.example import Example, Frames, target_size
from universal_transformer.data.griffin_lim import waveform
from universal_transformer.data.recordings import RECORDINGS, SPEAKERS, Part, recorded_frames
from universal_transformer.data.sound import FLOOR, RATE, SPOKEN, encode_wav, log_mel
from universal_transformer.data.tokenizer import BLANK, END
from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import show
from universal_transformer.tasks.codecs import SavedCodec, token_fields
from universal_transformer.tasks.lazy import DeferredExamples
from universal_transformer.tasks.speech import MIDDLE, SPREAD, WORDS, scaled
from universal_transformer.tasks.task import Codec, Task
from universal_transformer.typed import NumberOf, check, listed

FIRST = 3
"""Token id of the first speaker; the digits follow the speakers."""
NAMES = (*SPEAKERS, *WORDS)
QUIET = 7.0
"""A frame is loud if the logarithm of its energy is less than this below that of the loudest frame (30 dB)."""
MARGIN, PAUSE = 2, 4
"""Frames before the first and after the last loud one that are kept, and silent ones at the end."""
LONGEST = 90
"""Frames of the longest recording that is trained on: 1.1 seconds."""
EXPECTED = f"expected a speaker ({listed(SPEAKERS)}) and the word of a digit, such as theo seven"


@dataclass(frozen=True, kw_only=True)
class VoiceCodec(SavedCodec):
    """A speaker and the word of a digit to ids, and frames to sound files."""

    kind: ClassVar[str] = "voice"
    suffix: ClassVar[str] = ".wav"

    @property
    def model_fields(self) -> dict[str, Any]:
        """Return the fields of a model that follow from the words and the frames."""
        fields = token_fields("encoder_decoder", size=FIRST + len(NAMES))
        return fields | {"outputs.kind": "frames", "outputs.features": SPOKEN.bands}

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example without a sound for each line ``speaker digit``; empty lines are left out."""
        for number, line in lines:
            words = line.lower().split()
            if not words:
                continue
            if len(words) != 2 or words[0] not in SPEAKERS or words[1] not in WORDS:
                unknown = next((word for word in words if word not in NAMES), "")
                raise UserError(f"{name}:{number}: {show(line.strip())}: {EXPECTED}{suggestion(unknown, NAMES)}")
            yield Example(source=prompt(*words), target=())

    def content(self, target: Frames) -> bytes:
        """Return the sound of frames as the content of a WAV file."""
        return encode_wav(waveform(target * np.float32(SPREAD) + np.float32(MIDDLE), bands=SPOKEN))

    def render(self, target: int | Sequence[int]) -> str:
        """Return the words of ids with blanks between them; what is no word is left out."""
        ids = (target,) if isinstance(target, int) else target
        return BLANK.join(NAMES[index - FIRST] for index in ids if index >= FIRST)

    def words(self, example: Example) -> list[str]:
        return [self.render(index) or "<end>" for index in example.source if isinstance(index, int)]


@dataclass(frozen=True, kw_only=True)
class VoiceData:
    """Spoken digits of six speakers (`ut data fetch fsdd`), in the official split."""

    codec_class: ClassVar[type[Codec]] = VoiceCodec
    limit: NumberOf = 0
    """Use at most so many recordings of each part, evenly spread; 0: all."""

    def __post_init__(self) -> None:
        check(self, field="data")

    def load(self) -> Task:
        """Read the recordings."""
        codec = VoiceCodec()
        return Task(
            name="voice",
            codec=codec,
            train=DeferredExamples(lambda: [one for one in self._examples("train") if target_size(one) <= LONGEST]),
            validation=self._examples("validation"),
            test={"digits": self._examples("test")},
            metric="frames",
            model_fields=codec.model_fields,
            notes=(f"recordings of more than {LONGEST * SPOKEN.hop / RATE:.1f} seconds are not trained on",),
        )

    def _examples(self, part: Part) -> list[Example]:
        recordings = [one for one in RECORDINGS if one.part == part]
        count = min(self.limit or len(recordings), len(recordings))
        recorded = recorded_frames()
        return [
            Example(
                source=prompt(one.speaker, WORDS[one.digit]),
                target=spoken_frames(recorded.sound(one).samples),
                group=one.speaker,
            )
            for one in (recordings[place * len(recordings) // count] for place in range(count))
        ]


def prompt(speaker: str, digit: str) -> tuple[int, ...]:
    """Return the ids of a speaker and the word of a digit, with the end id."""
    return (FIRST + NAMES.index(speaker), FIRST + NAMES.index(digit), END)


def spoken_frames(samples: Frames) -> Frames:
    """Return the frames of a clip as a model writes them: without what is quiet around it, and silent at the end."""
    frames = log_mel(samples, bands=SPOKEN)
    energies = np.log(np.exp(frames.astype(np.float64)).sum(axis=1))
    (loud,) = np.nonzero(energies > energies.max() - QUIET)
    kept = frames[max(0, loud[0] - MARGIN) : loud[-1] + 1 + MARGIN]
    silence = np.full((PAUSE, SPOKEN.bands), np.log(FLOOR), dtype=np.float32)
    return scaled(np.concatenate([kept, silence]))
