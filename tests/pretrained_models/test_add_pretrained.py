"""The script that makes a pretrained model from a run."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from universal_transformer import load
from universal_transformer.cli import main
from universal_transformer.pretrained_models import names
from universal_transformer.pretrained_models.card import read_card

SCRIPT = Path(__file__).parents[2] / "experiments" / "add_pretrained.py"
TINY = ["--model.sizes.width", "16", "--model.sizes.filter-width", "16", "--training.max-updates", "2"]
FEW = ["--data.train-examples", "9", "--data.test-examples", "2", "--data.validation-examples", "5"]


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The module of the script, which writes into a temporary folder."""
    spec = importlib.util.spec_from_file_location("add_pretrained", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    (tmp_path / "models").mkdir()
    monkeypatch.setattr(module, "FOLDER", tmp_path / "models")
    for name in ("pretrained_models", "cli.models"):
        monkeypatch.setattr(f"universal_transformer.{name}.FOLDER", tmp_path / "models")
    return module


@pytest.mark.parametrize(("option", "dtype"), [([], torch.float32), (["--half"], torch.float16)])
def test_a_run_becomes_a_pretrained_model(script, option, dtype, tmp_path, monkeypatch, capsys):
    run = ["train", "copy", "--run", str(tmp_path / "run"), "--quiet", "--data.test-lengths", "40"]
    assert main([*run, *TINY, *FEW]) == 0
    monkeypatch.setitem(script.LONG, "test_lengths", [5])
    monkeypatch.setattr(sys, "argv", ["add_pretrained.py", "copy", str(tmp_path / "run"), *option])
    script.main()
    assert names() == ["copy"]
    assert {one.dtype for one in load_file(tmp_path / "models/copy/model/model.safetensors").values()} == {dtype}
    card = read_card(tmp_path / "models" / "copy")
    assert card.stored == str(dtype).removeprefix("torch.")
    assert (card.updates, card.figures["length 40"]["count"]) == (2, 2)
    assert card.command.startswith("ut train copy --data.test-lengths 40 --data.train-examples 9")
    assert card.example[1] == load("copy")(card.example[0]).text
    capsys.readouterr()
    assert main(["models", "--check"]) == 0
    assert capsys.readouterr().out == "copy: the sample scores what its card says\n"
