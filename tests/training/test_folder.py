import dataclasses
from pathlib import Path

import pytest

from universal_transformer.errors import UserError
from universal_transformer.tasks import StoriesData
from universal_transformer.training import folder as folders
from universal_transformer.training.config import LIMITS, TrainingConfig

from . import tiny


def test_one_writer_at_a_time(tmp_path: Path):
    config, run = tiny.run_config(), tmp_path / "run"
    with (
        folders.claimed(run, config),
        pytest.raises(UserError, match="being written by another process"),
        folders.claimed(run, config),
    ):
        pass
    with folders.claimed(run, config):
        pass


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path):
    config = tiny.run_config()
    folders.check_usable(tmp_path / "new", config, resume=False)
    folders.check_usable(tmp_path, config, resume=False)
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(UserError, match="is there already"):
        folders.check_usable(tmp_path, config, resume=False)
    with pytest.raises(UserError, match="is there already"):
        folders.check_usable(tmp_path / "thesis.txt", config, resume=False)
    with pytest.raises(UserError, match="no run to go on with"):
        folders.check_usable(tmp_path, config, resume=True)


def test_what_changed_is_named_and_only_limits_may(tmp_path: Path):
    config, run = tiny.run_config(), tmp_path / "run"
    with folders.claimed(run, config):
        pass
    assert folders.check_usable(run, config, resume=True) == []
    changed = dataclasses.replace(config, data=StoriesData(train_stories=7))
    with pytest.raises(UserError, match=r"data\.fields\.train_stories was \d+, is now 7"):
        folders.check_usable(run, changed, resume=True)
    with pytest.raises(UserError, match=r"model\.sizes\.width was 16, is now 32"):
        folders.check_usable(run, dataclasses.replace(config, model=tiny.model_config(width=32)), resume=True)
    other = {float: 0.123, int: 77, bool: True, tuple: (0.5, 0.6)}
    for field in dataclasses.fields(TrainingConfig):
        value = getattr(config.training, field.name)
        if isinstance(value, str):
            continue
        new = dataclasses.replace(config.training, **{field.name: other[type(value)]})
        changed = dataclasses.replace(config, training=new)
        if field.name in LIMITS:
            (text,) = folders.check_usable(run, changed, resume=True)
        else:
            with pytest.raises(UserError, match="not the same run") as caught:
                folders.check_usable(run, changed, resume=True)
            text = str(caught.value)
        assert f"training.{field.name} was" in text


@pytest.mark.parametrize(
    ("fields", "new", "named"),
    [
        ({"schedule": "cosine"}, {"max_updates": 9}, "learning rate"),
        ({"schedule": "linear", "halting_delay": 0.5}, {"max_updates": 9}, "learning rate and ponder weight"),
        ({"halting_delay": 0.5, "max_updates": 0, "minutes": 1.0}, {"minutes": 2.0}, "ponder weight"),
        ({"schedule": "cosine", "minutes": 1.0}, {"minutes": 2.0}, None),  # updates say how much is over
        ({"schedule": "constant"}, {"max_updates": 9}, None),
    ],
)
def test_what_follows_the_length_of_a_run_is_named_where_that_changes(tmp_path: Path, fields, new, named):
    with folders.claimed(tmp_path / "run", tiny.run_config(**fields)):
        pass
    _, *more = folders.check_usable(tmp_path / "run", tiny.run_config(**{**fields, **new}), resume=True)
    assert more == ([f"the length of the run, and with it, in one jump, {named}"] if named else [])


def test_the_data_digest_changes_with_every_id():
    rows = tiny.examples("encoder_decoder", count=5, seed=0)
    digest = folders.data_digest(rows)
    assert folders.data_digest(list(rows)) == digest
    assert folders.data_digest(rows[:-1]) != digest
    assert folders.data_digest(rows[:2], rows[2:]) != digest
    for index, row in enumerate(rows):
        changed = [*rows]
        changed[index] = dataclasses.replace(row, target=(*row.target[:-1], 7))
        assert folders.data_digest(changed) != digest
