"""`ut push`: the files that open again elsewhere, a card with the figures, and nothing else; errors in one line."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import yaml

from universal_transformer.cli import main
from universal_transformer.evaluation.report import Report
from universal_transformer.pretrained_models import FOLDER
from universal_transformer.pretrained_models.card import read_card

SMALL = ["--width", "8", "--num-heads", "2", "--filter-width", "16", "--depth.max-steps", "2", "--batch-tokens", "256"]
BRIEF = ["--minutes", "None", "--max-updates", "2", "--max-new-tokens", "8", "--quiet"]


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """A run of two updates, with a file of the user beside its model."""
    folder = tmp_path_factory.mktemp("reviews")
    (folder / "a.tsv").write_text("".join(f"a{n % 3} b{n % 5}\t{'yes' if n % 3 else 'no'}\n" for n in range(60)))
    given = ["--data.train", str(folder / "a.tsv"), "--data.validation", str(folder / "a.tsv")]
    assert main(["train", "labelled", "--run", str(folder / "run"), *given, *SMALL, *BRIEF[:4], "--quiet"]) == 0
    assert main(["evaluate", str(folder / "run")]) == 0
    (folder / "run" / "model" / "diary.txt").write_text("of the user")
    return folder / "run"


@pytest.fixture
def hub(monkeypatch):
    """What is asked of a stand-in for the hub, which has the repositories of `public`."""
    asked = SimpleNamespace(made=[], files={}, public=set(), error=None)

    class Api:
        def __init__(self, **_):
            pass

        def create_repo(self, name, *, private, exist_ok):
            if asked.error:
                raise asked.error
            asked.made.append((name, private, exist_ok))
            return f"hub/{name}"

        def model_info(self, name):
            return SimpleNamespace(private=name not in asked.public)

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            assert commit_message
            asked.files[repo_id] = files_of(folder_path)

    monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    return asked


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def header_of(card):
    _, header, page = card.split("---\n", 2)
    return yaml.safe_load(header), page


def metrics_of(header):
    (model,) = header["model-index"]
    found = {}
    for result in model["results"]:
        group = result["dataset"]["name"].partition(": ")[2]
        found[group] = {metric["type"]: metric["value"] for metric in result["metrics"]}
    return found


def test_what_is_written_opens_elsewhere_and_names_no_folder_of_this_machine(reviews, tmp_path, capsys, monkeypatch):
    target = tmp_path / "copy"
    assert main(["push", str(reviews), "me/reviews", "--license", "mit", "--dry-run", str(target)]) == 0
    files = files_of(target)
    model = {f"model/{name}" for name in json.loads(files["model/manifest.json"])["files"]}
    assert files.keys() == {"README.md", "config.json", "model/manifest.json"} | model
    assert not any(str(reviews.parent).encode() in content for content in files.values())
    assert json.loads(files["config.json"])["data"]["fields"]["train"] == "a.tsv"
    monkeypatch.chdir(tmp_path)  # without the files of the run
    answers = []
    for folder in (reviews, target):
        capsys.readouterr()
        assert main(["predict", str(folder), "--text", "a1 b2", "--format", "jsonl"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


def test_the_card_of_a_run_has_the_figures_of_its_report(reviews, tmp_path):
    assert main(["push", str(reviews), "me/reviews", "--license", "mit", "--dry-run", str(tmp_path / "copy")]) == 0
    header, page = header_of((tmp_path / "copy" / "README.md").read_text(encoding="utf-8"))
    assert (header["license"], header["library_name"]) == ("mit", "universal_transformer")
    assert (header["pipeline_tag"], header["tags"]) == ("text-classification", ["universal-transformer"])
    report = Report.load(reviews / "report.json")
    assert metrics_of(header) == {
        group: {name: value for name, value in scores.items() if name != "count"}
        for group, scores in report.figures.items()
    }
    assert page.strip().startswith("# reviews\n")
    assert all(" | ".join(row) in page for row in report.score_table())


def test_the_card_of_a_calibrated_run_has_the_figures_of_the_depth_at_which_it_predicts(reviews, tmp_path, capsys):
    run = shutil.copytree(reviews, tmp_path / "run")
    assert main(["calibrate", str(run), "--tolerance", "90%", "--confidence", "50%", "--quick"]) == 0
    capsys.readouterr()
    assert main(["push", str(run), "me/reviews", "--dry-run", str(tmp_path / "before")]) == 0
    assert f"the card has no figures: ut evaluate {run} measures them" in capsys.readouterr().err
    assert main(["evaluate", str(run)]) == 0
    assert main(["push", str(run), "me/reviews", "--dry-run", str(tmp_path / "after")]) == 0
    report = Report.load(run / "report-calibrated.json")
    header, _ = header_of((tmp_path / "after" / "README.md").read_text(encoding="utf-8"))
    assert {scores["mean_steps"] for scores in metrics_of(header).values()} == {
        scores["mean_steps"] for scores in report.figures.values()
    }


def test_the_card_of_a_pretrained_model_is_its_page_with_its_figures(tmp_path):
    assert main(["push", "addition", "me/sums", "--dry-run", str(tmp_path / "copy")]) == 0
    header, page = header_of((tmp_path / "copy" / "README.md").read_text(encoding="utf-8"))
    assert header["license"] == "apache-2.0"
    assert metrics_of(header)["length 40"] == {"character_accuracy": 1.0, "sequence_accuracy": 1.0, "mean_steps": 3.0}
    assert metrics_of(header).keys() == read_card(FOLDER / "addition").figures.keys()
    assert (FOLDER / "addition" / "card.md").read_text(encoding="utf-8").endswith(page.lstrip())


@pytest.mark.parametrize("private", [False, True])
def test_the_same_files_are_uploaded(reviews, tmp_path, hub, private):
    assert main(["push", str(reviews), "me/reviews", "--dry-run", str(tmp_path / "copy")]) == 0
    assert not hub.made
    assert main(["push", str(reviews), "me/reviews", *["--private"] * private]) == 0
    assert hub.made == [("me/reviews", private or None, True)]
    assert hub.files == {"me/reviews": files_of(tmp_path / "copy")}


def one_line(capsys):
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said


def test_nothing_private_goes_to_a_public_repository(hub, capsys):
    hub.public.add("me/sums")
    assert main(["push", "addition", "me/sums", "--private"]) == 2
    assert "there already, and public" in one_line(capsys)
    assert not hub.files


def test_a_missing_token_network_or_right_is_one_line(hub, capsys, monkeypatch):
    hub.error = ConnectionError("no route to the hub,\nnor back")
    assert main(["push", "addition", "me/sums"]) == 2
    assert "me/sums: not uploaded ('no route to the hub, nor back')" in one_line(capsys)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert main(["push", "addition", "me/sums"]) == 2
    assert "set HF_TOKEN, or run hf auth login" in one_line(capsys)
    assert not hub.files


@pytest.mark.parametrize("name", ["sums", "me/", "/sums", "me/sums/more"])
def test_a_repository_has_a_user_and_a_name(name, hub, capsys):
    assert main(["push", "addition", name]) == 2
    assert "expected USER/NAME" in one_line(capsys)


def test_a_folder_of_the_user_is_not_replaced(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    assert main(["push", "addition", "me/sums", "--dry-run", str(tmp_path / "mine")]) == 2
    assert "there already; name a new folder" in one_line(capsys)
    assert not list(Path(tmp_path / "mine").iterdir())
