import dataclasses
import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from training import tiny
from universal_transformer.errors import UserError
from universal_transformer.files import write_json
from universal_transformer.manifest import check_content, read_manifest
from universal_transformer.registry import build
from universal_transformer.runs import folder as folders
from universal_transformer.runs.resume import ACCEPTABLE, LIMITS, check_usable
from universal_transformer.tasks import StoriesData
from universal_transformer.training.run_config import RunConfig, TrainingConfig


@contextmanager
def claimed(run: Path, config: RunConfig) -> Iterator[None]:
    """A run that has begun."""
    with folders.claimed(run):
        write_json(run / "config.json", config.to_dict())
        yield


def test_one_writer_at_a_time(tmp_path: Path):
    config, run = tiny.run_config(), tmp_path / "run"
    with (
        claimed(run, config),
        pytest.raises(UserError, match="being written by another process"),
        claimed(run, config),
    ):
        pass
    with claimed(run, config):
        pass


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path):
    config = tiny.run_config()
    check_usable(tmp_path / "new", config, resume=False)
    check_usable(tmp_path, config, resume=False)
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(UserError, match="is there already"):
        check_usable(tmp_path, config, resume=False)
    with pytest.raises(UserError, match="is there already"):
        check_usable(tmp_path / "thesis.txt", config, resume=False)
    with pytest.raises(UserError, match="has no run to continue"):
        check_usable(tmp_path, config, resume=True)


def test_what_changed_is_named_and_only_limits_may(tmp_path: Path, monkeypatch):
    config, run = tiny.run_config(select_by="metric"), tmp_path / "run"
    with claimed(run, config):
        pass
    assert check_usable(run, config, resume=True) == []
    with monkeypatch.context() as patched:
        patched.setattr("os.access", lambda path, _: path != run)
        with pytest.raises(UserError, match="no permission to write; continue a copy"):
            check_usable(run, config, resume=True)
    changed = dataclasses.replace(config, data=StoriesData(train_stories=7))
    with pytest.raises(UserError, match=r"data\.fields\.train_stories was \d+, is now 7"):
        check_usable(run, changed, resume=True)
    with pytest.raises(UserError, match=r"model\.sizes\.width was 16, is now 32"):
        check_usable(run, dataclasses.replace(config, model=tiny.model_config(width=32)), resume=True)
    other = {float: 0.123, int: 77, bool: True, tuple: (0.5, 0.6), type(None): 77}
    for field in dataclasses.fields(TrainingConfig):
        value = getattr(config.training, field.name)
        if isinstance(value, str):
            continue
        named = {"ema_decay": 0.5, "tracker": "tensorboard"}
        change = named.get(field.name, other[type(value)])
        new = dataclasses.replace(config.training, **{field.name: change})
        changed = dataclasses.replace(config, training=new)
        if field.name in LIMITS:
            (text,) = check_usable(run, changed, resume=True)
        else:
            with pytest.raises(UserError, match="not the same run") as caught:
                check_usable(run, changed, resume=True)
            text = str(caught.value)
            path = f"training.{field.name}"
            assert ("--accept-change" in text) == (path in ACCEPTABLE)
            if path in ACCEPTABLE:
                assert check_usable(run, changed, resume=True, accepted=[path]) == [text_of(text)]
            else:
                with pytest.raises(UserError, match=f"--accept-change {path}: cannot change when a run continues"):
                    check_usable(run, changed, resume=True, accepted=[path])
        assert f"training.{field.name} was" in text


def text_of(error: str) -> str:
    """Return the change that an error names, without the rest."""
    return error.split("not the same run: ")[1].split("; to change it")[0]


def test_one_accepted_change_does_not_let_another_pass(tmp_path: Path):
    config = tiny.run_config()
    with claimed(tmp_path / "run", config):
        pass
    changed = tiny.run_config(learning_rate=0.1, seed=7)
    with pytest.raises(UserError, match=r"not the same run: training\.seed was 0, is now 7$"):
        check_usable(tmp_path / "run", changed, resume=True, accepted=["training.learning_rate"])


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("training.learning_rat", r"did you mean training\.learning_rate.*allowed: training\.learning_rate, "),
        ("learning_rate", r"did you mean training\.learning_rate"),
        ("model.sizes.width", "cannot change when a run continues"),
        ("training.minutes", "may change without it"),
    ],
)
def test_a_field_that_cannot_be_accepted_is_named_with_those_that_can(tmp_path: Path, field, message):
    with claimed(tmp_path / "run", tiny.run_config()):
        pass
    with pytest.raises(UserError, match=f"--accept-change {field}: .*{message}"):
        check_usable(tmp_path / "run", tiny.run_config(), resume=True, accepted=[field])


