"""Pages of figures: made by their scripts from the recorded lines; notebook/depth_rules.md has their figures."""

import json
import re
import runpy
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "babi_attention",
    "exit_seconds",
    "halting_rules",
    "printed_equations",
    "steps_by_need",
    "sudoku_steps",
)
"""Studies whose pages are made from recorded lines."""
WITHIN = 1  # point of error


def script(name):
    return runpy.run_path(str(ROOT / "experiments" / f"{name}.py"))


def lines_of(name):
    return [json.loads(line) for line in (ROOT / "results" / "studies" / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_computed_from_the_recorded_lines(name):
    made = script(name)
    lines = made["results_of"](name).read() if "results_of" in made else lines_of(name)
    text = "".join(f"{row}\n" for row in made["page"](lines))
    assert text == (ROOT / "results" / "studies" / f"{name}.md").read_text(encoding="utf-8")


def test_standard_errors_count_symmetric_boards_as_one_observation():
    clustered = script("sudoku_steps")["clustered"]
    apart = {f"{board}": int(board < 30) for board in range(100)}
    assert clustered(apart, dict.fromkeys(apart, 1)) == pytest.approx(100 * (0.3 * 0.7 / 100) ** 0.5)
    alike = {f"{group}": 10 * int(group < 3) for group in range(10)}  # as many boards, ten of each kind
    assert clustered(alike, dict.fromkeys(alike, 10)) == pytest.approx(100 * (0.3 * 0.7 / 10) ** 0.5)


def test_no_recorded_command_has_a_path_of_one_machine():
    for path in (ROOT / "results").rglob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not re.search(r'[ "=]/(?!")', json.loads(line).get("command") or ""), f"{path.name}: {line[:200]}"


def rules_in_docs():
    """The table of notebook/depth_rules.md that compares rules: rule -> cells, without the rows of headings."""
    text = (ROOT / "notebook" / "depth_rules.md").read_text(encoding="utf-8")
    body = text.split("| steps of a fixed depth |")[1].split("\n\n")[0].splitlines()[1:]
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in body)
    return {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize("task", ["stories", "sudoku", "babi", "addition", "multi30k"])
def test_the_comparison_of_rules_in_the_docs_has_the_recorded_figures(task):
    made = script("halting_rules")
    cells = {rule: row[["stories", "sudoku", "babi", "addition", "multi30k"].index(task)]
             for rule, row in rules_in_docs().items()}  # fmt: skip
    expected = {}
    for rule in made["RULES"]:
        own = [line for line in lines_of("halting_rules") if (line["task"], line["rule"]) == (task, rule)]
        expected[made["NAMES"][rule]] = own and (
            100 * (1 - mean(line["trained"]["score"] for line in own)),
            mean(line["trained"]["steps"] for line in own),
            mean(made["cheapest"](line)[0] for line in own),
        )
    assert set(cells) == set(expected)
    measured = {rule: figures for rule, figures in expected.items() if figures}
    least = min(error for error, _, _ in measured.values())
    comparable = {rule: fewest for rule, (error, _, fewest) in measured.items() if error <= least + WITHIN}
    best = f"{min(comparable.values()):.2f}"
    decimals = 1 if task in ("addition", "multi30k") else 2
    for rule, cell in cells.items():
        if not expected[rule]:
            assert cell == "not defined"
            continue
        error, steps, fewest = expected[rule]
        shown = f"**{fewest:.2f}**" if rule in comparable and f"{fewest:.2f}" == best else f"{fewest:.2f}"
        assert cell == f"{error:.{decimals}f} in {steps:.2f}; {shown}", rule
