"""Draw the figures of notebook/pictures.md: digits by prompt and temperature, and the steps of each pixel.

    python tools/make_pictures.py RUN [--exit confidence:0.9]

RUN is a run of `ut train pictures`. A model that halts has steps of its own; for another one, `--exit` says when a
pixel makes its last step.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from universal_transformer.decoding import DecodingOptions, Sampling, generate
from universal_transformer.explore.canvas import INK, MUTED, bare, canvas, colour_bar, shades, svg
from universal_transformer.files import write_bytes
from universal_transformer.rules import Exit
from universal_transformer.runs.opened import open_run
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.pictures import NAMES
from universal_transformer.tasks.sides.picture import Raster

TEMPERATURES = (0.5, 0.8, 1.0)
ROWS = 2
"""Pictures of each temperature in a column."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--exit", help="when a pixel of a model that does not halt makes its last step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path(), help="where figures are written (default: here)")
    chosen = parser.parse_args()
    run = open_run(chosen.run)
    if not isinstance(run.codec.target, Raster):
        raise SystemExit(f"{chosen.run}: expected a run of pictures")
    stop = None if chosen.exit is None else Exit.parse(chosen.exit)
    grids = {}
    for temperature in TEMPERATURES:
        sampling = Sampling(temperature=temperature, seed=chosen.seed)
        grids[temperature] = drawn(run.model, run.codec, list(NAMES) * ROWS, sampling=sampling, stop=None)
    write(chosen.folder / "pictures.svg", by_temperature({name: grid[0] for name, grid in grids.items()}))
    sampling = Sampling(temperature=1.0, seed=chosen.seed)
    pictures, steps = drawn(run.model, run.codec, NAMES, sampling=sampling, stop=stop)
    rule = "its halting unit" if stop is None else f"the exit {stop}"
    if run.model.config.halts or stop is not None:
        write(chosen.folder / "picture_steps.svg", with_steps(pictures, steps, rule=rule))


def write(path: Path, picture: bytes) -> None:
    write_bytes(path, picture)
    print(f"written to {path}")


def drawn(
    model: Any, codec: Codec[Any, Any], captions: Sequence[str], *, sampling: Sampling, stop: Exit | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures [picture, row, column] of captions, and the steps of their pixels."""
    sources = [example.source for example in codec.read(enumerate(captions, start=1), name="captions")]
    found = generate(model, sources, DecodingOptions(sampling=sampling, exit=stop))
    steps = np.array([one.token_steps for one in found]).reshape(-1, codec.target.side, codec.target.side)
    return np.stack([codec.target.picture(one.tokens) for one in found]), steps


def by_temperature(grids: dict[float, np.ndarray]) -> bytes:
    """Return a figure with a row of pictures for each temperature and sample, and a column for each caption."""
    rows = [(temperature, grid[row * 10 : row * 10 + 10]) for temperature, grid in grids.items() for row in range(ROWS)]
    figure, axes = canvas(
        width=9.0,
        height=0.9 * len(rows) + 0.3,
        title="Digits that a text asked for",
        subtitle="two samples for each caption (columns) and temperature (rows)",
        rows=len(rows),
        columns=10,
    )
    for row, (temperature, pictures) in enumerate(rows):
        for column, pixels in enumerate(pictures):
            ax = axes[10 * row + column]
            show(ax, pixels)
            if row == 0:
                ax.set_title(NAMES[column], fontsize=10, color=INK)
            if column == 0 and row % ROWS == 0:
                ax.set_ylabel(f"T {temperature:g}", rotation=0, ha="right", va="center", color=MUTED, fontsize=10)
    return svg(figure)


def with_steps(pictures: np.ndarray, steps: np.ndarray, *, rule: str) -> bytes:
    """Return a figure of ten pictures above the steps of their pixels."""
    figure, axes = canvas(
        width=9.0,
        height=2.1,
        title="Digits that a text asked for, and the steps of each pixel",
        subtitle=f"one sample for each caption at temperature 1; a pixel stops by {rule}",
        rows=2,
        columns=10,
    )
    mesh: Any = None
    for column, (pixels, made) in enumerate(zip(pictures, steps, strict=True)):
        show(axes[column], pixels)
        axes[column].set_title(NAMES[column], fontsize=10, color=INK)
        ax = axes[10 + column]
        mesh = ax.imshow(made, cmap=shades(), vmin=1, vmax=max(2, steps.max()), interpolation="nearest")
        bare(ax, numbers=False)
    colour_bar(figure, mesh, axes[10:], name="steps", most=int(steps.max()))
    return svg(figure)


def show(ax: Any, pixels: np.ndarray) -> None:
    ax.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    bare(ax, numbers=False)


if __name__ == "__main__":
    main()
