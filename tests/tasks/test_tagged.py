"""CoNLL columns to sentences, tags to classes, and what is wrong with a file in one line."""

import pytest

from small_task_models import model_for
from universal_transformer.cli import main
from universal_transformer.data.columns import Columns
from universal_transformer.data.tokenizer import UNKNOWN
from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics import metric_of
from universal_transformer.evaluation.prediction import predict, with_words
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.tasks import Codec
from universal_transformer.tasks.tagged import TaggedData
from universal_transformer.tasks.tagged import read_conll as read_columns

SENTENCES = [
    [("the", "D"), ("cat", "N"), ("sat", "V")],
    [("the", "D"), ("dog", "N"), ("saw", "V"), ("the", "D"), ("cat", "N")],
    [("stop", "V")],
] * 4


def read_conll(path, columns=""):
    return read_columns(path, Columns("tokens", "tags", chosen=columns))


def write(path, sentences=SENTENCES, *, line="{}\t{}\n", between="\n"):
    path.write_text(between.join("".join(line.format(*pair) for pair in one) for one in sentences))
    return str(path)


def test_each_token_has_the_class_of_its_tag(tmp_path):
    path = write(tmp_path / "a.conll")
    task = TaggedData(train=path, validation=path, test=path).load()
    assert task.codec.target.tags == ("D", "N", "V")
    assert [example.target for example in task.train][:3] == [(1, 2, 3), (1, 2, 3, 1, 2), (3,)]
    assert [task.codec.words(example) for example in task.train][:1] == [["the", "cat", "sat"]]
    assert list(task.test["test"]) == list(task.validation) == list(task.train)
    assert task.codec.render(task.train[0].target) == "D N V"
    assert [task.codec.render(index) for index in (0, 1)] == ["_", "D"]
    config = task.configure(ModelConfig())
    assert (config.architecture, config.vocabulary.num_classes) == ("tagger", 4)
    assert config.vocabulary.size == len(task.codec.source.tokenizer) == 4 + 6
    assert (task.metric, config.generation.max_new_tokens) == ("tags", None)
    assert task.codec.pieces(task.train[2]) == (["stop"], ["V"])


@pytest.mark.parametrize(
    "content",
    [
        "the D\ncat N\n\nstop V\n",
        "the\tD\r\ncat\tN\r\n\r\n\r\nstop\tV",
        "-DOCSTART- O\n\nthe  D\ncat   N\n  \nstop V\n\n\n",
        "# sent_id = 1\n# text = the cat\nthe\tD\ncat\tN\n\n# text = stop\nstop\tV\n",
        "the DT x D\ncat NN y N\n\nstop VB z V\n",
    ],
    ids=["blanks", "tabs", "documents", "comments", "more columns"],
)
def test_forms_of_one_file(tmp_path, content):
    (tmp_path / "a").write_text(content, newline="")
    rows = read_conll(tmp_path / "a").rows
    assert [(row.first, row.second) for row in rows] == [("the cat", "D N"), ("stop", "V")]


def test_columns_are_chosen_and_blanks_inside_of_a_token_are_kept_as_one_token(tmp_path):
    (tmp_path / "a").write_text("1\t10 000\t_\tNUM\tCD\n2\t#\t_\tSYM\tX\n")
    (row,) = read_conll(tmp_path / "a", "tokens=2,tags=4").rows
    assert (row.first, row.second) == ("10_000 #", "NUM SYM")


def test_comments_ranges_and_empty_nodes_of_conll_u_are_no_tokens(tmp_path):
    rest = "\t".join("_" * 6)
    lines = [
        "# newdoc",
        "# newpar",
        "#text",
        f"1-2\tdel\t_\t_\t{rest}",
        f"1\tde\t_\tADP\t{rest}",
        f"2\tel\t_\tDET\t{rest}",
    ]
    lines += [f"2.1\tx\t_\tX\t{rest}", f"3\tdog\t_\tNOUN\t{rest}"]
    (tmp_path / "a").write_text("\n".join(lines))
    (row,) = read_conll(tmp_path / "a", "tokens=2,tags=4").rows
    assert (row.line, row.first, row.second) == (5, "de el dog", "ADP DET NOUN")
    (tmp_path / "few").write_text("1-2\tdel\t_\n1\tde\tADP\n2\tel\tDET\n")
    (row,) = read_conll(tmp_path / "few", "tokens=2,tags=3").rows
    assert row.first == "de el"
    (tmp_path / "times").write_text("0.1\tde\tADP\n0.2\tdog\tNOUN\n")
    (row,) = read_conll(tmp_path / "times", "tokens=2,tags=3").rows
    assert row.first == "de dog", "numbers of another format are no ids"


