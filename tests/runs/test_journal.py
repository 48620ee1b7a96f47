import json
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from training import tiny
from universal_transformer.errors import UserError
from universal_transformer.runs.journal import RunJournal, read_metrics
from universal_transformer.runs.resume import RunOrigin
from universal_transformer.runs.trackers import TRACKERS, tracker_of
from universal_transformer.training.display import display
from universal_transformer.training.run import RunState


def journal(folder: Path, *, after: int | None = None, tracker: str | None = None) -> RunJournal:
    """That of a run which goes on after an update, when there was one line for each."""
    saved = None if after is None else RunState(update=after, lines=after)
    origin = RunOrigin.now(tiny.run_config(tracker=tracker), tiny.task(), torch.device("cpu"))
    return RunJournal(
        display(quiet=True, unit="tokens"), folder, origin, after=saved, tracker=tracker_of(tracker, folder)
    )


def write(folder: Path, updates, *, after: int | None = None, tracker: str | None = None) -> None:
    folder.mkdir(exist_ok=True)
    written = journal(folder, after=after, tracker=tracker)
    for update in updates:
        values = {"loss": update / 3, "bad": float("nan"), "name": "text"}
        written.write("update", update=update, seconds=1.0, values=values)
    written.close()


def test_every_line_is_on_disk_at_once_and_exact(tmp_path: Path):
    path, written = tmp_path / "metrics.jsonl", journal(tmp_path)
    for update in range(3):
        written.write("update", update=update, seconds=0.5, values={"loss": update / 3})
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["loss"] for line in lines] == [number / 3 for number in range(update + 1)]
    written.close()


def test_a_value_that_is_not_finite_is_left_out(tmp_path: Path):
    write(tmp_path, [1])
    line = {"event": "update", "update": 1, "seconds": 1.0, "loss": 1 / 3, "name": "text"}
    assert read_metrics(tmp_path / "metrics.jsonl") == [line]


GOOD = b'{"event": "update", "update": 1, "seconds": 1.0}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x04\x95binary", ":1: byte 0x80 .* is not UTF-8"),
        (b"\0" * 100, ":1: a NUL character"),
        (GOOD + b"text\n", ":2: not valid JSON"),
        (GOOD + b"[1]\n", r":2: expected .*, found \[1\]"),
        (GOOD + b'{"event": "up\n' + GOOD, ":2: not valid JSON"),
        (GOOD + b'{"event": "update", "update": 1}\n', ":2: seconds: expected a number.*, found None"),
        (GOOD + b'{"event": 3, "update": 1, "seconds": 1.0}\n', ":2: event: expected text, found 3"),
        (GOOD + b'{"event": "a", "update": -1, "seconds": 1.0}\n', ":2: update: expected a whole number"),
        (GOOD + b'{"event": "a", "update": 1, "seconds": "1"}\n', ":2: seconds: expected a number"),
        (GOOD + b'{"event": "a", "update": 1, "seconds": NaN}\n', ":2: the number 'NaN'"),
        (GOOD + b'{"x": "' + b"x" * 2_000_000 + b'"}', ":2: a line of more than 1,000,000 characters"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_metrics_that_training_did_not_write_are_one_line(tmp_path: Path, content, message):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as refused:
        read_metrics(path)
    assert str(refused.value).startswith(f"{path}:")
    assert str(refused.value).isprintable()
    assert path.read_bytes() == content


@pytest.mark.parametrize("end", [b"", b"{", b'{"event": "upd', b'{"event": "update", "update": 2, "seconds": 1.5'])
def test_the_incomplete_last_line_of_a_killed_run_is_left_out(tmp_path: Path, end):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(GOOD + end)
    assert [line["update"] for line in read_metrics(path)] == [1]
    path.write_bytes(end)
    assert read_metrics(path) == []


def test_what_a_loss_of_power_leaves_after_the_last_line_is_left_out(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(GOOD + bytes(64))
    assert [line["update"] for line in read_metrics(path)] == [1]


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_going_on_forgets_half_a_line_and_what_came_after_the_checkpoint(tmp_path: Path, cut):
    write(tmp_path / "uninterrupted", range(1, 8))
    write(tmp_path / "broken", range(1, 7))
    uninterrupted, broken = (tmp_path / name / "metrics.jsonl" for name in ("uninterrupted", "broken"))
    text = broken.read_bytes()
    broken.write_bytes(text[: len(text) - cut] if cut < 60 else text)
    write(tmp_path / "broken", range(5, 8), after=4)
    assert broken.read_bytes() == uninterrupted.read_bytes()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_the_numbers_and_keeps_the_point_of_the_checkpoint(tmp_path: Path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for after, updates in ((None, (1, 2, 3, 4)), (2, (3,))):
        write(tmp_path, updates, after=after, tracker="tensorboard")
    found = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [point.step for point in found.Scalars("update/loss")] == [1, 2, 3]


class Recorder:
    """A tracker that keeps what it was told."""

    calls: ClassVar[list] = []

    def __init__(self, folder):
        self.calls.append(("made", folder.name))

    def start(self, config, *, after):
        self.calls.append(("start", config["recipe"], after))

    def log(self, values, *, update):
        self.calls.append(("log", values, update))

    def finish(self):
        self.calls.append(("finish",))


def test_a_tracker_of_a_name_gets_the_numbers_of_a_run_in_order(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(TRACKERS, "recorder", f"{__name__}:Recorder")
    monkeypatch.setattr(Recorder, "calls", [])
    write(tmp_path / "run", (1,), tracker="recorder")
    write(tmp_path / "run", (2,), after=1, tracker="recorder")
    name = tiny.run_config().recipe
    logged = [
        (
            "log",
            {"update/loss": pytest.approx(update / 3), "update/bad": pytest.approx(float("nan"), nan_ok=True)},
            update,
        )
        for update in (1, 2)
    ]
    assert Recorder.calls == [
        ("made", "run"), ("start", name, 0), logged[0], ("finish",),
        ("made", "run"), ("start", name, 1), logged[1], ("finish",),
    ]  # fmt: skip


def test_a_tracker_gets_validations_of_the_same_weights(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(TRACKERS, "recorder", f"{__name__}:Recorder")
    monkeypatch.setattr(Recorder, "calls", [])
    written = journal(tmp_path, tracker="recorder")
    for weights in ("last", "average"):
        written.write("validation", update=3, seconds=1.0, values={"error": 0.5, "weights": weights})
    written.close()
    assert [call for call in Recorder.calls if call[0] == "log"] == [("log", {"validation/error": 0.5}, 3)]


def test_an_unknown_tracker_is_refused_before_anything_is_written(tmp_path: Path):
    with pytest.raises(UserError, match=r"training\.tracker='tensorbord': known are tensorboard \(did you mean"):
        tracker_of("tensorbord", tmp_path)
