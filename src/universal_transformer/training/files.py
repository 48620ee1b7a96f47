"""The files of a run folder: what they are called, and writing them so that the disk has them. Needs no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG = "config.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
MODEL = "model"
REPORT = "report.json"


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def encode_json(value: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Put a JSON file in place, whole or not at all."""
    staging = path.with_name(f".{path.name}.partial")
    write_synced(staging, encode_json(value))
    staging.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the disk knows the names in `folder`."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
