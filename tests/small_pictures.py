"""Small pictures: a data set of handwritten digits in miniature, and files of pictures."""

import io
import json
import tarfile

import numpy as np
from PIL import Image


def digit(number, place):
    """A picture of 28 × 28 pixels that says its number and its place in the file of this number."""
    picture = np.zeros((28, 28), dtype=np.uint8)
    picture[4 : 24 - number, 10:18] = 40 + 20 * number
    picture[26, place % 28] = 255
    return picture


def digits_json(number, *, each):
    pictures = np.stack([digit(number, place) for place in range(each)])
    return json.dumps({"data": [round(float(value), 4) for value in (pictures / 255).ravel()]})


def write_digits(folder, *, each=10, packed=False):
    """Write the data set into `folder`/mnist10k, as ten files or as an archive of them; return `folder`."""
    place = folder / "mnist10k"
    place.mkdir(parents=True)
    files = {f"digits/{number}.json": digits_json(number, each=each).encode() for number in range(10)}
    if not packed:
        (place / "digits").mkdir()
        for name, content in files.items():
            (place / name).write_bytes(content)
        return folder
    with tarfile.open(place / "digits.tar.xz", "w:xz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return folder


def write_picture(path, pixels=None, *, mode="L", size=(6, 4)):
    """Write a picture file; without `pixels` a grey one, brighter to the right."""
    if pixels is None:
        pixels = np.tile(np.linspace(0, 255, size[0]).astype(np.uint8), (size[1], 1))
    Image.fromarray(pixels).convert(mode).save(path)
    return path


def write_captions(folder, *, count=12, name="captions.tsv"):
    """Write pictures of two captions and the file that names them; return the path of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(count):
        pixels = np.full((8, 8), 20 * (number % 2) + number, dtype=np.uint8)
        write_picture(folder / f"{number}.png", pixels)
        lines.append(f"{number}.png\t{['dark', 'bright'][number % 2]}\n")
    path = folder / name
    path.write_text("".join(lines))
    return path
