"""A run on the user's own files goes on meaning the same when these files change or vanish."""

import json
import shutil

import pytest

from universal_transformer.cli import main
from universal_transformer.tasks import LabelledData, PairsData, TextData, load_codec
from universal_transformer.tasks.task import Saved

TINY = ["--width", "8", "--filter-width", "8", "--num-heads", "1", "--max-steps", "2", "--minutes", "0", "--quiet"]
TINY += ["--max-updates", "2", "--batch-tokens", "128", "--validate-every", "1"]
WORDS = ("red", "green", "blue", "old", "new", "big")
RECIPES = {
    "pairs": [f"{WORDS[n % 6]} {WORDS[n % 5]} {n}\t{WORDS[n % 3]} {n}\n" for n in range(60)],
    "labelled": [f"{WORDS[n % 6]} {WORDS[n % 5]} {n}\t{'ab'[n % 2]}\n" for n in range(60)],
    "text": [f"{WORDS[n % 6]} {WORDS[n % 5]} {n}\n" for n in range(60)],
}
MORE = {
    "pairs": "".join(f"zebra {n}\tzoo zoo zoo {n}\n" for n in range(300)),
    "labelled": "".join(f"zebra zebra {n}\t{'0c'[n % 2]}\n" for n in range(300)),
    "text": "".join(f"zebra § {n}\n" for n in range(300)),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run of two updates for each recipe for own files."""
    folder = tmp_path_factory.mktemp("own")
    for recipe, lines in RECIPES.items():
        (folder / f"{recipe}.tsv").write_text("".join(lines))
        given = ["--data.train", str(folder / f"{recipe}.tsv"), "--run", str(folder / recipe)]
        metric = ["--data.metric", "sequence"] if recipe == "pairs" else []
        assert main(["train", recipe, "--tokenizer", "word", *given, *metric, *TINY]) == 0
    return folder


def scores(run, capsys, *options):
    """Return the scores and the notes of ``ut evaluate``."""
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    return [report["rows"], report["totals"]], report["notes"]


@pytest.mark.parametrize("change", ["appended", "gone"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_changed_training_file_changes_no_score(runs, recipe, change, capsys):
    run, file = runs / recipe, runs / f"{recipe}.tsv"
    before, _ = scores(run, capsys)
    whole = file.read_text()
    try:
        if change == "gone":
            file.unlink()
        else:
            file.write_text(MORE[recipe] + whole + MORE[recipe])
        assert scores(run, capsys)[0] == before
        assert main(["predict", str(run), str(run / "config.json")]) in (0, 2)
    finally:
        file.write_text(whole)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_of_an_earlier_version_holds_the_same_rows_out_again_and_names_a_change(runs, recipe, tmp_path, capsys):
    expected, _ = scores(runs / recipe, capsys)
    shutil.copytree(runs / recipe, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "held_out")
    found, notes = scores(tmp_path / "run", capsys)
    assert found == expected
    assert not any("has changed since training" in note for note in notes)
    file, whole = runs / f"{recipe}.tsv", "".join(RECIPES[recipe])
    try:
        file.write_text("".join(RECIPES[recipe][:50]))
        assert any(
            "the training file has changed since training" in note for note in scores(tmp_path / "run", capsys)[1]
        )
        file.unlink()
        assert main(["evaluate", str(tmp_path / "run")]) == 2
        assert f"{file}: no such file" in capsys.readouterr().err
    finally:
        file.write_text(whole)


@pytest.mark.parametrize(("recipe", "kind"), [("pairs", PairsData), ("labelled", LabelledData), ("text", TextData)])
def test_a_saved_task_is_the_task_that_was_trained_on(runs, recipe, kind):
    more = {"pairs": {"metric": "sequence"}, "text": {"block_length": 128}}.get(recipe, {})
    data = kind(train=str(runs / f"{recipe}.tsv"), tokenizer="word", **more)
    new = data.load()
    saved = Saved(codec=load_codec(runs / recipe / "model"), held_out=runs / recipe / "held_out")
    again = data.reload(saved)
    assert list(again.train) == list(new.train)
    assert list(again.validation) == list(new.validation)
    assert {name: list(found) for name, found in again.test.items()} == {
        name: list(found) for name, found in new.test.items()
    }
    assert again.held_out == {}
    assert data.reload(Saved(codec=saved.codec, held_out=runs / "nothing")).held_out == new.held_out


def test_the_codec_of_another_task_is_refused(runs, tmp_path, capsys):
    shutil.copytree(runs / "pairs", tmp_path / "run")
    config = json.loads((tmp_path / "run/config.json").read_text())
    config["data"] = json.loads((runs / "text" / "config.json").read_text())["data"]
    (tmp_path / "run/config.json").write_text(json.dumps(config))
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "the codec in model is of kind pairs; the data in config.json need text" in capsys.readouterr().err


def test_a_damaged_row_that_was_held_out_is_named(runs, tmp_path, capsys):
    shutil.copytree(runs / "text", tmp_path / "run")
    (tmp_path / "run/held_out/test.jsonl").write_text('{"text": "red"}\n{"text": 1}\n')
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "test.jsonl:2: found {'text': 1}; expected" in capsys.readouterr().err
