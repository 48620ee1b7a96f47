"""T3: a checkpoint with a changed byte, or cut, is never loaded as if it were sound."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import torch

from torture.outcome import Outcome
from torture.runs import SmallRun, import_all
from training import tiny
from universal_transformer.errors import UserError
from universal_transformer.training import checkpoint as checkpoints
from universal_transformer.training.config import RunConfig
from universal_transformer.training.resume import GivenRun
from universal_transformer.training.state import Snapshot

DAMAGES = 500
HEADER = 64
"""First bytes of a file of tensors, of which each is changed."""


def fallback(share: float, folder: Path) -> Outcome:
    """T3: truncations and bit flips anywhere, and each byte of the JSON files and of the headers."""
    import_all(folder)
    run, draw, outcome = SmallRun(folder).folder, random.Random(0), Outcome()
    kept, read = run / "checkpoints", reader(run)
    newest = max(kept.glob("0*-*"))
    sound = {name: load(kept, read, name=name) for name in (newest.name, min(kept.glob("0*-*")).name)}
    contents = {path: path.read_bytes() for path in sorted(newest.iterdir())}

    def try_with(what: str, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        outcome.add(f"{path.name}, {what}", wrongly_loaded(kept, read, newest=newest.name, sound=sound))
        if not newest.exists():
            (kept / f"{checkpoints.DAMAGED}{newest.name}").rename(newest)
        path.write_bytes(contents[path])

    for _ in range(round(DAMAGES * share)):
        path = draw.choice(list(contents))
        data = bytearray(contents[path])
        place = draw.randrange(len(data))
        if draw.random() < 0.5:
            try_with(f"cut at {place}", path, bytes(data[:place]))
        else:
            data[place] ^= 1 << draw.randrange(8)
            try_with(f"a bit of byte {place}", path, bytes(data))
    for path, data in contents.items():
        size = HEADER if path.suffix == ".safetensors" else len(data)
        for place in range(0, size, max(1, round(1 / share))):
            changed = bytes([data[place] ^ draw.randrange(1, 256)])
            try_with(f"byte {place}", path, data[:place] + changed + data[place + 1 :])
    outcome.notes.append(
        f"{round(DAMAGES * share)} truncations and bit flips; single bytes of JSON and headers the rest"
    )
    return outcome


def reader(folder: Path):
    """Return what a resume of the run in `folder` checks in a checkpoint."""
    config = RunConfig.load(folder / "config.json")
    run = tiny.training_run(folder, config, config.data.load())
    given = GivenRun(folder, config, run.data, run.files, run._surroundings(), ())
    return partial(run._read, given=given)


def load(kept: Path, read, *, name: str) -> Snapshot:
    """Return a sound checkpoint."""
    return read(checkpoints._load(kept / name), name)


def wrongly_loaded(kept: Path, read, *, newest: str, sound: dict[str, Snapshot]) -> list[str]:
    """Return what is wrong with a load of checkpoints of which the newest is damaged."""
    try:
        found, warnings = checkpoints.load_newest(kept, read=read)
    except UserError as error:
        return [] if "\n" not in str(error) else ["more than one line"]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    if not warnings and found.name != newest:
        return ["the one before was loaded without a warning"]
    # white space of JSON carries nothing: then the newest is loaded, and equal
    return [] if same(found, sound[found.name]) else ["silently loaded"]


def same(one: Snapshot, other: Snapshot) -> bool:
    """Return whether two checkpoints are equal, bit for bit."""
    if one.checkpoint().state != other.checkpoint().state or one.tensors.keys() != other.tensors.keys():
        return False
    return all(
        found.keys() == other.tensors[part].keys()
        and all(torch.equal(tensor, other.tensors[part][name]) for name, tensor in found.items())
        for part, found in one.tensors.items()
    )
