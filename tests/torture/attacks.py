"""F2: model folders that somebody made in order to attack: each is refused in one line by whatever opens it."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cli.test_damaged_models import answer, make_run
from torture.folders import watched
from torture.outcome import Outcome
from universal_transformer.errors import UserError

LINE = "I JUMP"
LARGEST = 2**31 - 1
Attack = Callable[[Path], None]
"""Changes the model folder of a sound run."""


class Planted:
    """Unpickling it would make a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch /tmp/planted",))


def content(name: str, data: bytes) -> Attack:
    """Exchange a file."""

    def attack(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return attack


def value(name: str, place: str, new: Any) -> Attack:
    """Exchange or add one value of a JSON file."""

    def attack(folder: Path) -> None:
        fields = json.loads((folder / name).read_text())
        *way, last = place.split(".")
        inner = fields
        for key in way:
            inner = inner[key]
        inner[last] = new
        (folder / name).write_text(json.dumps(fields))

    return attack


def header(change: Callable[[dict[str, Any]], object]) -> Attack:
    """Change the header of the weights."""

    def attack(folder: Path) -> None:
        data = (folder / "model.safetensors").read_bytes()
        size = int.from_bytes(data[:8], "little")
        fields = json.loads(data[8 : 8 + size])
        change(fields)
        text = json.dumps(fields).encode()
        (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])

    return attack


def first(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a tensor."""
    return fields[min(name for name in fields if name != "__metadata__")]


def linked(name: str, target: str) -> Attack:
    """Put a link in the place of a file, as an archive can hold one."""

    def attack(folder: Path) -> None:
        (folder / name).unlink()
        os.symlink(target, folder / name)

    return attack


def in_place(name: str, make: Callable[[Path], object]) -> Attack:
    """Put something else in the place of a file."""

    def attack(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return attack


def manifest(files: dict[str, Any]) -> Attack:
    """Put a manifest of these files."""
    return content("manifest.json", json.dumps({"format": 1, "files": files}).encode())


def zipped(path: Path) -> None:
    """Write an archive with a pickle, as torch.save does."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Planted()))


EMPTY = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
PADDING = {
    "strategy": {"Fixed": 2**40},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "x",
}
SPLIT = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
TRUNCATION = {"max_length": 0, "strategy": "LongestFirst", "stride": 9, "direction": "Right"}
ENTRY = {"sha256": "0" * 64, "bytes": 1}
WEIGHTS, CONFIG, CODEC, TOKENIZER = "model.safetensors", "config.json", "codec.json", "tokenizer.json"
ATTACKS: dict[str, Attack] = {
    "a pickle as weights": content(WEIGHTS, pickle.dumps(Planted())),
    "a torch archive as weights": in_place(WEIGHTS, zipped),
    "a pickle as configuration": content(CONFIG, pickle.dumps(Planted())),
    "a pickle as tokenizer": content(TOKENIZER, pickle.dumps(Planted())),
    "a gzip bomb as configuration": content(CONFIG, gzip.compress(bytes(10**7))),
    "a header of 2^63 bytes": content(WEIGHTS, b"\xff" * 7 + b"\x7f" + b"{}"),
    "a header longer than the file": content(WEIGHTS, (10**6).to_bytes(8, "little") + b"{}"),
    "a header of 64 MB": content(WEIGHTS, (2**26).to_bytes(8, "little") + b" " * 2**26),
    "a header of no JSON": content(WEIGHTS, (9).to_bytes(8, "little") + b"not JSON!"),
    "a deep header": content(WEIGHTS, (200_000).to_bytes(8, "little") + b"[" * 200_000),
    "offsets after the end": header(lambda fields: first(fields).update(data_offsets=[0, 2**40])),
    "offsets that run backwards": header(lambda fields: first(fields).update(data_offsets=[8, 0])),
    "negative offsets": header(lambda fields: first(fields).update(data_offsets=[-8, 0])),
    "a tensor of 2^60 numbers": header(lambda fields: first(fields).update(shape=[2**30, 2**30])),
    "a negative shape": header(lambda fields: first(fields).update(shape=[-1])),
    "an unknown type": header(lambda fields: first(fields).update(dtype="O8")),
    "integers as weights": header(lambda fields: first(fields).update(dtype="I32")),
    "a tensor more": header(lambda fields: fields.update({"../../x": EMPTY})),
    "a tensor less": header(lambda fields: fields.pop(min(name for name in fields if name != "__metadata__"))),
    "a tensor of escapes": header(lambda fields: fields.update({"\x1b[2J\n": fields.pop(min(fields))})),
    "width 1e9": value(CONFIG, "sizes.width", 10**9),
    "a vocabulary of 2^31": value(CONFIG, "vocabulary.size", LARGEST),
    "2^31 blocks": value(CONFIG, "step.blocks", LARGEST),
    "untied steps without end": value(CONFIG, "step", {"tied": False, "blocks": LARGEST}),
    "a module to import": value(CONFIG, "transition.kind", "os.system"),
    "a halting rule to import": value(CONFIG, "halting.rule", "subprocess:run"),
    "another architecture": value(CONFIG, "architecture", "../../evil"),
    "an unknown field": value(CONFIG, "auto_map", {"AutoModel": "evil.Model"}),
    "a key twice": content(CONFIG, b'{"architecture": "classifier", "architecture": "encoder_decoder"}'),
    "NaN in the configuration": content(CONFIG, b'{"step": {"dropout": NaN}}'),
    "a deep configuration": content(CONFIG, b'{"a":' * 100_000),
    "a number of 5,000 digits": content(CONFIG, b'{"sizes": {"width": 1' + b"0" * 5_000 + b"}}"),
    "a device as weights": linked(WEIGHTS, "/dev/zero"),
    "a FIFO as weights": in_place(WEIGHTS, os.mkfifo),
    "a link to /etc/passwd as configuration": linked(CONFIG, "/etc/passwd"),
    "a manifest of files above": manifest({"../../config.json": ENTRY}),
    "a manifest of /etc/passwd": manifest({"/etc/passwd": ENTRY}),
    "a manifest of a link": lambda folder: (os.symlink("/etc/passwd", folder / "x"), manifest({"x": ENTRY})(folder))[1],
    "a manifest of a folder": lambda folder: ((folder / "x").mkdir(), manifest({"x": ENTRY})(folder))[1],
    "another codec": value(CODEC, "kind", "../../evil"),
    "a huge padding of the tokenizer": value(TOKENIZER, "padding", PADDING),
    "a regular expression without end": value(TOKENIZER, "pre_tokenizer", SPLIT),
    "a truncation of the tokenizer": value(TOKENIZER, "truncation", TRUNCATION),
}


def refused(share: float, folder: Path) -> Outcome:
    """F2: each attack, in a process whose outside actions are recorded; the share changes nothing."""
    del share
    make_run(folder / "pairs", "pairs")
    (folder / "pairs" / "model" / "manifest.json").unlink()  # the attacker would write one that fits
    outcome, place = Outcome(), folder / "run"
    assert isinstance(answer(folder / "pairs", LINE), str)

    def prepare(name: str) -> Callable[[], list[object]]:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder / "pairs", place)
        ATTACKS[name](place / "model")
        return partial(opened, place)

    _, problems = watched([*ATTACKS], folder, prepare)
    for name in ATTACKS:
        outcome.add(name, problems.get(name, []))
    return outcome


def opened(folder: Path) -> list[object]:
    """Return the error of a run that is opened; AssertionError if it answers."""
    found = answer(folder, LINE)
    assert isinstance(found, UserError), f"it answered {found!r}"
    return [found]
