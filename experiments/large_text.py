"""Train a language model on a generated text of 2 GB for two minutes, and record the memory of the process.

    python experiments/large_text.py FOLDER [--gigabytes 2] [--minutes 2] [--record results/studies/large_text.json]

The text is generated from a seed: a word decides with probability 1/2 which word is next, else it is drawn by Zipf's
law. It is written to FOLDER, which also takes the tokens, and is removed at the end. Two runs are made: the first
encodes the text and trains, the second reuses the tokens. RssAnon of /proc/PID/status is the memory that the process
cannot give back; mapped pages of the tokens are in RssFile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from universal_transformer.files import write_json
from universal_transformer.runs.folder import METRICS

WORDS = 20_000
WORDS_AT_ONCE = 500_000
LINE = (8, 25)
SECONDS_BETWEEN = 1.0


@dataclass(frozen=True)
class Memory:
    """Megabytes of a process, some seconds after its start."""

    seconds: float
    anonymous: float
    """RssAnon."""
    mapped: float
    """RssFile."""
    update: int
    """Last update in the metrics; 0 before training."""


def generate(path: Path, *, size: int, seed: int = 0) -> None:
    """Write lines of 8 to 24 words until the file has `size` bytes."""
    draw = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(draw.choice(letters, length)) for length in draw.integers(2, 9, WORDS)])
    share = 1 / np.arange(1, WORDS + 1)
    after = draw.permutation(WORDS)
    with path.open("w", encoding="ascii") as file:
        while file.tell() < size:
            drawn = draw.choice(WORDS, WORDS_AT_ONCE, p=share / share.sum())
            follows = draw.random(WORDS_AT_ONCE) < 0.5
            drawn[1:] = np.where(follows[1:], after[drawn[:-1]], drawn[1:])
            texts, first = words[drawn].tolist(), 0
            lines = []
            for length in draw.integers(*LINE, WORDS_AT_ONCE // LINE[0]).tolist():
                lines.append(" ".join(texts[first : first + length]))
                first += length
                if first >= WORDS_AT_ONCE:
                    break
            file.write("\n".join(lines) + "\n")


def train(text: Path, run: Path, *, minutes: float, log: Path) -> list[Memory]:
    """Train a language model by the command line; return its memory, once a second."""
    command = [sys.executable, "-m", "universal_transformer", "train", "text", "--data.train", str(text)]
    command += ["--run", str(run), "--training.minutes", str(minutes), "--training.threads", "1"]
    environment = {**os.environ, "UT_DATA": str(text.parent)}
    curve, began = [], time.monotonic()
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process:
        while process.poll() is None:
            if (found := _memory(process.pid, seconds=time.monotonic() - began, metrics=run / METRICS)) is not None:
                curve.append(found)
            time.sleep(SECONDS_BETWEEN)
    if process.returncode:
        raise SystemExit(f"training failed:\n{log.read_text()}")
    return curve


def _memory(process: int, *, seconds: float, metrics: Path) -> Memory | None:
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    sizes = {line.split(":")[0]: float(line.split()[1]) / 1024 for line in status if line.startswith("Rss")}
    if not sizes:  # it has ended
        return None
    lines = metrics.read_text().splitlines() if metrics.is_file() else []
    update = json.loads(lines[-1])["update"] if lines and lines[-1].endswith("}") else 0
    return Memory(round(seconds, 1), round(sizes["RssAnon"], 1), round(sizes["RssFile"], 1), update)


def summary(curve: list[Memory], *, metrics: Path) -> dict[str, object]:
    """Return the figures of a run: of the curve every tenth second is kept."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    start, end = lines[0], lines[-1]
    return {
        "train_examples": start["train_examples"],
        "validation_examples": start["validation_examples"],
        "parameters": start["parameters"],
        "torch": start["torch"],
        "updates": end["update"],
        "first_loss": next((line["loss"] for line in lines if line["event"] == "update"), None),
        "cross_entropy": end.get("cross_entropy"),
        "baseline_cross_entropy": start.get("baseline_cross_entropy"),
        "most_anonymous_megabytes": max(one.anonymous for one in curve),
        "most_mapped_megabytes": max(one.mapped for one in curve),
        "curve": [asdict(one) for one in curve[::10]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    text = given.folder / "text.txt"
    try:
        generate(text, size=round(given.gigabytes * 1e9))
        results: dict[str, object] = {"bytes": text.stat().st_size, "system": platform.platform()}
        for name in ("encoding and training", "training again"):
            run = given.folder / name.replace(" ", "-")
            curve = train(text, run, minutes=given.minutes, log=run.with_suffix(".log"))
            results[name] = summary(curve, metrics=run / METRICS)
        results["tokens_bytes"] = sum(path.stat().st_size for path in (given.folder / "tokens").rglob("tokens"))
    finally:
        text.unlink(missing_ok=True)
        shutil.rmtree(given.folder / "tokens", ignore_errors=True)
    if given.record:
        write_json(given.record, results)
    print(json.dumps({name: value for name, value in results.items() if not isinstance(value, dict)}))


if __name__ == "__main__":
    main()
