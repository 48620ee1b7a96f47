"""Word error of spoken digits without a neural network: kernel ridge regression on pooled frames.

    python experiments/speech_baseline.py

A recording becomes the means of its frames of mel bands in `SEGMENTS` equal parts of its time, each number scaled to
mean 0 and variance 1 over the training data. With the kernel ``k(x, y) = exp(-|x - y|² / 2d)`` of d numbers and
the targets ``Y`` (1 for the digit said, -1 for the others), the answer to ``x`` is the largest entry of
``k(x, X) (K + λ I)^-1 Y``. Training data are the recordings 5 to 49, as in the official split: the baseline needs no
validation. Each speaker is left out in turn for the second figure.
"""

import numpy as np

from universal_transformer.data.recordings import PARTS, RECORDINGS, SPEAKERS, recorded_frames

SEGMENTS, RIDGE = 10, 0.01


def pooled(frames):
    """Return the means of equal parts of the frames, one after the other."""
    return np.concatenate([part.mean(axis=0) for part in np.array_split(frames, SEGMENTS)])


def word_error(train, test):
    """Return the share of test recordings whose digit is not recognised, in per cent."""
    frames = recorded_frames()
    first, second = (np.stack([pooled(frames[one]) for one in part]).astype(np.float64) for part in (train, test))
    mean, deviation = first.mean(axis=0), first.std(axis=0)
    first, second = (first - mean) / deviation, (second - mean) / deviation

    def kernel(left, right):
        squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
        return np.exp(-squares / (2 * left.shape[1]))

    targets = 2.0 * np.eye(10)[[one.digit for one in train]] - 1
    weights = np.linalg.solve(kernel(first, first) + RIDGE * np.eye(len(first)), targets)
    given = (kernel(second, first) @ weights).argmax(axis=1)
    return 100 * float(np.mean(given != [one.digit for one in test]))


def main():
    """Print a table."""
    test = [one for one in RECORDINGS if one.number in PARTS["test"]]
    train = [one for one in RECORDINGS if one.number not in PARTS["test"]]
    print("| test | recordings | word error % |\n|---|---|---|")
    print(f"| official split | {len(test)} | {word_error(train, test):.2f} |")
    errors = []
    for speaker in SPEAKERS:
        unseen = [one for one in RECORDINGS if one.speaker == speaker]
        errors.append(word_error([one for one in train if one.speaker != speaker], unseen))
        print(f"| unseen speaker {speaker} | {len(unseen)} | {errors[-1]:.1f} |")
    print(f"| unseen speaker, mean of {len(errors)} | {len(RECORDINGS)} | {np.mean(errors):.1f} |")


if __name__ == "__main__":
    main()
