"""The style of all figures: colours, title and subtitle, axes; and their conversion to SVG.

The colours of Okabe and Ito can be distinguished with every kind of colour vision.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

from universal_transformer.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

INK, MUTED, GRID, GHOST = "#1f2933", "#66727f", "#e4e7eb", "#eef1f4"
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
SHADES = ("#f2f5f8", "#a9cbe2", "#3d8dc4", "#08457a")
DPI = 160
"""Resolution of what has pixels in a figure."""
LONGEST_LABEL, LONGEST_TITLE = 58, 200


def canvas(
    *,
    width: float,
    height: float,
    title: str,
    subtitle: str,
    rows: int = 1,
    columns: int = 1,
    ratios: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure of `height` inches below its title, and its axes in reading order."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("figures need matplotlib: run pip install 'universal-transformer[plot]'") from error
    head = 0.78
    figure = Figure(figsize=(width, height + head), facecolor="white")
    figure.set_layout_engine("constrained", rect=(0.012, 0.01, 0.976, height / (height + head)), w_pad=0.04, h_pad=0.04)
    for text, below, size, weight, colour in (
        (title, 0.30, 14, "bold", INK),
        (subtitle, 0.56, 10, "normal", MUTED),
    ):
        figure.text(
            0.02, 1 - below / (height + head), label(text, most=LONGEST_TITLE), fontsize=size, weight=weight,
            color=colour, va="center", parse_math=False,
        )  # fmt: skip
    grid = figure.add_gridspec(rows, columns, width_ratios=ratios)
    return figure, [figure.add_subplot(grid[row, column]) for row in range(rows) for column in range(columns)]


def clean(ax: Axes, *, grid: Literal["x", "y"], x: str = "", y: str = "") -> None:
    """Draw light lines along one axis, and no box; `x` and `y` name the axes."""
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(GRID)
    ax.tick_params(length=0, labelcolor=MUTED, labelsize=9.5)
    ax.grid(axis=grid, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    if x:
        ax.set_xlabel(x, color=MUTED, fontsize=10)
    if y:
        ax.set_ylabel(y, color=MUTED, fontsize=10)


def bare(ax: Axes, *, numbers: bool = True) -> None:
    """Remove all lines, and without `numbers` those of the axes."""
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(length=0)
    ax.tick_params(axis="x", labelcolor=MUTED, labelsize=9)
    if not numbers:
        ax.set_xticks([])
        ax.set_yticks([])


def legend(ax: Axes, **place: Any) -> None:
    ax.legend(frameon=False, fontsize=9, labelcolor=INK, **place)


def colour_bar(figure: Figure, drawn: Any, axes: Axes | list[Axes], *, name: str, most: int | None = None) -> None:
    """Add the key of what is `drawn` in colours next to `axes`, with a number for each step up to `most`."""
    bar = figure.colorbar(drawn, ax=axes, pad=0.01, fraction=0.03, ticks=None if most is None else range(1, most + 1))
    bar.set_label(name, color=MUTED, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=MUTED)


def shades(*, darkest: int = 4) -> LinearSegmentedColormap:
    """Return a colour map from almost white to the `darkest` of four blues."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("blues", SHADES[:darkest])


def svg(figure: Figure) -> bytes:
    """Return a figure as SVG whose texts are text; the same figure gives the same bytes."""
    from matplotlib import rc_context

    out = BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "universal_transformer"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the viewer has its own fonts
        figure.savefig(out, format="svg", dpi=DPI, facecolor="white", metadata={"Date": None, "Creator": None})
    # the ids of matplotlib follow from places that differ in their last digit from call to call
    numbers: dict[bytes, bytes] = {}
    return re.sub(
        rb'(id="|#)(\w*[0-9a-f]{10})(?=["\)])',
        lambda found: found[1] + numbers.setdefault(found[2], b"id%d" % len(numbers)),
        out.getvalue(),
    )


def label(text: str, *, most: int = LONGEST_LABEL) -> str:
    """Return text shortened to one line, without unprintable characters."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.1f} min" if hours < 2 else f"{hours:.1f} h"
