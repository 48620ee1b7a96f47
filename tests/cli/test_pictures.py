"""Commands of pictures, from end to end: text to picture files, and picture files to text."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from small_pictures import write_captions, write_digits, write_picture
from small_server import serving
from universal_transformer import DecodingOptions, load
from universal_transformer.cli import main
from universal_transformer.registry import load_pretrained

SMALL = [
    *("--model.sizes.width", "8", "--model.sizes.filter-width", "8", "--model.sizes.num-heads", "2"),
    *("--model.depth.max-steps", "2", "--training.max-updates", "2", "--training.validate-every", "2", "--quiet"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The data, a run that draws digits of 4 × 4 pixels, and one that reads digits."""
    folder = tmp_path_factory.mktemp("pictures")
    data = ["--data-dir", str(write_digits(folder / "data"))]
    drawing = ["--data.side", "4", "--data.levels", "4"]
    reading = ["--data.rows", "4", "--data.train-examples", "20", "--batch-tokens", "400"]
    assert main(["train", "pictures", *data, *drawing, *SMALL, "--run", str(folder / "drawing")]) == 0
    assert main(["train", "captions", *data, *reading, *SMALL, "--run", str(folder / "reading")]) == 0
    return folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_pictures_are_sampled_by_python_and_a_server_as_by_the_command(trained, capsys):
    assert main(["predict", str(trained / "drawing"), "--text", "a seven", "--format", "jsonl"]) == 0
    score = json.loads(capsys.readouterr().out)["score"]
    pipeline = load(trained / "drawing")
    assert pipeline("a seven").score == pytest.approx(score)
    assert pipeline("a seven", options=DecodingOptions()).score != pytest.approx(score)  # the likeliest pixels
    with serving(pipeline) as server:
        assert server.predict("a seven").json["predictions"][0]["score"] == pytest.approx(score)
        other, again = (server.predict("a seven", seed=seed).json["predictions"][0]["score"] for seed in (1, 0))
    assert again == pytest.approx(score) != pytest.approx(other)


@pytest.mark.claim("JP 12", "JP 13")
def test_a_text_becomes_a_picture_file(trained, tmp_path, capsys):
    (tmp_path / "texts").write_text("a seven\nan eight\n")
    assert main(["predict", str(trained / "drawing"), "texts"]) == 0
    assert capsys.readouterr().out.splitlines() == ["predictions/0001.png", "predictions/0002.png"]
    for name in ("0001", "0002"):
        with Image.open(tmp_path / "predictions" / f"{name}.png") as picture:
            assert (picture.size, picture.mode) == ((4, 4), "L")
            assert set(np.array(picture).ravel()) <= {0, 85, 170, 255}


@pytest.mark.parametrize(
    ("name", "changes"), [("drawing", ["--data.side", "4", "--data.levels", "4"]), ("reading", ["--data.rows", "2"])]
)
def test_all_weights_of_equal_pictures_and_texts_are_taken_over(trained, tmp_path, name, changes):
    first, second = trained / name, tmp_path / "second"
    recipe = {"drawing": "pictures", "reading": "captions"}[name]
    still = ["--training.learning-rate", "1e-12", "--data-dir", str(trained / "data")]
    few = ["--data.train-examples", "20"] if name == "reading" else []
    assert main(["train", recipe, *SMALL, *still, *changes, *few, "--from", str(first), "--run", str(second)]) == 0
    before, after = (load_pretrained(run / "model").tensors() for run in (first, second))
    for tensor, values in before.items():
        torch.testing.assert_close(after[tensor], values, msg=tensor)


def test_pictures_are_sampled_by_their_seed_unless_a_temperature_is_given(trained, tmp_path, capsys):
    (tmp_path / "texts").write_text("a seven\n")

    def drawn(*options):
        command = ["predict", str(trained / "drawing"), "texts", "--format=jsonl", "--output", "out", *options]
        assert main(command) == 0
        fields = json.loads(capsys.readouterr().out)
        # files of earlier calls are kept
        assert fields["file"] == f"out/{len(list(Path('out').iterdir())):04d}.png"
        assert len(fields["output"]) == 16
        assert fields["finished"]
        return fields["text"]

    assert drawn() == drawn("--temperature", "1") != drawn("--seed", "1")
    assert drawn("--temperature", "0") == drawn("--temperature", "0", "--seed", "1")


def test_a_line_that_is_refused_writes_nothing(trained, tmp_path, capsys):
    (tmp_path / "texts").write_text("\n")
    assert main(["predict", str(trained / "drawing"), "texts", "--max-new-tokens", "5"]) == 2
    assert "every answer of this model has 16 tokens" in capsys.readouterr().err
    assert main(["predict", str(trained / "reading"), "texts", "--output", "out"]) == 2
    assert "--output out: the answers of this model are lines of text" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"texts"}


