"""The text of each table of the paper is what `paper/printed.py` has: the same rows and figures, in the same order.

Text from a PDF has the cells of a table in blocks, some by rows and some by columns. `LAYOUTS` says how each table
stands in each version. A dash for an empty cell is not read: the text has lost some.
"""

import re
from itertools import combinations
from pathlib import Path

import pytest

from paper import printed

SOURCES = Path(__file__).parents[2] / "../shared/sources"
FIRST, ICLR = "arxiv_v1.txt", "iclr2019_submission.txt"

NAMES = {
    "qrnet": "QRNet",
    "sparse-dnc": "Sparse DNC",
    "ga-mage": r"GA\+MAGE(?: Dhingra et al\.)?",
    "memn2n": "MemN2N",
    "stack-rnn": "Best Stack-RNN",
    "attention": "Best Attention",
    "neural-cache": "Neural Cache",
    "dhingra": r"(?:Dhingra et al\. )?Dhingra et al",
    "neural-gpu": "Neural GPU",
    "adaptive-small": r"Adapt Univ Transf \(small\)",
    "adaptive-base": r"Adapt Univ Transf \(base\)",
    "difference": r"\(UT w/ ACT - Best\)",
    "ut-halting": "UT w/ dynamic halting|UT w/ ACT|Adapt Univ Transformer|Adaptive Universal Transformer",
    "ut-8": r"UT base, 8 steps \(fixed\)",
    "ut-9": r"UT base, 9 steps \(fixed\)",
    "ut-small": "Universal Transformer small",
    "ut": r"Universal Transformer|UT base, 6 steps \(fixed\)",
    "weighted-transformer": "Weighted Transformer base",
    "transformer-small": "Transformer base",
    "transformer": "Transformer",
    "lstm": "LSTM",
}
"""Row -> its names in the text; a name comes before those that it contains."""
NO_CELL = r"\[\d+\]|\d{4}\)|/20\b|\b10?K\b|\b10 runs|\b01 234\b"
"""Numbers of references, of 20 tasks, of examples and runs, and the heads of columns in table 2."""
NUMBER = r"[-+]?\d+(?:\.\d+)?"
TOKEN = re.compile("|".join([*(f"({name})" for name in NAMES.values()), NO_CELL, f"({NUMBER})"]))


def read(text, name):
    """The rows' names and the figures of a table, in the order of the text."""
    if name == "appendix C":
        body = re.split("1[34] (?:Appendix C bAbI|Under review)", text[text.index("Best seed run for each task") :])[0]
    else:
        end = text.index(f"{name.capitalize()}: ")
        body = text[text.rindex("Model ", 0, end) : end]
    models = [*NAMES]
    matches = [match for match in TOKEN.finditer(body) if match.lastindex]
    return [float(one[0]) if one.lastindex > len(models) else models[one.lastindex - 1] for one in matches]


def figures(cell):
    """The numbers of a cell."""
    return [float(number) for number in re.findall(NUMBER, str(cell))]


class Rows:
    """The rows of a table in a version; a row of version 1 is in place of the row that it differs from."""

    def __init__(self, table, version):
        published = {model: cells for model, cells in table.items() if not model.endswith("-v1")}
        first = {model.removesuffix("-v1"): cells for model, cells in table.items() if model.endswith("-v1")}
        self.rows = published | first if version == FIRST else published
        self.own = first if version == FIRST else published
        self.shown = set()

    def cell(self, model, column):
        self.shown.add((model, column))
        return figures(self.rows[model][column]) if model in self.rows else []

    def by_rows(self, models, columns, *, named=False):
        rows = [[figure for column in columns for figure in self.cell(model, column)] for model in models]
        return [token for model, row in zip(models, rows, strict=True) for token in ([model, *row] if named else row)]

    def by_columns(self, models, columns):
        return [figure for column in columns for model in models for figure in self.cell(model, column)]

    def by_figures(self, models, columns):
        """By columns, where each score of a cell is a column of its own."""
        scores = [zip(*(self.cell(model, column) for model in models), strict=False) for column in columns]
        return [figure for column in scores for row in column for figure in row]

    def all_shown(self):
        """Whether the layout has all cells of the version's own rows."""
        cells = {(model, column): cell for model, row in self.own.items() for column, cell in enumerate(row)}
        return self.shown >= {place for place, cell in cells.items() if figures(cell)}


