"""The script that makes a pretrained model from a run."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from universal_transformer import load
from universal_transformer.cli import main
from universal_transformer.files import read_json
from universal_transformer.pretrained_models import CARD, PAGE, names
from universal_transformer.pretrained_models.card import read_card

SCRIPT = Path(__file__).parents[2] / "tools" / "add_pretrained.py"
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


@pytest.fixture
def small_run(script, tmp_path, monkeypatch):
    """A finished run of copy that takes seconds, and of which a sample of the card takes less."""
    run = ["train", "copy", "--run", str(tmp_path / "run"), "--quiet", "--data.test-lengths", "12"]
    assert main([*run, *TINY, *FEW]) == 0
    monkeypatch.setitem(script.LONG, "test_lengths", [5])
    return tmp_path / "run"


def call(script, monkeypatch, *arguments):
    """Run the script with these arguments."""
    monkeypatch.setattr(sys, "argv", ["add_pretrained.py", *map(str, arguments)])
    script.main()


@pytest.mark.parametrize(("option", "dtype"), [([], torch.float32), (["--half"], torch.float16)])
def test_a_run_becomes_a_pretrained_model(script, small_run, option, dtype, tmp_path, monkeypatch, capsys):
    call(script, monkeypatch, "copy", small_run, *option)
    assert names() == ["copy"]
    assert {one.dtype for one in load_file(tmp_path / "models/copy/model/model.safetensors").values()} == {dtype}
    card = read_card(tmp_path / "models" / "copy")
    assert card.stored == str(dtype).removeprefix("torch.")
    assert (card.origin.updates, card.figures["length 12"]["count"]) == (2, 2)
    assert card.origin.command.startswith("ut train copy --data.test-lengths 12 --data.train-examples 9")
    assert card.example[1] == load("copy")(card.example[0]).text
    capsys.readouterr()
    assert main(["models", "--check"]) == 0
    assert capsys.readouterr().out == "copy: the sample scores what its card says\n"


def test_a_card_is_made_again_without_its_run(script, small_run, tmp_path, monkeypatch):
    call(script, monkeypatch, "copy", small_run, "--half")
    folder = tmp_path / "models" / "copy"
    made = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    small_run.rename(tmp_path / "gone")
    call(script, monkeypatch, "copy")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == made, "nothing has changed"

    wrong = read_json(folder / CARD)
    wrong |= {"summary": "Sorts digits.", "failures": [], "figures": {}, "example": ["1", "2"], "files": {}}
    wrong["sample"]["figures"] = {}
    (folder / CARD).write_text(json.dumps(wrong))
    call(script, monkeypatch, "copy")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == made

    call(script, monkeypatch, "copy", "--limit", "1")
    card = read_card(folder)
    assert card.figures["length 12"]["count"] == 1
    assert "test: 1 of 2 examples, evenly spread" in card.notes


def test_the_weights_of_the_package_are_not_made_smaller(script, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        call(script, monkeypatch, "copy", "--half")
    assert "--half: the weights in the package are not changed" in capsys.readouterr().err


def test_a_card_names_the_code_of_the_start_and_of_each_continuation(script, small_run, monkeypatch):
    metrics = small_run / "metrics.jsonl"
    start, *rest = metrics.read_text().splitlines()
    began = json.loads(start)
    began |= {"commit": "a" * 40, "clean": True}
    resumed = began | {"event": "resume", "update": 1, "changes": "training.max_updates was 9, is now 2"}
    other = resumed | {"commit": "b" * 40, "clean": False, "changes": ""}
    metrics.write_text("\n".join([*map(json.dumps, [began, resumed, other]), *rest]) + "\n")
    call(script, monkeypatch, "copy", small_run)
    lines = (script.FOLDER / "copy" / PAGE).read_text().splitlines()
    assert "- Trained to update 1, then continued: training.max_updates was 9, is now 2" in lines
    assert [line.split(";")[0] for line in lines if "commit" in line] == [
        f"- Trained with commit {'a' * 40}",
        f"- Continued with commit {'b' * 40} with changes",
    ]


def test_the_cards_of_the_package_have_the_present_descriptions(script):
    folder = SCRIPT.parents[1] / "src" / "universal_transformer" / "pretrained_models"
    for name, described in script.MODELS.items():
        card = read_card(folder / name)
        for field in ("summary", "usage", "data", "licence", "sequence", "recorded"):
            assert getattr(card, field) == getattr(described, field), (name, field)
        assert (card.failures, card.example[0]) == ([*described.failures], described.example)
        assert (card.sample.data, card.sample.limit) == (described.sample, described.limit)
        assert (folder / name / PAGE).read_text() == script.page(card)
        sample = folder / name / script.SAMPLE
        assert (sample.read_text() if sample.exists() else "") == described.text
