"""Sound files to samples, and samples to frames of mel bands.

With the samples ``x`` of a clip (0 outside of it), a Hann window ``w`` of L samples, and triangular filters ``M`` at
equal distances on the mel scale
``2595 log10(1 + hertz / 700)``:

    S[i, k] = | Σ_n w[n] x[n + i · hop - L / 2] exp(-2πi k n / fft) |²
    F[i, b] = log max(Σ_k M[b, k] S[i, k], 1e-4)        [frame, band]

Samples are mono, 8,000 a second, with a peak of 1. This is the only module that imports soundfile and scipy. A file is
checked before it is read: memory is bounded, and a file that is cut short is refused (libsndfile reads such a file
without an error).
"""

import io
import math
import os
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.example import Frames
from universal_transformer.errors import UserError, optional, refuse
from universal_transformer.files import read_bytes, show, show_path

Samples = NDArray[np.float32]
"""Samples [time] between -1 and 1."""

RATE = 8000
"""Samples a second of all clips."""
FORMATS = ("WAV", "WAVEX", "FLAC")
SHORTEST, LONGEST = 0.05, 30.0  # seconds
LEAST_RATE, MOST_RATE = 4000, 192_000  # samples a second
MOST_NUMBERS = 2**24
"""Most samples of a file, times channels: 64 MiB."""
MOST_BYTES = 8 * MOST_NUMBERS + 2**20
"""Most bytes of a file: of numbers of 64 bits, and what stands before them."""
SILENCE = 1e-4
"""A clip whose peak is lower has no sound: three steps of 16 bits."""
FLOOR = 1e-4
"""Least energy of a band."""


@dataclass(frozen=True)
class MelBands:
    """How samples become frames."""

    fft: int
    window: int
    """Samples of the window."""
    hop: int
    """Samples between two frames."""
    bands: int
    lowest: float = 50.0
    """Lowest frequency in hertz; the highest is half of `RATE`."""


HEARD = MelBands(fft=256, window=200, hop=80, bands=40)
"""Of recognition: 100 frames a second, each of 25 ms."""
SPOKEN = MelBands(fft=512, window=400, hop=100, bands=64)
"""Of synthesis: 80 frames a second, each of 50 ms."""


@dataclass(frozen=True)
class Sound:
    """A clip that was read, and what was changed."""

    samples: Samples
    notes: tuple[str, ...] = ()


def read_sound(path: str | Path) -> Sound:
    """Read a WAV or FLAC file as mono samples of `RATE` a second with a peak of 1.

    Channels are averaged and another rate is converted; `Sound.notes` says so. UserError, in one line, for a file that
    is missing, of another format, cut short or with a wrong length in its header, silent, shorter than `SHORTEST` or
    longer than `LONGEST` seconds, or with a sample that is not finite. At most `MOST_NUMBERS` numbers are read.
    """
    where = show_path(path)
    if not os.path.isfile(path):  # a pipe or a device may have no end
        found = "not a file" if os.path.exists(path) else "no such file"
        raise UserError(f"{where}: {found}; expected a WAV or FLAC file")
    return decode_sound(read_bytes(Path(path), max_bytes=MOST_BYTES, what="a WAV or FLAC file"), where=where)


