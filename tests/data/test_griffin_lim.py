"""Frames of mel bands to samples: what is kept of a sound, and what is bounded."""

import numpy as np
import pytest

from small_sounds import tone
from universal_transformer.data.griffin_lim import LOUDEST, frequency_energies, spectral_convergence, waveform
from universal_transformer.data.recordings import RECORDINGS, recorded_frames
from universal_transformer.data.sound import (
    FLOOR,
    RATE,
    SPOKEN,
    MelBands,
    decode_sound,
    encode_wav,
    filters,
    log_mel,
    transform,
)


def chirp(seconds=0.5):
    """A sound whose frequency rises, with silence around it."""
    time = np.arange(round(seconds * RATE)) / RATE
    sound = 0.9 * np.sin(2 * np.pi * (300 * time + 2400 * time**2))
    return np.concatenate([np.zeros(800), sound, np.zeros(800)]).astype(np.float32)


@pytest.mark.parametrize("bands", [SPOKEN, MelBands(fft=256, window=200, hop=50, bands=32)])
def test_the_frames_of_the_samples_are_nearly_the_given_ones(bands):
    frames = log_mel(chirp(), bands=bands)
    samples = waveform(frames, bands=bands)
    assert samples.dtype == np.float32
    assert len(samples) == len(frames) * bands.hop
    again, loud = log_mel(samples, bands=bands), frames > 0
    assert np.abs(again - frames)[loud].mean() < 1.0
    assert spectral_convergence(samples, chirp(), bands=bands) < 0.5


def test_phases_are_found_where_the_magnitudes_are_known(monkeypatch):
    sound = chirp()
    frames = log_mel(sound, bands=SPOKEN)
    energies = np.abs(transform(SPOKEN).stft(sound.astype(np.float64), p0=0, p1=len(frames)).T) ** 2
    monkeypatch.setattr("universal_transformer.data.griffin_lim.frequency_energies", lambda *_, **__: energies)
    assert spectral_convergence(waveform(frames, bands=SPOKEN), sound, bands=SPOKEN) < 0.12


def test_energies_of_frequencies_are_not_negative_and_have_the_energies_of_the_bands():
    frames = log_mel(chirp(), bands=SPOKEN)
    found = frequency_energies(frames, bands=SPOKEN)
    assert found.min() >= 0
    wanted = np.exp(frames.astype(np.float64))
    assert np.linalg.norm(found @ filters(SPOKEN).T - wanted) < 0.05 * np.linalg.norm(wanted)


def test_silence_stays_silent_and_no_frame_gives_a_sample_beyond_one():
    silent = np.full((5, SPOKEN.bands), np.log(FLOOR), dtype=np.float32)
    assert not waveform(silent, bands=SPOKEN).any()
    loud = waveform(np.full((5, SPOKEN.bands), 1000.0, dtype=np.float32), bands=SPOKEN)
    assert np.abs(loud).max() == pytest.approx(1.0)
    loudest = log_mel(np.sign(tone(hertz=1000, peak=1.0)), bands=SPOKEN)
    assert loudest.max() < LOUDEST


def test_one_frame_is_sound_too():
    assert len(waveform(log_mel(chirp(), bands=SPOKEN)[:1], bands=SPOKEN)) == SPOKEN.hop


def test_the_same_frames_give_the_same_samples():
    frames = log_mel(chirp(), bands=SPOKEN)
    assert np.array_equal(waveform(frames, bands=SPOKEN), waveform(frames, bands=SPOKEN))


def test_samples_are_read_from_the_file_that_has_them():
    samples = chirp()
    content = encode_wav(samples)
    found = decode_sound(content, where="a.wav")
    assert not found.notes
    np.testing.assert_allclose(found.samples * np.abs(samples).max(), samples, atol=1e-4)


def test_a_recording_is_copied(shared_data):
    frames = recorded_frames()
    for one in RECORDINGS[::700]:
        samples = frames.sound(one).samples
        copied = waveform(log_mel(samples, bands=SPOKEN), bands=SPOKEN)
        assert spectral_convergence(copied, samples, bands=SPOKEN) < 0.3
