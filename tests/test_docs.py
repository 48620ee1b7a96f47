"""The pages of the documentation: their code runs, their commands exist, and their generated parts are up to date."""

import contextlib
import dataclasses
import importlib.util
import itertools
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import forked
import universal_transformer
from universal_transformer import ModelConfig
from universal_transformer.cli import main
from universal_transformer.cli.evaluate import Evaluate
from universal_transformer.cli.explore import Explore
from universal_transformer.cli.export import Export
from universal_transformer.cli.parser import parse
from universal_transformer.cli.serve import Serve

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BRIEFLY = re.compile(r"(--training\.max-updates \d+ )?--training\.minutes (\d+|none)")
SMALL = " --model.sizes.width 32 --model.sizes.filter-width 64 --model.sizes.num-heads 2"
SHORT = " --model.generation.max-new-tokens 8"  # an untrained model does not end of its own accord
FEW = " --data.train-stories 40 --data.validation-stories 10 --data.test-stories 2"
LIMIT = 40  # lines of a block of extending.md


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def run(command, folder):
    """Run one line of a console block in `folder`, with trainings cut to a few updates of small models."""
    command = BRIEFLY.sub("--training.max-updates 2 --training.minutes None", command)
    command = re.sub(r" train (pairs|labelled|text|tagged|stories)\b", rf"\g<0>{SMALL}", command)
    command = re.sub(r" train stories\b", rf"\g<0>{FEW}", command)
    command = re.sub(r" train pairs\b", rf"\g<0>{SHORT}", command)
    command = re.sub(r"^ut calibrate .*", r"\g<0> --rule max_steps", command)
    before, last = command.rsplit(" | ", 1) if " | " in command else ("true", command)
    program, *arguments = shlex.split(last)
    if command.startswith("ut export"):  # what it writes is tested in cli/test_export.py
        parse(Export, arguments[1:], name="export")
    elif command.startswith("ut serve"):  # would not end; tests/serve has servers
        parse(Serve, arguments[1:], name="serve")
    elif command.startswith("ut explore"):  # tests/explore has pages
        parse(Explore, arguments[1:], name="explore")
    elif command.startswith("ut evaluate sudoku"):  # draws boards for ten seconds
        parse(Evaluate, arguments[1:], name="evaluate")
    elif command.startswith("ut "):  # needs no process of its own
        with contextlib.chdir(folder):
            assert main(arguments) == 0, command
    elif program in ("ut", "python"):
        given = subprocess.run(["bash", "-c", before], cwd=folder, capture_output=True, text=True, check=True).stdout
        done = forked.run(*([program] if program == "ut" else []), *arguments, folder=folder, given=given)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    else:
        subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, check=True)


def walk(page, folder):
    """Write the python blocks that begin with the name of a file, run the others, and run every command."""
    for kind, text in blocks(page):
        name = re.match(r"# (\w+\.py)\n", text)
        if kind == "python":
            path = folder / (name[1] if name else "block.py")
            path.write_text(text.replace("5000", "200").replace("3000", "700"), encoding="utf-8")
            if not name:
                run(f"python {path.name}", folder)
        else:
            for line in text.splitlines():
                if line.startswith("$ "):
                    run(line[2:], folder)


@pytest.mark.timeout(900)  # some thirty commands, while other tests run beside them
@pytest.mark.parametrize(
    "page", ["docs/extending.md", "docs/guide.md", "docs/tutorial.md", "docs/how_it_works.md", "docs/depth.md"]
)
def test_a_page_does_what_it_says(page, tmp_path):
    walk(page, tmp_path)


def test_the_blocks_of_the_page_about_extending_are_short():
    assert all(len(text.splitlines()) <= LIMIT for _, text in blocks("docs/extending.md"))


@pytest.mark.parametrize(
    "command",
    [
        line[2:].split("  #")[0].strip()
        for kind, text in blocks("README.md")
        for line in text.splitlines()
        if kind == "console" and line.startswith("$ ut ")
    ],
)
def test_a_command_of_the_readme_exists(command, tmp_path):
    words = command.split()
    run(" ".join([*words[: 3 if words[1] == "train" else 2], "--help"]), tmp_path)


@pytest.mark.parametrize(
    "command",
    re.findall(r"`(ut reproduce table[^`]*)`", (ROOT / "docs" / "results.md").read_text(encoding="utf-8")),
)
def test_a_command_of_the_results_names_runs_that_exist(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(command)[1:]
    assert main([*arguments, *([] if "--dry-run" in arguments else ["--dry-run"])]) == 0


def test_the_code_of_the_readme_runs(tmp_path):
    (code,) = [text for kind, text in blocks("README.md") if kind == "python"]
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    run("python block.py", tmp_path)


def test_the_readme_prints_what_the_pretrained_models_answer(tmp_path, capsys):
    lines = [line for kind, text in blocks("README.md") if kind == "console" for line in text.splitlines()]
    shown = {line: after for line, after in itertools.pairwise(lines) if not after.startswith("$ ")}
    for name in ("addition", "sudoku"):
        command, answer = next(item for item in shown.items() if item[0].endswith(f"ut predict {name}"))
        (tmp_path / "input").write_text(re.search(r"echo '?([^' ]+)'? ", command)[1] + "\n", encoding="utf-8")
        assert main(["predict", name, str(tmp_path / "input")]) == 0
        assert capsys.readouterr().out.strip() == answer


def test_the_architecture_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("make_architecture", ROOT / "tools" / "make_architecture.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.page() == script.PAGE.read_text(encoding="utf-8"), "run python tools/make_architecture.py"


def test_the_page_about_the_model_names_fields_that_exist():
    fields = {
        f"{component.name}.{field.name}"
        for component in dataclasses.fields(ModelConfig)
        if dataclasses.is_dataclass(component.default)
        for field in dataclasses.fields(component.default)
    }
    components = "|".join({name.split(".")[0] for name in fields})
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    named = set(re.findall(rf"`(?:--model\.)?((?:{components})\.\w+)", text))
    assert named
    assert named <= fields
    described = {name for name in fields if name.split(".")[0] not in ("vocabulary", "sizes")}
    assert all(name.split(".")[1] in text for name in described)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        *(f"{folder}/{page.name}" for folder in ("docs", "notebook") for page in (ROOT / folder).glob("*.md")),
    ],
)
def test_links_between_pages_lead_somewhere(page):
    path = ROOT / page
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).exists(), f"{page}: {link}"


@pytest.mark.parametrize(("page", "lines"), [("README.md", 130), ("docs/performance.md", 120)])
def test_a_page_stays_short(page, lines):
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= lines


def test_the_readme_counts_the_lines_of_the_files_to_read():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"\]\((src/[\w/]+\.py)\) \((\d+)", text)
    assert len(found) == 6
    assert all(len((ROOT / path).read_text(encoding="utf-8").splitlines()) == int(lines) for path, lines in found)


def test_the_citation_names_the_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", text, re.MULTILINE)[1] == universal_transformer.__version__
