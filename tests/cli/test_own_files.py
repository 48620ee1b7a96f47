"""A run on the user's own files goes on meaning the same when these files change or vanish."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from universal_transformer.cli import main
from universal_transformer.errors import UserError
from universal_transformer.evaluation import measure, prediction
from universal_transformer.tasks import Codec, LabelledData, PairsData, TextData
from universal_transformer.tasks.task import Saved

TINY = ["--width", "8", "--filter-width", "8", "--num-heads", "1", "--max-steps", "2", "--minutes", "None", "--quiet"]
TINY += ["--max-updates", "2", "--batch-tokens", "128", "--validate-every", "1"]
WORDS = ("red", "green", "blue", "old", "new", "big")
RECIPES = {
    "pairs": [f"{WORDS[n % 6]} {WORDS[n % 5]} {n}\t{WORDS[n % 3]} {n}\n" for n in range(60)],
    "labelled": [f"{WORDS[n % 6]} {WORDS[n % 5]} {n}\t{'ab'[n % 2]}\n" for n in range(60)],
    "text": [f"{WORDS[n % 6]} {WORDS[n % 5]} {n}\n" for n in range(60)],
    "tagged": [f"{WORDS[n % 6]}\tA\n{WORDS[n % 5]}\tA\n{n}\tN\n\n" for n in range(60)],
}
MORE = {
    "pairs": "".join(f"zebra {n}\tzoo zoo zoo {n}\n" for n in range(300)),
    "labelled": "".join(f"zebra zebra {n}\t{'0c'[n % 2]}\n" for n in range(300)),
    "text": "".join(f"zebra § {n}\n" for n in range(300)),
    "tagged": "".join(f"zebra\tZ\n{n}\tN\n\n" for n in range(300)),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run of two updates for each recipe for own files."""
    folder = tmp_path_factory.mktemp("own")
    for recipe, lines in RECIPES.items():
        (folder / f"{recipe}.tsv").write_text("".join(lines))
        given = ["--data.train", str(folder / f"{recipe}.tsv"), "--run", str(folder / recipe)]
        metric = ["--data.metric", "sequence"] if recipe == "pairs" else []
        words = [] if recipe == "tagged" else ["--tokenizer", "word"]
        assert main(["train", recipe, *words, *given, *metric, *TINY]) == 0
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
def test_rows_that_were_held_out_and_are_gone_are_named(runs, recipe, tmp_path, capsys):
    shutil.copytree(runs / recipe, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "held_out")
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr().err
    assert re.search(r"held_out/(validation|test)\.jsonl: no such file; the run kept there", shown)
    assert "; ut evaluate RUN --data.test FILE scores another" in shown


@pytest.mark.parametrize(("recipe", "kind"), [("pairs", PairsData), ("labelled", LabelledData), ("text", TextData)])
def test_a_saved_task_is_the_task_that_was_trained_on(runs, recipe, kind):
    more = {"pairs": {"metric": "sequence"}, "text": {"block_length": 128}}.get(recipe, {})
    data = kind(train=str(runs / f"{recipe}.tsv"), tokenizer="word", **more)
    new = data.load()
    saved = Saved(codec=Codec.load(runs / recipe / "model"), held_out=runs / recipe / "held_out")
    again = data.load(saved)
    assert list(again.train) == list(new.train)
    assert list(again.validation) == list(new.validation)
    assert {name: list(found) for name, found in again.test.items()} == {
        name: list(found) for name, found in new.test.items()
    }
    assert again.held_out == {}


def test_the_codec_of_another_task_is_refused(runs, tmp_path, capsys):
    shutil.copytree(runs / "pairs", tmp_path / "run")
    config = json.loads((tmp_path / "run/config.json").read_text())
    config["data"] = json.loads((runs / "text" / "config.json").read_text())["data"]
    (tmp_path / "run/config.json").write_text(json.dumps(config))
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert (
        "the codec in model is of kinds text and text; the data in config.json need continuation"
        in capsys.readouterr().err
    )


