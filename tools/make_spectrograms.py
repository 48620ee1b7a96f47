"""Draw the figure of spoken digits: the frames that a model writes for each digit and speaker, with their steps.

    python tools/make_spectrograms.py RUN [--exit state_change:0.1]

RUN is a run of `ut train voice`. A model that halts has steps of its own; for another one, `--exit` says when a
position makes its last step.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from universal_transformer.data.recordings import SPEAKERS
from universal_transformer.decoding import DecodingOptions
from universal_transformer.decoding.frame_generation import GeneratedFrames, generate_frames
from universal_transformer.explore.canvas import INK, MUTED, canvas, png
from universal_transformer.explore.frame_figures import show_frames, show_steps
from universal_transformer.files import write_bytes
from universal_transformer.rules import Exit
from universal_transformer.runs.opened import open_run
from universal_transformer.tasks.speech import WORDS
from universal_transformer.tasks.voice import VoiceCodec, prompt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--exit", help="when a position of a model that does not halt makes its last step")
    parser.add_argument("--folder", type=Path, default=Path(), help="where figures are written (default: here)")
    chosen = parser.parse_args()
    run = open_run(chosen.run)
    if not isinstance(run.codec, VoiceCodec):
        raise SystemExit(f"{chosen.run}: expected a run of voice")
    stop = None if chosen.exit is None else Exit.parse(chosen.exit)
    sources = [prompt(speaker, word) for speaker in SPEAKERS for word in WORDS]
    rows = generate_frames(run.model, sources, DecodingOptions(exit=stop))
    rule = "its halting unit" if stop is None else f"the exit {stop}"
    steps = run.model.config.max_steps if run.model.config.halts or stop is not None else 0
    path = chosen.folder / "voice.png"
    write_bytes(path, by_speaker(rows, most_steps=steps, rule=rule))
    print(f"written to {path}")


def by_speaker(rows: list[GeneratedFrames], *, most_steps: int, rule: str) -> bytes:
    """Return a figure with a row for each speaker and a column for each digit, below them steps if there are any."""
    below = f"; below: steps of each position, by {rule}, of at most {most_steps}" if most_steps else ""
    figure, axes = canvas(
        width=11.0,
        height=1.05 * len(SPEAKERS) + 0.3,
        title="Spoken digits that a text asked for",
        subtitle="energy of each band over time, low bands below, darker for more" + below,
        rows=len(SPEAKERS),
        columns=len(WORDS),
    )
    every, longest = np.concatenate([row.frames for row in rows]), max(len(row.frames) for row in rows)
    for place, (ax, row) in enumerate(zip(axes, rows, strict=True)):
        show_frames(ax, row.frames, like=every)
        if most_steps:
            show_steps(ax, row.frames, row.steps, most=most_steps)
        ax.set_xticks([])
        ax.set_xlim(-0.5, longest - 0.5)
        if place < len(WORDS):
            ax.set_title(WORDS[place], fontsize=10, color=INK)
        if place % len(WORDS) == 0:
            ax.set_ylabel(SPEAKERS[place // len(WORDS)], fontsize=9.5, color=MUTED)
    return png(figure)


if __name__ == "__main__":
    main()
