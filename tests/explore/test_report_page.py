import dataclasses
import json
import os
import re
from html.parser import HTMLParser
from itertools import islice

import pytest
import torch

from damage import damages
from small_reports import METRICS, examined, report, story
from universal_transformer.errors import UserError
from universal_transformer.evaluation.report import Confusion, Report, ScoreRow, StepCounts
from universal_transformer.explore.canvas import DPI
from universal_transformer.explore.figures import error_by_group
from universal_transformer.explore.report_page import render, write_report
from universal_transformer.explore.saved_page import ASSETS, SCRIPTS
from universal_transformer.runs.journal import read_metrics

VOID = {"meta", "img", "br", "link", "input", "hr"}
EVIL = '<script>alert("1")</script>&<img src="http://x/y">'


class Reader(HTMLParser):
    """Collects tags, attributes and text of a page, and checks that what is opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.text, self.scripts = [], [], [], "", []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        else:
            self.text += data


def written(folder, **parts):
    path = write_report(folder, **parts)
    assert path == folder / "report.html"
    text = whole = path.read_text(encoding="utf-8")
    for name in SCRIPTS.values():  # ours, which read nothing
        text = text.replace((ASSETS / name).read_text(encoding="utf-8"), "")
    assert "default-src 'none'; script-src 'unsafe-inline'" in text
    assert not re.search(r"(src|href)\s*=\s*[\"']?\s*(https?:)?//", text)
    assert "url(" not in text
    assert "@import" not in text
    read = Reader(whole)
    assert not {"iframe", "object", "embed", "base", "form"} & set(read.tags)
    assert read.tags.count("script") == (4 if parts.get("examples") else 0)
    for name, value in read.attributes:
        assert not name.startswith("on")
        if name in ("src", "href"):
            assert value.startswith("data:image/svg+xml;base64,") or value == "data:,"
    return read


def plots(folder):
    return {path.name for path in (folder / "plots").iterdir()}


def test_the_page_of_a_halting_run_has_everything(tmp_path):
    (tmp_path / "config.json").write_text('{"recipe": "demo", "model": {"width": 8}, "training": {"seed": 7}}')
    start = METRICS[0] | {"parameters": 12345, "device": "cpu", "threads": 2, "torch": "2.13"}
    read = written(
        tmp_path,
        report=dataclasses.replace(report(), notes=("a changed split",), warnings=("halting has collapsed",)),
        examples=[examined(story(), title="One story: where is the lamp?")],
        metrics=[start, *METRICS[1:]],
    )
    assert plots(tmp_path) == {
        *("scores.svg", "ponder_histogram.svg", "ponder_by_supports.svg"),
        *("ponder_map.svg", "attention.svg", "training.svg"),
    }
    assert all(path.stat().st_size > 5000 for path in (tmp_path / "plots").iterdir())
    assert read.tags.count("img") == 4, "the trace is drawn in the page"
    assert json.loads(read.scripts[0]) == json.loads(json.dumps([story().to_dict()]))
    for text in ("demo", "12,345", "a changed split", "halting has collapsed", "where is the lamp?", "seed"):
        assert text in read.text
    assert "independently" not in read.text, "a whole sequence may halt together"
    assert "cpu, threads 2, torch 2.13" in read.text


def test_the_baseline_stands_beside_the_score(tmp_path):
    made = report()
    rows, totals = (
        tuple(dataclasses.replace(row, baseline={"error": 48.75}) for row in some) for some in (made.rows, made.totals)
    )
    read = written(tmp_path, report=dataclasses.replace(made, rows=rows, totals=totals, baseline="always 'ham'"))
    assert read.text.count("48.75") == 1 + len(rows) + len(totals)
    assert "baseline: always 'ham'" in read.text


def test_the_confusion_matrix_is_a_table(tmp_path):
    cells = (Confusion("test", "<ham>", "spam", 17), Confusion("test", "spam", "spam", 4))
    read = written(tmp_path, report=dataclasses.replace(report(), confusion=cells))
    for text in ("test: examples by true class", "<ham>", "17"):
        assert text in read.text


def test_nothing_that_is_given_becomes_markup(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"recipe": "<script>r</script>", "data": {"train": "<b>\\"</b>"}, "training": {"seed": "<i>"}}'
    )
    rows = tuple(dataclasses.replace(row, group=EVIL, set=EVIL) for row in report().rows)
    totals = (dataclasses.replace(report().totals[0], set=EVIL),)
    evil_story = story(labels=(EVIL,) * 4, right=EVIL, answer=EVIL, model=EVIL, unknown=(EVIL,))
    read = written(
        tmp_path,
        report=dataclasses.replace(
            report(),
            task=EVIL,
            rows=rows,
            totals=totals,
            notes=(EVIL,),
            warnings=(EVIL,),
            baseline=EVIL,
            signatures={"bleu": EVIL},
        ),
        examples=[examined(evil_story, title=EVIL, text=EVIL)],
        metrics=[
            {"event": "start", "update": 0, "seconds": 0, "device": EVIL},
            {"event": "warning", "text": EVIL},
        ],
    )
    assert read.text.count(EVIL) >= 10
    assert json.loads(read.scripts[0])[0]["answer"] == EVIL
    assert "<" not in read.scripts[0]
    for text in ("<script>r</script>", '<b>"</b>', "<i>"):
        assert text in read.text


def test_a_fixed_depth_has_no_ponder_time_and_says_so(tmp_path):
    fixed = dataclasses.replace(report(halting=False), steps_by_supports=())
    read = written(tmp_path, report=fixed, examples=[examined(story(halting=False, steps=(3.0,) * 4))], metrics=METRICS)
    assert plots(tmp_path) == {"scores.svg", "attention.svg", "training.svg"}
    assert "Every position takes 4 steps" in read.text


def test_sides_of_different_depth_are_named(tmp_path):
    sides = (StepCounts("encoder", (0, 0, 0, 9)), StepCounts("decoder", (0, 7, 0, 0)))
    found, read = of_steps(tmp_path, *sides)
    assert "Every position takes 4 (encoder) or 2 (decoder) steps: the depth" in read.text
    assert "4 (encoder) or 2 (decoder)steps (fixed)" in read.text
    head, row = found.score_table()
    assert head[-2:] == ["encoder steps (fixed)", "decoder steps (fixed)"]
    assert row[-2:] == ["4", "2"]


def test_steps_that_differ_without_halting_are_shown(tmp_path):
    """As many steps as positions: of an encoder, beside a decoder of two steps."""
    sides = (StepCounts("encoder", (0, 2, 6, 8)), StepCounts("decoder", (0, 7, 0, 0)))
    found, read = of_steps(tmp_path, *sides)
    assert plots(tmp_path) == {"ponder_histogram.svg"}
    assert "A position takes at most 4 steps." in read.text
    assert "2.96mean steps" in read.text
    for text in ("fixed: ", "Every position", "halts"):
        assert text not in read.text
    head, row = found.score_table()
    assert head[-2:] == ["encoder steps", "decoder steps (fixed)"]
    assert row[-2:] == ["3.38 ± 0.70", "2"]
    assert any("encoder: share of 16 positions by steps taken" in line for line in found.lines())


def of_steps(folder, *sides):
    """The report of a model without halting whose positions take these steps, and its page."""
    whole = ScoreRow("test", "", 5, {"error": 3.0}, sides)
    found = dataclasses.replace(report(halting=False), rows=(whole,), totals=(whole,), steps_by_supports=())
    return found, written(folder, report=found)


def test_answers_are_there_without_scripts(tmp_path):
    found = report(1, metrics=("character_accuracy", "sequence_accuracy"), sides=("encoder", "decoder"))
    trace = story(answer="1", right="12", probability=0.5)
    pair = dataclasses.replace(examined(trace, title="Sample", text="1 2"), figures={})
    read = written(tmp_path, report=found, examples=[pair])
    for text in ("Sample", "Input: 1 2", "answer: 1 (50 %)", "right answer: 12"):
        assert text in read.text
    assert "noscript" in read.tags
    assert ("class", "trace") in read.attributes
    assert plots(tmp_path) == {"ponder_histogram.svg", "ponder_by_supports.svg"}


def test_a_bare_report_is_a_page_too(tmp_path):
    fixed = dataclasses.replace(report(1, halting=False), steps_by_supports=())
    assert "Scores" in written(tmp_path, report=fixed).text
    assert plots(tmp_path) == set()


def test_it_is_written_again_over_the_old_one(tmp_path):
    for _ in range(2):
        written(tmp_path, report=report(), metrics=METRICS)
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name or "part" in path.suffix]


def test_a_folder_that_cannot_be_written_gets_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file") as found:
        write_report(tmp_path / "file", report=report())
    assert "\n" not in str(found.value)


def test_the_page_is_the_same_each_time(tmp_path):
    torch.manual_seed(0)
    first = write_report(tmp_path, report=report(), examples=[examined(story())], metrics=METRICS).read_bytes()
    assert write_report(tmp_path, report=report(), examples=[examined(story())], metrics=METRICS).read_bytes() == first


def refusal(function, *arguments, **options):
    """What the function returns, or its UserError."""
    try:
        return function(*arguments, **options)
    except UserError as error:
        return error


def test_a_damaged_report_is_one_line():
    """A part of all damages, so that each kind of them is done to many fields."""
    accepted, refused = [], []
    for metrics in (("error",), ("character_accuracy", "sequence_accuracy")):
        fields = json.loads(json.dumps(report(2, metrics=metrics, sides=("encoder", "decoder")).to_dict()))
        for row in (*fields["rows"], *fields["totals"]):
            row["baseline"] = dict.fromkeys(metrics, 0.5)
        for _, _, broken in islice(damages(fields), 0, None, 12):
            found = refusal(Report.from_dict, broken, name="report.json")
            (refused if isinstance(found, UserError) else accepted).append(found)
    assert len(refused) > 5 * len(accepted) > 5
    for error in map(str, refused):
        assert error.startswith("report.json: ")
        assert error.isprintable()


def test_damaged_metrics_are_one_line_or_can_be_shown(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [METRICS[0] | {"parameters": 5, "threads": 1, "device": "cpu"}, METRICS[1], *METRICS[-3:]]
    lines.append({"event": "warning", "update": 8, "seconds": 1.0, "text": "careful"})
    accepted, refused = [], []
    for _, _, broken in islice(damages(lines), 0, None, 12):
        path.write_text("".join(json.dumps(line) + "\n" for line in broken))
        found = refusal(read_metrics, path)
        (refused if isinstance(found, UserError) else accepted).append(found)
    assert min(len(refused), len(accepted)) > 10
    for error in map(str, refused):
        assert error.startswith(f"{path}:")
        assert error.isprintable()
    for found in accepted[::10]:
        render(report(1, halting=False), metrics=found, config={})


@pytest.mark.parametrize("name", ["report.html", "plots/training.svg"])
def test_nothing_is_written_into_a_fifo(name, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(UserError, match=f"{path}: no regular file, which is not written to"):
        write_report(tmp_path, report=report(1, halting=False), metrics=METRICS[:3])
    assert path.is_fifo()
    assert not list(tmp_path.rglob("*.partial"))


def test_a_figure_of_very_many_groups_is_not_too_large_for_an_image():
    figure = error_by_group(report(2000))
    assert max(figure.get_size_inches()) * DPI < 2**15
    assert "100 of 2000 groups shown" in figure.texts[1].get_text()
