import io

import pytest
from rich.console import Console

from universal_transformer.training import display as displays
from universal_transformer.training.display import Display, ProgressBar, UpdateStatus, display

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