def test_a_damaged_row_that_was_held_out_is_named(runs, tmp_path, capsys):
    shutil.copytree(runs / "text", tmp_path / "run")
    (tmp_path / "run/held_out/test.jsonl").write_text('{"text": "red"}\n{"text": 1}\n')
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "test.jsonl:2: found {'text': 1}; expected" in capsys.readouterr().err


def evaluated(run, capsys, *options):
    """Return the test sets and groups of a report with their numbers of examples, and what was written as an error."""
    capsys.readouterr()
    code = main(["evaluate", str(run), "--json", *options])
    shown = capsys.readouterr()
    rows = json.loads(shown.out)["rows"] if code == 0 else []
    return {(row["set"], row["group"]): row["count"] for row in rows}, shown.err


@pytest.mark.parametrize("recipe", RECIPES)
def test_other_files_are_scored_as_named_test_sets(runs, recipe, tmp_path, capsys, monkeypatch):
    one, other = tmp_path / "one.tsv", tmp_path / "two.tsv"
    monkeypatch.chdir(tmp_path)
    one.write_text("".join(RECIPES[recipe][:7]))
    other.write_text("".join(RECIPES[recipe][7:30]))
    found, _ = evaluated(runs / recipe, capsys, "--data.test", "one.tsv", f"hard={other}")
    assert list(found) == [("one.tsv", ""), ("hard", "")]
    if recipe != "text":
        assert list(found.values()) == [7, 23]
    assert (runs / recipe / "report-test-one.tsv-hard.json").is_file()
    again, _ = evaluated(runs / recipe, capsys, "--data.test", str(one), "--data.test", f"hard={other}")
    assert again == found


def test_files_of_one_name_in_two_folders_have_two_reports(runs, tmp_path, capsys, monkeypatch):
    shutil.copytree(runs / "labelled", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test.tsv").write_text("".join(RECIPES["labelled"][:7]))
        evaluated(tmp_path / "run", capsys, "--data.test", f"{folder}/test.tsv")
        assert (tmp_path / "run" / f"report-test-{folder}-test.tsv.json").is_file()


def test_scores_are_shown_where_they_cannot_be_written(runs, tmp_path, capsys):
    shutil.copytree(runs / "labelled", tmp_path / "run")
    (tmp_path / "run" / "report.json").unlink(missing_ok=True)
    (tmp_path / "run" / "report.json").mkdir()
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out)["rows"]
    assert "report.json: no regular file" in shown.err
    (tmp_path / "run" / "report.json").rmdir()
    assert main(["evaluate", str(tmp_path / "run"), "--record", "/proc/self/record.json"]) == 2
    shown = capsys.readouterr()
    assert "accuracy" in shown.out
    assert shown.err.startswith("ut: /proc/self/record.json: ")


def test_another_data_set_and_own_tests_are_not_both_taken(runs, capsys):
    assert main(["evaluate", str(runs / "text"), "--data", "blimp", "--data.test", "a.tsv"]) == 2
    assert "--data blimp and --data.test: two test sets; leave one out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("recipe", "line", "looks"),
    [
        ("labelled", '{"text": "red", "label": "yes"}', "a JSON object"),
        ("pairs", "red\told\tder", "a tab"),
    ],
)
def test_a_line_with_its_answer_is_noted(runs, recipe, line, looks, tmp_path, capsys):
    file = tmp_path / "lines"
    file.write_text(line + "\n")
    assert main(["predict", str(runs / recipe), str(file)]) == 0
    assert f"{file}:1: {looks}, which is read as text; a line is the text alone" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "line"), [("a.jsonl", '{"text": "red\\told"}'), ("a.csv", '"red\told"')])
