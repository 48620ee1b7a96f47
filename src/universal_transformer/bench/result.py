"""What a benchmark hands back: one measurement a line, the machine beside it, as JSON and as a table."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from universal_transformer.training.provenance import processor

PACKAGES = ("universal-transformer", "torch", "transformers", "x-transformers")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One comparison. ``seconds`` are medians of one call of each side.

    ``ratio`` says how many times faster ``ours`` is than ``over``, the median over turns. ``bound`` is what it could be
    at most, or ``None``; ``least`` is what this project asks of ``share`` (of ``ratio`` where there is no bound).
    """

    case: str
    name: str
    dtype: str = "float32"
    shape: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    turns: int = 0
    ours: str = ""
    over: str = ""
    ratio: float | None = None
    bound: float | None = None
    least: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """The share of the bound that is reached."""
        return None if self.ratio is None or self.bound is None else self.ratio / self.bound

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self) | {"share": self.share}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``seconds``: about how long each comparison runs. ``quick``: tiny shapes, which show that it runs and no more."""

    seconds: float = 6.0
    quick: bool = False
    threads: int = 0


def versions() -> dict[str, str]:
    """Versions of what was measured, as far as installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine() -> dict[str, Any]:
    """Processor, cores, instruction sets that matter, GPU."""
    import torch

    flags = set[str]()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                flags = set(line.split(":", 1)[1].split())
    except OSError:
        pass  # not Linux
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    return {
        "system": platform.system(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "instructions": [name for name in wanted if name in flags],
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def report(measurements: Sequence[Measurement], *, settings: Settings) -> dict[str, Any]:
    """Everything a reader needs to place the figures."""
    import torch

    return {
        "machine": machine(),
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "settings": asdict(settings),
        "measurements": [each.to_dict() for each in measurements],
    }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def rows(measurements: Sequence[Measurement]) -> list[list[str]]:
    """The table: heading first."""
    table = [["case", "what", "type", "medians (ms)", "ratio", "bound", "share", "asked"]]
    for each in measurements:
        medians = ", ".join(f"{name} {1000 * value:.2f}" for name, value in each.seconds.items())
        table.append(
            [
                each.case,
                each.name,
                each.dtype,
                medians,
                _number(each.ratio),
                _number(each.bound),
                _number(each.share),
                _number(each.least),
            ]
        )
    return table


def markdown(found: Mapping[str, Any]) -> str:
    """The tables of what `report` gave, one a case, and under which conditions."""
    machine, versions = found["machine"], found["versions"]
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, {machine['gpu'] or 'no GPU'}, "
        + f"{found['threads']} thread(s); "
        + ", ".join(f"{name} {value}" for name, value in versions.items())
        + f"; at least {found['settings']['seconds']:g} s a comparison."
    ]
    measurements = found["measurements"]
    for case in dict.fromkeys(each["case"] for each in measurements):
        lines += ["", f"### {case}", "", "| what | type | over | ratio | bound | share | asked | turns |"]
        lines.append("|---|---|---|---|---|---|---|---|")
        for each in measurements:
            if each["case"] == case:
                figures = [_number(each[name]) for name in ("ratio", "bound", "share", "least")]
                cells = [each["name"], each["dtype"], each["over"], *figures, str(each["turns"])]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def render(measurements: Sequence[Measurement]) -> str:
    """The table as text."""
    table = rows(measurements)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
