"""The result of a benchmark: measurements and the machine they were made on, as JSON and as a table."""

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
    """One comparison of a ``case``. ``seconds`` are the medians of the time of one call of each side.

    ``ratio`` is how many times faster ``ours`` is than ``over``, the median over turns. ``bound`` is the largest
    possible ratio, or ``None``. ``least`` is the required ``share``, or the required ``ratio`` if there is no bound.
    """

    name: str
    case: str = ""
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
        """The ratio divided by its bound."""
        return None if self.ratio is None or self.bound is None else self.ratio / self.bound

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self) | {"share": self.share}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``seconds``: about how long each comparison runs. ``quick``: tiny sizes, which only show that the case runs."""

    seconds: float = 6.0
    quick: bool = False
    threads: int | None = None


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that are measured."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = "not installed"
    return installed


def machine() -> dict[str, Any]:
    """Processor, cores, instruction sets for matrix products, and GPU."""
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
    """Return the measurements with the machine, the versions and the settings they depend on."""
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


def markdown(results: Mapping[str, Any]) -> str:
    """Render what `report` returned: the conditions, and one Markdown table for each case."""
    machine, versions = results["machine"], results["versions"]
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, {machine['gpu'] or 'no GPU'}, "
        + f"{results['threads']} thread(s); "
        + ", ".join(f"{name} {value}" for name, value in versions.items())
        + f"; at least {results['settings']['seconds']:g} s a comparison."
    ]
    measurements = results["measurements"]
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
    """Render the measurements as a table of plain text."""
    table = [["case", "what", "type", "medians (ms)", "ratio", "bound", "share", "asked"]]
    for each in measurements:
        medians = ", ".join(f"{name} {1000 * value:.2f}" for name, value in each.seconds.items())
        figures = [_number(value) for value in (each.ratio, each.bound, each.share, each.least)]
        table.append([each.case, each.name, each.dtype, medians, *figures])
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
