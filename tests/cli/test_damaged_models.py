"""A damaged, exchanged or planted file of a trained model is refused with one line, or its model answers.

``CASES=5000 pytest tests/cli/test_damaged_models.py`` tries more of them.
"""

import copy
import json
import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from damage import WRONG, at, places
from universal_transformer.cli import main
from universal_transformer.errors import UserError
from universal_transformer.evaluation.prediction import predict
from universal_transformer.files import write_json
from universal_transformer.manifest import MANIFEST
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.recipes import RECIPES
from universal_transformer.registry import build, load_pretrained
from universal_transformer.runs.folder import save_model
from universal_transformer.runs.opened import open_run
from universal_transformer.tasks.codec import Codec
from universal_transformer.typed import replaced

CASES = int(os.environ.get("CASES", "30"))
SECONDS = 20
DATA = {
    "pairs": ("I_JUMP now\tdon't\nJUMP twice\tjump jump\nlook\tsee\nI look now\tI see\n" * 3, "I JUMP"),
    "labelled": ("good text\tyes\nbad text\tno\nnice\tyes\nugly\tno\n" * 3, "good"),
    "text": ("one line of text\nanother line of text\nand a third line\n" * 9, "one line"),
    "stories": ("", "1 Mary went to the kitchen.\n2 Where is Mary?"),
}
"""Recipe -> training file, and a line to predict from."""


def make_run(folder, name):
    """A run folder as training leaves it, without the training."""
    content, _ = DATA[name]
    changes = {"model.sizes.width": 8, "model.sizes.filter_width": 8, "model.sizes.num_heads": 2}
    if content:
        file = folder.with_suffix(".tsv")
        file.write_text(content)
        changes["data.train"] = str(file)
    else:
        changes |= {"data.train_stories": 5, "data.validation_stories": 2, "data.test_stories": 2}
    config = replaced(RECIPES[name](), changes)
    task = config.data.load()
    config = replaced(config, {"model": task.configure(config.model)})
    folder.mkdir()
    write_json(folder / "config.json", config.to_dict())
    save_model(folder, build(config.model), task.codec)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in DATA:
        make_run(folder / name, name)
    return folder


def exchange(draw, path, runs):
    shutil.copyfile(draw.choice(sorted(p for p in runs.rglob("*") if p.is_file())), path)


def exchange_alike(draw, path, runs):
    shutil.copyfile(draw.choice(sorted(runs.rglob(path.name))), path)


def flip(draw, path, runs):
    content = bytearray(path.read_bytes() or b"x")
    for _ in range(draw.choice((1, 1, 5))):
        content[draw.randrange(min(len(content), draw.choice((20, 10**6))))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def cut(draw, path, runs):
    path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size + 1)])


def lengthen(draw, path, runs):
    path.write_bytes(path.read_bytes() + draw.choice((b"\0", b"{}", b"\xff" * 1000)))


def mistype(draw, path, runs):
    """Drop or replace one value of JSON, be it that of the header of the weights."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little") if path.suffix == ".safetensors" else 0
    fields = json.loads(content[8 : 8 + length] if length else content)
    chosen = draw.choice(list(places(fields)))
    if draw.random() < 0.2:
        del at(fields, chosen[:-1])[chosen[-1]]
    else:
        near = copy.deepcopy([at(fields, place) for place in draw.choices([*places(fields)], k=3)])
        at(fields, chosen[:-1])[chosen[-1]] = draw.choice((*WRONG, 2**31 - 1, "\x1b[2J", *near))
    text = json.dumps(fields).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :] if length else text)


def put(make):
    def damage(draw, path, runs):
        path.unlink()
        make(path)

    return damage


DAMAGES = {
    "flipped bits": flip,
    "cut": cut,
    "longer": lengthen,
    "other values": mistype,
    "other values again": mistype,
    "file of another kind": exchange,
    "file of another run": exchange_alike,
    "no file": put(lambda _: None),
    "empty": put(Path.touch),
    "a folder": put(Path.mkdir),
    "a FIFO": put(os.mkfifo),
    "a device": put(lambda path: path.symlink_to("/dev/zero")),
    "a link to itself": put(lambda path: path.symlink_to(path)),
}


def waited(*_):
    raise TimeoutError(f"no answer within {SECONDS} seconds")


def refusal(function, *arguments):
    """What the function returns, or its UserError."""
    try:
        return function(*arguments)
    except UserError as error:
        return error


def predicted(folder, line):
    run = open_run(folder)
    (example,) = run.codec.read(list(enumerate(line.split("\n"), start=1)), name="x")
    (found,) = predict(run.model, run.codec, [example])
    return found.text


def answer(folder, line):
    """The answer of the run in `folder` to a line of input, or a UserError."""
    return refusal(predicted, folder, line)


def test_the_runs_are_sound(runs):
    for name, (_, line) in DATA.items():
        assert isinstance(answer(runs / name, line), str)
        assert isinstance(open_run(runs / name).config.model, ModelConfig)


def damaged(case, runs, folder):
    """Copy a run to `folder` and damage one file of it; return the recipe, the file, and what must not be loaded."""
    draw = random.Random(case)
    name, kind = draw.choice([*DATA]), draw.choice([*DAMAGES])
    shutil.copytree(runs / name, folder)
    listed = draw.random() < 0.25
    if not listed:
        (folder / "model" / MANIFEST).unlink()  # as of a model that was saved alone
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = draw.choice([file for file in files if file.suffix == ".json"] if "values" in kind else files)
    before = path.read_bytes()
    DAMAGES[kind](draw, path, runs)
    changed = not path.is_file() or path.read_bytes() != before
    return name, path, listed and changed and path.parent != folder and path.name != MANIFEST


def test_a_damaged_run_is_refused_with_one_line_or_answers(runs, tmp_path):
    refused, folder = 0, tmp_path / "run"
    signal.signal(signal.SIGALRM, waited)
    for case in range(CASES):
        name, path, wrong = damaged(case, runs, folder)
        signal.alarm(SECONDS)
        try:
            found = answer(folder, DATA[name][1])
            others = [refusal(load, folder / "model") for load in (load_pretrained, Codec.load)]
        except Exception as error:
            raise AssertionError(f"case {case}: {path.name} of {name}") from error
        finally:
            signal.alarm(0)
        assert isinstance(found, UserError) or not wrong, f"case {case}: {path.name} of {name} was loaded"
        for error in (found, *others):
            refused += error is found and isinstance(error, UserError)
            assert not isinstance(error, UserError) or str(error).isprintable(), f"case {case}: {error}"
        shutil.rmtree(folder)
    assert refused > CASES // 2


@pytest.mark.parametrize(
    ("file", "content", "arguments"),
    [
        ("report.json", b"\x00\xff", ["plot"]),
        ("report.json", b"[]", ["plot"]),
        ("report.json", b'{"task": "stories", "rows": 1}', ["plot"]),
        ("metrics.jsonl", b'{"event": 1, "update": 0, "seconds": 0}\n', ["plot"]),
        ("metrics.jsonl", b"text\n", ["evaluate", "--record", "kept.json"]),
    ],
)
def test_malformed_results_are_one_line_and_nothing_is_changed(
    file, content, arguments, runs, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs / "stories", "run")
    Path("run", file).write_bytes(content)
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    command, *options = arguments
    assert main([command, "run", *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"ut: run/{file}:")
    assert shown.err.count("\n") == 1
    assert {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()} == before
    assert not Path("kept.json").exists()
