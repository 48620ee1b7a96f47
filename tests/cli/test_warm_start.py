"""`ut train RECIPE --from RUN`: what fits is taken over, rows go by token, and everything is said and recorded."""

import dataclasses
import json

import pytest
import torch

from universal_transformer.cli import main
from universal_transformer.errors import UserError
from universal_transformer.registry import load_pretrained
from universal_transformer.runs.journal import read_metrics
from universal_transformer.tasks import Codec
from universal_transformer.training.run_config import RunConfig, WarmStart
from universal_transformer.training.warm_start import starting_weights

SMALL = ["--width", "8", "--filter-width", "8", "--num-heads", "2", "--max-steps", "2", "--minutes", "None", "--quiet"]
STILL = ["--max-updates", "1", "--learning-rate", "1e-12"]
WORD = ["--tokenizer", "word", "--max-length", "8"]


def table(path, words):
    """Pairs of words in both orders."""
    pairs = [(one, two) for one in words for two in words]
    path.write_text("".join(f"{one} {two}\t{two} {one}\n" for one, two in pairs), encoding="utf-8")
    return ["--data.train", str(path)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on some words, and runs on others: one that starts from it, and one that does not."""
    folder = tmp_path_factory.mktemp("warm")
    first = table(folder / "first.tsv", ["red", "green", "blue", "old"])
    second = table(folder / "second.tsv", ["old", "new", "green", "big", "small"])
    assert main(["train", "pairs", "--run", str(folder / "first"), *SMALL, *WORD, *first, "--max-updates", "3"]) == 0
    for name, extra in {"warm": ["--from", str(folder / "first")], "cold": []}.items():
        assert main(["train", "pairs", "--run", str(folder / name), *SMALL, *STILL, *WORD, *second, *extra]) == 0
    return folder


def test_tensors_that_fit_and_rows_of_known_tokens_are_taken_over(folder):
    first, warm, cold = (load_pretrained(folder / name / "model").tensors() for name in ("first", "warm", "cold"))
    theirs, ours = (Codec.load(folder / name / "model").tokens_by_side["source"] for name in ("first", "warm"))
    assert {"old", "green"} < {token.strip() for token in {*theirs} & {*ours}}
    assert theirs.index(" old") != ours.index(" old")
    rows = 0
    for name, tensor in warm.items():
        if name not in ("source.input.weight", "target.bias"):
            torch.testing.assert_close(tensor, first[name], msg=name)
            continue
        for index, token in enumerate(ours):
            expected = first[name][theirs.index(token)] if token in theirs else cold[name][index]
            torch.testing.assert_close(tensor[index], expected, msg=f"{name}: {token}")
            rows += token in theirs
    assert rows > 8


def test_what_was_taken_over_is_recorded(folder):
    config = RunConfig.load(folder / "warm" / "config.json")
    assert config.warm_start is not None
    assert config.warm_start.run == str(folder / "first")
    assert RunConfig.from_dict(config.to_dict()) == config
    (start,) = (line for line in read_metrics(folder / "warm" / "metrics.jsonl") if line["event"] == "start")
    assert f"from {folder / 'first'}: " in start["warm_start"]
    assert "rows taken over, by token" in start["warm_start"]
    assert json.loads((folder / "cold" / "config.json").read_text())["warm_start"] is None


def test_a_record_names_the_first_run_as_seen_from_here(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["evaluate", "warm", "--limit", "2", "--record", str(tmp_path / "record.json")]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["train"].endswith("--from first")
    assert record["started"]["warm_start"].startswith("from first: ")


def test_a_run_with_a_warm_start_continues(folder, capsys):
    command = ["train", "--resume", str(folder / "warm"), "--max-updates", "2", "--quiet"]
    assert main(command) == 0
    assert main([*command, "--from", str(folder / "first")]) == 2
    assert "--from and --resume" in capsys.readouterr().err


def refused(folder, capsys, *options, width=8):
    run = folder / "refused"
    data = ["--data.train", str(folder / "second.tsv")]
    small = [*SMALL[2:], "--width", str(width)]
    assert main(["train", "pairs", "--run", str(run), *small, *STILL, *WORD, *data, *options]) == 2
    assert not run.exists()
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    return message


def test_a_run_of_which_nothing_fits_is_refused_before_a_folder_is_made(folder, capsys):
    message = refused(folder, capsys, "--from", str(folder / "first"), width=12)
    assert "nothing to start from" in message
    assert refused(folder, capsys, "--from", str(folder / "first"), "--dry-run", width=12) == message


def test_a_start_that_is_no_run_is_refused(folder, capsys):
    assert "no such run folder" in refused(folder, capsys, "--from", str(folder / "none"))


def test_weights_that_are_no_longer_those_recorded_are_refused(folder):
    model, codec = load_pretrained(folder / "cold" / "model"), Codec.load(folder / "cold" / "model")
    start = WarmStart(run=str(folder / "first"), weights="0" * 64)
    config = dataclasses.replace(RunConfig.load(folder / "cold" / "config.json"), warm_start=start)
    with pytest.raises(UserError, match="its weights have changed"):
        starting_weights(model, codec, config)


def test_all_rows_are_taken_over_where_the_codecs_are_equal(tmp_path):
    few = ["--train-boards", "4", "--data.train-examples", "40", "--validation-boards", "2", "--test-boards", "2"]
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["train", "sudoku-4", "--run", str(first), *SMALL, *few, "--max-updates", "2"]) == 0
    start = ["--from", str(first), "--data.givens", "9", "12"]
    assert main(["train", "sudoku-4", "--run", str(second), *SMALL, *STILL, *few, *start]) == 0
    before, after = (load_pretrained(run / "model").tensors() for run in (first, second))
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, msg=name)


def test_rows_of_sentences_with_tags_go_by_token_and_by_tag(tmp_path):
    tagged = {"first": ["a DET", "red DET", "old NUM", "big NUM"], "second": ["old NUM", "new AUX", "no DET"]}
    for name, words in tagged.items():
        sentences = ("\n".join(words[place:] + words[:place]) + "\n" for place in range(len(words)))
        (tmp_path / f"{name}.conll").write_text("\n".join(sentences), encoding="utf-8")
    start = tmp_path / "first"
    for name, extra in {"first": [], "second": ["--from", str(start)]}.items():
        data = ["--data.train", str(tmp_path / f"{name}.conll"), "--run", str(tmp_path / name)]
        assert main(["train", "tagged", *data, *SMALL, *STILL, *extra]) == 0
    (before, theirs), (after, ours) = (
        (load_pretrained(run / "model").tensors(), Codec.load(run / "model").tokens_by_side)
        for run in (start, tmp_path / "second")
    )
    for name, side, known in (("source.input.weight", "source", " old"), ("head.weight", "classes", "NUM")):
        assert len(ours[side]) != len(theirs[side])
        rows = after[name][ours[side].index(known)], before[name][theirs[side].index(known)]
        torch.testing.assert_close(*rows, msg=name)


def test_a_pretrained_model_is_no_run_to_continue(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--resume", "demo"]) == 2
    remedy = "ut train --config demo --from demo --run NEW starts from its weights"
    assert capsys.readouterr().err == f"ut: --resume demo: a pretrained model, and no run to continue; {remedy}\n"
    assert main(["train", "--resume", "demos"]) == 2
    assert capsys.readouterr().err == "ut: demos: no such run folder\n"
    assert main(["train", "--config", "demos"]) == 2
    assert "pretrained models: " in capsys.readouterr().err
