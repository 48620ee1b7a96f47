"""Trees in brackets: what is read, left out and refused; generated sentences; parsing as a task."""

from itertools import islice

import pytest

from universal_transformer.cli import main
from universal_transformer.data.tokenizer import END, UNKNOWN
from universal_transformer.data.trees import MOST_DEPTH, Tree, answer_tree, flat, joined, read_tree, read_treebank_tree
from universal_transformer.errors import UserError
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.tasks import Codec, grammar
from universal_transformer.tasks.grammar import MOST_CONSTITUENTS, PARTS, RULES, WORDS, sentences
from universal_transformer.tasks.parsing import ParsingData
from universal_transformer.tasks.task import Saved
from universal_transformer.training.data_lines import data_lines

DOG = "(S (NP (DT the) (NN dog)) (VP (VBD barked)))"
BARKED = "(S (NP XX XX) (VP XX))"
TREES = [DOG, "(S (NP (DT the) (NN cat)) (VP (VBD barked)))", "(S (NP (DT the) (NN dog)) (VP (VBD slept)))"]
FEW = {"train_sentences": 200, "test_sentences": 6, "lengths": (3, 9), "longer": (10, 12)}
TINY = ["--width", "8", "--filter-width", "8", "--num-heads", "1", "--max-steps", "2", "--minutes", "None", "--quiet"]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        (DOG, "(S (NP the dog) (VP barked))"),
        (f"( {DOG} )", "(S (NP the dog) (VP barked))"),
        (f"(TOP {DOG})", "(S (NP the dog) (VP barked))"),
        ("(ROOT (NP-SBJ-1 (DT the)) (VP=2 (X y)))", "(TOP (NP the) (VP y))"),
        ("( (UH yes) )", "(TOP yes)"),
        ("(S(NP-SBJ(-NONE- *T*-1))(VP(VBD slept)(. .)))", "(S (VP slept .))"),
        ("(S (-LRB- -LRB-) (NP-X- (NN a)))", "(S -LRB- (NP a))"),
    ],
    ids=["plain", "no outer label", "TOP", "TOP of several", "one word", "empty elements", "dashes"],
)
def test_a_treebank_is_read_without_tags_functions_and_empty_elements(text, tree):
    assert str(read_treebank_tree(text)) == tree


def test_the_tokens_of_an_answer_are_read_as_its_tree_again():
    tree = read_treebank_tree(DOG)
    assert [*tree.tokens()] == ["(S", "(NP", "XX", "XX", ")NP", "(VP", "XX", ")VP", ")S"]
    assert joined([*tree.tokens()]) == BARKED
    assert answer_tree(BARKED, words=[*tree.words()]) == tree == read_tree(str(tree))
    crossed = joined(["(S", "(NP", "XX", "XX", ")VP", "(VP", "XX", ")S", ")NP"])
    assert crossed == "(S (NP XX XX )VP (VP XX )S )NP"
    assert answer_tree(crossed, words=[*tree.words()]) is None
    assert answer_tree(flat(BARKED, words=3), words=["a", "b", "c"]) == Tree("S", ("a", "b", "c"))


@pytest.mark.parametrize(
    "text",
    [
        *("", "XX", BARKED[:-1], f"{BARKED})", f"{BARKED} XX", "(S XX XX)", "(S XX XX XX XX)", "(S XX dog XX)"),
        *("(XX XX XX)", "(S (NP) XX XX XX)", "(S ((NP XX)) XX XX)", "((S XX XX XX))", "(S XX XX XX))", "<unknown>"),
        "(S " * (MOST_DEPTH + 1) + "XX XX XX" + ")" * (MOST_DEPTH + 1),
    ],
)
def test_an_answer_that_is_no_tree_of_the_sentence_is_not_valid(text):
    assert answer_tree(text, words=["the", "dog", "barked"]) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("(S (NP (DT the) (NN dog))", "1 brackets are not closed"),
        (f"{DOG})", "'\\)' after the end of the tree; expected one tree a line"),
        (f"{DOG} {DOG}", "'\\(' after the end of the tree"),
        ("the dog", "'the' before the first bracket"),
        ("(S ())", "has nothing inside"),
        ("(S (NP ((DT a))))", "a bracket without a label"),
        ("(S (NP the dog))", "the word 'the' without a part of speech; expected \\(TAG the\\)"),
        ("(S (-NONE- *))", "empty elements only"),
        ("(A " * 101 + "b" + ")" * 101, "more than 100 brackets inside of each other"),
    ],
)
def test_a_line_that_is_no_tree_is_named(tmp_path, line, message):
    (tmp_path / "a.txt").write_text(f"{DOG}\n\n{line}\n")
    with pytest.raises(UserError, match=rf"a\.txt:3: .*{message}"):
        ParsingData(train=str(tmp_path / "a.txt")).load()


