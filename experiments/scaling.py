"""Measure what several processes exchange, need and save: time, bytes and memory of an update.

    python experiments/scaling.py [FOLDER]

Trains an encoder-decoder of width 512 for 25 updates with 1, 2 and 4 processes, which share the examples of a batch
(replicated), or these and the weights (shards), and writes results/scaling.json and results/scaling.md. Bytes are those
that the network interface `lo` received between two updates; memory is RssAnon after the last update. Each process has one
thread. The runs are in FOLDER (default: runs/scaling). On Linux.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from universal_transformer.recipes import RECIPES
from universal_transformer.training.provenance import hardware
from universal_transformer.training.run import TrainingRun
from universal_transformer.training.trainer import train
from universal_transformer.typed import replaced

PROJECT = Path(__file__).parents[1]
SIZES = (1, 2, 4)
FIRST, LAST = 5, 25
"""Updates between which time and bytes are counted."""
CHANGES = {
    "model.sizes.width": 512,
    "model.sizes.filter_width": 2048,
    "model.coordinates.offsets": "none",
    "data.train_examples": 2000,
    "data.train_lengths": (40, 40),
    "data.validation_examples": 8,
    "data.test_examples": 1,
    "training.batch_tokens": 640,
    "training.max_updates": LAST,
    "training.minutes": 0.0,
    "training.validate_every": 1000,
    "training.save_minutes": 0.0,
    "training.threads": 1,
}


def received() -> int:
    """Return the bytes that the interface of this machine to itself has received."""
    found = re.search(r"lo:\s*(\d+)", Path("/proc/net/dev").read_text())
    assert found is not None
    return int(found[1])


def anonymous() -> int:
    """Return the bytes of memory that this process cannot give back."""
    found = re.search(r"RssAnon:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def measured(folder: Path, mode: str) -> None:
    """Train in one of several processes; the first writes what it counted."""
    marks: dict[int, tuple[float, int, int]] = {}
    update = TrainingRun._update

    def counting(run: TrainingRun) -> None:
        update(run)
        if run.state.update in (FIRST, LAST):
            marks[run.state.update] = time.perf_counter(), received(), anonymous()

    TrainingRun._update = counting  # type: ignore[method-assign]
    config = replaced(RECIPES["copy"](), CHANGES | {"training.parallel": mode})
    before = anonymous()
    train(config, folder, quiet=True)
    (began, bytes_before, _), (ended, bytes_after, memory) = marks[FIRST], marks[LAST]
    found = {
        "seconds": (ended - began) / (LAST - FIRST),
        "bytes": (bytes_after - bytes_before) / (LAST - FIRST),
        "memory": memory - before,
    }
    (folder.parent / f"{folder.name}-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(found))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for mode in ("examples", "shards"):
        for size in SIZES:
            run = folder / f"{mode}-{size}-{time.time_ns()}"
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            subprocess.run([*command, __file__, str(run), mode], check=True, env=environment)
            found = [json.loads((folder / f"{run.name}-{rank}.json").read_text()) for rank in range(size)]
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            rows.append({
                "parallel": mode,
                "processes": size,
                "seconds": found[0]["seconds"],
                "bytes": found[0]["bytes"],
                "memory": max(one["memory"] for one in found),
                "parameters": lines[0]["parameters"],
            })  # fmt: skip
    settings = {name: list(value) if isinstance(value, tuple) else value for name, value in CHANGES.items()}
    result = {"recipe": "copy", "settings": settings, "hardware": hardware(threads=1, device="cpu"), "rows": rows}
    (PROJECT / "results" / "scaling.json").write_text(json.dumps(result, indent=1) + "\n")
    (PROJECT / "results" / "scaling.md").write_text("".join(f"{line}\n" for line in table(rows)))


def table(rows: list[dict]) -> list[str]:
    """Return the rows as Markdown, beside the bytes that the formula gives: 4 bytes a weight."""
    lines = [
        "# Several processes: time, bytes and memory of an update",
        "",
        "Made by `python experiments/scaling.py`, which says what is trained. Bytes are those of all processes together, memory that of one process",
        "beyond Python, torch and the data.",
        "",
        "| processes share | processes | ms an update | MB exchanged | by formula | MB of memory a process |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        weights, size = 4 * row["parameters"], row["processes"]
        formula = 2 * (size - 1) * weights
        cells = (
            {"examples": "examples", "shards": "examples and weights"}[row["parallel"]],
            f"{size}",
            f"{1000 * row['seconds']:.0f}",
            f"{row['bytes'] / 1e6:.1f}",
            f"{formula / 1e6:.1f}",
            f"{row['memory'] / 1e6:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measured(Path(sys.argv[1]), sys.argv[2])
    else:
        main(Path(*sys.argv[1:2]) if sys.argv[1:] else PROJECT / "runs" / "scaling")