BABI = ("qrnet", "sparse-dnc", "ga-mage", "memn2n")
UT = ("transformer", "ut", "ut-halting")
VERBS = ("stack-rnn", "lstm", "attention")
VERBS_FIRST = ("transformer", "ut", "adaptive-small", "adaptive-base")
LAMBADA = ("transformer", "lstm", "ut", "ut-halting")
LONGER = ("ut-8", "ut-9")
ALGORITHMS = ("lstm", "transformer", "ut", "neural-gpu")
PROGRAMS = ALGORITHMS[:3]
TRANSLATION = ("ut-small", "transformer-small", "weighted-transformer", "ut")
SETTINGS = ("10k-single", "10k-joint", "1k-single", "1k-joint")
BEST, SEEDS = ("ut-halting",), ("seeds",)

LAYOUTS = {
    ("table 1", FIRST): lambda rows: [
        *rows.by_columns(BABI, (1, 2, 3)),
        *rows.by_columns(UT, (1, 2, 3)),
        *(*BABI, *rows.by_columns(BABI, (0,))),
        *(*UT, *rows.by_columns(UT, (0,))),
    ],
    ("table 1", ICLR): lambda rows: [
        *(*BABI, *rows.by_columns(BABI, (0, 1))),
        *rows.by_rows(UT, (0, 1), named=True),
        *rows.by_columns(BABI, (2, 3)),
        *rows.by_rows(UT, (2, 3)),
    ],
    ("table 2", FIRST): lambda rows: [
        *rows.by_columns(VERBS, (3, 4, 5, 6)),
        *rows.by_columns(VERBS_FIRST, (3, 4, 5, 6)),
        *(*VERBS, *rows.by_columns(VERBS, (0, 1, 2))),
        *(*VERBS_FIRST, *rows.by_columns(VERBS_FIRST, (0, 1, 2))),
    ],
    ("table 2", ICLR): lambda rows: [
        *(*VERBS, *rows.by_rows(VERBS, (0, 1)), *rows.by_rows(VERBS, (2, 3, 4))),
        *(*rows.by_rows(UT, (0, 1), named=True), *rows.by_rows(UT, (2, 3, 4))),
        *rows.by_rows(("difference",), (0, 1, 2, 3, 4), named=True),
        5,  # the head of the column
        *rows.by_columns((*VERBS, *UT, "difference"), (5, 6)),
    ],
    ("table 3", FIRST): lambda language, reading: [
        *("neural-cache", "dhingra"),
        *(*language.by_rows(("neural-cache",), (0, 1)), *reading.by_rows(("dhingra",), (2,))),
        *(*LAMBADA, *language.by_columns(LAMBADA, (0, 1, 2)), *reading.by_columns(LAMBADA, (0, 1, 2))),
    ],
    ("table 3", ICLR): lambda language, reading: [
        *("neural-cache", "dhingra", *LAMBADA, *LONGER),
        *language.by_rows(("neural-cache",), (0, 1)),
        *(*language.by_columns(LAMBADA, (0, 1, 2)), *language.by_rows(LONGER, (0, 1, 2))),
        *(*reading.by_rows(("dhingra",), (2,)), *reading.by_columns(LAMBADA, (0, 1, 2))),
    ],
    ("table 4", FIRST): lambda rows: [*ALGORITHMS, *rows.by_figures(ALGORITHMS, (0, 1, 2))],
    ("table 4", ICLR): lambda rows: [*ALGORITHMS, *rows.by_columns(ALGORITHMS, (0, 1, 2))],
    ("table 5", FIRST): lambda rows: [*PROGRAMS, *rows.by_figures(PROGRAMS, (0, 1, 2))],
    ("table 5", ICLR): lambda rows: [*PROGRAMS, *rows.by_columns(PROGRAMS, (0, 1, 2))],
    ("table 6", FIRST): lambda rows: [*PROGRAMS, *rows.by_figures(PROGRAMS, (0, 1, 2))],
    ("table 6", ICLR): lambda rows: [*PROGRAMS, *rows.by_columns(PROGRAMS, (0, 1, 2))],
    ("table 7", FIRST): lambda rows: [*TRANSLATION, *rows.by_columns(TRANSLATION, (0,))],
    ("table 7", ICLR): lambda rows: [*TRANSLATION, *rows.by_columns(TRANSLATION, (0,))],
    ("appendix C", FIRST): lambda best, seeds, mean: [
        *range(10, 21),  # numbers of tasks; the text has lost most numbers of one digit
        *best.by_rows(SETTINGS, range(20)),
        *(*mean.by_rows(BEST, range(4))[::2], 0),
        *range(10, 21),
        *(*seeds.by_rows(SETTINGS[:3], (0,)), *seeds.by_rows(SETTINGS[:3], range(1, 20))),
        *(*seeds.by_rows(SETTINGS[3:], range(20)), *mean.by_rows(SEEDS, range(4))),
    ],
    ("appendix C", ICLR): lambda best, seeds, mean: [
        *(token for task in range(20) for token in (task + 1, *best.by_columns(SETTINGS, (task,)))),
        *(*mean.by_rows(BEST, range(4))[::2], *mean.by_rows(BEST, range(4))[1::2]),
        *range(1, 21),
        *(*seeds.by_rows(SETTINGS, range(20)), *mean.by_rows(SEEDS, range(4))),
    ],
}
"""Table, version -> the names of its rows and its figures in the order of the text."""