def decode_sound(content: bytes, *, where: str) -> Sound:
    """Do what `read_sound` does with the content of a file; messages name it `where`."""
    soundfile = _library("soundfile")
    _check_wav_length(content, where=where)
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            _check_shape(file, where=where)
            numbers = file.read(dtype="float32", always_2d=True)
            stated, rate, channels = file.frames, file.samplerate, file.channels
    except soundfile.SoundFileError as error:
        raise UserError(f"{where}: not a whole WAV or FLAC file ({show(str(error), limit=100)})") from error
    if len(numbers) != stated:
        raise UserError(f"{where}: its header states {stated:,} samples, it has {len(numbers):,}; is it cut short?")
    if not np.isfinite(numbers).all():
        raise UserError(f"{where}: a sample that is no finite number; expected samples between -1 and 1")
    notes = []
    samples = numbers[:, 0]
    if channels > 1:
        samples = numbers.mean(axis=1, dtype=np.float64).astype(np.float32)
        notes.append(f"{where}: the mean of {channels} channels is read")
    if rate != RATE:
        common = math.gcd(rate, RATE)
        samples = _library("scipy.signal").resample_poly(samples, RATE // common, rate // common)
        notes.append(f"{where}: {rate:,} samples a second are converted to {RATE:,}")
    peak = float(np.abs(samples).max())
    if peak < SILENCE:
        raise UserError(f"{where}: silent, its peak is {peak:.1g}; expected a sound with a peak of {SILENCE:g} or more")
    return Sound((samples / peak).astype(np.float32), tuple(notes))


def _check_wav_length(content: bytes, *, where: str) -> None:
    """UserError if a WAV file states more bytes than it has."""
    order = {b"RIFF": "<", b"RIFX": ">"}.get(content[:4])
    if order and len(content) >= 8:
        stated = 8 + struct.unpack(f"{order}I", content[4:8])[0]
        if stated > len(content):
            raise UserError(f"{where}: its header states {stated:,} bytes, it has {len(content):,}; is it cut short?")


def _check_shape(file: Any, *, where: str) -> None:
    rate, seconds = file.samplerate, file.frames / max(1, file.samplerate)
    shape = f"{file.frames:,} samples of {file.channels} channels"
    refuse(
        (file.format not in FORMATS, f"a file of format {file.format}; expected WAV or FLAC"),
        (
            not LEAST_RATE <= rate <= MOST_RATE,
            f"{rate:,} samples a second; expected {LEAST_RATE:,} to {MOST_RATE:,}",
        ),
        (
            not SHORTEST <= seconds <= LONGEST,
            f"{seconds:,.2f} seconds long; expected {SHORTEST:g} to {LONGEST:g}",
        ),
        (file.frames * file.channels > MOST_NUMBERS, f"{shape}; expected at most {MOST_NUMBERS:,} in all"),
        at=where,
    )


def encode_wav(samples: Samples) -> bytes:
    """Return samples between -1 and 1 as the content of a WAV file of 16 bits."""
    stream = io.BytesIO()
    _library("soundfile").write(stream, samples, RATE, format="WAV", subtype="PCM_16")
    return stream.getvalue()


def log_mel(samples: Samples, *, bands: MelBands = HEARD) -> Frames:
    """Return F of the module's equation, a frame for each `hop` samples."""
    spectrum = transform(bands).stft(samples, p0=0, p1=-(-len(samples) // bands.hop))
    energy = np.abs(spectrum.T) ** 2 @ filters(bands).T
    return np.log(np.maximum(energy, FLOOR)).astype(np.float32)


@cache
def filters(bands: MelBands) -> NDArray[np.float64]:
    """Return M of the module's equation [band, frequency]: triangles of height 1, each from peak to peak."""

    def mel(hertz: float) -> float:
        return 2595 * math.log10(1 + hertz / 700)

    corners = 700 * (10 ** (np.linspace(mel(bands.lowest), mel(RATE / 2), bands.bands + 2) / 2595) - 1)
    frequencies = np.arange(bands.fft // 2 + 1) * RATE / bands.fft
    low, peak, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (frequencies - low) / (peak - low), (high - frequencies) / (high - peak)
    return np.maximum(0.0, np.minimum(rising, falling))


@cache
def transform(bands: MelBands) -> Any:
    signal = _library("scipy.signal")
    window = signal.get_window("hann", bands.window)
    return signal.ShortTimeFFT(window, bands.hop, RATE, mfft=bands.fft)


def _library(name: str) -> Any:
    return optional(name, needed=f"sound needs {name.split('.')[0]}", extra="sound")
