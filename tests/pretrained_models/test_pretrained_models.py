"""Every model that is part of the package works by its name, is small, and scores what its card says."""

import json
import re
import shutil
from pathlib import Path

import pytest

from add_pretrained import page
from universal_transformer import UserError, load, load_pretrained
from universal_transformer.cli import main
from universal_transformer.files import read_json
from universal_transformer.pretrained_models import CARD, FOLDER, PAGE, find, is_pretrained, names
from universal_transformer.pretrained_models.card import HEADER, MOST_DIFFERENT, read_card
from universal_transformer.recipes import RECIPES
from universal_transformer.training.run_config import RunConfig

LARGEST, ALL = 2_000_000, 8_000_000  # bytes of weights
ROOT = Path(__file__).parents[2]
each = pytest.mark.parametrize("name", names())


def weights(name):
    return FOLDER / name / "model" / "model.safetensors"


def test_they_are_small_enough_to_be_part_of_the_package():
    sizes = [weights(name).stat().st_size for name in names()]
    assert max(sizes) <= LARGEST
    assert sum(sizes) <= ALL


def config_of(name):
    return RunConfig.load(FOLDER / name / "config.json")


MADE_UP = [name for name in names() if "data_dir" not in config_of(name).to_dict()["data"]["fields"]]
BY_SIZE = sorted(MADE_UP, key=lambda name: weights(name).stat().st_size, reverse=True)
SMALLEST = {config_of(name).model.architecture: name for name in BY_SIZE}
"""Architecture -> the model with the fewest weights of those whose data are made up."""


@pytest.mark.parametrize(
    "name", [name if name in SMALLEST.values() else pytest.param(name, marks=pytest.mark.slow) for name in names()]
)
@pytest.mark.usefixtures("loaded_once")
def test_the_sample_scores_what_the_card_says(name, capsys, request):
    if name not in MADE_UP:
        request.getfixturevalue("shared_data")
    assert main(["models", name, "--check"]) == 0
    assert capsys.readouterr().out == f"{name}: the sample scores what its card says\n"


@each
def test_the_card_is_of_these_files(name):
    card = read_card(FOLDER / name)
    manifest = read_json(FOLDER / name / "model" / "manifest.json")["files"]
    assert card.name == name
    assert {file: {"sha256": one.sha256, "bytes": one.bytes} for file, one in card.files.items()} == manifest
    assert (FOLDER / name / PAGE).read_text() == page(card)


@each
def test_a_record_that_the_card_names_is_there_and_of_this_run(name):
    card = read_card(FOLDER / name)
    for path in re.findall(r"\b(?:results|docs)/\w+\.\w+", page(card)):
        assert (ROOT / path).is_file(), path
    if found := re.fullmatch(r"This run is recorded in (\S+\.json)\.", card.recorded):
        record = read_json(ROOT / found[1])
        assert record["train"] == card.origin.command
        assert (record["seed"], record["ended"]["update"]) == (card.origin.seed, card.origin.updates)
        assert record["started"]["commit"] == card.origin.code[0].commit
        errors = {row["group"] or row["set"]: row["metrics"] for row in record["report"]["rows"]}
        assert errors.keys() == card.figures.keys()
        for group, metrics in errors.items():
            expected = {metric: card.figures[group][metric] for metric in metrics}
            rounded = MOST_DIFFERENT if card.stored == "float16" else None
            assert metrics == pytest.approx(expected, rel=rounded), group
    for title in re.findall(r'notebook/paper_tables\.md, "(.+?)"', card.sequence):
        assert f"**{title}.**" in (ROOT / "notebook" / "paper_tables.md").read_text()


@each
def test_the_example_of_the_card_is_answered_as_there(name):
    given, answer = read_card(FOLDER / name).example
    assert load(name)(given).text == answer


@each
def test_the_configuration_names_a_recipe_and_no_place_on_a_machine(name):
    text = (FOLDER / name / "config.json").read_text()
    assert config_of(name).recipe in RECIPES
    assert '"/' not in text