def depth(tree):
    return 1 + max((depth(part) for part in tree.parts if isinstance(part, Tree)), default=0)


def derives(label, tree):
    """Whether a rule of the grammar gives the parts of a tree."""
    rights = [right for _, right in RULES[label]]
    return any(len(right) == len(tree.parts) and all(map(is_a, right, tree.parts)) for right in rights)


def is_a(name, part):
    if isinstance(part, str):
        return name not in RULES and part in WORDS[name]
    return part.label == name and derives(name, part)


def test_generated_sentences_are_of_the_grammar_and_no_tree_is_in_two_parts():
    parts = {part: [*islice(sentences(part, lengths=(3, 20), seed=1), 100)] for part in PARTS}
    shapes = {part: {one.tree for one in found} for part, found in parts.items()}
    assert not shapes["train"] & (shapes["validation"] | shapes["test"] | shapes["longer"])
    assert not shapes["validation"] & (shapes["test"] | shapes["longer"])
    every = [one for found in parts.values() for one in found]
    assert all(len({one.words for one in found}) == 100 for found in parts.values())
    for words, tokens in every:
        tree = answer_tree(joined(tokens), words=words)
        assert 3 <= len(words) <= 20
        assert depth(tree) <= MOST_CONSTITUENTS
        assert derives("TOP", Tree("TOP", (Tree(tree.label, tree.parts[:-1]), tree.parts[-1])))
    assert {name for rules in RULES.values() for _, right in rules for name in right} | {"TOP"} == {*RULES, *WORDS}


def test_the_same_seed_gives_the_same_sentences_whatever_the_number(monkeypatch):
    few, more = ParsingData(**FEW).load(), ParsingData(**{**FEW, "train_sentences": 210}).load()
    trees = [[one.codec.render(example.target) for example in one.train][:200] for one in (few, more)]
    assert trees[0] == trees[1]
    other = ParsingData(**FEW, seed=1).load()
    assert [other.codec.render(example.target) for example in other.train] != trees[0]
    monkeypatch.setattr(grammar, "TRIES", 100)
    with pytest.raises(UserError, match="no other sentence of 1 to 2 words in 100 draws"):
        next(sentences("train", lengths=(1, 2), seed=0))


def test_the_task_and_what_is_loaded_again_are_the_same(tmp_path):
    data = ParsingData(**FEW)
    task = data.load()
    assert {name: len(found) for name, found in task.test.items()} == {"test": 6, "longer": 6}
    assert all(10 <= len(example.source) <= 12 for example in task.test["longer"])
    assert any("generated from a grammar" in note for note in task.notes)
    task.codec.save(tmp_path)
    again = data.load(Saved(codec=Codec.load(tmp_path), held_out=tmp_path))
    assert {name: [*found] for name, found in again.test.items()} == {name: [*one] for name, one in task.test.items()}
    assert [*again.train] == [*task.train]
    example = task.train[0]
    assert example.target[-1] == END
    tree = answer_tree(task.codec.render(example.target), words=task.codec.words(example))
    assert [*tree.words()] == task.codec.words(example)
    config = task.configure(ModelConfig())
    assert config.vocabulary.target_size == 4 + 1 + 2 * len(task.codec.target.labels)
    assert task.codec.render([3, 4, 0]) == "<unknown> XX <unknown>"