def test_a_tab_in_a_column_is_no_answer(runs, name, line, tmp_path, capsys):
    (tmp_path / name).write_text(line + "\n")
    assert main(["predict", str(runs / "labelled"), str(tmp_path / name)]) == 0
    assert "read as text" not in capsys.readouterr().err


@pytest.mark.parametrize("recipe", ["pairs", "labelled"])
def test_files_with_answers_are_predicted_from_their_sources(runs, recipe, tmp_path, capsys):
    (tmp_path / "with.tsv").write_text("".join(RECIPES[recipe][:5]))
    sources = [line.split("\t")[0] for line in RECIPES[recipe][:5]]
    first = {"pairs": "source", "labelled": "text"}[recipe]
    (tmp_path / "without.txt").write_text("\n".join(sources))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({first: source, "more": 1}) + "\n" for source in sources))
    shown = []
    for name in ("with.tsv", "without.txt", "a.jsonl"):
        assert main(["predict", str(runs / recipe), str(tmp_path / name), "--format", "tsv"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] == shown[2]
    assert [line.split("\t")[0] for line in shown[0].splitlines()] == sources
    assert main(["predict", str(runs / recipe), "--format", "tsv", "--text", *sources]) == 0
    assert capsys.readouterr().out == shown[0]
    assert main(["predict", str(runs / recipe), "--format", "conll", "--text", "red"]) == 2
    assert "a tagger has such answers" in capsys.readouterr().err


def test_a_test_is_read_from_standard_input(runs, tmp_path):
    (tmp_path / "test.tsv").write_text("".join(RECIPES["labelled"][:5]))
    command = [sys.executable, "-m", "universal_transformer", "evaluate", str(runs / "labelled"), "--json"]
    given = ["--report", str(tmp_path / "there"), "--data.test"]
    content = (tmp_path / "test.tsv").read_bytes()
    piped, named = (
        json.loads(subprocess.run([*command, *given, test], input=content, capture_output=True, check=True).stdout)
        for test in ("a=-", f"a={tmp_path / 'test.tsv'}")
    )
    assert piped["totals"] == named["totals"]
    assert piped["totals"][0]["count"] == 5


@pytest.mark.parametrize("recipe", ["pairs", "labelled", "tagged"])
def test_answers_are_written_beside_their_references(runs, recipe, tmp_path, capsys, monkeypatch):
    file, reports = tmp_path / "test.tsv", str(tmp_path / "reports")
    file.write_text("".join(RECIPES[recipe][:5]))
    asked = []  # nothing is asked again
    with monkeypatch.context() as patched:
        patched.setattr(prediction, "predict", lambda *given, **_: iter(asked.extend(given[2]) or ()))
        for name in ("a.tsv", "a.jsonl"):
            given = ["--data.test", str(file), "--predictions", str(tmp_path / name), "--report", reports]
            assert main(["evaluate", str(runs / recipe), *given]) == 0
    assert asked == []
    header, *lines = (tmp_path / "a.tsv").read_text().splitlines()
    rows = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]
    assert rows == list(map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines()))
    capsys.readouterr()
    assert main(["predict", str(runs / recipe), "--format", "tsv", str(file)]) == 0
    found = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [[row["source"], row["answer"]] for row in rows] == found
    targets = {
        "pairs": [line.strip().split("\t")[-1] for line in RECIPES[recipe][:5]],
        "labelled": list("ababa"),
        "tagged": ["A A N"] * 5,
    }
    assert [row["target"] for row in rows] == targets[recipe]
    assert len(list((tmp_path / "reports").iterdir())) == 1


