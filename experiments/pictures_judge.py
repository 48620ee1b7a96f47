"""Ask a model for 1,000 digits, and let a classifier that has seen real digits only say which ones they show.

    python experiments/pictures_judge.py RUN [--record FILE] [--count 100] [--temperature 1]

RUN is a run of `ut train pictures`. The judge is a support vector machine with an RBF kernel (scikit-learn, C = 10),
trained on the pictures of the training part in the form that the model writes. It is judged first, on the 1,000 real
pictures of the test part. Then each of the ten captions is drawn `--count` times at temperature 1, and a drawn picture
counts if the judge reads the digit that was asked for.

Low temperatures can score high with one form of each digit. Two distances show whether forms differ and are new: that
of a drawn picture to the nearest training picture, and to the nearest other drawn picture of its caption (Euclidean,
black is 0 and white is 1). The same distances of real test pictures are printed with them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from study import record

from universal_transformer.data.example import FIRST
from universal_transformer.data.handwriting import block_means, load_handwriting
from universal_transformer.decoding import Sampling
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.prediction import predict
from universal_transformer.rules import Exit
from universal_transformer.runs.opened import open_run
from universal_transformer.tasks.pictures import NAMES, PictureCodec
from universal_transformer.tasks.sides.picture import Raster

Vectors = np.ndarray


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--record", type=Path, help="write the figures with their provenance")
    parser.add_argument("--count", type=int, default=100, help="pictures of each digit")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exit", help="stop positions early, for instance confidence:0.9")
    parser.add_argument("--data-dir", default="", help="folder with the data sets (default: UT_DATA)")
    chosen = parser.parse_args()

    run = open_run(chosen.run)
    codec = run.codec
    if not isinstance(codec.target, Raster):
        raise SystemExit(f"{chosen.run}: expected a run of pictures")
    parts = load_handwriting(chosen.data_dir)
    real = {name: as_drawn(codec, part.pictures) for name, part in parts.items()}
    digits = {name: part.digits for name, part in parts.items()}
    judge = trained_judge(real["train"], digits["train"])

    options = DecodingOptions(
        sampling=Sampling(temperature=chosen.temperature, seed=chosen.seed),
        exit=None if chosen.exit is None else Exit.parse(chosen.exit),
    )
    lines = list(enumerate(list(NAMES) * chosen.count, start=1))
    answers = list(predict(run.model, codec, codec.read(lines, name="captions"), options=options))
    drawn = np.stack([vector(codec, ids_of(answer.text)) for answer in answers])
    asked = np.tile(np.arange(10), chosen.count)
    read = judge.predict(drawn)

    figures: dict[str, Any] = {
        "judge_accuracy_on_real_test_pictures": float((judge.predict(real["test"]) == digits["test"]).mean()),
        "drawn": len(drawn),
        "read_as_asked": float((read == asked).mean()),
        "read_as_asked_by_digit": {NAMES[digit]: float((read[asked == digit] == digit).mean()) for digit in range(10)},
        "distance_to_nearest_training_picture": nearest(drawn, real["train"]),
        "distance_of_real_test_pictures_to_it": nearest(real["test"], real["train"]),
        "distance_to_nearest_drawn_picture": nearest_other(drawn, asked),
        "distance_between_real_test_pictures": nearest_other(real["test"], digits["test"]),
    }
    record(chosen.record, run, figures, temperature=chosen.temperature, seed=chosen.seed)
    return 0


def as_drawn(codec: PictureCodec, pictures: Vectors) -> Vectors:
    """Return real pictures in the side and the intensities of the model, one vector from 0 to 1 each."""
    return np.stack([vector(codec, codec.target.ids(one)) for one in block_means(pictures, side=codec.target.side)])


def vector(codec: PictureCodec, target: tuple[int, ...]) -> Vectors:
    return codec.target.picture(target).ravel() / 255


def ids_of(text: str) -> tuple[int, ...]:
    """Return the ids of a picture as `Raster.render` writes it."""
    return tuple(FIRST + value for value in bytes.fromhex(text))


def trained_judge(vectors: Vectors, digits: Vectors) -> Any:
    try:
        from sklearn.svm import SVC
    except ImportError as error:
        raise SystemExit("the judge needs scikit-learn: run pip install 'universal-transformer[judge]'") from error
    return SVC(C=10.0, gamma="scale").fit(vectors, digits)


def nearest(vectors: Vectors, others: Vectors) -> float:
    """Return the mean distance of `vectors` to the nearest of `others`."""
    return float(np.mean([np.sqrt(((others - one) ** 2).sum(axis=1).min()) for one in vectors]))


def nearest_other(vectors: Vectors, groups: Vectors) -> float:
    """Return the mean distance of a vector to the nearest other one of its group, if it has another one."""
    found = []
    for place, one in enumerate(vectors):
        same = groups == groups[place]
        same[place] = False
        if same.any():
            found.append(np.sqrt(((vectors[same] - one) ** 2).sum(axis=1).min()))
    return float(np.mean(found))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(str(error))
