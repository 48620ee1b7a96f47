"""T3: a checkpoint with a changed byte, or cut, is never loaded as if it were sound."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from torture.outcome import Outcome
from torture.runs import SmallRun, import_all
from universal_transformer.errors import UserError
from universal_transformer.runs import checkpoint as checkpoints
from universal_transformer.runs.checkpoint import Checkpoint

DAMAGES = 500
HEADER = 64
"""First bytes of a file of tensors, of which each is changed."""


def fallback(share: float, folder: Path) -> Outcome:
    """T3: truncations and bit flips anywhere, and each byte of the JSON files and of the headers."""
    import_all(folder)
    draw, outcome = random.Random(0), Outcome()
    kept = SmallRun(folder).folder / "checkpoints"
    newest = max(kept.glob("0*-*"))
    sound, before = (checkpoints._load(path) for path in (newest, min(kept.glob("0*-*"))))
    contents = {path: path.read_bytes() for path in sorted(newest.iterdir())}

    def try_with(what: str, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        outcome.add(f"{path.name}, {what}", wrongly_loaded(kept, sound=sound, before=before))
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
        size = min(HEADER, len(data)) if path.suffix == ".safetensors" else len(data)
        for place in range(0, size, max(1, round(1 / share))):
            changed = bytes([data[place] ^ draw.randrange(1, 256)])
            try_with(f"byte {place}", path, data[:place] + changed + data[place + 1 :])
    outcome.notes.append(
        f"{round(DAMAGES * share)} truncations and bit flips; single bytes of JSON and headers the rest"
    )
    return outcome


def wrongly_loaded(kept: Path, *, sound: Checkpoint, before: Checkpoint) -> list[str]:
    """Return what is wrong with a load of checkpoints of which the newest is damaged."""
    try:
        loaded, warnings = checkpoints.load_newest(kept)
    except UserError as error:
        return [] if "\n" not in str(error) else ["more than one line"]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    # white space of JSON carries nothing: then the newest is loaded, and equal
    return [] if same(loaded, before if warnings else sound) else ["silently loaded"]


def same(loaded: Checkpoint | None, other: Checkpoint) -> bool:
    """Return whether two checkpoints are equal, bit for bit."""
    if loaded is None or loaded.state != other.state or loaded.tensors.keys() != other.tensors.keys():
        return False
    return all(
        part.keys() == other.tensors[name].keys()
        and all(torch.equal(tensor, other.tensors[name][key]) for key, tensor in part.items())
        for name, part in loaded.tensors.items()
    )
