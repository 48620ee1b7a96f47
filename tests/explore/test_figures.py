import dataclasses
import sys
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest

from small_reports import FACTS, METRICS, report, story
from universal_transformer.errors import UserError
from universal_transformer.explore.canvas import DPI, label, svg
from universal_transformer.explore.figures import (
    error_by_group,
    ponder_by_supports,
    ponder_histogram,
    training_curve,
)
from universal_transformer.explore.story_figures import attention_maps, ponder_map, shown_rows

FIGURES = {
    "ponder map": lambda: ponder_map(story()),
    "ponder map of a wrong answer": lambda: ponder_map(story(answer="garage", right=None, supports=())),
    "attention": lambda: attention_maps(story()),
    "attention of a fixed depth": lambda: attention_maps(story(halting=False, steps=(3.0,) * 4)),
    "attention of several layers a step": lambda: attention_maps(story(blocks=3)),
    "attention among plain layers": lambda: attention_maps(story(blocks=0)),
    "histogram": lambda: ponder_histogram(report()),
    "histogram of two sides": lambda: ponder_histogram(report(1, sides=("encoder", "decoder"))),
    "histogram of many groups": lambda: ponder_histogram(report(60)),
    "supports": lambda: ponder_by_supports(report()),
    "supports next to the paper": lambda: ponder_by_supports(report(), paper=True),
    "errors": lambda: error_by_group(report(20)),
    "accuracies": lambda: error_by_group(report(2, metrics=("character_accuracy", "sequence_accuracy"))),
    "perplexities": lambda: error_by_group(report(2, metrics=("perplexity", "accuracy"))),
    "training": lambda: training_curve(METRICS),
    "training without validation": lambda: training_curve(METRICS[:5]),
}


@pytest.mark.parametrize("sides", [("encoder",), ("encoder", "decoder")])
def test_the_steps_of_each_side_are_a_curve(sides):
    lines = [line | {f"{side}_steps": 1 + line["update"] for side in sides} for line in METRICS]
    axes = training_curve(lines).axes[-1]
    assert axes.get_ylabel() == "mean steps (N)"
    assert [line.get_label() for line in axes.lines] == list(sides)
    assert len(axes.lines[0].get_xdata()) == 8


def pixels(figure):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas.draw()
    return np.asarray(canvas.buffer_rgba()) / 255


def words(figure):
    from matplotlib.text import Text

    return " | ".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("name", FIGURES)
def test_figures_show_something_and_are_the_same_each_time(name):
    image = pixels(FIGURES[name]())
    assert min(image.shape[:2]) > 300
    assert image[..., :3].std() > 0.03
    margin = np.concatenate([image[:2].ravel(), image[-2:].ravel(), image[:, :2].ravel(), image[:, -2:].ravel()])
    assert (margin == 1).all(), "something is cut off at the edge"
    assert svg(FIGURES[name]()) == svg(FIGURES[name]())


@pytest.mark.parametrize("name", FIGURES)
def test_figures_have_a_title_and_named_axes(name):
    figure = FIGURES[name]()
    assert figure.texts[0].get_text()
    assert any(ax.get_xlabel() or ax.get_ylabel() for ax in figure.axes)


@pytest.mark.claim("figure 3")
def test_the_ponder_map_fills_as_many_cells_as_steps_were_taken():
    from matplotlib.colors import to_hex

    from universal_transformer.explore.canvas import GHOST

    bars = list(ponder_map(story()).axes[0].patches)
    filled = [bar for bar in bars if to_hex(bar.get_facecolor()) != GHOST]
    assert len(bars) == 4 * 4
    assert len(filled) == sum(story().sides[0].steps)


def test_supporting_facts_are_marked_by_more_than_colour():
    text = words(ponder_map(story()))
    assert "● boris went to the attic" in text
    assert "● amina" not in text
    assert "model: attic (93 %) · right answer: attic ✓" in text
    assert "✗" in words(ponder_map(story(answer="garage")))


@pytest.mark.claim("figure 5", "figure 6", "figure 7", "figure 8")
def test_attention_says_which_steps_came_after_the_question_halted():
    text = words(attention_maps(story(steps=(3.0, 3.0, 3.0, 2.0))))
    assert "step 2 " in text
    assert "step 3 (halted)" in text
    assert "halted" not in words(attention_maps(story(halting=False, steps=(3.0, 3.0, 3.0, 2.0))))


def test_failed_groups_are_named_so():
    text = words(error_by_group(report(4)))
    assert "6.00 failed" in text
    assert "3.00 failed" not in text
    assert "2 of 4 failed (error above 5 %)" in text


def line_of(event, update, **values):
    return {"event": event, "update": update, "seconds": 1.0, **values}