@pytest.mark.parametrize(
    ("fields", "new", "named"),
    [
        ({"schedule": "cosine"}, {"max_updates": 9}, "learning rate"),
        ({"schedule": "linear", "halting_delay": 0.5}, {"max_updates": 9}, "learning rate and ponder weight"),
        ({"halting_delay": 0.5, "max_updates": None, "minutes": 1.0}, {"minutes": 2.0}, "ponder weight"),
        ({"schedule": "cosine", "minutes": 1.0}, {"minutes": 2.0}, None),  # updates say how much is over
        ({"schedule": "constant"}, {"max_updates": 9}, None),
    ],
)
def test_what_follows_the_length_of_a_run_is_named_where_that_changes(tmp_path: Path, fields, new, named):
    with claimed(tmp_path / "run", tiny.run_config(**fields)):
        pass
    _, *more = check_usable(tmp_path / "run", tiny.run_config(**{**fields, **new}), resume=True)
    assert more == ([f"the length of the run, and with it, in one jump, {named}"] if named else [])


def test_a_run_may_be_reached_through_a_link(tmp_path: Path):
    config = tiny.run_config()
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    with claimed(tmp_path / "run", config):
        pass
    assert check_usable(tmp_path / "run", config, resume=True) == []


def test_only_what_a_killed_save_left_is_deleted(tmp_path: Path):
    config, run = tiny.run_config(), tmp_path / "run"
    run.mkdir()
    ours = [".config.json.a1b2c3d4.partial", ".metrics.jsonl.partial", ".report-steps-2.json.abcd_123.partial"]
    users = [".notes.partial", ".thesis.txt.a1b2c3d4.partial", ".config.json.orig.partial", "model.partial", ".partial"]
    for name in (*ours, *users):
        (run / name).write_text("{}")
    (run / ".model.partial").mkdir()
    (run / ".model.partial" / "half").write_text("")
    (run / ".drafts.partial").mkdir()
    with claimed(run, config):
        pass
    left = {path.name for path in run.iterdir()} - {"config.json"}
    assert left == {*users, ".drafts.partial"}


def saved_model(run: Path) -> dict[str, bytes]:
    model = build(tiny.task().configure(tiny.model_config()))
    folders.save_model(run, model, tiny.codec())
    return content(run / "model")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_saved_model_has_a_manifest_of_all_its_files(tmp_path: Path):
    found = saved_model(tmp_path)
    check_content(tmp_path / "model")
    assert read_manifest(tmp_path / "model").keys() == found.keys() - {"manifest.json"}
    assert found.keys() >= {"config.json", "model.safetensors", "codec.json"}


def test_a_model_that_a_kill_left_without_its_name_gets_it_back(tmp_path: Path):
    found = saved_model(tmp_path)
    (tmp_path / "model").rename(tmp_path / ".model.old.partial")
    (tmp_path / ".model.partial").mkdir()
    with claimed(tmp_path, tiny.run_config()):
        pass
    assert content(tmp_path / "model") == found
    assert not list(tmp_path.glob(".*.partial"))


def test_saving_again_keeps_what_the_user_has_put_beside_the_weights(tmp_path: Path):
    saved_model(tmp_path)
    (tmp_path / "model" / "README.md").write_text("my card")
    (tmp_path / "model" / "notes").mkdir()
    (tmp_path / "model" / "notes" / "a.txt").write_text("note")
    (tmp_path / "model" / "link").symlink_to("nowhere")
    found = saved_model(tmp_path)
    assert found["README.md"] == b"my card"
    assert found["notes/a.txt"] == b"note"
    assert (tmp_path / "model" / "link").is_symlink()
    check_content(tmp_path / "model")
    assert not {"README.md", "notes", "link"} & read_manifest(tmp_path / "model").keys()


def test_a_full_disk_leaves_the_earlier_model_and_its_reports(tmp_path: Path, monkeypatch):
    """The error comes at each synchronisation in turn, and at a write of every file (a limit on its size)."""
    found = saved_model(tmp_path)
    (tmp_path / "report.json").write_text("{}")
    before = content(tmp_path)
    sync, left = os.fsync, 0

    def failing(descriptor):
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    for call in range(1, 10):  # the tenth is after the model has got its name
        left = call
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing)
            with pytest.raises(
                UserError, match=r"model could not be saved: No space left on device.*ut train --resume"
            ):
                saved_model(tmp_path)
        assert content(tmp_path) == before
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 10, 300, 2000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
        try:
            with pytest.raises(UserError, match="model could not be saved: File too large"):
                saved_model(tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert content(tmp_path) == before
    assert content(tmp_path / "model") == found


@pytest.mark.parametrize("failing", ["rename", "mkdir"])
def test_a_folder_that_cannot_be_changed_keeps_its_model(tmp_path: Path, monkeypatch, failing):
    saved_model(tmp_path)
    before, usual = content(tmp_path), getattr(Path, failing)

    def refused(path, *arguments, **named):
        if path.name == ".model.partial":
            raise OSError(errno.EROFS, "Read-only file system")
        return usual(path, *arguments, **named)

    monkeypatch.setattr(Path, failing, refused)
    with pytest.raises(UserError, match="could not be saved: Read-only file system"):
        saved_model(tmp_path)
    assert content(tmp_path) == before
