"""Every damage of a checkpoint that its manifest does not show: no traceback, and nothing wrong is loaded."""

import contextlib
import copy
import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from damage import damages
from universal_transformer.errors import UserError
from universal_transformer.manifest import MANIFEST, encode_manifest, entry_of
from universal_transformer.training import checkpoint as checkpoints
from universal_transformer.training.changes import OtherRunError
from universal_transformer.training.optimizer import build_optimizer
from universal_transformer.training.resume import GivenRun
from universal_transformer.training.state import RunState, Snapshot, first_non_finite
from universal_transformer.training.trainer import train

from . import tiny

TASK = tiny.task("encoder_decoder")
CONFIG = tiny.run_config(average_checkpoints=2, log_every=4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run with two checkpoints: averaged weights, a best validation, half a window of metrics, Adam's state."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(CONFIG, folder, task=TASK, quiet=True)
    return folder


@pytest.fixture(scope="module")
def reader(trained: Path) -> Callable[[checkpoints.Checkpoint, str], Snapshot]:
    """What a resume of the run checks in a checkpoint."""
    return make_reader(trained)


def make_reader(folder: Path) -> Callable[[checkpoints.Checkpoint, str], Snapshot]:
    run = tiny.training_run(folder, CONFIG, TASK)
    given = given_run(folder, run.data)
    return lambda found, name: run._read(found, name, given=given)


def given_run(folder: Path, data: str) -> GivenRun:
    return GivenRun(folder, CONFIG, data, {}, {"threads": 1, "torch": "", "device": "cpu"}, ())


def loaded(folder: Path) -> tuple[checkpoints.Checkpoint, str]:
    """Return the newest checkpoint of a run and its name."""
    found, _ = checkpoints.load_newest(folder / "checkpoints", read=lambda found, name: (found, name))
    assert found is not None
    return found


def test_what_was_saved_is_read_back_equal(trained, reader):
    found, name = loaded(trained)
    snapshot = reader(found, name)
    assert snapshot.config == CONFIG
    assert snapshot.state.window
    assert snapshot.state.best is not None
    assert snapshot.tensors["averaged"]
    again = snapshot.checkpoint()
    assert json.loads(json.dumps(again.state)) == found.state
    assert again.tensors is found.tensors


def test_every_wrong_value_in_the_state_is_refused(trained):
    """Each key dropped, each value of another type; what may differ is still a value of its type and range."""
    found, name = loaded(trained)
    given, accepted = given_run(trained, found.state["data"]), {}
    for place, damage, state in damages(found.state):
        if place[0] == "configuration" and len(place) > 2:
            continue  # its own reader is tested, and its digest changes with any value
        broken = checkpoints.Checkpoint(tensors=found.tensors, state=state)
        with contextlib.suppress(UserError):
            given.compare(Snapshot.from_checkpoint(broken, name=name))
            accepted[".".join(map(str, place)), damage] = place
    numbers = {"examples", "targets", "seconds", "cross_entropy", "error", "mean_steps", "encoder", "decoder"}
    for (path, damage), place in accepted.items():
        last = str(place[-1])
        free = (
            last in numbers
            or "window" in path
            or "surroundings" in path
            or path.startswith(("standing.best.steps", "standing.best.metric"))
        )
        assert free or (path, damage) in HARMLESS, f"{path} {damage} was loaded"
        assert (
            damage != "dropped"
            or (path, damage) in HARMLESS
            or "best.steps" in path
            or "best.metric" in path
            or "_steps" in last
        )


#: Numbers or a switch of the right type.
HARMLESS = {
    ("standing.outliers.in_a_row", repr(10**30)),
    ("standing.collapse.encoder.warned", "True"),
    ("standing.collapse.decoder.warned", "True"),
    ("standing.collapse.encoder.updates", repr(10**30)),
    ("standing.collapse.encoder.looks", repr(10**30)),
    ("standing.collapse.decoder.updates", repr(10**30)),
    ("standing.collapse.decoder.looks", repr(10**30)),
    ("files", "{}"),
}


def tensor_damages(tensors: dict[str, dict[str, torch.Tensor]]) -> Iterator[tuple[str, dict]]:
    """Yield damaged copies: parts and tensors left out, added, renamed, and of another shape, type or value."""
    for part, found in tensors.items():
        rest = {other: one for other, one in tensors.items() if other != part}
        yield f"{part} dropped", rest
        yield f"{part} empty", {**rest, part: {}}
        yield f"{part} with more", {**rest, part: {**found, "more": torch.zeros(2)}}
        for name in list(found)[:2]:
            value = found[name]
            others = {other: one for other, one in found.items() if other != name}
            yield f"{part} {name} dropped", {**rest, part: others}
            changed = {
                "shape": value[None],
                "type": value.double() if value.dtype != torch.float64 else value.float(),
                "integers": torch.zeros(value.shape, dtype=torch.int32),
                "huge": torch.full(value.shape, 2**62, dtype=torch.int64),
                "negative": torch.full(value.shape, -1, dtype=torch.int64),
                "boolean": torch.zeros(value.shape, dtype=torch.bool),
                "shorter": value.flatten()[:-1] if value.numel() > 1 else torch.zeros(0),
                "renamed": None,
            }
            if value.is_floating_point():
                changed |= {"infinite": torch.full_like(value, torch.inf), "NaN": torch.full_like(value, torch.nan)}
            for damage, new in changed.items():
                kept = {**others, f"{name}x": value} if new is None else {**others, name: new}
                yield f"{part} {name} {damage}", {**rest, part: kept}
    yield "another part", {**tensors, "more": {}}


def test_every_wrong_tensor_is_refused(trained, reader):
    found, name = loaded(trained)
    for damage, tensors in tensor_damages({part: dict(one) for part, one in found.tensors.items()}):
        state = copy.deepcopy(dict(found.state))
        state["tensors"] = {part: len(one) for part, one in tensors.items()}  # as whoever edited it would
        with contextlib.suppress(UserError):
            reader(checkpoints.Checkpoint(tensors=tensors, state=state), name)
            assert damage == "averaged empty", f"{damage} was loaded"


def rewrite(path: Path, name: str, data: bytes) -> None:
    """Change a file of a checkpoint and its manifest."""
    (path / name).write_bytes(data)
    files = [file for file in path.iterdir() if file.name != MANIFEST]
    (path / MANIFEST).write_bytes(encode_manifest({file.name: entry_of(file.read_bytes()) for file in files}))


def header(*, start: int, end: int, kind: str = "F32", shape: str = "[2]") -> bytes:
    text = f'{{"a":{{"dtype":"{kind}","shape":{shape},"data_offsets":[{start},{end}]}}}}'.encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * 8


FILES = {
    "empty": b"",
    "text": b"not a file of tensors",
    "lying length": b"\xff" * 16,
    "lying offsets": header(start=0, end=2**40),
    "lying shape": header(start=0, end=8, shape="[1000000000]"),
    "unknown type": header(start=0, end=8, kind="Q7"),
    "type that torch may lack": header(start=0, end=1, kind="F4"),
    "JSON": b"{}",
    "deep JSON": b"[" * 50_000,
    "list": b"[]",
    "number": b"1e999",
    "NaN": b'{"standing": NaN}',
    "not UTF-8": b"\xff\xfe{}",
}


@pytest.mark.parametrize("damage", FILES)
def test_a_file_of_another_kind_falls_back_to_the_checkpoint_before(trained, reader, tmp_path, damage):
    for name in ("state.json", "model.safetensors", "random.safetensors", "best.safetensors"):
        folder = tmp_path / name
        shutil.copytree(trained / "checkpoints", folder)
        newest = max(folder.iterdir())
        rewrite(newest, name, FILES[damage])
        found, (warning,) = checkpoints.load_newest(folder, read=reader)
        assert found is not None
        assert found.name < newest.name
        assert "is damaged" in warning
        assert (folder / f"damaged-{newest.name}").is_dir()


def test_a_state_under_another_name_is_damage(trained, reader):
    found, _ = loaded(trained)
    with pytest.raises(UserError, match="this is the state of 000000006-"):
        reader(found, "000000007-000003")


def test_another_run_is_not_damage(trained, reader, tmp_path):
    """Nothing is renamed when it is the configuration or the data that differ."""
    found, name = loaded(trained)
    for change in ({"data": "0123456789ab"}, {"configuration": tiny.run_config(seed=3).to_dict()}):
        state = {**found.state, **change}
        if "configuration" in change:
            state["config"] = tiny.run_config(seed=3).digest()
        with pytest.raises(OtherRunError, match=r"data have changed|training\.seed was 3, is now 0"):
            reader(checkpoints.Checkpoint(tensors=found.tensors, state=state), name)


def test_the_first_tensor_that_is_not_finite_is_named():
    good, bad = torch.zeros(3), torch.tensor([0.0, torch.inf])
    assert first_non_finite({"random": {"a": torch.ones(2, dtype=torch.uint8)}, "model": {"w": good}}) is None
    assert first_non_finite({"model": {"w": good}, "averaged": {"0/w": bad}}) == "averaged: 0/w"


def test_a_state_of_an_unbegun_run_is_written_and_read():
    fields = json.loads(json.dumps(dataclasses.asdict(RunState())))
    assert RunState.from_dict(fields, where="x") == RunState()
    assert build_optimizer(torch.nn.Linear(2, 2), CONFIG.training).state == {}
