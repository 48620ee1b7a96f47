"""`ut data` and `ut recipes`: what is present, what is missing, and the exit codes for scripts."""

import socket

import pytest

from universal_transformer.cli import main
from universal_transformer.data.sources import DATASETS
from universal_transformer.recipes import MAIN


def test_every_data_set_is_listed_with_its_licence(capsys, tmp_path):
    assert main(["data", "list", "--data-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for name, dataset in DATASETS.items():
        assert f"{name} " in shown
        assert dataset.licence in shown
    assert str(tmp_path) in shown


def test_a_check_counts_what_is_missing_and_says_so_in_its_exit_code(capsys, tmp_path):
    assert main(["data", "check", "multi30k", "--data-dir", str(tmp_path)]) == 1
    assert "12 missing of 12 files" in capsys.readouterr().out


def test_a_changed_file_is_named(capsys, tmp_path):
    (tmp_path / "multi30k").mkdir()
    (tmp_path / "multi30k" / "train.en.gz").write_bytes(b"something else")
    assert main(["data", "check", "multi30k", "--data-dir", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "changed  " + str(tmp_path / "multi30k" / "train.en.gz") in shown
    assert "1 changed" in shown


def test_a_check_of_all_prints_one_line_for_each_data_set(capsys, tmp_path):
    arguments = ["data", "check", "--data-dir", str(tmp_path)]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [[name, "missing"] for name in DATASETS]
    (tmp_path / "multi30k").mkdir()
    (tmp_path / "multi30k" / "train.en.gz").write_bytes(b"something else")
    assert main(arguments) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(DATASETS)
    assert "multi30k changed 11 missing, 1 changed of 12 files" in [" ".join(line.split()) for line in lines]


def test_a_missing_file_is_listed_with_its_address(capsys, tmp_path):
    (one,) = DATASETS["tinyshakespeare"].files
    main(["data", "check", "tinyshakespeare", "--data-dir", str(tmp_path)])
    shown = capsys.readouterr().out.splitlines()[0]
    assert shown.split() == ["missing", f"{tmp_path}/tinyshakespeare/input.txt", "from", one.url]


def test_a_source_that_cannot_be_reached_is_one_line(capsys, tmp_path, monkeypatch):
    pytest.importorskip("pooch")

    def unreachable(*_args, **_options):
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    assert main(["data", "fetch", "tinyshakespeare", "--data-dir", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("ut: ")] == lines[-1:]
    assert lines == lines[-1:], "the one line is not followed or preceded by others"
    assert lines[0].startswith("ut: no network: raw.githubusercontent.com cannot be reached; download https://")
    assert lines[0].endswith(f" by hand and save it as {tmp_path}/tinyshakespeare/input.txt")


def test_every_main_recipe_is_listed_with_its_summary(capsys):
    assert main(["recipes"]) == 0
    shown = capsys.readouterr().out
    for name, recipe in MAIN.items():
        assert f"{name} " in shown
        assert recipe.__doc__.split("\n")[0] in shown


def test_the_data_of_a_recipe_are_checked_as_its_training_reads_them(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.tsv").write_text("".join(f"one {n}\ttwo {n}\n" for n in range(40)))
    (tmp_path / "bad.tsv").write_text("one\ttwo\nthree\n")
    files = set(tmp_path.iterdir())
    assert main(["data", "check", "records", "--data.train", "good.tsv", "--data.tokenizer", "word"]) == 0
    shown = capsys.readouterr().out
    assert "examples    train 38, validation 2" in shown
    assert "vocabulary" in shown
    assert "note        validation: 2 pairs of good.tsv held out" in shown
    assert main(["data", "check", "records", "--data.train", "bad.tsv"]) == 2
    assert "bad.tsv:2: found 1 column in 'three'" in capsys.readouterr().err
    assert main(["data", "check", "records", "--data.trian", "good.tsv"]) == 2
    assert "trian" in capsys.readouterr().err
    assert main(["data", "check", "records", "--help"]) == 0
    assert "--data.train" in capsys.readouterr().out
    assert set(tmp_path.iterdir()) == files


@pytest.mark.parametrize("name", ["babi", "multi30k", "lambada", "stories"])
def test_fields_are_those_of_the_recipe_also_where_a_data_set_has_its_name(name, tmp_path, capsys):
    assert main(["data", "check", name, "--data.frobnicate", "1", "--data-dir", str(tmp_path)]) == 2
    assert f"; ut train {name} --help shows the options" in capsys.readouterr().err
    assert main(["data", "check", name, "--training.seed", "x", "--data-dir", str(tmp_path)]) == 2
    assert "--training.seed: expected a whole number" in capsys.readouterr().err
