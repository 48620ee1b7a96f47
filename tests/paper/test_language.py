"""Agreement, BLiMP and LAMBADA from the command line, on files of a few lines."""

import json
import zipfile
from pathlib import Path

import pytest

from paper.tasks.blimp import SETS
from paper.tasks.lambada import SETS as PASSAGES
from universal_transformer.cli import main

SMALL = [
    "--width",
    "16",
    "--filter-width",
    "32",
    "--num-heads",
    "2",
    "--max-steps",
    "2",
    "--max-updates",
    "6",
]
SMALL += ["--batch-tokens", "256", "--validate-every", "3"]
NOUNS = ["cat", "dog", "bird", "fish", "horse", "mouse"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data folder with a few lines of each data set."""
    root = tmp_path_factory.mktemp("data")
    agreement(root / "sva")
    (root / "blimp").mkdir()
    with zipfile.ZipFile(root / "blimp/BLiMP.zip", "w") as archive:
        pairs = [{"sentence_good": f"The {noun}s are here.", "sentence_bad": f"The {noun}s is here."} for noun in NOUNS]
        for group in (group for groups in SETS.values() for group in groups):
            archive.writestr(f"data/{group}.jsonl", "".join(f"{json.dumps(pair)}\n" for pair in pairs))
    (root / "novels/corpus").mkdir(parents=True)
    text = " ".join(
        f"Here the {one} and the {two} were old friends. There was the {one}." for one in NOUNS for two in NOUNS
    )
    (root / "novels/corpus/Anon_Clara_1864.txt").write_text(text)
    (root / "lambada").mkdir()
    for name in ("development", "test"):
        lines = [f"here the {noun} and the dog were old friends . there was the {noun}\n" for noun in NOUNS]
        (root / "lambada" / PASSAGES[name]).write_text("".join(lines))
    return root


def agreement(sva):
    for name in ("colorless/linzen_testset", "rnn_agr_simple", "edinburgh_wiki"):
        (sva / name).mkdir(parents=True)
    tested = [f"all the {noun}s of the town are here ." for noun in NOUNS]
    base = sva / "colorless/linzen_testset/subj_agr_filtered"
    base.with_suffix(".text").write_text("".join(f"{sentence} <eos>\n" for sentence in tested))
    base.with_suffix(".gold").write_text("6\tare\tis\t1\n" * len(tested))
    for attractors in range(1, 6):
        (sva / f"rnn_agr_simple/numpred.test.{attractors}").write_text("VBP\tall cats of the old town\n")
    (sva / "rnn_agr_simple/numpred.val").write_text("".join(f"VBZ\tthe {n}\nVBP\tthe {n}s\n" for n in NOUNS))
    head = "sentence\tsubj_idx\tverb_idx\tverb_pos\tverb\tinflected_verb\n"
    rows = [f"the {one} of the {two}s is here .\t1\t5\tVBZ\tis\tare\n" for one in NOUNS for two in NOUNS]
    rows += [f"the {one}s of the town are here .\t1\t5\tVBP\tare\tis\n" for one in NOUNS]
    for name in ("dev", "test"):
        (sva / f"edinburgh_wiki/wiki-{name}.txt").write_text(head + "".join(rows))


@pytest.fixture(autouse=True)
def surroundings(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("UT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("UT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("recipe", "fields", "shown"),
    [
        ("agreement", [], ["1 attractor", "5 attractors", "a changed split"]),
        ("agreement-ut-halting", [], ["1 attractor", "share of"]),
        ("agreement-lstm", ["--num-layers", "1"], ["1 attractor"]),
        ("lambada", ["--block-length", "16"], ["perplexity", "development", "a stand-in"]),
        ("lambada-reading", ["--max-length", "90", "--frequent", "0"], ["accuracy", "development", "control: none"]),
    ],
)
def test_trained_and_evaluated(recipe, fields, shown, folder, capsys):
    small = [*SMALL[:2], *SMALL[8:]] if recipe.endswith("lstm") else SMALL
    given = ["--data-dir", str(folder)]
    assert main(["train", recipe, "--dry-run", *small, *fields, *given]) == 0
    assert "parameters" in capsys.readouterr().out
    assert main(["train", recipe, "--quiet", "--run", "run", *small, *fields, *given]) == 0
    assert main(["evaluate", "run"]) == 0
    out = capsys.readouterr().out
    assert all(text in out for text in shown), out
    assert main(["evaluate", "run", "--split", "validation"]) == 0


def test_blimp_scores_a_language_model_trained_on_other_data(folder, capsys):
    given = ["--data-dir", str(folder)]
    assert main(["train", "agreement", "--quiet", "--run", "run", *SMALL, *given]) == 0
    assert main(["evaluate", "run", "--data", "blimp", *given]) == 0
    out = capsys.readouterr().out
    assert all(group in out for groups in SETS.values() for group in groups)
    assert json.loads(Path("run/report-data-blimp.json").read_text())["task"] == "blimp"
    Path("lines.txt").write_text("The cats of the\n\n")
    assert main(["predict", "run", "lines.txt"]) == 0
    assert capsys.readouterr().out.count("\n") == 2


def test_blimp_needs_a_language_model(folder, capsys):
    given = ["--data-dir", str(folder)]
    fields = [*SMALL, "--max-length", "90", "--frequent", "0", *given]
    assert main(["train", "lambada-reading", "--quiet", "--run", "run", *fields]) == 0
    Path("lines.txt").write_text("Here the cat and the dog were old. There was the\n")
    capsys.readouterr()
    assert main(["predict", "run", "lines.txt"]) == 0
    assert capsys.readouterr().out.strip()
    assert main(["evaluate", "run", "--data", "blimp", *given]) == 2
    assert "architecture classifier; this needs the run of a language model" in capsys.readouterr().err
    assert main(["evaluate", "run", "--data", "other"]) == 2
    assert "blimp" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", ["agreement", "lambada", "lambada-reading"])
def test_missing_data_get_one_line_that_says_what_to_do(recipe, tmp_path, capsys):
    assert main(["train", recipe, "--data-dir", str(tmp_path / "none"), *SMALL]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "no such file in the data folder" in error
    assert "ut data fetch" in error
