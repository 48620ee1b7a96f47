"""Sound files: what is read, what is changed and said, what is refused in one line; and mel bands against loops."""

import math
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from small_sounds import sound_file, tone, with_stated_flac_length, with_stated_length
from universal_transformer.data import sound
from universal_transformer.data.sound import FLOOR, HEARD, RATE, MelBands, decode_sound, filters, log_mel, read_sound
from universal_transformer.errors import UserError


def decode(content):
    return decode_sound(content, where="a.wav")


@pytest.mark.parametrize(
    ("kind", "subtype"), [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("WAVEX", "PCM_24"), ("FLAC", "PCM_16")]
)
def test_a_clip_has_the_samples_of_the_file_with_a_peak_of_one(tmp_path, kind, subtype):
    samples = tone(peak=0.03)
    (tmp_path / "clip").write_bytes(sound_file(samples, kind=kind, subtype=subtype))
    found = read_sound(tmp_path / "clip")
    assert found.notes == ()
    assert found.samples.dtype == np.float32
    assert np.abs(found.samples).max() == 1
    np.testing.assert_allclose(found.samples, samples / np.abs(samples).max(), atol=2e-3)


@pytest.mark.parametrize("rate", [4000, 11_025, 16_000, 44_100, 48_000])
def test_another_rate_is_converted_and_said(rate):
    found = decode(sound_file(tone(hertz=440, seconds=0.5, rate=rate), rate=rate))
    assert found.notes == (f"a.wav: {rate:,} samples a second are converted to 8,000",)
    assert len(found.samples) == math.ceil(0.5 * RATE)
    spectrum = np.abs(np.fft.rfft(found.samples))
    assert spectrum.argmax() * RATE / len(found.samples) == pytest.approx(440, abs=3)


def test_channels_are_averaged_and_said():
    left, right = tone(hertz=300), tone(hertz=700)
    found = decode(sound_file(np.stack([left, right], axis=1)))
    mean = (left + right) / 2
    np.testing.assert_allclose(found.samples, mean / np.abs(mean).max(), atol=1e-3)
    assert found.notes == ("a.wav: the mean of 2 channels is read",)


def test_the_mean_of_large_channels_is_finite():
    found = decode(sound_file(np.full((4000, 4), 3e38, np.float32), subtype="FLOAT"))
    assert (found.samples == 1).all()


