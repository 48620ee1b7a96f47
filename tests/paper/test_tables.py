"""All tables: rows that are commands, printed figures in their places, and one way to show ours next to them."""

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from paper import printed
from paper.campaign import all_results
from paper.definition import Column, Grid, ResultTable
from paper.rendering import METRICS, render, summarise
from paper.results import ResultsFile
from paper.runs import pending, plan
from paper.tables import TABLES
from small_results import result
from universal_transformer.cli import main
from universal_transformer.cli.fields import override
from universal_transformer.errors import UserError
from universal_transformer.recipes import MAIN, RECIPES
from universal_transformer.recipes.command import train_command

RESULTS = Path(__file__).parents[2] / "results" / "paper"
LENGTHS = (40, 80, 200, 400)
tables = pytest.mark.parametrize("name", TABLES)


def algorithmic(row="copy/ut", *, character=0.5, sequence=0.25, **fields):
    """A result of table 4."""
    figures = {
        f"length {length}": {
            "character_accuracy": character,
            "sequence_accuracy": sequence,
            "count": 200,
            "mean_steps": 6.0,
        }
        for length in LENGTHS
    }
    return result(row, table="table4", figures=figures, **fields)


def section(text, title):
    """Rows of the Markdown table below a title: cells by (model, from)."""
    _, _, rest = text.partition(f"## {title}\n")
    lines = [line for line in rest.split("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {tuple(row[:2]): row[2:] for row in cells}


def numbers(cell):
    """The numbers in a cell."""
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", cell)]


@tables
def test_rows_are_recipes_that_can_be_stopped_at_the_loss_of_a_minute(name):
    for row, recipe in TABLES[name].rows.items():
        config = recipe()
        assert config.recipe in RECIPES, row
        assert 0 < config.training.save_minutes <= 1, row
        assert config.training.seed == 0
        to_its_end = (config.training.max_updates or 0) >= 20_000
        more_tests = getattr(config.data, "test_up_to", None)
        assert name == "table1" or to_its_end or more_tests or RECIPES[config.recipe]() == config


@tables
@pytest.mark.parametrize("limits", [{"minutes": 1.5}, {"updates": 7}, {"minutes": 1.5, "updates": 7}], ids=str)
def test_limits_that_are_asked_for_replace_those_of_the_recipes(name, limits):
    wanted = {"minutes": None, "updates": None, **limits}
    for run in plan(TABLES[name], list(TABLES[name].rows)[:3], seeds=1, **limits):
        assert run.config.training.minutes == wanted["minutes"]
        assert run.config.training.max_updates == wanted["updates"]


@tables
def test_batches_that_are_asked_for_replace_those_of_the_recipes_and_only_those(name):
    rows = list(TABLES[name].rows)[:3]
    for larger, run in zip(
        plan(TABLES[name], rows, seeds=1, batch_tokens=8192), plan(TABLES[name], rows, seeds=1), strict=True
    ):
        assert larger.config.training == dataclasses.replace(run.config.training, batch_tokens=8192)


@tables
def test_the_command_of_a_row_makes_its_run(name):
    for run in plan(TABLES[name], list(TABLES[name].rows), seeds=1, minutes=1.5)[::7]:
        _, _, recipe, *options = shlex.split(train_command(run.config))
        assert override(RECIPES[recipe](), options, prog="ut train") == run.config


@tables
def test_printed_figures_fill_the_columns_and_ours_can_be_measured(name):
    rows = TABLES[name].rows
    shown = set()
    for grid in TABLES[name].grids:
        assert set(grid.printed) <= set(grid.models)
        for cells in grid.printed.values():
            for cell, column in zip(cells, grid.columns.values(), strict=True):
                assert cell is None or isinstance(cell, str) or 0 < len(cell) <= len(column.metrics)
        for column in grid.columns.values():
            assert set(column.metrics) <= set(METRICS)
            shown |= {f"{column.run}/{model}" for model in grid.models}
    assert {"/".join(row.split("/")[:2]) for row in rows} <= shown, "every row has a place on the page"


@tables
def test_nothing_measured_is_said_in_every_cell_of_ours(name):
    text = render(TABLES[name], [])
    for grid in TABLES[name].grids:
        for (_, source), cells in section(text, grid.title).items():
            assert (source == "ours") == ("not measured" in cells)
            assert source == "ours" or source == grid.source
    assert "None yet." in text


@pytest.mark.claim("table 4")
def test_figures_are_shown_next_to_the_papers():
    text = render(TABLES["table4"], [algorithmic(character=0.9, sequence=0.4)])
    found = section(text, "Sources of 400 symbols")
    assert found["Universal Transformer", "paper, table 4"] == ["0.91 / 0.35", "0.96 / 0.46", "0.34 / 0.02"]
    assert found["Universal Transformer", "ours"] == ["0.900 / 0.400", "not measured", "not measured"]
    assert section(text, "Copy, by length")["Universal Transformer", "ours"] == ["0.900 / 0.400"] * 4
    assert ("UT, distance positions", "paper, table 4") not in found
    assert "character accuracy 0.900, sequence accuracy 0.400" in text


@pytest.mark.claim("table 1", "table 2", "table 3", "table 4", "table 5", "table 6", "table 7")
@pytest.mark.parametrize(
    ("name", "title", "figures", "columns"),
    [
        ("table1", "Mean over 20 tasks", printed.TABLE1, "10K single, 10K joint, 1K single, 1K joint"),
        ("table2", "The right form of the verb, in whole sentences", printed.TABLE2, "0, 1, 2, 3, 4, 5, total"),
        ("table3", "Language modelling", printed.TABLE3_LM, "control, development, test"),
        ("table3", "Reading comprehension", printed.TABLE3_RC, "control, development, test"),
        ("table4", "Sources of 400 symbols", printed.TABLE4, "copy, reverse, addition"),
        ("table5", "Numbers of up to 55 digits", printed.TABLE5, "copy, double, reverse"),
        ("table6", "Programs of nesting 2 and length 5", printed.TABLE6, "program, control, addition"),
        ("table7", "WMT14, newstest 2014", printed.TABLE7, "newstest 2014"),
    ],
)
def test_every_table_of_the_paper_has_its_figures(name, title, figures, columns):
    (grid,) = (grid for grid in TABLES[name].grids if grid.title == title)
    assert list(grid.columns) == columns.split(", ")
    rows = section(render(TABLES[name], []), title).items()
    found = {model: [numbers(cell) for cell in cells] for (model, source), cells in rows if source != "ours"}
    assert found == {grid.models[model]: [numbers(str(cell)) for cell in cells] for model, cells in figures.items()}


def test_sequences_are_chosen_by_loss_and_seeds_have_a_spread():
    seeds = [(0.2, 0.5, 3.0), (0.4, 0.6, 2.0), (0.9, 0.1, 2.5)]
    results = [
        algorithmic(character=c, sequence=0.0, validation=e, loss=loss, seed=s) for s, (c, e, loss) in enumerate(seeds)
    ]
    found = section(render(TABLES["table4"], results), "Sources of 400 symbols")
    assert found["Universal Transformer", "ours"][0] == ("0.400 / 0.000; 0.500 ± 0.361 / 0.000 ± 0.000 over 3 seeds")


def test_translations_are_shown_by_test_set():
    figures = {
        name: {"bleu": 30.0 + place, "chrf": 50.0, "count": 1000}
        for place, name in enumerate(("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"))
    }
    text = render(TABLES["table7"], [result("multi30k/ut", table="table7", figures=figures)])
    found = section(text, "Multi30k")["Universal Transformer", "ours"]
    assert found == ["30.00 / 50.00", "31.00 / 50.00", "32.00 / 50.00"]
    assert "\nBLEU / chrF.\n" in text
    assert section(text, "WMT14, newstest 2014")["Weighted Transformer base", "paper, table 7"] == ["28.4"]


def test_the_order_of_two_models_is_compared_with_the_printed_one():
    lower, equal, higher = (
        algorithmic("copy/lstm", character=character, sequence=sequence)
        for character, sequence in ((0.4, 0.05), (0.5, 0.25), (0.6, 0.6))
    )
    ours = [algorithmic(), algorithmic("copy/transformer", character=0.3)]
    title, pair = "Sources of 400 symbols: order of two models", "Universal Transformer; LSTM"
    for lstm, told, other in (
        (lower, "as printed", "not as printed"),
        (equal, "no difference", "not as printed / no difference"),
        (higher, "not as printed", "not as printed / as printed"),
    ):
        cells = section(render(TABLES["table4"], [*ours, lstm]), title)
        assert cells[pair, told] == ["not measured"] * 2
        assert cells["Transformer; LSTM", other] == ["not measured"] * 2  # 0.53 / 0.03 against 0.45 / 0.09 in the paper
    assert title not in render(TABLES["table4"], ours[:1])
    best = [algorithmic(seed=seed, character=one) for seed, one in enumerate((0.45, 0.25))]
    assert (pair, "not as printed") in section(render(TABLES["table4"], [*best, higher]), title)  # by the mean, 0.35


def test_an_order_needs_a_difference_above_two_standard_errors_and_above_chance():
    title, pair = "Sources of 400 symbols: order of two models", "Universal Transformer; LSTM"
    lstm = algorithmic("copy/lstm", character=0.5)
    for seeds, told in (
        ((0.5, 0.7), "no difference"),  # 0.1 with a standard error of 0.1 over the seeds
        ((0.55, 0.57), "no difference"),  # 0.06 with 0.01, and of the other model 0.035 over 200 examples
        ((0.59, 0.61), "as printed / no difference"),  # 0.1 with these; whole sequences are equal
    ):
        ours = [algorithmic(seed=seed, character=one) for seed, one in enumerate(seeds)]
        assert (pair, told) in section(render(TABLES["table4"], [*ours, lstm]), title)
    at_chance = [algorithmic(character=0.1), algorithmic("copy/lstm", character=0.01)]
    assert (pair, "no difference") in section(render(TABLES["table4"], at_chance), title)


def test_one_seed_of_shares_is_compared_by_the_examples_of_each_group():
    grid = TABLES["table2"].grids[0]
    total = grid.columns["total"]

    def cells(ut, transformer):
        runs = [
            result(
                f"agreement/{model}",
                table="table2",
                figures={f"{total.group}, {name}": {"accuracy": accuracy, "count": 1000} for name in total.shares},
            )
            for model, accuracy in (("ut", ut), ("transformer", transformer))
        ]
        found = section(render(TABLES["table2"], runs), f"{grid.title}: order of two models")
        return {
            (*names[1:], *cells) for names, cells in found.items() if names[0] == "Universal Transformer; Transformer"
        }

    assert cells(0.9, 0.8) == {("as printed",) * 7}
    assert cells(0.9, 0.89) == {("no difference",) * 7}


def test_one_seed_of_errors_is_compared_by_the_examples_of_each_task():
    grid = TABLES["table1"].grids[0]

    def cells(ut, transformer):
        runs = [
            result(f"1k-single/{model}/{task}", figures={f"task {task}": {"error": error, "count": 1000}})
            for model, error in (("ut", ut), ("transformer", transformer))
            for task in range(1, 21)
        ]
        found = section(render(TABLES["table1"], runs), f"{grid.title}: order of two models")
        return next(cells for names, cells in found.items() if names[0] == "Universal Transformer; Transformer")

    # two standard errors of a difference of means over 20,000 questions at 14 % are 0.69 points
    # and both models fail all tasks, as many as printed
    assert "not as printed / -" in cells(14.0, 13.2)
    assert "no difference / -" in cells(14.0, 13.4)


@tables
def test_the_page_of_a_table_is_rendered_from_its_records(name):
    page = RESULTS / f"{name}.md"
    file = ResultsFile(page.with_suffix(".jsonl"), table=name, say=pytest.fail)
    assert page.read_text(encoding="utf-8") == render(TABLES[name], all_results(TABLES[name], file))


def test_notes_are_numbered_and_those_of_all_runs_said_once():
    results = [
        algorithmic(notes=["greedy", "a changed split"]),
        algorithmic("copy/lstm", notes=["greedy"]),
        algorithmic("reverse/ut", notes=["greedy", "half of the data", "a changed split"]),
        algorithmic("addition/ut", notes=["greedy", "backwards"]),
        algorithmic("addition/lstm", notes=["backwards", "greedy"]),
    ]
    text = render(TABLES["table4"], results)
    cells = section(text, "Sources of 400 symbols")
    assert cells["Universal Transformer", "ours"][:2] == ["0.500 / 0.250 [1]", "0.500 / 0.250 [2] [1]"]
    assert cells["LSTM", "ours"][0] == "0.500 / 0.250"
    assert cells["LSTM", "ours"][2] == "0.500 / 0.250"
    assert (
        "- All of ours: greedy\n- All of addition: backwards\n- [1] a changed split\n- [2] half of the data\n" in text
    )


def test_a_run_of_the_depth_study_is_named_by_its_error_at_the_depth_of_training():
    figures = {
        f"{n} step{'s' * (n > 1)}{group}": {"error": 9.0 if group else float(n), "count": 5, "mean_steps": n}
        for n in range(1, 13)
        for group in ("", ", 1 fact")
    }
    text = render(TABLES["depth"], [result("stories/fixed", table="depth", figures=figures)])
    assert "| test (6 steps) |" in text
    assert "| error 6.00 % |" in text


def test_a_recipe_without_a_command_is_named():
    config = dataclasses.replace(RECIPES["stories"](), recipe="mine")
    with pytest.raises(UserError, match="'mine'"):
        train_command(config)


def test_a_total_is_weighted_by_examples_and_a_missing_score_is_no_figure():
    groups = {"0": {"accuracy": 1.0, "count": 300}, "1": {"accuracy": 0.0, "count": 100, "chrf": 3.0}}
    one = dataclasses.replace(algorithmic(), figures=groups)

    def cell(result, **column):
        grid = Grid(title="Cell", models={"ut": "UT"}, columns={"x": Column(run="copy", **column)})
        table = dataclasses.replace(TABLES["table4"], grids=[grid])
        return section(render(table, [result]), "Cell")["UT", "ours"]

    assert cell(one, metrics=("accuracy",)) == ["0.750"]
    assert cell(one, metrics=("accuracy",), group="1") == ["0.000"]
    assert cell(one, metrics=("chrf",)) == ["not measured"]
    assert cell(one, metrics=("accuracy",), group="2") == ["not measured"]
    assert summarise(one) == "accuracy 0.500"
    sets = {"verbs, 0": {"accuracy": 1.0, "count": 1}, "verbs, 1": {"accuracy": 0.0, "count": 1}}
    two = dataclasses.replace(one, figures={**sets, "tags, 0": {"accuracy": 0.25, "count": 9}})
    assert cell(two, metrics=("accuracy",), group="verbs") == ["0.500"]
    assert cell(two, metrics=("accuracy",), group="verb") == ["not measured"]
    assert cell(two, metrics=("accuracy",), group="verbs", shares={"0": 0.6, "1": 0.2, "2": 0.2}) == ["0.750"]
    assert cell(two, metrics=("chrf",), group="verbs", shares={"0": 0.6}) == ["not measured"]


def test_columns_of_different_scores_name_them_and_rows_without_a_run_have_a_dash():
    table = ResultTable(
        name="table",
        title="a table",
        naming="TASK/MODEL",
        rows={"lm/ut": RECIPES["lambada"]},
        heading="A table",
        introduction="Words.",
        grids=[
            Grid(
                title="Both",
                models={"ut": "UT", "cache": "Cache"},
                columns={
                    "lm": Column(run="lm", metrics=("perplexity", "accuracy")),
                    "rc": Column(run="rc", metrics=("accuracy",)),
                },
                printed={"cache": ((129.0, 0.5), None)},
                source="there",
            )
        ],
        deviations=["Less."],
    )
    text = render(table, [])
    assert "| model | from | lm: perplexity / accuracy | rc: accuracy |" in text
    assert section(text, "Both") == {
        ("UT", "ours"): ["not measured", "-"],
        ("Cache", "there"): ["129 / 0.5", "-"],
    }
    assert "- Less." in text


def test_a_row_of_another_version_is_named_and_does_no_harm():
    strange = dataclasses.replace(algorithmic(), row="sort/ut")
    assert "Rows that this version does not have, shown only in the list of runs: sort/ut." in render(
        TABLES["table4"], [strange]
    )


def test_the_runs_of_table_1_that_are_in_results_are_not_planned_again():
    table = TABLES["table1"]
    found = ResultsFile(RESULTS / "table1.jsonl", table="table1", say=print).read()
    planned = plan(table, list(table.rows), seeds=1)
    assert {one.row for one in found} <= set(table.rows)
    recorded = {run.row for run in planned} - {run.row for run in pending(planned, found)}
    assert "10k-joint/ut-halting" in recorded


def test_recipes_and_rows_are_listed(capsys):
    assert main(["recipes"]) == 0
    shown = capsys.readouterr().out
    assert "\ncopy-lstm" not in shown
    assert all(name in shown for name in (*MAIN, *TABLES))
    assert main(["recipes", "table4"]) == 0
    shown = capsys.readouterr().out
    assert "copy/lstm" in shown
    assert "copy-lstm, " in shown
    assert len(shown.strip().splitlines()) == len(TABLES["table4"].rows) + 3
    assert main(["recipes", "table1"]) == 0
    assert "as ut train babi-10k-joint, with other data or another model" in capsys.readouterr().out


@tables
def test_every_recorded_run_has_its_row_and_its_command(name):
    recorded = ResultsFile(RESULTS / f"{name}.jsonl", table=name, say=print).read()
    assert {one.row for one in recorded} <= set(TABLES[name].rows)
    assert {shlex.split(one.command)[2] for one in recorded} <= set(RECIPES)
