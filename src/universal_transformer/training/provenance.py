"""The machine, versions and commit that a figure was computed with."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import universal_transformer

SECONDS = 20


@dataclass(frozen=True)
class Code:
    """The code and versions that compute a figure."""

    commit: str | None
    """None if the code is in no git checkout, or git is missing."""
    clean: bool | None
    """Whether the files of the package, and of `paper/` in a clone, are as committed; None without a commit."""
    versions: dict[str, str]
    """Of Python, torch and this package."""

    def values(self) -> dict[str, str | bool | None]:
        return {**self.versions, "commit": self.commit, "clean": self.clean}

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Code:
        """Undo `values`."""
        commit = None if line["commit"] is None else str(line["commit"])
        return cls(commit, line["clean"], {name: str(line[name]) for name in versions()})

    def __str__(self) -> str:
        commit = show_commit(self.commit, clean=self.clean)
        return f"commit {commit}, {', '.join(f'{name} {text}' for name, text in self.versions.items())}"


def show_commit(commit: str | None, *, clean: bool | None) -> str:
    return "unknown" if commit is None else commit[:10] + ("" if clean else " (changed)")


@cache
def code_in_use() -> Code:
    """Return the code of this process, looked up once: later changes on disk do not change what runs."""
    source = Path(universal_transformer.__file__).parent
    # a package installed inside another project's checkout does not belong to that checkout
    if _git(source, "ls-files", "--error-unmatch", "__init__.py") is None:
        return Code(None, None, versions())
    commit = _git(source, "rev-parse", "HEAD")
    changes = _git(source, "status", "--porcelain", "--", ".", ":(top)paper")
    return Code(commit, None if commit is None or changes is None else not changes, versions())


def _git(folder: Path, *arguments: str) -> str | None:
    program = shutil.which("git")
    if program is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603  the arguments are ours
            [program, "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()


def processor() -> str:
    """Return the processor's name as the system reports it, or at least its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine() or "unknown"


def hardware(*, threads: int, device: str) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "cpu": processor(),
        "cores": os.cpu_count() or 0,
        "threads": threads,
        "device": device,
    }
    if device == "cuda":
        import torch

        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "universal_transformer": universal_transformer.__version__,
    }
