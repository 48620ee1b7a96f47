import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.tasks.agreement_files import (
    PLURAL,
    SINGULAR,
    Sentence,
    is_singular,
    plural_of,
    read_dependencies,
    read_forms,
    read_prefixes,
    read_sample,
    singular_of,
)
from universal_transformer.errors import UserError

FORMS = [
    ("is", "are"), ("was", "were"), ("has", "have"), ("does", "do"), ("goes", "go"), ("tries", "try"), ("dies", "die"),
    ("plays", "play"), ("uses", "use"), ("passes", "pass"), ("watches", "watch"), ("fixes", "fix"), ("washes", "wash"),
]  # fmt: skip


@pytest.mark.parametrize(("singular", "plural"), FORMS)
def test_the_two_forms_of_a_verb(singular, plural):
    assert singular_of(plural) == singular
    assert plural_of(singular) == plural
    assert is_singular(singular, plural)
    assert not is_singular(plural, singular)


@given(st.text("abdefgklmnprtuvw", min_size=3, max_size=8))
def test_regular_verbs_come_back(stem):
    for plural in (stem, f"{stem}e"):
        assert plural_of(singular_of(plural)) == plural


def test_published_pairs_follow_the_rules(shared_data):
    folder = shared_data / "sva"
    if not (folder / "colorless").is_dir():
        pytest.skip(f"no agreement data in {folder}")
    base = folder / "colorless/linzen_testset/subj_agr_filtered"
    sentences = list(read_forms(base.with_suffix(".text"), base.with_suffix(".gold")))
    assert len(sentences) == 7489
    ruled = 0
    for sentence in sentences:
        forms = sentence.right, sentence.wrong
        singular, plural = forms if is_singular(*forms) else forms[::-1]
        ruled += (plural_of(singular), singular_of(plural)) == (plural, singular)
    assert ruled / len(sentences) > 0.998  # a few of the published forms are no verbs


def test_beginnings(tmp_path):
    path = tmp_path / "numpred.test.1"
    path.write_text("VBP\tthe keys to the NN\nVBZ\tit\n")
    assert list(read_prefixes(path, attractors=1)) == [
        Sentence(("the", "keys", "to", "the", "NN", PLURAL), 5, PLURAL, SINGULAR, 1, whole=False),
        Sentence(("it", SINGULAR), 1, SINGULAR, PLURAL, 1, whole=False),
    ]


def test_the_sample_with_a_verb_and_with_a_tag_for_one(tmp_path):
    path = tmp_path / "wiki-dev.txt"
    path.write_text(
        "sentence\tsubj_idx\tverb_idx\tverb_pos\tverb\tinflected_verb\n"
        "the keys are here .\t1\t2\tVBP\tare\tis\n"
        "the NN VBZ .\t1\t2\tVBZ\tfrobs\tfrob\n"
    )
    first, second = read_sample(path)
    assert first == Sentence(("the", "keys", "are", "here", "."), 2, "are", "is")
    assert (second.right, second.wrong) == (SINGULAR, PLURAL)
    assert first.as_tag() == Sentence(("the", "keys", PLURAL), 2, PLURAL, SINGULAR, whole=False)


def test_sentences_with_both_forms(tmp_path):
    text, gold = tmp_path / "a.text", tmp_path / "a.gold"
    text.write_text("the keys to the door are here . <eos>\nit is . <eos>\n")
    gold.write_text("5\tAre\tIs\t1\n1\tis\tare\t0\n")
    first, second = read_forms(text, gold)
    assert first.words[first.verb] == first.right == "are"
    assert (first.wrong, first.group, second.group) == ("is", "1 attractor", "0 attractors")
    assert "<eos>" not in first.words
    for index, attractors in ("5", "1" * 5000), ("1" * 5000, "1"):
        gold.write_text(f"{index}\tare\tis\t{attractors}\n")
        with pytest.raises(UserError, match=r"a\.gold:1: .*at most 9 digits|index is .*of the 8 words"):
            list(read_forms(text, gold))
    gold.write_text("5\tare\tis\t1\n")
    with pytest.raises(UserError, match=r"a\.gold: not as many lines as .*a\.text"):
        list(read_forms(text, gold))


HEAD = "sentence\torig_sentence\tverb_pos\tverb_index\tn_intervening\tn_diff_intervening\n"


def test_the_official_file(tmp_path):
    path = tmp_path / "agr.tsv"
    path.write_text(
        HEAD
        + "the keys to the NN are here .\tthe keys to the cabinet are here .\tVBP\t6\t1\t1\n"
        + "a NN passes\ta bus passes\tVBZ\t3\t0\t0\n"
        + '"the ""NN"" of keys VBZ"\tx\tVBZ\t5\t2\t1\n'
    )
    first, second, third = read_dependencies(path)
    assert first.words[first.verb] == first.right == "are"
    assert (first.wrong, first.group) == ("is", "1 attractor")
    assert (second.right, second.wrong, second.group) == ("passes", "pass", "0 attractors")
    assert third.words[1] == '"NN"'
    assert (third.right, third.wrong, third.group) == (SINGULAR, PLURAL, "mixed")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a b\tx\tVBZ\t3\t0\t0", r"agr\.tsv:2: the verb's index is 2; expected one of the 2 words"),
        ("a b\tx\tVBZ\tno\t0\t0", r"agr\.tsv:2: verb_index no; expected a number"),
        ("a b\tx\tVBD\t1\t0\t0", r"agr\.tsv:2: verb_pos VBD; expected VBZ or VBP"),
        ("a b\tx\tVBZ\t1\t0\t?", r"agr\.tsv:2: .*expected numbers"),
        pytest.param(f"a b\tx\tVBZ\t{'1' * 5000}\t0\t0", r":2: verb_index .*at most 9 digits", id="index"),
        pytest.param(f"a b\tx\tVBZ\t1\t0\t{'1' * 5000}", r":2: .*at most 9 digits", id="attractors"),
        ("a b\tVBZ", r"agr\.tsv:2: 2 columns; expected 6"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "agr.tsv"
    path.write_text(HEAD + line + "\n")
    with pytest.raises(
        UserError,
        match=message.replace("is 2;", "is .*2.*;").replace("no;", ".*no.*;").replace("VBD;", ".*VBD.*;"),
    ):
        list(read_dependencies(path))


def test_files_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("sentence only\n")
    with pytest.raises(UserError, match=r"x\.txt:1: found .*expected VBZ or VBP, a tab"):
        list(read_prefixes(path))
    with pytest.raises(UserError, match=r"x\.txt:1: no column sentence, verb_pos"):
        list(read_dependencies(path))
