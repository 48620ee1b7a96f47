"""Table 1: its rows are runs that a command makes again, its figures are what was measured or said not to be."""

import shlex
import subprocess
import sys

import pytest
import torch

from paper import printed
from paper.rendering import render
from paper.runs import pending, plan
from paper.table1 import COLUMNS, MODELS, TABLE1, babi_row
from paper.tables import choose_rows
from small_results import result
from universal_transformer.cli.fields import override
from universal_transformer.errors import UserError
from universal_transformer.evaluation.scores import FAILED_ABOVE
from universal_transformer.recipes import RECIPES
from universal_transformer.recipes.command import train_command
from universal_transformer.registry import build
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import replaced


def row_of(text, *starts):
    """Cells of the first line of a Markdown table that begins with these."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[: len(starts)] == list(starts):
            return cells[len(starts) :]
    raise AssertionError(f"no row {starts} in:\n{text}")


@pytest.mark.claim("appendix C")
@pytest.mark.parametrize("column", COLUMNS)
def test_the_papers_single_tasks_agree_with_its_table(column):
    tasks = printed.TABLE1_TASKS[column]
    mean, failed = printed.TABLE1["ut-halting"][list(COLUMNS).index(column)]
    assert len(tasks) == 20
    assert sum(tasks) / 20 == pytest.approx(mean, abs=0.0051)
    assert sum(error > FAILED_ABOVE for error in tasks) == failed


def test_rows_differ_from_one_another_and_survive_their_json():
    configs = {name: recipe() for name, recipe in TABLE1.rows.items()}
    assert len(configs) == 2 * len(MODELS) * 20 + 2 * len(MODELS)
    assert len({config.digest() for config in configs.values()}) == len(configs)
    assert all(RunConfig.from_dict(config.to_dict()) == config for config in configs.values())
    for name, config in configs.items():
        column, model, *task = name.split("/")
        assert config.data.size == column.split("-")[0]
        assert config.data.task == (task[0] if task else "joint")
        expected = (not model.startswith("transformer"), model.startswith(("ut-halting", "ut-printed")))
        assert (config.model.step.tied, config.model.halts) == expected
        steps = 4 if task else 6  # a single task has two blocks a step
        assert config.model.depth.max_steps == (2 * steps if model == "ut-halting-2x" else steps)


@pytest.mark.parametrize("model", MODELS)
def test_few_examples_of_one_task_are_learned_until_they_bring_nothing_and_halting_is_learned_in_any_case(model):
    config = babi_row(column="1k-single", model=model, task="2")
    assert (config.training.schedule, config.training.ema_decay) == ("constant", 0.999)
    assert config.training.patience == (None if config.model.halts else 6)
    assert babi_row(column="10k-single", model=model, task="2").training.patience is None


@pytest.mark.parametrize(
    ("column", "size", "classes", "words"),
    [("10k-joint", 147, 60, 11), ("1k-joint", 147, 57, 11), ("10k-single", 21, 6, 6), ("1k-single", 41, 7, 7)],
)
def test_the_small_transformer_has_as_many_parameters(column, size, classes, words):
    """Vocabularies of all tasks, and of the smallest and the largest single task."""
    sizes = {"vocabulary.size": size, "vocabulary.num_classes": classes, "vocabulary.max_fact_words": words}

    def counted(model):
        with torch.device("meta"):
            config = babi_row(column=column, model=model, task="joint" if "joint" in column else "1").model
            return build(replaced(config, sizes)).num_parameters()

    assert counted("transformer-small") == pytest.approx(counted("ut"), rel=0.02)


def test_earlier_work_is_shown_as_the_paper_prints_it():
    text = render(TABLE1, [])
    assert row_of(text, "QRNet", "paper") == ["0.3 / 0", "-", "-", "-"]
    assert row_of(text, "MemN2N", "paper") == ["-", "-", "-", "12.4 / 11"]


def test_the_command_of_a_run_makes_the_same_run():
    rows = [name for name in TABLE1.rows if name.count("/") == 1 or name.endswith(("/1", "/20"))]
    for run in plan(TABLE1, rows, seeds=2, minutes=1 / 3)[::3]:
        ut, train, recipe, *options = shlex.split(train_command(run.config))
        assert (ut, train) == ("ut", "train")
        made = override(RECIPES[recipe](), options, prog="ut train")
        assert made == run.config


def test_planning_goes_through_all_rows_before_the_next_seed():
    rows = choose_rows(TABLE1, rows=["10k-single/ut/4", "10k-joint/ut"])
    planned = plan(TABLE1, rows, seeds=2)
    assert [(run.row, run.config.training.seed) for run in planned] == [
        ("10k-single/ut/4", 0),
        ("10k-joint/ut", 0),
        ("10k-single/ut/4", 1),
        ("10k-joint/ut", 1),
    ]
    assert len({run.key for run in planned}) == 4
    assert planned[1].config.training.minutes == RECIPES["babi-10k-joint"]().training.minutes


def test_what_is_recorded_with_these_settings_is_not_planned_again():
    rows = ["10k-single/ut-halting/1", "10k-single/ut-halting/2"]
    planned = plan(TABLE1, rows, seeds=1, minutes=2.0)
    assert pending(planned, [result(rows[0], minutes=2.0)]) == planned[1:]
    assert pending(planned, [result(rows[0], minutes=3.0), result(rows[0], seed=1)]) == planned


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, list(TABLE1.rows)),
        ({"rows": ["1k-joint"]}, [f"1k-joint/{model}" for model in MODELS]),
        (
            {"columns": ["10k-single"], "models": ["ut-halting"], "tasks": ["20", "4"]},
            ["10k-single/ut-halting/4", "10k-single/ut-halting/20"],
        ),
        ({"models": ["ut"], "tasks": ["1"]}, ["10k-single/ut/1", "1k-single/ut/1"]),
    ],
)
def test_rows_are_chosen_by_name_or_by_parts(choice, expected):
    assert choose_rows(TABLE1, **choice) == expected


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"rows": ["10k-single/ut-halting/21"]}, "no row '10k-single/ut-halting/21'"),
        ({"rows": ["10k"]}, "rows are named COLUMN/MODEL/TASK"),
        ({"rows": ["1k-joint"], "tasks": ["1"]}, "leave out --columns"),
        ({"columns": ["10k-singl"]}, "did you mean 10k-single"),
        ({"models": ["lstm"]}, "allowed: transformer, transformer-small, ut, ut-halting"),
        ({"columns": ["10k-joint"], "tasks": ["1"]}, "10k-joint trains all tasks in one model"),
    ],
)
def test_a_choice_of_nothing_is_explained(choice, message):
    with pytest.raises(UserError, match=message):
        choose_rows(TABLE1, **choice)


def test_nothing_measured_is_said_in_every_cell():
    text = render(TABLE1, [])
    for title in MODELS.values():
        assert row_of(text, title, "ours") == ["not measured"] * 4
    assert row_of(text, "UT, dynamic halting", "paper") == ["0.21 / 0", "0.29 / 0", "4.55 / 3", "7.78 / 5"]
    assert row_of(text, "Transformer", "paper")[0] == "15.2 / 10"
    assert "task by task" not in text
    assert printed.TABLE1_SOURCE in text


def test_some_tasks_are_shown_one_by_one_and_have_no_mean():
    text = render(TABLE1, [result("10k-single/ut-halting/1"), result("10k-single/ut-halting/3", error=7.25)])
    assert row_of(text, "UT, dynamic halting", "ours")[0] == "2 of 20 tasks"
    assert row_of(text, "3 three-supporting-facts") == [
        *["not measured"] * 3,
        "0.4",
        "7.25 / 2.50",
        *["not measured"] * 3,
        "1.8 ± 1.8",
    ]
    nothing = ["not measured"] * 3
    assert row_of(text, "2 two-supporting-facts") == [*nothing, "0", *nothing, "not measured", "0.2 ± 0.4"]
    assert "1K joint, task" not in text


@pytest.mark.claim("table 1")
def test_twenty_tasks_have_a_mean_and_a_number_of_failures():
    rows = [f"10k-single/ut/{number}" for number in range(1, 21)]
    results = [result(row, error=10.0 if row.endswith("/19") else 0.0) for row in rows]
    results += [result("1k-joint/transformer", error=[6.0] * 10 + [0.0] * 10)]
    text = render(TABLE1, results)
    assert row_of(text, "Universal Transformer", "ours")[0] == "0.50 / 1"
    assert row_of(text, "Transformer", "ours")[3] == "3.00 / 10"
    assert render(TABLE1, results[1:]).count("19 of 20 tasks") == 1


def test_the_best_seed_is_chosen_by_validation_never_by_the_test():
    row = "10k-single/ut/1"
    seeds = [(1.0, 5.0), (3.0, 2.0), (2.0, 4.0)]
    results = [result(row, seed=s, error=e, validation=v) for s, (e, v) in enumerate(seeds)]
    assert "| 3.00 / 2.50; 2.00 ± 1.00 / 2.50 ± 0.00 over 3 seeds |" in render(TABLE1, results)
    other = result(row, seed=0, error=9.0, validation=2.5, minutes=5.0)
    assert "| 3.00 / 2.50; 2.00 ± 1.00 / 2.50 ± 0.00 over 3 seeds |" in render(TABLE1, [*results, other])


def test_a_mean_over_seeds_is_of_seeds_that_all_tasks_have():
    rows = [f"10k-single/ut/{number}" for number in range(1, 21)]
    results = [result(row, seed=seed, error=float(seed)) for row in rows for seed in (0, 1)]
    text = render(TABLE1, [*results, result(rows[0], seed=2, error=50.0)])
    assert row_of(text, "Universal Transformer", "ours")[0].startswith("0.00 / 0; 0.50 ± 0.71 / 0 ± 0 over 2 seeds")


def test_incomplete_data_are_marked_where_their_figure_stands():
    note = "task 3: 8,620 of 10,000 training questions"
    text = render(TABLE1, [result("10k-joint/ut", notes=[note])])
    assert row_of(text, "Universal Transformer", "ours")[1] == "0.00 / 0"
    assert f"- All of ours: {note}" in text


def test_steps_by_supporting_facts_are_over_all_positions_of_all_tasks():
    rows = [f"10k-single/ut-halting/{task}" for task in range(1, 21)]
    found = [result(rows[0]), *(result(row, steps_by_supports={}) for row in rows[2:])]
    part = render(TABLE1, found)
    assert row_of(part, "10K single", "ours") == ["19 of 20 tasks", "19 of 20 tasks", "not measured"]
    text = render(TABLE1, [*found, result(rows[1], steps_by_supports={"1": [0, 10]}, notes=["a note"])])
    assert row_of(text, "10K single", "ours") == ["1.75 ± 0.43 [1]", "2.00 ± 0.00 [1]", "not measured"]


def test_runs_are_listed_with_what_they_were_made_on():
    text = render(TABLE1, [result(clean=False, warnings=["halting has collapsed"])])
    assert "Some \\| CPU, threads: 2" in text
    assert "0123456789 (changed)" in text
    assert "- 10k-single/ut-halting/1, seed 0: halting has collapsed" in text


def test_tables_and_plans_import_no_torch():
    code = (
        "import sys; from paper import campaign, rendering, runs, tables;"
        "found = tables.TABLES.values();"
        "[(runs.plan(table, list(table.rows), seeds=1), rendering.render(table, [])) for table in found];"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