def test_two_texts_are_written_as_the_columns_that_they_were(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("two.tsv").write_text("".join(f"{WORDS[n % 6]} {n}\t{WORDS[n % 5]}\t{'ab'[n % 2]}\n" for n in range(20)))
    assert main(["train", "labelled", "--data.train", "two.tsv", "--run", "run", *TINY]) == 0
    given = ["--data.test", "two.tsv", "--limit", "3"]
    for name in ("a.tsv", "a.jsonl"):
        assert main(["evaluate", "run", *given, "--predictions", name]) == 0
    found = [json.loads(line)["source"] for line in Path("a.jsonl").read_text().splitlines()]
    header, *lines = (line.split("\t") for line in Path("a.tsv").read_text().splitlines())
    assert header == ["set", "group", "source", "source", "target", "answer"]
    assert ["\t".join(line[2:4]) for line in lines] == found
    capsys.readouterr()
    assert main(["predict", "run", *(part for text in found for part in ("--text", text)), "--format", "text"]) == 0
    assert capsys.readouterr().out.splitlines() == [line[-1] for line in lines]


@pytest.mark.parametrize("option", ["--predictions", "--record"])
@pytest.mark.parametrize("read", ["test.tsv", "link.tsv", "labelled.tsv", "labelled/config.json", "labelled/held_out"])
def test_a_file_that_is_read_is_not_overwritten(runs, option, read, tmp_path, capsys, monkeypatch):
    for name in ("labelled", "labelled.tsv"):
        (shutil.copytree if (runs / name).is_dir() else shutil.copy)(runs / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    Path("test.tsv").write_text("".join(RECIPES["labelled"][:5]))
    Path("link.tsv").symlink_to("test.tsv")
    (runs / "labelled.tsv").rename(runs / "gone.tsv")  # it is beside the run, as before
    try:
        file = read if Path(read).is_file() else f"{read}/validation.jsonl"
        before = Path(file).read_bytes()
        assert main(["evaluate", "labelled", "--data.test", "test.tsv", option, file]) == 2
    finally:
        (runs / "gone.tsv").rename(runs / "labelled.tsv")
    said = f"ut: {option} {file}: this file is read, and would be overwritten; expected the name of a file to write\n"
    assert capsys.readouterr().err == said
    assert Path(file).read_bytes() == before


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("text", ["--predictions", "a.tsv"], "--predictions a.tsv: a language model is scored without answers"),
        ("text", ["--attention"], "attention of questions: task text has no supporting facts"),
        ("labelled", ["--report", "no/where"], "--report no/where: there is no folder no; expected a folder"),
    ],
)
def test_options_that_cannot_be_are_refused_before_the_work(runs, recipe, options, message, capsys, monkeypatch):
    def evaluated(*_arguments, **_options):
        raise AssertionError

    monkeypatch.setattr(measure, "evaluate", evaluated)
    assert main(["evaluate", str(runs / recipe), *options]) == 2
    assert f"ut: {message}" in capsys.readouterr().err


def test_a_page_has_the_same_check_of_its_folder(runs, capsys):
    pytest.importorskip("matplotlib")
    assert main(["plot", str(runs / "labelled"), "--report", "no/where", "--again"]) == 2
    said = capsys.readouterr().err
    assert said == "ut: --report no/where: there is no folder no; expected a folder\n"


@pytest.mark.parametrize(("split", "noted"), [("test", True), ("validation", False), ("train", False)])
def test_scores_of_other_parts_are_not_said_to_be_those_of_the_test(runs, split, noted, tmp_path, capsys):
    _, notes = scores(runs / "labelled", capsys, "--split", split, "--report", str(tmp_path))
    said = "no test file: scores are those of the validation texts, which also chose the model"
    assert (said in notes) == noted