def some(table, *models):
    """Some rows of a table, in both versions."""
    return {model: cells for model, cells in table.items() if model.removesuffix("-v1") in models}


TABLES = {
    "table 1": [some(printed.TABLE1, *BABI, *UT)],
    "table 2": [printed.TABLE2],
    "table 3": [printed.TABLE3_LM, printed.TABLE3_RC],
    "table 4": [printed.TABLE4],
    "table 5": [printed.TABLE5],
    "table 6": [printed.TABLE6],
    "table 7": [printed.TABLE7],
    "appendix C": [
        printed.TABLE1_TASKS,
        printed.TABLE1_TASKS_OVER_SEEDS,
        some(printed.TABLE1, *BEST, *SEEDS),
    ],
}


@pytest.fixture(scope="module", params=[FIRST, ICLR])
def version(request):
    """A version of the paper: the name of its file, and its text on one line."""
    return request.param, source(request.param)


def source(name):
    """The text of a source on one line."""
    if not SOURCES.is_dir():
        pytest.skip("the texts of the sources are not there")
    return " ".join((SOURCES / name).read_text(encoding="utf-8").split())


def check(name, tables, *, version):
    """Each number and name in the text of a table is the cell or the row that stands there, and no cell is left."""
    file, text = version
    rows = [Rows(table, file) for table in tables]
    assert read(text, name) == LAYOUTS[name, file](*rows)
    assert all(one.all_shown() for one in rows)
    return rows