WAV, FLAC = sound_file(tone()), sound_file(tone(), kind="FLAC")
REFUSED = {
    "silent": (sound_file(np.zeros(4000, np.float32)), "silent, its peak is 0"),
    "too long": (sound_file(tone(seconds=31.0)), "31.00 seconds long; expected 0.05 to 30"),
    "too short": (sound_file(tone(seconds=0.01)), "0.01 seconds long"),
    "no samples": (sound_file(np.zeros(0, np.float32)), "0.00 seconds long"),
    "cut short": (WAV[:-1000], "its header states 4,844 bytes, it has 3,844; is it cut short?"),
    "cut short, big-endian": (
        b"RIFX"
        + struct.pack(">I", 4836)
        + b"WAVEfmt "
        + struct.pack(">IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
        + b"data"
        + struct.pack(">I", 4800)
        + b"\1" * 2400,
        "its header states 4,844 bytes, it has 2,444; is it cut short?",
    ),
    "header alone": (WAV[:44], "its header states 4,844 bytes, it has 44"),
    "half a header": (WAV[:30], "its header states 4,844 bytes, it has 30"),
    "lying WAV": (with_stated_length(WAV, 0xFFFFFFF0), "its header states 4,294,967,288 bytes"),
    "lying FLAC": (with_stated_flac_length(FLAC, 2**36 - 1), "8,589,934.59 seconds long"),
    "FLAC of more samples": (with_stated_flac_length(FLAC, 9000), "is it cut short?|not a whole WAV or FLAC file"),
    "cut FLAC": (FLAC[: len(FLAC) // 2], "is it cut short?|not a whole WAV or FLAC file"),
    "NaN": (sound_file(np.append(tone(), np.nan), subtype="FLOAT"), "a sample that is no finite number"),
    "infinite": (sound_file(np.append(tone(), np.inf), subtype="FLOAT"), "a sample that is no finite number"),
    "low rate": (sound_file(tone(), rate=1000), "1,000 samples a second; expected 4,000 to 192,000"),
    "another format": (sound_file(tone(), kind="AIFF"), "a file of format AIFF; expected WAV or FLAC"),
    "text": (b"seven\n" * 100, "not a whole WAV or FLAC file"),
    "empty": (b"", "not a whole WAV or FLAC file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_file_gives_one_line(name):
    content, message = REFUSED[name]
    with pytest.raises(UserError, match=message.replace("?|", "\\?|")) as caught:
        decode(content)
    assert str(caught.value).startswith("a.wav: ")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["lying WAV", "lying FLAC", "too long"])
def test_a_refused_file_is_not_read_into_memory(name):
    content, _ = REFUSED[name]
    tracemalloc.start()
    with pytest.raises(UserError):
        decode(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_samples_of_all_channels_are_limited_together(monkeypatch):
    monkeypatch.setattr(sound, "MOST_NUMBERS", 9000)
    with pytest.raises(UserError, match="2,400 samples of 4 channels; expected at most 9,000 in all"):
        decode(sound_file(np.stack([tone()] * 4, axis=1)))


@pytest.mark.parametrize("content", [WAV, FLAC], ids=["WAV", "FLAC"])
@given(share=st.floats(0, 1, exclude_max=True))
def test_no_part_of_a_file_is_taken_for_the_whole(content, share):
    with pytest.raises(UserError):
        decode(content[: int(share * len(content))])


@pytest.mark.parametrize(
    ("name", "message"), [("none.wav", "no such file"), ("", "not a file"), ("a\0b", "no such file")]
)
def test_a_path_that_is_no_file_gives_one_line(tmp_path, name, message):
    with pytest.raises(UserError, match=message):
        read_sound(f"{tmp_path}/{name}")


@pytest.mark.parametrize("module", ["soundfile", "scipy.signal"])
def test_a_missing_library_names_the_extra(monkeypatch, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    sound.transform.cache_clear()
    content = sound_file(tone(rate=16_000), rate=16_000) if module == "scipy.signal" else WAV
    with pytest.raises(UserError, match=r"pip install 'universal-transformer\[sound\]'"):
        decode(content)


@pytest.mark.parametrize("bands", [HEARD, MelBands(fft=64, window=48, hop=20, bands=6)], ids=["heard", "small"])
def test_frames_are_the_energies_of_the_equation(bands):
    samples = np.random.default_rng(0).normal(size=501).astype(np.float32)
    found, triangles = log_mel(samples, bands=bands), filters(bands)
    assert found.shape == (math.ceil(501 / bands.hop), bands.bands)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(bands.window) / bands.window)
    for place in range(len(found)):
        energies = np.zeros(bands.fft // 2 + 1)
        for k in range(len(energies)):
            total = 0j
            for n in range(bands.window):
                at = place * bands.hop + n - bands.window // 2
                if 0 <= at < len(samples):
                    total += window[n] * samples[at] * np.exp(-2j * np.pi * k * n / bands.fft)
            energies[k] = abs(total) ** 2
        expected = np.log(np.maximum(triangles @ energies, FLOOR))
        np.testing.assert_allclose(found[place], expected, rtol=1e-4, atol=1e-4)


def test_triangles_are_equally_distant_on_the_mel_scale_and_add_up_to_one_between_their_peaks():
    triangles = filters(MelBands(fft=4096, window=200, hop=80, bands=40))
    peaks = triangles.argmax(axis=1) * RATE / 4096
    mels = 2595 * np.log10(1 + peaks / 700)
    np.testing.assert_allclose(np.diff(mels), np.diff(mels).mean(), rtol=0.1)
    between = triangles[:, int(peaks[0] * 4096 / RATE) + 1 : int(peaks[-1] * 4096 / RATE)]
    np.testing.assert_allclose(between.sum(axis=0), 1, atol=1e-6)
    assert (filters(HEARD).sum(axis=1) > 0).all(), "no band is empty"


def test_a_tone_is_loudest_in_its_band():
    peaks = filters(HEARD).argmax(axis=1) * RATE / HEARD.fft
    for hertz in (500, 1000, 2000):
        frames = log_mel(tone(hertz=hertz))[5:-5]
        assert np.abs(peaks[frames.argmax(axis=1)] - hertz).max() < 100
