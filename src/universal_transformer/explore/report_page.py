"""The report of a run as one self-contained HTML file, and its figures as SVG files."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch

import universal_transformer
from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics import scores
from universal_transformer.evaluation.report import CONFUSION, Report, show_steps
from universal_transformer.explore import page
from universal_transformer.explore.canvas import duration, svg
from universal_transformer.explore.episode_figures import WatchedEpisode, watched_episode
from universal_transformer.explore.figures import (
    error_by_group,
    ponder_by_supports,
    ponder_histogram,
    training_curve,
)
from universal_transformer.explore.picture_figures import drawn_picture, read_picture, written_frames
from universal_transformer.explore.story import Story
from universal_transformer.explore.story_figures import attention_maps, ponder_map
from universal_transformer.files import read_json, write_bytes, write_text
from universal_transformer.training.provenance import processor

REPORT, PLOTS = "report.html", "plots"
FIXED = "Every position takes {} steps: the depth of this model is fixed, so there is no ponder time to show."


def write_report(
    folder: Path,
    *,
    report: Report,
    stories: Sequence[Story] = (),
    metrics: Sequence[Mapping[str, Any]] = (),
    episode: WatchedEpisode | None = None,
) -> Path:
    """Write ``report.html`` and ``plots/*.svg`` into the folder of a run; return the path of the page.

    `stories` are results of `explore.story.examine`, `metrics` the lines of the run's metrics.jsonl; both may be
    empty. `episode` is one in which the model acted. The configuration is read from the folder's config.json, if it
    exists.
    """
    pictures = draw(report, stories=stories, metrics=metrics, episode=episode)
    plots = folder / PLOTS
    try:
        plots.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            write_bytes(plots / f"{name}.svg", picture)
        config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
        html = render(report, pictures=pictures, stories=stories, metrics=metrics, config=config)
        write_text(folder / REPORT, html)
    except OSError as error:
        raise UserError(f"{error.filename or folder}: {error.strerror or error}") from error
    return folder / REPORT


def draw(
    report: Report,
    *,
    stories: Sequence[Story] = (),
    metrics: Sequence[Mapping[str, Any]] = (),
    episode: WatchedEpisode | None = None,
) -> dict[str, bytes]:
    """Return all figures of the report, the stories, the metrics and the episode, as SVG by name."""
    figures = {}
    if len(report.rows) > 1:
        figures["scores"] = error_by_group(report)
    if report.halting:
        figures["ponder_histogram"] = ponder_histogram(report)
        if report.steps_by_supports:
            figures["ponder_by_supports"] = ponder_by_supports(report, paper=report.task.startswith("babi"))
    for number, story in enumerate((story for story in stories if story.facts), start=1):
        suffix = f"_{number}" if number > 1 else ""
        if story.halting:
            figures[f"ponder_map{suffix}"] = ponder_map(story)
        if story.attention is not None:
            figures[f"attention{suffix}"] = attention_maps(story)
    for number, story in enumerate((story for story in stories if story.pixels is not None), start=1):
        figures[f"picture_{number}"] = drawn_picture(story) if story.source_attention is None else read_picture(story)
    if episode is not None:
        figures["episode"] = watched_episode(episode)
    for number, story in enumerate((story for story in stories if story.frames is not None), start=1):
        figures[f"frames_{number}"] = written_frames(story)
    if any(line.get("event") == "update" for line in metrics):
        figures["training"] = training_curve(metrics)
    return {name: svg(figure) for name, figure in figures.items()}


def render(
    report: Report,
    *,
    pictures: Mapping[str, bytes],
    stories: Sequence[Story],
    metrics: Sequence[Mapping[str, Any]],
    config: Mapping[str, Any],
) -> str:
    """Return the page as text."""
    title = str(config.get("recipe") or report.task)
    scores = report.score_table()
    totals = [number for number, line in enumerate(scores) if number and report.has_groups and line[1] == "all"]
    count = sum(row.count for row in report.totals)
    lead = f"Universal Transformer on {report.task}, {report.split}: {count:,} examples."
    training = [f"while training: {line.get('text', '')}" for line in metrics if line.get("event") == "warning"]
    found = [text for text in dict.fromkeys([*report.warnings, *training]) if text]
    parts = [
        f'<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>',
        page.cards(_key_figures(report, metrics)),
        page.section("Warnings", page.items(found), kind="warning") if found else "",
        page.section(
            "Scores",
            _picture(pictures, "scores", alt="scores by group"),
            page.table(scores, names=2, totals=totals),
            *_confusion(report),
            page.items(_score_notes(report)),
        ),
        _ponder_time(report, pictures),
        *_stories(stories, pictures),
        page.section("Episode", _picture(pictures, "episode", alt="observations, actions and steps of one episode")),
        _pictures(stories, pictures, prefix="picture_", title="Pictures", alt="a picture and its text"),
        _pictures(stories, pictures, prefix="frames_", title="Frames", alt="frames that were written, by band"),
        _samples(stories),
        page.section("Training", _picture(pictures, "training", alt="loss, error and steps over training")),
        _settings(config, metrics),
        page.section("Notes", page.items(report.notes)) if report.notes else "",
        f"<footer><p>universal_transformer {escape(universal_transformer.__version__)}</p></footer>",
    ]
    return page.page(f"{title} · report", [part for part in parts if part])


def _confusion(report: Report) -> list[str]:
    return [
        page.folded(f"Confusion matrix of {name}: {CONFUSION}", page.table(table))
        for name, table in report.confusion_tables().items()
    ]


def _picture(pictures: Mapping[str, bytes], name: str, *, alt: str) -> str:
    return page.image(pictures[name], alt=alt) if name in pictures else ""


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
    name = "mean steps" if report.halting else "steps (fixed)"
    if report.max_steps:
        figures.append((name, f"{report.mean_steps:.2f}" if report.halting else f"{report.max_steps}"))
    start = _start(metrics)
    if isinstance(start.get("parameters"), int):
        figures.append(("parameters", f"{start['parameters']:,}"))
    if seconds := max((float(line.get("seconds", 0)) for line in metrics), default=0.0):
        figures.append(("training", duration(seconds)))
    return figures


def _score_notes(report: Report) -> list[str]:
    notes = [f"{scores()[name].title}: {text}" for name, text in report.signatures.items()]
    if report.baseline:
        notes.append(f"baseline: {report.baseline}")
    if report.has_groups:
        notes.append(report.mean_line)
    if report.failed:
        notes.append("failed: " + ", ".join(row.name for row in report.failed))
    return notes


def _ponder_time(report: Report, pictures: Mapping[str, bytes]) -> str:
    if not report.max_steps:
        return ""
    if not report.halting:
        return page.section("Ponder time", hint=FIXED.format(report.max_steps))
    table = [["supporting facts", "positions", "steps"]] + [
        [str(each.num_supports), f"{each.steps.num_positions:,}", show_steps(each.steps)]
        for each in report.steps_by_supports
    ]
    return page.section(
        "Ponder time",
        _picture(pictures, "ponder_histogram", alt="share of positions by steps taken"),
        _picture(pictures, "ponder_by_supports", alt="steps by number of supporting facts"),
        page.table(table) if report.steps_by_supports else "",
        hint=f"Each position halts independently, after at most {report.max_steps} steps. "
        "Mean ± standard deviation over positions.",
    )


def _stories(stories: Sequence[Story], pictures: Mapping[str, bytes]) -> list[str]:
    sections = []
    for number, story in enumerate((story for story in stories if story.facts), start=1):
        suffix = f"_{number}" if number > 1 else ""
        question = story.labels[-1]
        kinds = [*["fact"] * (len(story.labels) - 1), "question"]
        for row in story.supports:
            kinds[row] = "supporting fact"
        columns = zip(story.labels, kinds, story.steps, strict=True)
        lines = [[text, kind, f"{taken:.0f}"] for text, kind, taken in columns]
        sections.append(
            page.section(
                f"One story: {question}?",
                _picture(pictures, f"ponder_map{suffix}", alt=f"steps of each fact of: {question}"),
                _picture(pictures, f"attention{suffix}", alt=f"attention by step and head of: {question}"),
                page.folded("As text", page.table([["fact", "", "steps"], *lines], names=2)),
                hint="" if story.halting else FIXED.format(story.max_steps),
            )
        )
    return sections


def _pictures(stories: Sequence[Story], figures: Mapping[str, bytes], *, prefix: str, title: str, alt: str) -> str:
    """Return the figures of pictures that were written or read, or of frames that were written."""
    names = [name for name in figures if name.startswith(prefix)]
    shown = [_picture(figures, name, alt=alt) for name in names]
    fixed = "" if not names or any(story.halting for story in stories) else FIXED.format(stories[0].max_steps)
    return page.section(title, *shown, hint=fixed) if names else ""


def _samples(stories: Sequence[Story]) -> str:
    """Return the sequences: input and output, each token with its steps."""
    samples = []
    for story in (story for story in stories if not story.facts and story.pixels is None and story.frames is None):
        most, halting = story.max_steps, story.halting
        entries = [("in", page.tokens(story.labels, story.steps, most=most, halting=halting))]
        sure = "" if story.probability is None else f" ({100 * story.probability:.0f} %)"
        output = escape(story.output + sure)
        if story.output_labels:
            output = page.tokens(story.output_labels, story.output_steps, most=most, halting=halting)
        entries.append(("out", output))
        if story.answer is not None:
            mark = "✓" if story.answer == story.output else "✗"
            entries.append((f"right {mark}", escape(story.answer)))
        samples.append(page.sample(entries))
    hint = "The number after a token is its number of steps; more steps are darker."
    fixed = any(not story.halting for story in stories)
    return page.section("Samples", *samples, hint="" if fixed else hint) if samples else ""


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
    shown = {name: value for name, value in summary.items() if value not in (None, "")}
    parts = [
        page.folded(name, page.fields(_flat(value))) for name, value in config.items() if isinstance(value, Mapping)
    ]
    return page.section("Settings", page.fields(shown), *parts)


def _flat(values: Mapping[str, Any], *, prefix: str = "") -> dict[str, Any]:
    """Return nested fields by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, prefix=f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _start(metrics: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((line for line in reversed(metrics) if line.get("event") in ("start", "resume")), {})