def with_an_error(rows):
    """Copies of rows with one error each that the text can show: a row, a cell or an order that is not as printed."""
    (first, cells), *_ = rows.items()
    yield {f"more {first}": cells, **rows}
    for model, row in rows.items():
        yield {other: row for other, row in rows.items() if other != model}
        for place, cell in enumerate(row):
            if cell is not None:
                yield {**rows, model: [*row[:place], None, *row[place + 1 :]]}
    for one, other in combinations(rows, 2):
        # where two rows have no column in common, only the dashes, which are not read, show their order
        if any(None not in pair and pair[0] != pair[1] for pair in zip(rows[one], rows[other], strict=True)):
            yield {**rows, one: rows[other], other: rows[one]}
    for one, other in combinations(range(len(cells)), 2):
        if any(row[one] != row[other] for row in rows.values()):
            order = [{one: other, other: one}.get(place, place) for place in range(len(cells))]
            yield {model: [row[place] for place in order] for model, row in rows.items()}


@pytest.mark.claim("table 1", "table 2", "table 3", "table 4", "table 5", "table 6", "table 7", "appendix C")
@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_as_printed(version, name):
    check(name, TABLES[name], version=version)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_with_an_error_is_refused(version, name):
    suffix = "-v1" if version[0] == FIRST else ""
    tables = []
    for rows in check(name, TABLES[name], version=version):
        models = {model for model, _ in rows.shown}
        tables.append({f"{model}{suffix}": row for model, row in rows.rows.items() if model in models})
    check(name, tables, version=version)
    for place, table in enumerate(tables):
        for changed in with_an_error(table):
            with pytest.raises(AssertionError):
                check(name, [*tables[:place], changed, *tables[place + 1 :]], version=version)


def test_steps_are_printed_in_the_version_of_iclr(version):
    name, text = version
    text = text.replace(" ", "")
    for cell in (*printed.PONDER, printed.LAMBADA_STEPS):
        assert (cell.replace(" ", "") in text) == (name == ICLR)


US_TABLES = {
    "ut": (
        "0.23 ( 0/20 ) 0.47 ( 0/20 ) 5.31 ( 5/20 ) 8.50 ( 8/20 )",
        "0.993 0.971 0.969 0.940 0.921 0.892 0.992",
    ),
    "ut-halting": (
        "0.21 ( 0/20 ) 0.29 ( 0/20 ) 4.55 ( 3/20 ) 7.78 ( 5/20 )",
        "0.994 0.969 0.967 0.944 0.932 0.907 0.992",
    ),
}
"""The rows of tables 1 and 2 of US 10,740,433 that are of the Universal Transformer, as text."""


@pytest.mark.claim("US tables")
@pytest.mark.parametrize("model", US_TABLES)
def test_the_tables_of_the_us_patent_have_the_figures_of_the_paper(model):
    errors = " ".join(f"{error:.2f} ( {failed}/20 )" for error, failed in printed.TABLE1[model])
    verbs = " ".join(f"{accuracy:.3f}" for (accuracy,) in printed.TABLE2[model])
    assert (errors, verbs) == US_TABLES[model]


@pytest.mark.parametrize("row", [row for rows in US_TABLES.values() for row in rows])
def test_the_us_patent_prints_these_rows(row):
    assert source("us10740433b2.txt").count(row) == 1


@pytest.mark.claim("US tables")
def test_the_us_patent_prints_earlier_work():
    patent = source("us10740433b2.txt")
    errors = patent.partition("TABLE 1 Previous Best Results")[2].partition("Universal Transformer Results")[0]
    models = ("qrnet", "sparse-dnc", "ga-mage", "memn2n", "transformer")
    earlier = [cell for model in models for cell in printed.TABLE1[model] if cell]
    # the text of the scan mixes rows and columns, so that only the cells that there are can be compared
    found = re.findall(r"[\d.]+ \( \d+/20 \)", errors)
    assert sorted(found) == sorted(f"{error} ( {failed}/20 )" for error, failed in earlier)
    models = ("stack-rnn", "lstm", "attention")
    stack, lstm, attention = ([f"{accuracy:.3f}" for (accuracy,) in printed.TABLE2[model]] for model in models)
    mixed = [cell for pair in zip(lstm, attention, strict=True) for cell in pair]
    assert patent.count(" ".join([*stack, *mixed])) == 1