def test_a_name_works_everywhere_that_a_run_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text("123456\n0077\n")
    assert main(["predict", "copy", "lines"]) == 0
    assert capsys.readouterr().out == "123456\n0077\n"
    assert load_pretrained("copy").num_parameters() == read_card(FOLDER / "copy").parameters
    assert main(["evaluate", "copy", "--split", "validation", "--limit", "5"]) == 0
    assert "written to copy/report-validation-limit-5.json" in capsys.readouterr().out
    assert (tmp_path / "copy" / "report-validation-limit-5.json").is_file()
    assert not list((FOLDER / "copy").glob("report*"))
    assert load("copy")("12").text == "12", "a folder of reports is no run"
    assert main(["calibrate", "copy", "--tolerance", "0.01"]) == 2
    assert "copy: a pretrained model, in whose folder nothing is written" in capsys.readouterr().err
    train = ["train", "copy-distance-positions", "--from", "copy", "--run", "more", "--quiet"]
    few = [
        "--data.train-examples",
        "9",
        "--data.test-lengths",
        "40",
        "--data.test-examples",
        "1",
        "--data.validation-examples",
        "5",
    ]
    assert main([*train, "--training.max-updates", "1", *few]) == 0


def test_numbers_are_read_and_written_as_usual():
    assert [answer.text for answer in load("addition")(["95+17", "123+456"])] == ["112", "579"]


def test_a_folder_that_holds_a_model_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_pretrained(find("copy"))
    shutil.copytree(FOLDER / "copy" / "model", tmp_path / "copy")
    assert find("copy") == (tmp_path / "copy").relative_to(tmp_path)
    (tmp_path / "copy" / "codec.json").unlink()
    with pytest.raises(UserError, match=r"copy/codec.json: no such file"):
        load("copy")


def test_a_name_that_does_not_exist_is_one_line_with_those_that_do(capsys):
    every = ", ".join(names())
    with pytest.raises(UserError) as error:
        load("coppy")
    assert str(error.value).endswith(f"; pretrained models: {every} (did you mean copy?)")
    for command in (["predict", "coppy"], ["evaluate", "coppy"], ["models", "coppy"]):
        assert main(command) == 2
        assert f"; pretrained models: {every} (did you mean copy?)\n" in capsys.readouterr().err


def test_the_list_and_the_card(capsys):
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[: len(names())]] == names()
    assert main(["models", "copy"]) == 0
    assert HEADER + capsys.readouterr().out == (FOLDER / "copy" / PAGE).read_text()


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """A place with one model, which a test may change."""
    shutil.copytree(FOLDER / "copy", tmp_path / "models" / "copy")
    for module in ("pretrained_models", "cli.models"):
        monkeypatch.setattr(f"universal_transformer.{module}.FOLDER", tmp_path / "models")
    return tmp_path / "models" / "copy"


def test_another_figure_than_that_of_the_card_is_found(changed, capsys):
    card = read_json(changed / CARD)
    card["sample"]["data"] |= {"test_lengths": [40], "test_examples": 1}
    card["sample"]["figures"] = {"length 40": {"character_accuracy": 0.99, "sequence_accuracy": 1, "mean_steps": 2}}
    (changed / CARD).write_text(json.dumps(card))
    assert main(["models", "--check"]) == 1
    lines = ["character_accuracy is 1, the card says 0.99", "count is 1, the card says nan"]
    assert capsys.readouterr().out.splitlines() == [f"copy: length 40: {line}" for line in lines]


def test_the_other_models_are_checked_where_the_data_of_one_are_missing(changed, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("UT_DATA", str(tmp_path / "empty"))
    shutil.copytree(FOLDER / "babi", changed.with_name("babi"))
    card = read_json(changed / CARD)
    card["sample"]["data"] |= {"test_lengths": [40], "test_examples": 1}
    card["sample"]["figures"] = {"length 40": card["sample"]["figures"]["length 40"] | {"count": 1}}
    (changed / CARD).write_text(json.dumps(card))
    assert main(["models", "--check"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "copy: the sample scores what its card says\n"
    assert shown.err.startswith("ut: babi: ")
    assert "ut data fetch babi" in shown.err


def test_a_changed_bit_of_the_weights_is_refused(changed):
    path = changed / "model" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"model.safetensors: its SHA-256 is not the one in manifest.json"):
        load("copy")


def test_a_card_of_another_version_is_refused_by_name(changed, capsys):
    (changed / CARD).write_text('{"name": "copy"}')
    assert main(["models"]) == 2
    assert "copy/card.json: missing: " in capsys.readouterr().err
