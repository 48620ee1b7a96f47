"""Ways of training in which the depth of a model is the point."""

import pytest
import torch
from safetensors.torch import load_file

from universal_transformer.baselines.baseline_config import LstmConfig
from universal_transformer.errors import UserError
from universal_transformer.runs.trainer import train

from . import tiny


def halves(folder, config, *, task):
    """Losses of a run, and of the same run stopped half-way and continued, to the last bit."""
    train(config, folder / "whole", task=task, quiet=True)
    half = config.training.max_updates // 2
    shorter = tiny.run_config(config.model, **{**vars(config.training), "max_updates": half})
    train(shorter, folder / "halves", task=task, quiet=True)
    train(config, folder / "halves", task=task, resume=True, quiet=True)
    return tiny.losses(folder / "whole"), tiny.losses(folder / "halves")


@pytest.mark.parametrize("halting", [False, True])
def test_a_run_with_a_loss_after_each_step_continues_bit_for_bit(tmp_path, halting):
    config = tiny.run_config(tiny.model_config(halting=halting), step_loss="increasing")
    whole, continued = halves(tmp_path, config, task=tiny.task())
    assert whole == continued
    train(tiny.run_config(config.model), tmp_path / "plain", task=tiny.task(), quiet=True)
    assert whole[0] != tiny.losses(tmp_path / "plain")[0]


def test_a_model_without_steps_over_depth_has_no_loss_after_each():
    with pytest.raises(UserError, match=r"training\.step_loss='mean': this model has no depth .* here: last$"):
        tiny.run_config(LstmConfig(width=8), step_loss="mean")


def test_a_run_with_a_running_mean_continues_bit_for_bit(tmp_path):
    task, ends = tiny.task(), {}
    whole = tiny.run_config(max_updates=8, ema_decay=0.5, learning_rate=0.05, schedule="constant")
    half = tiny.run_config(**{**vars(whole.training), "max_updates": 4})
    train(whole, tmp_path / "whole", task=task, quiet=True)
    train(half, tmp_path / "halves", task=task, quiet=True)
    train(whole, tmp_path / "halves", task=task, resume=True, quiet=True)
    for name in ("whole", "halves"):
        (newest,) = sorted((tmp_path / name / "checkpoints").iterdir())[-1:]
        ends[name] = load_file(newest / "ema.safetensors")
    assert all(torch.equal(ends["whole"][part], ends["halves"][part]) for part in ends["whole"])
    assert tiny.losses(tmp_path / "whole") == tiny.losses(tmp_path / "halves")