def test_a_report_is_written_elsewhere(runs, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    shutil.copytree(runs / "labelled", tmp_path / "run")
    before = sorted((tmp_path / "run").rglob("*"))
    assert main(["plot", str(tmp_path / "run"), "--report", str(tmp_path / "there"), "--again"]) == 0
    assert sorted((tmp_path / "run").rglob("*")) == before
    assert {path.name for path in (tmp_path / "there").iterdir()} == {"plots", "report.html", "report.json"}
    assert "learning_rate" in (tmp_path / "there/report.html").read_text(), "the configuration is that of the run"
    (tmp_path / "file").write_text("")
    assert main(["evaluate", str(tmp_path / "run"), "--report", str(tmp_path / "file" / "x")]) == 2
    assert f"x: there is no folder {tmp_path / 'file'}; expected a folder" in capsys.readouterr().err


def test_a_run_begins_with_the_configuration_of_another(runs, tmp_path, capsys):
    run, other = runs / "labelled", tmp_path / "other"
    for given in (run / "config.json", run):
        assert main(["train", "--config", str(given), "--dry-run"]) == 0
    config = str(run / "config.json")
    assert main(["train", "--config", config, "--run", str(other), "--seed", "3", "--quiet"]) == 0
    first, second = (json.loads((folder / "config.json").read_text()) for folder in (run, other))
    assert second["training"].pop("seed") == 3 != first["training"].pop("seed")
    assert first == second
    capsys.readouterr()
    assert main(["train", "labelled", "--config", config]) == 2
    assert "unexpected 'labelled'" in capsys.readouterr().err
    assert main(["train", "--config", str(tmp_path / "none.json")]) == 2
    assert "none.json: no such file; expected a config.json" in capsys.readouterr().err


def test_figures_by_group_of_a_column_of_tsv_and_of_json_lines(runs, tmp_path, capsys):
    rows = [(line.rstrip("\n").split("\t"), f"type {n % 3}") for n, line in enumerate(RECIPES["labelled"][:10])]
    tsv, lines = tmp_path / "a.tsv", tmp_path / "a.jsonl"
    tsv.write_text("".join(f"{group}\t{text}\t{label}\n" for (text, label), group in rows))
    lines.write_text("".join(json.dumps({"text": t, "label": b, "kind": g}) + "\n" for (t, b), g in rows))
    expected = {"type 0": 4, "type 1": 3, "type 2": 3}
    for file, column in ((tsv, "1"), (lines, "kind")):
        found, _ = evaluated(runs / "labelled", capsys, "--data.test", f"a={file}", "--data.group", column)
        assert found == {("a", group): count for group, count in expected.items()}


def test_a_run_trained_with_groups_keeps_them_for_the_rows_held_out(tmp_path, capsys, monkeypatch):
    file = tmp_path / "own.jsonl"
    rows = [{"source": f"{n} red", "target": f"{n}", "level": n % 2} for n in range(40)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = tmp_path / "run"
    given = ["--data.train", str(file), "--data.group", "level", "--data.metric", "sequence", "--run", str(run)]
    assert main(["train", "pairs", "--tokenizer", "whitespace", "--validation-fraction", "0.5", *given, *TINY]) == 0
    before, _ = evaluated(run, capsys)
    file.unlink()
    assert evaluated(run, capsys)[0] == before
    assert {group for _, group in before} == {"0", "1"}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.tsv").write_text("3 red\t3\n")
    assert main(["evaluate", str(run), "--data.test", "other.tsv"]) == 2
    assert "or '' for no groups" in capsys.readouterr().err
    assert evaluated(run, capsys, "--data.test", "other.tsv", "--data.group", "")[0] == {("other.tsv", ""): 1}
    assert (run / "report-test-other.tsv-group-none.json").is_file()


def test_lines_that_json_makes_longer_are_held_out_and_read_again(tmp_path, capsys):
    file, run = tmp_path / "quotes.tsv", tmp_path / "run"
    file.write_text(
        "".join(f"{n}\t{n} " + 510_000 * '"' + "\n" for n in range(3)) + "".join(f"a{n}\tb\n" for n in range(40))
    )
    given = ["--data.train", str(file), "--data.tokenizer", "character", "--run", str(run)]
    assert main(["train", "pairs", "--validation-fraction", "0.5", *given, *TINY]) == 0
    assert max(map(len, (run / "held_out" / "validation.jsonl").read_text().splitlines())) > 1_000_000
    assert evaluated(run, capsys)[0]


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("pairs", ["--data.test", "{a}", "{a}"], "two test sets of the name 'a.tsv'; write NAME=FILE"),
        ("pairs", ["--data.test", "=x"], "'=x': expected FILE or NAME=FILE"),
        (
            "pairs",
            ["--data.test", "{a}", "--data.test-target", "x", "y"],
            "found 2 files; expected 1",
        ),
        (
            "labelled",
            ["--data.test", "{a}", "--data.test-target", "x"],
            "--data.test-target: the data of this run, task labelled, have no such files",
        ),
        (
            "text",
            ["--data.test", "{a}", "--data.group", "x"],
            "--data.group: the data of this run, task text, have no groups",
        ),
        ("pairs", ["--data.group", "3"], "--data.group '3': name the files with --data.test"),
        (
            "pairs",
            ["--data.test", "{a}", "--data.group", "7"],
            "a.tsv:1: --data.group '7'; expected the number of a TSV",
        ),
        (
            "pairs",
            ["--data.test", "{a}", "--data.group", "x"],
            "a.tsv:1: --data.group 'x'; expected the number of a TSV",
        ),
        ("pairs", ["--data.test", "{a}", "--data.group", "1"], "a.tsv:1: found 2 columns in"),
        ("pairs", ["--data.test", "no/such.tsv"], "--data.test: no/such.tsv: no such file"),
        ("labelled", ["--data.test", "{c}"], "c.tsv:1: unknown label 'z'; those of the training file are 'a', 'b'"),
    ],
)
def test_mistakes_in_other_files_are_one_line(runs, recipe, options, message, tmp_path, capsys):
    (tmp_path / "a.tsv").write_text("red 1\ta\n")
    (tmp_path / "c.tsv").write_text("red 1\tz\n")
    given = [option.format(a=tmp_path / "a.tsv", c=tmp_path / "c.tsv") for option in options]
    found, shown = evaluated(runs / recipe, capsys, *given)
    assert found == {}
    assert message in shown
    assert shown.count("\n") == 1


