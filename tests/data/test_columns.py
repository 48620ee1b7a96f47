"""Which columns of a file are read: by their order, number or name, of tables, CSV, JSON lines and lines of a form."""

import pytest

from universal_transformer.data.columns import Columns
from universal_transformer.data.text_table import read_table, table_rows
from universal_transformer.errors import UserError
from universal_transformer.files import Line
from universal_transformer.tasks import LabelledData, PairsData, TextData
from universal_transformer.tasks.own_files import input_lines

ROWS = [("walk", "I_WALK"), ('say "a, b"', "I_SAY"), ("run\tfast", "I_RUN")]
FORMS = {
    "scan.txt": ("IN: {source} OUT: {target}", "", "IN: {0} OUT: {1}\n"),
    "bars.txt": ("|||", "", "{0}|||{1}\n"),
    "more.txt": ("\\t;", "source=3,target=1", "{1}\t;x\t;{0}\n"),
    "plain.jsonl": ("", "", '{{"source": {0!j}, "target": {1!j}}}\n'),
    "keys.jsonl": ("", "source=q,target=a", '{{"q": {0!j}, "a": {1!j}}}\n'),
    "plain.csv": ("", "", '"{0!q}","{1!q}"\n'),
    "named.csv": ("", "source=in,target=out", '{1!q},"{0!q}",x\n'),
    "semicolons.csv": (";", "source=2,target=3", 'x;"{0!q}";{1!q}\n'),
    "form.csv": ("<{source}> {target}", "", "<{0}> {1}\n"),
}
HEADERS = {"named.csv": "out,in,more\n", "plain.csv": "source,target\n"}


def line_of(form, row):
    import json

    for place, value in enumerate(row):
        form = form.replace(f"{{{place}!j}}", json.dumps(value)).replace(f"{{{place}!q}}", value.replace('"', '""'))
        form = form.replace(f"{{{place}}}", value)
    return form.replace("{{", "{").replace("}}", "}")


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_rows_and_inputs(tmp_path, name):
    separator, chosen, form = FORMS[name]
    columns = Columns("source", "target", separator=separator, chosen=chosen)
    text = HEADERS.get(name, "") + "".join(line_of(form, row) for row in ROWS)
    (tmp_path / name).write_text(text)
    assert [(row.first, row.second) for row in read_table(tmp_path / name, columns).rows] == ROWS
    lines = [Line(number, line) for number, line in enumerate(text.splitlines(), start=1)]
    assert [line.text for line in input_lines(lines, columns, name=name)] == [source for source, _ in ROWS]


def test_columns_of_tabs_are_chosen_by_number_or_name(tmp_path):
    (tmp_path / "a.tsv").write_text("gold\tone\ttwo\tkind\nyes\ta b\tc\tx\nno\td\te\ty\n")
    pairs = Columns("source", "target", chosen="source=two,target=gold", group="kind")
    assert [row[1:] for row in read_table(tmp_path / "a.tsv", pairs).rows] == [("c", "yes", "x"), ("e", "no", "y")]
    texts = Columns("text", "label", two_texts=True, chosen="label=1,text=2,text=3")
    assert [row[1:3] for row in read_table(tmp_path / "a.tsv", texts).rows][1:] == [
        ("a b\x1fc", "yes"),
        ("d\x1fe", "no"),
    ]


def test_a_quoted_text_of_several_lines_is_one_row(tmp_path):
    (tmp_path / "a.csv").write_text('a,"one\ntwo"\n\n"b\nc",d\ne,f\n')
    rows = read_table(tmp_path / "a.csv", Columns("source", "target")).rows
    assert [tuple(row[:3]) for row in rows] == [(1, "a", "one two"), (4, "b c", "d"), (6, "e", "f")]


def test_a_tab_within_one_of_two_texts_becomes_a_blank(tmp_path):
    (tmp_path / "a.csv").write_text('"a\tb",c,yes\n')
    texts = Columns("text", "label", two_texts=True, chosen="text=1,text=2,label=3")
    (row,) = read_table(tmp_path / "a.csv", texts).rows
    assert row.texts() == ("a b\tc", "yes")


