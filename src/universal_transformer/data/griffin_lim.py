"""Frames of mel bands to samples: the inverse of `sound.log_mel`, as far as there is one.

Frames have energies of bands and no phases. The energies of frequencies are non-negative numbers ``S`` with ``M S``
near the energies of the bands ``E``, by multiplicative updates (Lee and Seung 2001) from ``S = Mᵀ E`` on:

    S ← S · Mᵀ E / (Mᵀ M S)

The phases are those of a signal whose spectrum has nearly these energies (Griffin and Lim 1984), with the momentum
``α`` of Perraudin, Balazs and Søndergaard (2013). With ``T`` the transform and ``T⁺`` its inverse:

    R_i = T T⁺ (√S · C_i / |C_i|),   C_(i+1) = R_i + α (R_i - R_(i-1))

The slices of ``T`` before the first frame and after the last one are free: they take the values of ``R``.
"""

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.example import Frames
from universal_transformer.data.sound import FLOOR, MelBands, Samples, filters, transform

INVERSIONS, ITERATIONS, MOMENTUM = 100, 30, 0.99
LOUDEST = 14.0
"""Log energy above that of any band of samples between -1 and 1; a band of a model may have more."""
LEAST = 1e-12


def waveform(frames: Frames, *, bands: MelBands) -> Samples:
    """Return `hop` samples for each frame of log energies; samples beyond 1 are scaled to a peak of 1.

    Bands at the floor of `log_mel` have no energy. The same frames give the same samples.
    """
    magnitudes = np.sqrt(frequency_energies(frames, bands=bands)).T
    inverse, whole = transform(bands), len(frames) * bands.hop
    length = max(whole, bands.window)  # a transform needs one window
    first, last = inverse.p_min, inverse.p_max(length)
    given = np.arange(first, last)
    given = (given >= 0) & (given < len(frames))
    wanted = np.zeros((len(magnitudes), len(given)))
    wanted[:, given] = magnitudes
    spectrum = wanted * np.exp(2j * np.pi * np.random.default_rng(0).random(wanted.shape))
    before = np.zeros_like(spectrum)
    for _ in range(ITERATIONS):
        found = inverse.stft(inverse.istft(spectrum, k1=length))
        moved = found + MOMENTUM * (found - before)
        spectrum = np.where(given, wanted * moved / np.maximum(np.abs(moved), LEAST), found)
        before = found
    samples = inverse.istft(spectrum, k1=length)[:whole]
    return (samples / max(1.0, np.abs(samples).max())).astype(np.float32)


def frequency_energies(frames: Frames, *, bands: MelBands) -> NDArray[np.float64]:
    """Return S of the module's equation [frame, frequency]."""
    matrix = filters(bands)
    energies = np.maximum(0.0, np.exp(np.minimum(frames, LOUDEST).astype(np.float64)) - FLOOR)
    target, products = energies @ matrix, matrix.T @ matrix
    found = target.copy()
    for _ in range(INVERSIONS):
        found *= target / np.maximum(found @ products, LEAST)
    return found


def spectral_convergence(samples: Samples, like: Samples, *, bands: MelBands) -> float:
    """Return ``‖|T x| - |T y|‖ / ‖|T y|‖`` of two sounds over the shorter one: 0 for the same magnitudes."""
    length = min(len(samples), len(like))
    first, second = (np.abs(transform(bands).stft(one[:length].astype(np.float64))) for one in (samples, like))
    return float(np.linalg.norm(first - second) / np.linalg.norm(second))