def test_a_run_works_from_any_folder_and_is_moved_together_with_its_data(tmp_path, monkeypatch, capsys):
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / "data/own.tsv").write_text("".join(RECIPES["pairs"]))
    (home / "data/test.tsv").write_text("".join(RECIPES["pairs"][:9]))
    monkeypatch.chdir(home)
    given = ["--data.train", "data/own.tsv", "--data.test", "data/test.tsv", "--data.metric", "sequence"]
    assert main(["train", "pairs", "--tokenizer", "word", "--run", "runs/a", *given, *TINY]) == 0
    config = json.loads((home / "runs/a/config.json").read_text())["data"]["fields"]
    assert (config["train"], config["test"]) == (str(home / "data/own.tsv"), str(home / "data/test.tsv"))
    monkeypatch.chdir(tmp_path)
    assert evaluated("home/runs/a", capsys)[0] == {("test", ""): 9}
    home.rename(tmp_path / "away")
    assert evaluated("away/runs/a", capsys)[0] == {("test", ""): 9}
    (tmp_path / "away/data/test.tsv").rename(tmp_path / "kept")
    _, shown = evaluated("away/runs/a", capsys)
    second = f"{tmp_path}/away/data/test.tsv, its place relative to the run"
    assert f"{home}/data/test.tsv: no such file, nor {second}" in shown
    (tmp_path / "kept").rename(tmp_path / "away/data/test.tsv")
    assert main(["train", "--resume", "away/runs/a", "--max-updates", "3", "--quiet"]) == 0