CONLL_U = (
    "# newpar\n# text = the cat\n{}\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n{}\tcat\tcat\tNOUN\tNN\t_\t0\troot\t_\t_\n"
)


@pytest.mark.parametrize("numbers", [("1", "2"), ("1-2", "1"), ("1", "1.1")])
def test_the_numbers_of_conll_u_are_not_taken_for_tokens(tmp_path, numbers):
    (tmp_path / "a.conllu").write_text(CONLL_U.format(*numbers))
    for columns in ("", "tokens=1,tags=4"):  # with tags in column 4, the comment has too few columns
        with pytest.raises(UserError, match=r"a\.conllu: .* CoNLL-U.*--data\.columns tokens=2,tags=4$"):
            read_conll(tmp_path / "a.conllu", columns)
    (row,) = read_conll(tmp_path / "a.conllu", "tokens=2,tags=4").rows
    assert "cat" in row.first or numbers[1] == "1.1"


def test_ten_columns_may_begin_with_tokens(tmp_path):
    (tmp_path / "a").write_text(CONLL_U.format("the", "2"))
    assert read_conll(tmp_path / "a").rows[-1].first.endswith("the 2")


def test_words_that_occur_once_are_unknown_and_long_sentences_are_left_out(tmp_path):
    path = write(tmp_path / "a.conll", [*SENTENCES, [("rare", "N"), ("the", "D")]])
    task = TaggedData(train=path, validation=path, max_length=3).load()
    assert task.train[-1].source[0] == UNKNOWN
    assert len(task.train) == 9
    assert any("4 of 13 examples left out: longer than --data.max-length 3" in note for note in task.notes)
    (example,) = task.codec.read([(1, "the  zebra\tsat")], name="lines")
    assert (example.source[1], len(example.source), example.target) == (UNKNOWN, 3, ())
    assert [one.unknown for one in task.codec.read([(1, "the zebra")], name="text")] == [("zebra",)]
    with pytest.raises(UserError, match="lines:2: a sentence of 4 tokens; this run takes at most 3"):
        list(task.codec.read([(2, "the cat sat on")], name="lines"))


def test_sentences_are_held_out_whole_and_saved_with_the_codec(tmp_path):
    path = write(tmp_path / "a.conll", [[(f"w{n % 9}", "A"), (f"v{n % 7}", "B")] for n in range(40)])
    task = TaggedData(train=path).load()
    texts = [{tuple(example.source) for example in part} for part in (task.train, task.validation)]
    assert len(task.train) + len(task.validation) == 40
    assert not texts[0] & texts[1]
    assert all(set(row) == {"tokens", "tags"} for row in task.held_out["validation"])
    task.codec.save(tmp_path)
    again = Codec.load(tmp_path)
    assert (again.target.tags, again.source.max_length) == (task.codec.target.tags, task.codec.source.max_length)
    assert again.source.tokenizer.encode("w1 v1") == task.codec.source.tokenizer.encode("w1 v1")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("the\tD\ncat\n", {}, "a:2: found 1 column in 'cat'; expected at least 2, a token and its tag"),
        ("the D\n N\n", {}, "a:2: found 1 column in ' N'; expected at least 2, a token and its tag"),
        ("the\tD\n\tN\n", {}, r"a:2: a tag without a token in '\\tN'; expected both in every line"),
        ("the\tD\ncat\t\n", {}, r"a:2: a token without a tag in 'cat\\t'; expected both in every line"),
        ("the D\n", {"columns": "tokens=1,tags=4"}, "a:1: found 2 columns in 'the D'; expected at least 4"),
        ("\n\n", {}, "a:2: no sentence; expected one token a line, with its tag"),
        ("the D\ncat D\n\nthe D\n", {}, "a:4: up to this last row one tag only, 'D'; expected at least two"),
    ],
)
def test_what_is_no_tagged_sentence_is_named(tmp_path, content, options, message):
    (tmp_path / "a").write_text(content)
    with pytest.raises(UserError, match=message):
        TaggedData(train=str(tmp_path / "a"), **options).load()


