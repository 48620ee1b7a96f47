"""The plan of experiments and the page about reproduction name commands that exist."""

import re
import shlex
from pathlib import Path

import pytest

from universal_transformer.cli import main
from universal_transformer.cli.fields import override
from universal_transformer.recipes import RECIPES

ROOT = Path(__file__).parents[2]
PLANNED = [
    (command, line)
    for line in (ROOT / "experiments" / "plan.md").read_text().splitlines()
    for command in re.findall(r"`(ut reproduce [^`]*)`", line)
]
TRAINED = [
    command.split()
    for page in ("experiments/plan.md", "notebook/paper_tables.md")
    for command in re.findall(r"`ut train ([a-z][^`]* --[^`]*)`", (ROOT / page).read_text())
]
DESCRIBED = re.findall(r"`(ut reproduce [^`…]*)`", (ROOT / "notebook" / "paper_tables.md").read_text())


@pytest.mark.parametrize(("command", "line"), PLANNED)
def test_a_planned_command_has_runs_to_make_in_its_time(command, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*shlex.split(command)[1:], "--dry-run"]) == 0
    shown = capsys.readouterr().out.splitlines()[-1]
    ((runs, minutes),) = re.findall(r"; (\d+) to make: (?:([\d.]+) minutes|\d+ limited by updates)", shown)
    assert int(runs) > 0
    (processes,) = re.findall(r"--processes (\d+)", command) or ("1",)
    assert (minutes and float(minutes) / int(processes) <= 9) or "×" in line, "more than one call: say so"


@pytest.mark.parametrize("command", [one for one in DESCRIBED if "TABLE" not in one and "ADDRESS" not in one])
def test_a_described_command_is_understood(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    extra = [] if "--dry-run" in command else ["--dry-run"]
    assert main([*shlex.split(command)[1:], *extra]) == 0


@pytest.mark.parametrize("command", TRAINED, ids=" ".join)
def test_a_training_with_its_own_settings_is_understood(command):
    recipe, *fields = command
    assert override(RECIPES[recipe](), fields, prog="ut train") != RECIPES[recipe]()