def test_a_treebank_is_held_out_and_encoded_with_words_that_occur_twice(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(TREES * 2 + ["(S (NP (NN rain)) (VP (VBD slept)))"]))
    task = ParsingData(train=str(tmp_path / "a.txt"), validation=str(tmp_path / "a.txt")).load()
    assert task.codec.target.labels == ("NP", "S", "VP")
    assert task.train[-1].source[0] == UNKNOWN
    assert [task.codec.render(example.target) for example in task.train][:1] == [BARKED]
    assert list(task.test) == ["validation"]
    held = ParsingData(train=str(tmp_path / "a.txt"), validation_fraction=0.3).load()
    assert {tuple(row) for row in held.held_out["validation"]} == {("sentence", "tree")}
    (tmp_path / "b.txt").write_text("(SQ (NP (NN rain)))")
    with pytest.raises(
        UserError, match=r"b\.txt:1: unknown label 'SQ'; those of the training file are 'NP', 'S', 'VP'"
    ):
        ParsingData(train=str(tmp_path / "a.txt"), test=str(tmp_path / "b.txt")).load()
    with pytest.raises(UserError, match=r"every other tree is longer than --data\.max-length 4"):
        ParsingData(train=str(tmp_path / "a.txt"), max_length=4).load()
    (tmp_path / "c.txt").write_text("\n")
    with pytest.raises(UserError, match=r"c\.txt:1: no tree; expected one in brackets a line"):
        ParsingData(train=str(tmp_path / "c.txt")).load()
    with pytest.raises(UserError, match=r"data\.lengths=9 3"):
        ParsingData(lengths=(9, 3))


def test_answers_have_the_words_of_the_line():
    codec = ParsingData(**FEW).load().codec
    assert codec.target.completed(BARKED, "the  Zebra\tbarked") == "(S (NP the Zebra) (VP barked))"
    assert codec.target.completed(BARKED[:-1], "the dog barked") == BARKED[:-1]


def test_brackets_in_a_line_are_words_as_in_a_treebank():
    codec = ParsingData(**FEW).load().codec
    assert codec.target.completed(BARKED, "the )3 (b)") == "(S (NP the -RRB-3) (VP -LRB-b-RRB-))"
    plain, tree = codec.read([(1, "the ( dog"), (2, f" {BARKED} ")], name="lines")
    assert plain.unknown == ("-LRB-",)
    assert plain.notes == ()
    assert tree.notes == ("lines:2: brackets, which are read as words; a line is the words alone, without a tree",)


def test_labels_of_trees_that_are_held_out_and_all_marks_are_known(tmp_path):
    rare = [f"(S (NP (DT the) (NN {word})) (X{n} (VBD barked)) (. !))" for n, word in enumerate("abcdefgh")]
    (tmp_path / "a.txt").write_text("\n".join(rare))
    task = ParsingData(train=str(tmp_path / "a.txt"), validation_fraction=0.5).load()
    assert task.codec.target.labels == ("NP", "S", *(f"X{n}" for n in range(8)))
    (example,) = task.codec.read([(1, "the b barked ? !")], name="lines")
    assert example.unknown == ("b",)
    assert task.codec.words(example) == ["the", "<unknown>", "barked", "?", "!"]
    (shown,) = [line for line in data_lines(task, ModelConfig()) if line.startswith("unknown")]
    assert shown.split()[1] == "25.00%", "one of four words, and no bracket"


def test_a_run_is_trained_evaluated_plotted_and_used(tmp_path, capsys):
    run = tmp_path / "run"
    few = ["--data.train-sentences", "200", "--data.test-sentences", "3", "--data.longer", "10", "12"]
    assert (
        main(["train", "parsing", *TINY, *few, "--max-updates", "2", "--validate-every", "1", "--run", str(run)]) == 0
    )
    assert main(["evaluate", str(run), "--max-new-tokens", "5"]) == 0
    shown = capsys.readouterr().out
    assert "bracket F1" in shown
    assert "valid trees" in shown
    assert "one bracket around the sentence" in shown
    assert "note: training sentences and their trees are generated from a grammar" in shown
    (tmp_path / "own.txt").write_text(DOG)
    assert main(["evaluate", str(run), "--max-new-tokens", "5", "--data.test", str(tmp_path / "own.txt")]) == 0
    (tmp_path / "lines").write_text("the dog slept .\n\nzebra\n")
    assert main(["predict", str(run), str(tmp_path / "lines"), "--max-new-tokens", "5"]) == 0
    assert "unknown words, 1 different in 1 of 3 lines: 'zebra'" in capsys.readouterr().err