def test_a_tag_that_training_does_not_have_is_named(tmp_path):
    path = write(tmp_path / "a.conll")
    other = write(tmp_path / "b.conll", [*SENTENCES[:1], [("the", "D"), ("x", "Q")]])
    with pytest.raises(
        UserError, match=r"b\.conll:5: unknown tag 'Q' in the sentence from this line on; those .* leave its example"
    ):
        TaggedData(train=path, validation=other).load()
    with pytest.raises(UserError, match=r"--data\.columns 'tokens=1,tags=1': one column for tokens and tags"):
        TaggedData(train=path, columns="tokens=1,tags=1").load()


@pytest.mark.parametrize("kind", ["character", "bpe"])
def test_parts_of_words_have_the_tag_of_their_word_at_its_beginning(tmp_path, kind):
    path = write(tmp_path / "a.conll")
    task = TaggedData(train=path, validation=path, tokenizer=kind, vocabulary_size=262 if kind == "bpe" else 50).load()
    source, example = task.codec.source, task.train[0]
    places = source.word_places(example.source)
    assert [task.codec.render(example.target[place]) for place in places] == ["D", "N", "V"]
    assert sum(map(bool, example.target)) == 3 < len(example.source)
    task.codec.save(tmp_path)
    codec = Codec.load(tmp_path)
    assert codec == task.codec
    (found,) = codec.read([(1, "the  catalogue sat")], name="x")
    assert len(codec.source.word_places(found.source)) == 3
    assert found.unknown == (() if kind == "bpe" else ("l", "u"))
    (answer,) = predict(model_for(task), codec, [found])
    assert len(answer.text.split()) == len(answer.output) == 3
    words = with_words(answer, codec=codec, line="the catalogue sat", example=found).words
    assert [word.text for word in words] == ["the", "catalogue", "sat"]
    assert metric_of(task).sums(example, example.target).sums["positions"] == 3


def test_the_data_are_shown_before_training_and_lines_are_tagged_after_it(tmp_path, capsys):
    path, run = write(tmp_path / "a.conll"), tmp_path / "run"
    tiny = ["--width", "8", "--filter-width", "8", "--num-heads", "1", "--max-steps", "2"]
    tiny += ["--data.validation", path]
    assert main(["train", "tagged", "--data.train", path, *tiny, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "3 tags" in shown
    assert "→ D|N|V" in shown or "→ V" in shown
    given = ["--minutes", "None", "--max-updates", "2", "--validate-every", "1", "--quiet", "--run", str(run)]
    assert main(["train", "tagged", "--data.train", path, *tiny, *given]) == 0
    (tmp_path / "lines").write_text("the cat\n\nstop zebra now\n")
    assert main(["predict", str(run), str(tmp_path / "lines")]) == 0
    found = capsys.readouterr()
    assert "is not better than the baseline (the most frequent tag of each token) error" in found.out
    assert [len(line.split()) for line in found.out.splitlines()[-3:]] == [2, 0, 3]
    assert "unknown words, 2 different in 1 of 3 lines: 'zebra', 'now'" in found.err
    assert "empty answers to empty lines: 1, first output line 2" in found.err
    tagged = found.out.splitlines()[-3].split()
    for name, content in (("a.tsv", "the\tx\ncat\tx\n\n\nstop\tx\n"), ("b.conll", "the\ncat\n\nstop\n")):
        (tmp_path / name).write_text(content)
        assert main(["predict", str(run), str(tmp_path / name), "--format", "conll"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[:3] == [f"the\t{tagged[0]}", f"cat\t{tagged[1]}", ""]
        assert (lines[3][:5], lines[4]) == ("stop\t", "")
    (tmp_path / "a.jsonl").write_text('{"tokens": ["the", "cat"], "tags": ["D", "N"]}\n')
    assert main(["evaluate", str(run), "--data.test", str(tmp_path / "a.jsonl")]) == 0
    assert main(["predict", str(run), str(tmp_path / "a.jsonl"), "--format", "tsv"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"the cat\t{' '.join(tagged)}"
