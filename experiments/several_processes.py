"""Measure what several processes exchange, need and save: time, bytes and memory of an update.

    python experiments/several_processes.py [FOLDER]

Trains an encoder-decoder of width 512 for 14 updates with 1, 2 and 4 processes, which share the examples of a batch
(replicated), or these and the weights (shards), and writes results/studies/several_processes.json and
results/studies/several_processes.md. Bytes are those that the network interface `lo` received between two updates.
Memory is that of the weights and of the optimizer, and the peak of what torch allocates in an update beyond it; the
buckets of DistributedDataParallel, as large as the weights, are not in it. Each process has one thread. The runs are in
FOLDER (default: runs/scaling). On Linux.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from torch.distributed.tensor import DTensor

from study import PROJECT, STUDIES, write_page

from benchmarks.timing import peak_bytes
from universal_transformer.recipes import RECIPES
from universal_transformer.runs.trainer import train
from universal_transformer.training.provenance import hardware
from universal_transformer.training.run import TrainingRun
from universal_transformer.typed import replaced

SIZES = (1, 2, 4)
FIRST, LAST = 3, 13
"""Updates between which time and bytes are counted."""
CHANGES = {
    "model.sizes.width": 512,
    "model.sizes.filter_width": 2048,
    "model.coordinates.offsets": "none",
    "data.train_examples": 2000,
    "data.train_lengths": (20, 20),
    "data.validation_examples": 8,
    "data.test_examples": 1,
    "training.batch_tokens": 160,
    "training.max_updates": LAST + 1,
    "training.minutes": None,
    "training.validate_every": 1000,
    "training.save_minutes": None,
    "training.threads": 1,
}


def received() -> int:
    """Return the bytes that the interface of this machine to itself has received."""
    found = re.search(r"lo:\s*(\d+)", Path("/proc/net/dev").read_text())
    assert found is not None
    return int(found[1])


def kept(run: TrainingRun) -> int:
    """Return the bytes of the weights and of the state of the optimizer that this process has between updates."""
    tensors = [
        *run.model.parameters(),
        *(moment for one in run.optimizers for state in one.state.values() for moment in state.values()),
    ]
    return sum(each.to_local().nbytes if isinstance(each, DTensor) else each.nbytes for each in tensors)


def measured(folder: Path, mode: str) -> None:
    """Train in one of several processes; the first writes what it counted."""
    marks: dict[int, tuple[float, int]] = {}
    memory: list[int] = []
    update = TrainingRun.update

    def counting(run: TrainingRun) -> None:
        if run.state.update == LAST:
            memory.extend((kept(run), peak_bytes(partial(update, run), device=run.device)))
            return
        update(run)
        if run.state.update in (FIRST, LAST):
            marks[run.state.update] = time.perf_counter(), received()

    TrainingRun.update = counting  # type: ignore[method-assign]
    config = replaced(RECIPES["copy"](), CHANGES | {"training.parallel": mode})
    train(config, folder, quiet=True)
    (began, bytes_before), (ended, bytes_after) = marks[FIRST], marks[LAST]
    found = {
        "seconds": (ended - began) / (LAST - FIRST),
        "bytes": (bytes_after - bytes_before) / (LAST - FIRST),
        "kept": memory[0],
        "peak": sum(memory),
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
                "kept": max(one["kept"] for one in found),
                "peak": max(one["peak"] for one in found),
                "parameters": lines[0]["parameters"],
            })  # fmt: skip
    settings = {name: list(value) if isinstance(value, tuple) else value for name, value in CHANGES.items()}
    result = {"recipe": "copy", "settings": settings, "hardware": hardware(threads=1, device="cpu"), "rows": rows}
    write_page(STUDIES / "several_processes.json", [json.dumps(result, indent=1)])
    write_page(STUDIES / "several_processes.md", table(rows))


def table(rows: list[dict]) -> list[str]:
    """Return the rows as Markdown, beside the bytes that the formula gives: 4 bytes a weight."""
    lines = [
        "# Several processes: time, bytes and memory of an update",
        "",
        "Made by `python experiments/several_processes.py`, which says what is trained. Bytes are those of all",
        "processes. Memory is that of one process: between updates its weights and its part of Adam's state; in an",
        "update also gradients, activations and what is exchanged.",
        "",
        "| processes share | processes | ms an update | MB exchanged | by formula | MB between updates | MB at most |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        weights, size = 4 * row["parameters"], row["processes"]
        formula = (2 if row["parallel"] == "examples" else 3) * (size - 1) * weights
        cells = (
            {"examples": "examples", "shards": "examples and weights"}[row["parallel"]],
            f"{size}",
            f"{1000 * row['seconds']:.0f}",
            f"{row['bytes'] / 1e6:.1f}",
            f"{formula / 1e6:.1f}",
            f"{row['kept'] / 1e6:.1f}",
            f"{row['peak'] / 1e6:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measured(Path(sys.argv[1]), sys.argv[2])
    else:
        main(Path(*sys.argv[1:2]) if sys.argv[1:] else PROJECT / "runs" / "scaling")