@pytest.mark.parametrize("growth", [0.0, 0.01], ids=["fixed depth", "halting"])
def test_all_panels_of_the_training_plot_show_the_range_of_all_updates(growth):
    lines = [line_of("update", n, loss=2.0, encoder_steps=6.0 + growth * n) for n in range(10, 1001, 10)]
    lines += [line_of("validation", n, error=0.5, cross_entropy=1.0) for n in (400, 600)]
    axes = training_curve(lines).axes
    for ax in axes:
        least, most = ax.get_xlim()
        assert least <= 10
        assert most >= 1000
    assert len(axes) == (3 if growth else 2)


def test_the_training_plot_shows_the_final_validations():
    lines = [line_of("update", n, loss=2.0) for n in range(1, 11)]
    lines += [line_of("validation", 5, error=0.5, cross_entropy=1.0)]
    lines += [line_of("validation", 10, error=0.25, cross_entropy=0.75, weights="last")]
    lines += [line_of("validation", 10, error=0.125, cross_entropy=0.5, weights="average")]
    losses, errors = training_curve(lines).axes
    for ax, last, average in ((losses, [1.0, 0.75], [0.5]), (errors, [50.0, 25.0], [12.5])):
        curves = {curve.get_label(): curve for curve in ax.lines}
        assert list(curves["validation"].get_xdata()) == [5, 10]
        assert list(curves["validation"].get_ydata()) == last
        assert list(curves["average of weights"].get_ydata()) == average
        assert [text.get_text() for text in ax.get_legend().get_texts()] == [*curves]


def test_the_training_plot_has_a_line_of_the_baseline_that_needs_no_model():
    start = line_of("start", 0, baseline_cross_entropy=1.75, baseline_error=0.5)
    axes = training_curve([start, *METRICS]).axes
    levels = {
        ax.get_ylabel(): [line.get_ydata()[0] for line in ax.lines if line.get_label() == "baseline"] for ax in axes
    }
    assert levels == {"loss (nats a target)": [1.75], "validation error %": [50.0]}
    assert "baseline" not in words(training_curve(METRICS))


def test_the_training_plot_says_what_losses_and_errors_are():
    """A training loss with dropout and smoothed labels is another one than that of validation, and a token error given
    the right tokens says nothing about whole answers.
    """
    start = line_of("start", 0, writes="tokens", dropout=0.1, label_smoothing=0.1, baseline_metric=0.25)
    lines = [start, line_of("update", 1, loss=2.0), line_of("update", 2, loss=1.0)]
    lines += [
        line_of("validation", n, error=0.04, cross_entropy=0.2, metric_name="sequence_accuracy", metric=0.6)
        for n in (1, 2)
    ]
    losses, errors, accuracies = training_curve(lines).axes
    assert [line.get_label() for line in losses.lines] == ["training, with dropout and smoothed labels", "validation"]
    assert errors.get_ylabel() == "token error % (teacher forcing)"
    assert accuracies.get_ylabel() == "validation sequence accuracy"
    assert [list(line.get_ydata()) for line in accuracies.lines] == [[0.6, 0.6], [0.25, 0.25]]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "text", ["$x_", r"\frac{$", "日本語 ☃", "a\nb\x1b[31m", "<script>", "x" * 500, "", "\u202e\U0001f600"]
)
def test_any_text_can_be_drawn(text):
    changed = story(labels=(text, *FACTS[1:]), right=text, answer=text)
    for figure in (ponder_map(changed), attention_maps(changed), error_by_group(strange_report(text))):
        assert pixels(figure).std() > 0.03
        drawn = ElementTree.fromstring(svg(figure))  # noqa: S314  our own
        shown = [found.text for found in drawn.iter("{http://www.w3.org/2000/svg}text")]
        assert not label(text) or any(label(text, most=20).removesuffix("…") in (found or "") for found in shown)
        assert not list(drawn.iter("{http://www.w3.org/2000/svg}script"))


def strange_report(text):
    found = report()
    return dataclasses.replace(found, rows=tuple(dataclasses.replace(row, group=text) for row in found.rows))


@pytest.mark.claim("appendix D")
def test_long_stories_keep_their_supporting_facts():
    long = story(labels=("fact",) * 300, steps=(1.0,) * 300, supports=(3, 50))
    rows = shown_rows(long.sides[0])
    assert len(rows) == 40
    assert {3, 50, 299} <= set(rows)
    assert rows == sorted(rows)
    assert "40 of 300 positions shown" in words(ponder_map(long))


def test_labels_are_one_line_that_fits():
    assert label("a\n b\t c") == "a b c"
    assert len(label("x" * 99)) == 58


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"universal-transformer\[plot\]"):
        ponder_map(story())