def test_rows_to_predict_may_lack_what_is_answered():
    pairs = Columns("source", "target")
    given = [Line(1, "a"), Line(2, "b\tB"), Line(3, ""), Line(4, "c\td\te")]
    assert [line.text for line in input_lines(given, pairs, name="x")] == ["a", "b", "", "c\td\te"]
    form = Columns("source", "target", separator="IN: {source} OUT: {target}")
    given = [Line(1, "IN: a OUT: b"), Line(2, "a b")]
    assert [line.text for line in input_lines(given, form, name="x")] == ["a", "a b"]
    texts = Columns("text", "label", two_texts=True, chosen="label=1,text=2,text=3")
    (found,) = input_lines([Line(1, "yes\ta b\tc")], texts, name="x.tsv")
    assert found == Line(1, "a b\tc")
    lines = [Line(1, '{"q": "a b", "more": 1}'), Line(2, '{"more": 1}')]
    first, second = input_lines(lines, Columns("source", "target", chosen="source=q,target=a"), name="x.jsonl")
    assert first.text == "a b"
    assert isinstance(second.fault, UserError)


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.tsv", "a\tb\tc\n", {}, r"a\.tsv:1: found 3 columns .*; --data\.columns source=1,target=2 chooses columns"),
        (
            "a.tsv",
            "IN: a OUT: b\n",
            {},
            r"--data\.separator names another separator, such as ';', or a line such as 'SOURCE",
        ),
        ("a.tsv", "a\tb\n", {"columns": "source=1,target=3"}, r"a\.tsv:1: found \['a', 'b'\]; no column 3"),
        (
            "a.tsv",
            "a\tb\n",
            {"columns": "source=0,target=1"},
            r"a\.tsv:1: found \['a', 'b'\]; no column 0; --data\.columns chooses others$",
        ),
        (
            "a.csv",
            "x,y\na,b\n",
            {"columns": "source=x,target=3"},
            r"the first line names the columns \['x', 'y'\]; no column 3;",
        ),
        ("a.csv", "x,y\na,b\n", {"columns": "source=1,target=2", "group": "3"}, r"no column 3; --data\.group chooses"),
        (
            "a.jsonl",
            '{"source": "a", "target": "b"}\n',
            {"group": "level"},
            r"\.jsonl:1: .*; --data\.group chooses other",
        ),
        ("a.tsv", "x\ty\na\tb\n", {"columns": "source=x,target=z"}, r"a\.tsv:1: no column 'z' in \['x', 'y'\]"),
        ("a.tsv", "a\tb\n", {"columns": "source=1"}, r"--data\.columns 'source=1': expected all of source, target"),
        (
            "a.tsv",
            "a\tb\n",
            {"columns": "text=1,target=2"},
            r"--data\.columns: 'text=1': expected .* source=1,target=2",
        ),
        ("a.tsv", "a\tb\n", {"separator": "{source}"}, r"--data\.separator '\{source\}': no column target"),
        ("a.tsv", "a\tb\n", {"separator": "{source}{target}"}, "two columns with nothing between them"),
        (
            "a.txt",
            "a b\n",
            {"separator": "IN: {source} OUT: {target}"},
            r"a\.txt:1: found 'a b'; expected a line of the",
        ),
        ("a.csv", 'a,"b\nc,d\n', {}, r"a\.csv:1: no CSV \(unexpected end of data\)"),
        ("a.csv", "a,b\n", {"separator": "||"}, r"--data\.separator '\|\|': expected one character for .*a\.csv"),
        ("a.csv", "source,target\na,b,c\n", {}, r"a\.csv:2: found 3 columns in .*; expected 2, as in the first line"),
        ("a.jsonl", '{"q": "a"}\n', {}, r"a\.jsonl:1: found the keys .*; --data\.columns chooses other keys"),
        ("a.csv", "question,target\na,b\n", {}, r"a\.csv:2: .*; no column source; --data\.columns chooses others$"),
        ("a.tsv", "id\tSource\n1\ta\n", {}, r"a\.tsv:2: .*; no column target; --data\.columns chooses others$"),
        ("a.json", '{"source": "a"}\n', {}, r"a file of JSON lines ends in \.jsonl, and each line is one object$"),
        ("a.json", '[{"source": "a"}]\n', {}, r"a file of JSON lines ends in \.jsonl, and each line is one object$"),
        ("a.json", '[\n{"source": "a"}\n]\n', {}, r"of JSON lines ends in \.jsonl, and each line is one object$"),
        ("a.tsv", "[sic] a\n", {}, r"--data\.separator names another separator"),
        (
            "a.csv",
            "q,q,target\na,b,c\n",
            {"columns": "source=q,target=target"},
            r"a\.csv:1: 2 columns have the name 'q'",
        ),
        ("a.tsv", "source\tsource\ttarget\na\tb\tc\n", {}, r"a\.tsv:1: 2 columns have the name 'source'; expected one"),
        (
            "a.csv",
            "q;r\na;b\n",
            {"columns": "source=q,target=r"},
            r"a\.csv:1: found \['q;r'\]; no column q; --data\.separator",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_remedy(tmp_path, name, content, options, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        PairsData(train=str(tmp_path / name), tokenizer="character", **options).load()
    assert str(caught.value).isprintable()


def test_quotes_and_labels_that_look_like_texts_are_noted(tmp_path):
    rows = [f'"a text {n}"\t{"yn"[n % 2]}\n' for n in range(40)]
    (tmp_path / "a.tsv").write_text("".join(rows))
    notes = LabelledData(train=str(tmp_path / "a.tsv")).load().notes
    assert any("40 of 40 rows have a text in quotes, which belong to it; with the name .csv" in note for note in notes)
    assert not any("occur once" in note for note in notes)
    (tmp_path / "b.tsv").write_text("".join(f"{'yn'[n % 2]}\tb text {n}\n" for n in range(40)))
    notes = LabelledData(train=str(tmp_path / "b.tsv")).load().notes
    assert any("labels occur once, such as 'b text" in note and "text=2,label=1" in note for note in notes)
    task = LabelledData(train=str(tmp_path / "b.tsv"), columns="text=2,label=1").load()
    assert task.codec.target.labels == ("n", "y")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv"])
def test_a_language_model_reads_one_column(tmp_path, name):
    lines = [f"line {n}" for n in range(40)]
    (tmp_path / "plain.txt").write_text("".join(f"{line}\n" for line in lines))
    form = {"a.jsonl": '{{"text": "{0}", "id": 1}}\n', "a.csv": '1,"{0}"\n', "a.tsv": "1\t{0}\n"}[name]
    (tmp_path / name).write_text("".join(form.format(line) for line in lines))
    columns = "" if name == "a.jsonl" else "text=2"
    found, expected = (
        TextData(train=str(tmp_path / file), columns=chosen).load()
        for file, chosen in ((name, columns), ("plain.txt", ""))
    )
    assert list(found.train) == list(expected.train)
    assert found.held_out == expected.held_out


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.csv", "id,text\n7,red\n8,blue\n", ["red", "blue"]),
        ("a.tsv", "id\ttext\n7\tred\n", ["red"]),
        ("a.csv", "text\nred\n", ["red"]),
        ("a.txt", "text\nred\n", ["text", "red"]),
    ],
)
@pytest.mark.parametrize("chosen", ["", "text=text,label=label"])
def test_a_file_of_inputs_may_name_its_columns_without_the_answer(name, text, found, chosen):
    lines = [Line(number, line) for number, line in enumerate(text.splitlines(), start=1)]
    columns = Columns("text", "label", chosen=chosen)
    if not (chosen and name == "a.txt"):  # there a single name is that of the chosen column
        assert [line.text for line in input_lines(lines, columns, name=name)] == found


def test_the_name_of_the_only_column_of_csv_is_no_row(tmp_path):
    for name, rows in {"a.csv": ["red"], "a.txt": ["text", "red"]}.items():
        (tmp_path / name).write_text("text\nred\n")
        assert [row.first for row in table_rows(tmp_path / name, Columns("text"))] == rows


def test_texts_of_json_have_one_line_and_words_one_blank_between_them(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one\\ntwo", "label": "a\\nb"}\n')
    (row,) = read_table(tmp_path / "a.jsonl", Columns("text", "label")).rows
    assert (row.first, row.second) == ("one two", "a b")
    (tmp_path / "b.jsonl").write_text('{"tokens": " the  dog", "tags": "D\u00a0 N"}\n')
    (row,) = read_table(tmp_path / "b.jsonl", Columns("tokens", "tags", words=True)).rows
    assert (row.first, row.second) == ("the dog", "D N")
