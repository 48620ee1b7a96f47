"""Small sound files."""

import io
import struct

import numpy as np
import soundfile

from universal_transformer.data.sound import RATE


def tone(*, hertz=440.0, seconds=0.3, rate=RATE, peak=0.5):
    """Samples of a sine."""
    return (peak * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def sound_file(samples, *, rate=RATE, kind="WAV", subtype="PCM_16"):
    """The bytes of a file."""
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, format=kind, subtype=subtype)
    return stream.getvalue()


def with_stated_length(wav, stated):
    """The bytes of a WAV file with another length in its header."""
    assert wav[:4] == b"RIFF"
    return wav[:4] + struct.pack("<I", stated) + wav[8:]


def with_stated_flac_length(flac, stated):
    """The bytes of a FLAC file whose first block states another number of samples (36 bits from byte 21 on)."""
    assert flac[:4] == b"fLaC"
    return flac[:21] + bytes([(flac[21] & 0xF0) | (stated >> 32)]) + struct.pack(">I", stated & 0xFFFFFFFF) + flac[26:]
