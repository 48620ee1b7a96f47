"""``python -m torture``: count the figures of reliability, one line each; exit status 1 if one does not hold."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a process with threads of CUDA cannot be forked

FIGURES = {
    "T1": ("saves.killed", "a run that is killed resumes as if nothing had been"),
    "T2": ("saves.refused", "a full or failing disk ends a run with one line, and the checkpoint before is intact"),
    "T3": ("damage.fallback", "a damaged checkpoint is never loaded silently"),
    "T4": ("lost.ended", "a process that is killed, raises or stops ends the others, which name it"),
    "T5": ("lost.continued", "1 and 2 processes continue each other's run in mid-epoch"),
    "T6": ("stops.saved", "SIGINT and SIGTERM save and end a run within 5 seconds; one writer; what changed is named"),
    "F1": ("folders.mutated", "a mutated model folder is refused in one line or answers, and nothing else happens"),
    "F2": ("attacks.refused", "a model folder made to attack is refused in one line"),
    "F3": ("sources.clean", "no pickle, torch.load, eval or extractall in src/"),
    "F4": ("selected.archives", "hostile archives write nothing, and altered downloads are refused"),
    "N1": ("tiny_runs.refused", "NaN and Inf stop a run with the weights unchanged, and are named"),
    "N2": ("outlying.skipped", "updates with outliers are skipped, and few others"),
    "N3": ("tiny_runs.collapsed", "collapsed halting is warned about, and healthy halting is not"),
    "N4": ("tiny_runs.repeated", "a seed gives the same run twice"),
    "N5": ("compiled.near", "a compiled block is as near to float64 as an eager one"),
    "N6": ("selected.laws", "the laws of docs/architecture.md hold for 200 generated examples each"),
}
"""Id -> function that counts it, and what must hold (docs/running.md)."""


def main() -> int:
    """Count the chosen figures; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("--only", default=",".join(FIGURES), help="ids, with commas between them (default: all)")
    parser.add_argument("--share", type=float, default=1.0, help="share of the cases to try (default: 1)")
    parser.add_argument("--write", type=Path, help="table to keep the lines in; lines of other ids stay")
    options = parser.parse_args()
    chosen = [one for one in options.only.split(",") if one]
    if unknown := set(chosen) - FIGURES.keys():
        parser.error(f"no figure {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    failed, started = 0, time.monotonic()
    for figure in chosen:
        where, what = FIGURES[figure]
        began = time.monotonic()
        found = count(where, share=options.share)
        failed += not found.holds
        verdict, seconds = "holds" if found.holds else "FAILS", time.monotonic() - began
        print(f"{figure} {verdict}: {what}: {found} ({seconds:.0f} s)", flush=True)
        if options.write:
            verdict = verdict.lower()
            keep(options.write, figure, f"| {figure} | {what} | {verdict} | {seconds:.0f} | {found} |")
    print(f"{len(chosen)} figures in {(time.monotonic() - started) / 60:.1f} minutes, {failed} failed", flush=True)
    return int(failed > 0)


def count(where: str, *, share: float):
    """Return the outcome of a figure, counted in a folder in memory if there is one."""
    module, function = where.split(".")
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - only where to make a folder
    with tempfile.TemporaryDirectory(dir=base) as folder:
        return getattr(import_module(f"torture.{module}"), function)(share, Path(folder))


HEAD = """\
# Figures of reliability, counted

`make torture` counts them (`ONLY=T1,F1` some); [docs/running.md](../docs/running.md) describes them.

| id | what must hold | verdict | seconds | counted |
|---|---|---|---|---|
"""


def keep(path: Path, figure: str, line: str) -> None:
    """Put the line of a figure into the table, in the order of `FIGURES`."""
    rows = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    lines = {row.split("|")[1].strip(): row for row in rows if row.startswith("| ")} | {figure: line}
    path.write_text(HEAD + "".join(f"{lines[one]}\n" for one in FIGURES if one in lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
