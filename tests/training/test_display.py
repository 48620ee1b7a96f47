import io
import os
import pty
import signal
import sys

import pytest
from rich.console import Console

from universal_transformer.training import display as displays
from universal_transformer.training.display import Display, Output, ProgressBar, UpdateStatus, display
from universal_transformer.training.interruption import stop_on_signals

STEPS = {"encoder": 2.25, "decoder": 1.5}


def status(update: int, *, seconds: float, fraction: float = 0.25) -> UpdateStatus:
    return UpdateStatus(update=update, seconds=seconds, fraction=fraction, loss=1.5, steps=STEPS, handled=100 * update)


def test_plain_lines_come_every_ten_seconds(monkeypatch):
    now = 0.0
    monkeypatch.setattr(displays.time, "monotonic", lambda: now)
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


@pytest.fixture
def hang_up():
    """SIGHUP as a terminal has it, whether or not the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield signal.SIGHUP
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("signals", [["SIGHUP", "SIGHUP"], ["SIGHUP", "SIGINT"], ["SIGINT", "SIGHUP"], ["SIGHUP"]])
def test_a_closed_terminal_stops_as_often_as_it_says_so(hang_up, signals):
    """A shell and the system both send it, and nobody who is in a hurry."""
    with stop_on_signals() as stop:
        assert not stop()
        for name in signals:
            signal.raise_signal(signal.Signals[name])
        assert stop()
    assert signal.getsignal(hang_up) == signal.SIG_DFL


def test_what_ignores_a_closed_terminal_goes_on_ignoring_it(hang_up):
    signal.signal(hang_up, signal.SIG_IGN)
    with stop_on_signals() as stop:
        signal.raise_signal(hang_up)
        assert not stop()
    assert signal.getsignal(hang_up) == signal.SIG_IGN


def test_output_to_a_closed_terminal_is_no_error(monkeypatch):
    """SIGHUP may come later than this, or never: after disown."""
    master, terminal = pty.openpty()
    with open(terminal, "w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdout", out)
        os.close(master)
        for text in ("first", "second"):
            display(quiet=False, unit="examples", console=Output(force_terminal=False)).note(text)


@pytest.mark.parametrize(
    ("steps", "text"),
    [({}, []), ({"decoder": 4.0}, ["decoder 4.00 steps"]), (STEPS, ["encoder 2.25 · decoder 1.50 steps"])],
)
def test_steps_of_the_sides_that_there_are(steps, text):
    assert displays.steps_text(steps) == text


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
    assert displays.time_left(status(1, seconds=seconds, fraction=fraction)) == text
