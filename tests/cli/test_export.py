"""`ut export`: a folder with the model as a graph, what its user must know, and its tokenizer; whole or not at all."""

import json
import re
import runpy
import sys
from pathlib import Path

import onnxruntime
import pytest
import torch

from universal_transformer import DecodingOptions, load
from universal_transformer.cli import main
from universal_transformer.errors import UserError
from universal_transformer.explore import web_page
from universal_transformer.explore.page_model import CARD
from universal_transformer.pretrained_models import find
from universal_transformer.pretrained_models.card import read_card
from universal_transformer.registry import load_pretrained
from universal_transformer.runs.opened import open_run
from universal_transformer.tasks import Codec

SMALL = ["--filter-width", "16", "--minutes", "None", "--max-updates", "2", "--batch-tokens", "256", "--quiet"]
DATA = ["--train-examples", "20", "--validation-examples", "5", "--test-examples", "2"]
EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_answers.py"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A run of two updates on pairs, of fixed depth, with a tokenizer for each side."""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "a.tsv").write_text("".join(f"a {n} b\tn{n} n{n % 7} c\n" for n in range(40)))
    sizes = ["--width", "8", "--num-heads", "2", "--depth.max-steps", "2"]
    given = ["--data.train", str(folder / "a.tsv"), "--tokenizer", "character", "--target-tokenizer", "whitespace"]
    assert main(["train", "pairs", "--run", str(folder / "run"), *given, *sizes, *SMALL]) == 0
    return folder / "run"


@pytest.mark.compiled
def test_an_exported_run_answers_as_the_run(copy, capsys, monkeypatch):
    target = copy / "export" / "onnx"
    (copy / "export").mkdir()
    target.mkdir()
    (target / "of an earlier export").touch()
    assert main(["export", str(copy), "--format", "onnx"]) == 0
    shown = capsys.readouterr().out
    assert "equal steps at" in shown
    assert f"written to {target}: codec.json, model.json, model.onnx, target_tokenizer.json, tokenizer.json" in shown
    assert {path.name for path in (copy / "export").iterdir()} == {"onnx"}
    about = json.loads((target / "model.json").read_text())
    assert about["compared"]["difference"] < 1e-5
    assert about["compared"]["equal"] == about["compared"]["positions"]
    assert about["max_new_tokens"] == open_run(copy).model.config.generation.max_new_tokens is not None
    assert Codec.load(target).words is not None
    source = torch.tensor([[5, 6, 7, about["ids"]["end"]], [8, about["ids"]["end"], 0, 0]])
    labels = torch.tensor([[5, 6], [8, 2]])
    session = onnxruntime.InferenceSession(target / about["file"])
    assert {one.name: one.shape for one in session.get_inputs()} == {
        n: one["shape"] for n, one in about["inputs"].items()
    }
    logits, *_ = session.run(None, {"source": source.numpy(), "target": labels.numpy()})
    with torch.no_grad():
        expected = load_pretrained(copy / "model")(source, labels).logits
    torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=0, atol=1e-5)
    texts = ["a 3 b", "b a", "11"]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(target), *texts])
    runpy.run_path(str(EXAMPLE))
    limit = {"options": DecodingOptions(max_new_tokens=10)}  # an untrained model may not end
    answers = [answer.text for answer in load(copy)(texts, **limit)]
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[:9] for line in shown] == [text.split()[:9] for text in answers]
    assert all("  " not in line for line in shown)


def test_a_folder_of_the_user_is_not_replaced(copy, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "elsewhere").symlink_to(tmp_path / "mine")
    for name in ("mine", "elsewhere"):
        assert main(["export", str(copy), "--out", str(tmp_path / name)]) == 2
        assert "there already; name a new folder" in capsys.readouterr().err
    assert not list((tmp_path / "mine").iterdir())


def test_a_model_without_an_export_is_refused_and_leaves_no_folder(tmp_path, capsys):
    run = tmp_path / "run"
    sizes = ["--model.width", "8"]
    small = [word for word in SMALL if word not in ("--filter-width", "16")]
    assert main(["train", "copy-lstm", "--run", str(run), *sizes, *small, *DATA]) == 0
    capsys.readouterr()
    assert main(["export", str(run)]) == 2
    assert "model.kind=lstm: only Universal Transformers and Transformers can be exported" in capsys.readouterr().err
    assert not (run / "export").exists()


def test_a_page_has_files_of_its_own_alone(tmp_path, monkeypatch):
    runtime, page = [tmp_path / "one.mjs", tmp_path / "two.wasm"], tmp_path / "page"
    page.mkdir()
    brought = {"text": read_card(find("demo")).example[0], "right": None, "supports": []}
    for path in runtime:
        path.write_text("x")

    def missing(run):
        raise UserError("its data are not here")

    monkeypatch.setattr(web_page, "load_task", missing)
    web_page.write_web_page(page, open_run(Path("demo")), inputs=["source"], runtime=runtime)
    about = json.loads((page / "page.json").read_text())
    (model,), graph = about["models"], about["graph"]
    assert (graph["labels"][0], model["max_steps"], graph["examples"]) == ("attic", 4, {CARD: [brought]})
    assert (model["sets"], model["first"]) == ({CARD: 1}, [CARD, 0])
    assert (graph["calibrated"], [*model["rules"]]) == ({"exit": "confidence:0.8727"}, ["output_change", "confidence"])
    assert graph["place"] in (page / "saved.html").read_text()
    html = (page / "index.html").read_text()
    scripts = "".join((page / name).read_text() for name in ("page.js", "draw.js", "backend.js", "graph_trace.js"))
    named = {*re.findall(r'src="([^"]+)"', html), *re.findall(r'from "\./([^"]+)"', scripts)}
    named |= {*re.findall(r'<link rel="stylesheet" href="([^"]+)"', html), *re.findall(r'fetch\("([^"]+)"', scripts)}
    assert {"d3.min.js", "page.css", "page.js", "draw.js", "backend.js", "graph_trace.js", "saved.html"} < named
    assert named - {path.name for path in page.iterdir()} == {"ort.wasm.bundle.min.js"}
    assert (page / "one.js").is_file()


@pytest.mark.parametrize("content", [None, "of another version"])
def test_a_page_needs_the_files_of_one_version(content, tmp_path, capsys):
    for name in web_page.RUNTIME if content else ():
        (tmp_path / name).write_text(content)
    assert main(["export", "demo", "--format", "web", "--runtime", str(tmp_path), "--out", str(tmp_path / "page")]) == 2
    assert "run npm install onnxruntime-web@1.30.0" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


def test_a_page_is_for_stories_and_boards(capsys):
    assert main(["export", "reverse", "--format", "web"]) == 2
    assert "is for stories and boards" in capsys.readouterr().err