def test_two_texts_with_one_label(tmp_path, capsys):
    rows = [(f"{WORDS[n % 6]} {n}", f"{WORDS[n % 5]} {n}", "ab"[n % 2]) for n in range(40)]
    tsv, lines = tmp_path / "own.tsv", tmp_path / "own.jsonl"
    tsv.write_text("".join("\t".join(row) + "\n" for row in rows))
    lines.write_text("".join(json.dumps({"text": list(row[:2]), "label": row[2]}) + "\n" for row in rows))
    first, second = (LabelledData(train=str(file)).load() for file in (tsv, lines))
    assert list(first.train) == list(second.train)
    assert first.codec.source.segments == 2
    assert all(example.source.count(2) == 2 for example in first.train)
    run = tmp_path / "run"
    assert main(["train", "labelled", "--data.train", str(tsv), "--run", str(run), *TINY]) == 0
    tsv.unlink()
    assert evaluated(run, capsys)[0] == {("validation", ""): 2}
    (tmp_path / "lines").write_text("red 1\tblue 2\nred 1\nred 1\tblue 2\ta\na\tb\tc\td\n")
    assert main(["predict", str(run), str(tmp_path / "lines")]) == 2
    shown = capsys.readouterr()
    first, *others = shown.out.splitlines()
    assert others == ["", first, ""], "the label of the third line is not read"
    assert "lines:2: found 1 column in 'red 1'; expected 2 texts, text<TAB>text" in shown.err
    assert "lines:4: found 4 columns" in shown.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\tx\nc\ty\n", "own.tsv:2: 1 text before the label; the first row of the training file has 2"),
        ("c\ty\na\tb\tx\n", "own.tsv:2: 2 texts before the label; the first row of the training file has 1"),
        ("a\tb\tc\tx\n", "own.tsv:1: found 4 columns in"),
    ],
)
def test_rows_with_another_number_of_texts_are_named(tmp_path, content, message):
    (tmp_path / "own.tsv").write_text(content)
    with pytest.raises(UserError, match=message):
        LabelledData(train=str(tmp_path / "own.tsv")).load()


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (
            "pairs",
            ["vocabulary  {n} tokens for both sides", "lengths     source: at most 4 tokens", "lengths     target: "],
        ),
        ("labelled", ["vocabulary  {n} tokens, 2 labels", "lengths     source: at most 4 tokens"]),
        ("text", ["vocabulary  {n} tokens", "lengths     target: at most 128 tokens"]),
    ],
)
def test_the_data_are_shown_as_tokens_before_training(runs, recipe, expected, capsys):
    given = ["train", recipe, "--tokenizer", "word", "--data.train", str(runs / f"{recipe}.tsv"), "--dry-run"]
    capsys.readouterr()
    assert main([*given, "--width", "8", "--filter-width", "8", "--num-heads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    size = next(line.split()[1] for line in lines if line.startswith("vocabulary"))
    for start in expected:
        assert any(line.startswith(start.format(n=size)) for line in lines)
    examples = [line for line in lines if line.startswith("example ")]
    assert len(examples) == (2 if recipe == "text" else 3)
    assert all("▁" in line and "|" in line and len(line) <= 112 for line in examples)
    (unknown,) = (line for line in lines if line.startswith("unknown"))
    assert unknown.endswith("of the validation tokens")


def test_examples_that_are_also_trained_on_are_counted(tmp_path, capsys):
    files = {
        "train": ["a\tb", "a\tb", "c\td", "e\tf"],
        "validation": ["c\td", "c\tx"],
        "test": ["a\tb", "e\tf", "g\th"],
    }
    options = []
    for name, lines in files.items():
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
        options += [f"--data.{name}", str(tmp_path / f"{name}.tsv")]
    assert main(["data", "check", "pairs", *options, "--data.tokenizer", "character"]) == 0
    parts = "1 of 2 validation examples are in train, 2 of 3 test examples are in train, 1 train examples repeat"
    assert f"repeated    {parts} earlier ones\n" in capsys.readouterr().out
    (tmp_path / "train.tsv").write_text("1\t2\n3\t4\n")
    assert main(["data", "check", "pairs", *options, "--data.tokenizer", "character"]) == 0
    assert "repeated" not in capsys.readouterr().out
