"""The report of a run as one self-contained HTML file, and its figures as SVG files."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import universal_transformer
from universal_transformer.errors import UserError
from universal_transformer.evaluation.calibration import CALIBRATION, Calibration
from universal_transformer.evaluation.metrics import scores
from universal_transformer.evaluation.report import Report, attention_tables
from universal_transformer.explore import page
from universal_transformer.explore.canvas import LONGEST_TITLE, duration, label, svg
from universal_transformer.explore.episode_figures import WatchedEpisode, watched_episode
from universal_transformer.explore.figures import (
    attention_by_step,
    error_by_group,
    loss_by_steps,
    ponder_by_supports,
    ponder_histogram,
    training_curve,
)
from universal_transformer.explore.saved_page import scripts_of
from universal_transformer.explore.story import Examined
from universal_transformer.files import read_json, write_bytes, write_text
from universal_transformer.training.provenance import processor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPORT, PLOTS = "report.html", "plots"
FIXED = "Every position takes {} steps: the depth of this model is fixed, so there is no ponder time to show."


class Plots(dict[str, bytes]):
    """The figures of a page as SVG, by the names of their files."""

    def add(self, name: str, figure: Figure) -> str:
        """Keep a figure, and return it as a part of the page; its title and subtitle describe it."""
        self[name] = svg(figure)
        return page.image(self[name], alt=": ".join(text.get_text() for text in figure.texts[:2]))


def write_report(
    folder: Path,
    *,
    report: Report,
    examples: Sequence[Examined] = (),
    metrics: Sequence[Mapping[str, Any]] = (),
    episode: WatchedEpisode | None = None,
    run: Path | None = None,
) -> Path:
    """Write ``report.html`` and ``plots/*.svg`` into a folder; return the path of the page.

    `examples` are results of `examine`, `metrics` the lines of metrics.jsonl; in `episode` the model acts. The
    configuration and the calibration are those of the folder `run` (default: `folder`), if they exist.
    """
    run = run or folder
    config = read_json(run / "config.json") if (run / "config.json").is_file() else {}
    calibration = Calibration.load(run) if (run / CALIBRATION).is_file() else None
    html, plots = render(
        report, examples=examples, metrics=metrics, episode=episode, config=config, calibration=calibration
    )
    try:
        (folder / PLOTS).mkdir(parents=True, exist_ok=True)
        for name, plot in plots.items():
            write_bytes(folder / PLOTS / f"{name}.svg", plot)
        write_text(folder / REPORT, html)
    except OSError as error:
        where = f"{error.filename or folder}: {error.strerror or error}"
        raise UserError(f"{where}; ut plot --report FOLDER writes it elsewhere") from error
    return folder / REPORT


def render(
    report: Report,
    *,
    examples: Sequence[Examined] = (),
    metrics: Sequence[Mapping[str, Any]] = (),
    episode: WatchedEpisode | None = None,
    config: Mapping[str, Any],
    calibration: Calibration | None = None,
) -> tuple[str, Plots]:
    plots, title = Plots(), str(config.get("recipe") or report.task)
    count = sum(row.count for row in report.totals)
    lead = f"Universal Transformer on {report.task}, {report.split}: {count:,} examples."
    training = [f"while training: {line.get('text', '')}" for line in metrics if line.get("event") == "warning"]
    warnings = [text for text in dict.fromkeys([*report.warnings, *training]) if text]
    updated = any(line.get("event") == "update" for line in metrics)
    parts = [
        f'<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>',
        page.cards(_key_figures(report, metrics)),
        page.section("Warnings", page.items(warnings), kind="warning"),
        _scores(report, plots),
        _ponder_time(report, plots),
        _attention(report, plots),
        "" if calibration is None else _calibration(calibration, plots),
        page.section("Episode", "" if episode is None else plots.add("episode", watched_episode(episode))),
        *[_example(example, plots, number=number) for number, example in enumerate(examples, start=1)],
        page.section("Training", plots.add("training", training_curve(metrics)) if updated else ""),
        _settings(config, metrics),
        page.section("Notes", page.items(report.notes)),
        f"<footer><p>universal_transformer {escape(universal_transformer.__version__)}</p></footer>",
    ]
    drawn = [example.trace for example in examples if not example.pictured]
    scripts = scripts_of(drawn) if drawn else ""
    return page.page(f"{title} · report", [part for part in parts if part], scripts=scripts), plots


def _key_figures(report: Report, metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    whole = report.totals[0]
    figures = []
    for name, value in whole.metrics.items():
        place = "" if len(report.totals) == 1 else f", {whole.set}"
        score = scores()[name]
        figures.append((score.title + place, score.text(value)))
        if name == report.decisive and name in whole.baseline:
            figures.append((f"baseline{place}", score.text(whole.baseline[name])))
    if report.failed is not None:
        figures.append((f"failed ({report.failed_means})", f"{len(report.failed)} of {len(report.rows)}"))
    if report.max_steps and whole.steps:
        fixed = _fixed(report)
        figures.append(("steps (fixed)", fixed) if fixed else ("mean steps", f"{report.mean_steps:.2f}"))
    if isinstance(count := _start(metrics).get("parameters"), int):
        figures.append(("parameters", f"{count:,}"))
    if seconds := max((float(line.get("seconds", 0)) for line in metrics), default=0.0):
        figures.append(("training", duration(seconds)))
    return figures


def _fixed(report: Report) -> str:
    """Return how many steps all positions take, of each side if the sides are unlike; nothing where steps differ."""
    steps, unlike = report.fixed_steps, len({*report.fixed_steps.values()}) > 1
    texts = [f"{number} ({side})" if unlike else str(number) for side, number in steps.items()]
    return " or ".join(dict.fromkeys(texts)) if len(steps) == len(report.totals[0].steps) else ""


def _scores(report: Report, plots: Plots) -> str:
    table = report.score_table()
    totals = [number for number, line in enumerate(table) if number and report.has_groups and line[1] == "all"]
    several = len(report.rows) > 1
    return page.section(
        "Scores",
        plots.add("scores", error_by_group(report)) if several else "",
        page.table(table, names=2, totals=totals),
        *(page.folded(name, page.table(confusion)) for name, confusion in report.confusion_tables().items()),
        page.items([*report.remarks(), *(f"{scores()[name].title}: {how}" for name, how in report.signatures.items())]),
    )


def _ponder_time(report: Report, plots: Plots) -> str:
    if not report.max_steps or not report.totals[0].steps:
        return ""
    if fixed := _fixed(report):
        return page.section("Ponder time", hint=FIXED.format(fixed))
    parts = [plots.add("ponder_histogram", ponder_histogram(report))]
    if report.steps_by_supports:
        parts.append(plots.add("ponder_by_supports", ponder_by_supports(report, paper=report.task.startswith("babi"))))
    parts += [page.folded(name, page.table(table)) for name, table in report.step_tables().items()]
    hint = f"A position takes at most {report.max_steps} steps. Mean ± standard deviation over positions."
    return page.section("Ponder time", *parts, hint=hint)


def _attention(report: Report, plots: Plots) -> str:
    figure = plots.add("attention_by_step", attention_by_step(report)) if report.attention else ""
    tables = [page.folded(name, page.table(table)) for name, table in attention_tables(report.attention).items()]
    return page.section("Attention of questions", figure, *tables)


def _calibration(found: Calibration, plots: Plots) -> str:
    return page.section("Calibration", plots.add("calibration", loss_by_steps(found)), hint=found.outcome)


def _example(example: Examined, plots: Plots, *, number: int) -> str:
    """Return the section of an example: its figures, or the place of its trace, whose text is there without scripts."""
    trace, suffix = example.trace, f"_{number}" if number > 1 else ""
    images = [plots.add(f"{name}{suffix}", figure) for name, figure in example.figures.items()]
    if example.pictured:
        return page.section(example.title, *images)
    right = [] if trace.right is None else [f"right answer: {trace.right}"]
    answer = f"answer: {trace.answer} ({100 * trace.probability:.0f} %)"
    texts = page.items([*example.text.splitlines(), answer, *right])
    one_line = bool(example.text) and "\n" not in example.text
    hint = f"Input: {label(example.text, most=LONGEST_TITLE)}" if one_line else ""
    return page.section(example.title, f'<div class="trace"></div><noscript>{texts}</noscript>', hint=hint)


def _settings(config: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> str:
    """Return recipe, seed, hardware and versions, and the whole configuration, which opens with a click."""
    start = _start(metrics)
    here = torch.cuda.get_device_name() if torch.cuda.is_available() else processor()
    training = config.get("training") or {}
    summary = {
        "recipe": config.get("recipe"),
        "seed": training.get("seed"),
        "trained on": ", ".join(
            f"{name} {start[name]}".removeprefix("device ") for name in ("device", "threads", "torch") if name in start
        ),
        "report made on": f"{here}, Python {platform.python_version()}, torch {torch.__version__}",
        "digest of configuration, data": ", ".join(str(start[name]) for name in ("config", "data") if name in start),
    }
    shown = [(name, str(value)) for name, value in summary.items() if value not in (None, "")]
    parts = [
        page.folded(name, page.table([("field", "value"), *_flat(value)], names=2))
        for name, value in config.items()
        if isinstance(value, Mapping)
    ]
    return page.section("Settings", page.table([("setting", "value"), *shown], names=2), *parts)


def _flat(values: Mapping[str, Any], *, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested fields by dotted name."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, prefix=f"{prefix}{name}.")
        else:
            yield prefix + name, str(value)


def _start(metrics: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((line for line in reversed(metrics) if line.get("event") in ("start", "resume")), {})
