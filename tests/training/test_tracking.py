import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from universal_transformer.errors import UserError
from universal_transformer.training import tracking
from universal_transformer.training.tracking import (
    Display,
    Metrics,
    ProgressBar,
    TensorBoard,
    UpdateStatus,
    display,
)

STEPS = {"encoder": 2.25, "decoder": 1.5}


def status(update: int, *, seconds: float, fraction: float = 0.25) -> UpdateStatus:
    return UpdateStatus(update=update, seconds=seconds, fraction=fraction, loss=1.5, steps=STEPS, handled=100 * update)


def write(path: Path, updates, *, after=None) -> None:
    metrics = Metrics(path, after=after)
    for update in updates:
        metrics.write("update", update=update, seconds=1.0, values={"loss": update / 3, "bad": float("nan")})
    metrics.close()


def test_every_line_is_on_disk_at_once_and_exact(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path)
    for update in range(3):
        metrics.write("update", update=update, seconds=0.5, values={"loss": update / 3})
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["loss"] for line in lines] == [number / 3 for number in range(update + 1)]
    metrics.sync()
    metrics.close()


def test_a_value_that_is_not_finite_is_left_out(tmp_path: Path):
    write(tmp_path / "metrics.jsonl", [1])
    assert tracking.read_metrics(tmp_path / "metrics.jsonl") == [
        {"event": "update", "update": 1, "seconds": 1.0, "loss": 1 / 3}
    ]


GOOD = b'{"event": "update", "update": 1, "seconds": 1.0}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x04\x95binary", ":1: byte 0x80 .* is not UTF-8"),
        (b"\0" * 100, ":1: a NUL character"),
        (GOOD + b"text\n", ":2: not valid JSON"),
        (GOOD + b"[1]\n", r":2: found \[1\]; expected a JSON object"),
        (GOOD + b'{"event": "up\n' + GOOD, ":2: not valid JSON"),
        (GOOD + b'{"event": "update", "update": 1}\n', ':2: no "seconds" in'),
        (GOOD + b'{"event": 3, "update": 1, "seconds": 1.0}\n', ":2: event: expected text, found 3"),
        (GOOD + b'{"event": "a", "update": -1, "seconds": 1.0}\n', ":2: update: expected a whole number"),
        (GOOD + b'{"event": "a", "update": 1, "seconds": "1"}\n', ":2: seconds: expected a number"),
        (GOOD + b'{"event": "a", "update": 1, "seconds": NaN}\n', ":2: the number 'NaN'"),
        (
            GOOD + b'{"event": "a", "update": 1, "seconds": 1, "loss": 1' + b"0" * 400 + b"}\n",
            ":2: loss: expec",
        ),
        (GOOD + b'{"x": "' + b"x" * 2_000_000 + b'"}', ":2: a line of more than 1,000,000 characters"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_metrics_that_training_did_not_write_are_one_line(tmp_path: Path, content, message):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as refused:
        tracking.read_metrics(path)
    assert str(refused.value).startswith(f"{path}:")
    assert str(refused.value).isprintable()
    assert path.read_bytes() == content


@pytest.mark.parametrize("end", [b"", b"{", b'{"event": "upd', b'{"event": "update", "update": 2, "seconds": 1.5'])
def test_the_incomplete_last_line_of_a_killed_run_is_left_out(tmp_path: Path, end):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(GOOD + end)
    assert [line["update"] for line in tracking.read_metrics(path)] == [1]
    path.write_bytes(end)
    assert tracking.read_metrics(path) == []


def test_metrics_from_a_fifo_are_refused_without_waiting(tmp_path: Path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(UserError, match=r"metrics\.jsonl: a FIFO; expected a file"):
        tracking.read_metrics(tmp_path / "metrics.jsonl")


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_going_on_forgets_half_a_line_and_what_came_after_the_checkpoint(tmp_path: Path, cut):
    uninterrupted, broken = tmp_path / "uninterrupted.jsonl", tmp_path / "broken.jsonl"
    write(uninterrupted, range(1, 8))
    write(broken, range(1, 7))
    text = broken.read_bytes()
    broken.write_bytes(text[: len(text) - cut] if cut < 60 else text)
    write(broken, range(5, 8), after=4)
    assert broken.read_bytes() == uninterrupted.read_bytes()


def test_plain_lines_come_every_ten_seconds(monkeypatch):
    now = 0.0
    monkeypatch.setattr(tracking.time, "monotonic", lambda: now)
    out = io.StringIO()
    shown = display(quiet=False, unit="examples", console=Console(file=out, width=200))
    assert type(shown) is Display
    for second in range(31):
        now = float(second)
        shown.show(status(second, seconds=now))
    shown.note("[red]as it is[/red]")
    shown.close()
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[1] == "update 11 · 25% · loss 1.500 · encoder 2.25 · decoder 1.50 steps · 100 examples/s · 0:33 left"
    assert lines[-1] == "[red]as it is[/red]"


def test_on_a_terminal_there_is_a_bar():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    shown = display(quiet=False, unit="tokens", console=console)
    assert type(shown) is ProgressBar
    shown.show(status(0, seconds=1.0))
    shown.show(status(50, seconds=2.0, fraction=1.0))
    shown.note("half way")
    shown.close()
    text = out.getvalue()
    for part in ("loss 1.500 · encoder 2.25 · decoder 1.50 steps", "100 %", "5,000 tokens/s", "0:00 left", "half way"):
        assert part in text


@pytest.mark.parametrize(
    ("steps", "text"),
    [({}, []), ({"decoder": 4.0}, ["decoder 4.00 steps"]), (STEPS, ["encoder 2.25 · decoder 1.50 steps"])],
)
def test_steps_of_the_sides_that_there_are(steps, text):
    assert tracking.steps_text(steps) == text


def test_quiet_is_quiet(capsys):
    shown = display(quiet=True, unit="examples")
    assert type(shown) is Display
    shown.show(status(1, seconds=1.0))
    shown.note("nothing")
    shown.close()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "fraction", "text"),
    [(10.0, 0.0, "time left unknown"), (10.0, 0.5, "0:10 left"), (3600.0, 0.25, "3:00:00 left")],
)
def test_time_left(seconds, fraction, text):
    assert tracking.time_left(status(1, seconds=seconds, fraction=fraction)) == text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_the_numbers(tmp_path: Path):
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path, after=0)
    board.write("update", update=1, values={"loss": 0.5, "name": "text"})
    board.close()
    assert list(tmp_path.glob("events*"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_keeps_the_point_of_the_checkpoint(tmp_path: Path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for after, updates in ((0, (1, 2, 3, 4)), (2, (3,))):
        board = TensorBoard(tmp_path, after=after)
        for update in updates:
            board.write("update", update=update, values={"loss": 0.5})
        board.close()
    found = accumulator.EventAccumulator(str(tmp_path))
    found.Reload()
    assert [point.step for point in found.Scalars("update/loss")] == [1, 2, 3]