def test_picture_files_become_text_as_arguments_and_as_lines(trained, tmp_path, capsys):
    for name in ("a.png", "b.png"):
        write_picture(tmp_path / name, np.zeros((28, 28), dtype=np.uint8))
    (tmp_path / "list").write_text("a.png\nb.png\n")
    assert main(["predict", str(trained / "reading"), "a.png", "b.png"]) == 0
    given = capsys.readouterr().out.splitlines()
    assert main(["predict", str(trained / "reading"), "list"]) == 0
    assert capsys.readouterr().out.splitlines() == given
    assert len(given) == 2


def test_a_bad_picture_is_one_line_beside_the_results_of_the_others(trained, tmp_path, capsys):
    write_picture(tmp_path / "a.png", mode="RGB", size=(14, 14))
    (tmp_path / "bad.png").write_bytes(b"\x89PNG")
    assert main(["predict", str(trained / "reading"), "a.png", "bad.png", "missing.png"]) == 2
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1:] == ["", ""]
    lines = shown.err.splitlines()
    assert sum("14 × 14 pixels of mode RGB, read as 28 × 28 grey pixels" in line for line in lines) == 1
    assert sum("bad.png: not a whole picture" in line for line in lines) == 1
    assert sum("missing.png: no such picture" in line for line in lines) == 1


def test_a_file_of_another_kind_is_refused_once(trained, tmp_path, capsys):
    (tmp_path / "a.tiff").write_bytes(b"II*\x00\xc4\n\xc4\n\xc4")
    assert main(["predict", str(trained / "reading"), "a.tiff"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "a.tiff" in line]
    assert "expected a file of .png, " in line
    assert line.endswith("or a text file with the path of one a line")


def test_a_model_of_text_takes_one_file(trained, tmp_path, capsys):
    assert main(["predict", str(trained / "drawing"), "a", "b"]) == 2
    assert "name one file" in capsys.readouterr().err


@pytest.mark.parametrize(("run", "scores"), [("drawing", "bits per pixel"), ("reading", "sequence accuracy")])
def test_runs_are_evaluated_beside_their_baseline(run, scores, trained, capsys):
    assert main(["evaluate", str(trained / run)]) == 0
    shown = capsys.readouterr().out
    assert scores in shown
    assert "baseline" in shown


def test_a_calibration_of_given_pictures_does_not_cover_those_that_the_model_writes(trained, tmp_path, capsys):
    run = shutil.copytree(trained / "drawing", tmp_path / "drawing")
    assert main(["calibrate", str(run), "--tolerance", "90%", "--rule", "max_steps"]) == 0
    (tmp_path / "texts").write_text("a seven\n")
    capsys.readouterr()
    for options in ([], ["--temperature", "1"], ["--temperature", "0"]):
        assert main(["predict", str(run), "texts", *options]) == 0
        assert "does not cover pictures that the model writes: the depth of training" in capsys.readouterr().err
    assert "does not cover pictures that the model writes" in load(run).note


def test_pictures_of_a_user_are_trained_on_and_scored_again(tmp_path, capsys):
    captions = write_captions(tmp_path / "own")
    run = ["train", "captions", "--data.train", str(captions), "--data.height", "8", *SMALL, "--run", "run"]
    assert main(run) == 0
    assert main(["evaluate", "run", "--data.test", str(captions)]) == 0
    assert "12 examples" in capsys.readouterr().out
    assert main(["predict", "run", str(captions)]) == 0  # pictures beside the file, not in the current folder
    assert len(capsys.readouterr().out.splitlines()) == 12
    (tmp_path / "own" / "5.png").unlink()
    assert main(["evaluate", "run", "--data.test", str(captions)]) == 2
    assert "captions.tsv:6: " in capsys.readouterr().err


def script(path):
    """The module of a script outside of the package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROJECT = Path(__file__).parents[2]


def test_the_figures_of_the_page_are_drawn(trained, tmp_path, monkeypatch):
    command = ["make_pictures.py", str(trained / "drawing"), "--exit", "confidence:0.3", "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    script(PROJECT / "tools" / "make_pictures.py").main()
    for name in ("pictures.svg", "picture_steps.svg"):
        assert (tmp_path / name).read_bytes().startswith(b"<?xml")


def test_the_judge_is_judged_on_real_digits_first(trained, tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn", reason="the judge needs the extra judge")
    command = ["pictures_judge.py", str(trained / "drawing"), "--count", "2", "--record", str(tmp_path / "found.json")]
    monkeypatch.setattr(sys, "argv", [*command, "--data-dir", str(trained / "data")])
    assert script(PROJECT / "experiments" / "pictures_judge.py").main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("judge accuracy on real test pictures")
    found = json.loads((tmp_path / "found.json").read_text())["figures"]
    assert found["drawn"] == 20
    assert 0 <= found["read_as_asked"] <= 1
    assert found["distance_to_nearest_training_picture"] > 0


@pytest.mark.parametrize("run", ["drawing", "reading"])
def test_a_plot_of_a_run_shows_a_picture(run, trained):
    assert main(["plot", str(trained / run), "--again"]) == 0
    assert (trained / run / "plots" / "picture.svg").is_file()
    assert "<h2>Picture</h2>" in (trained / run / "report.html").read_text()
