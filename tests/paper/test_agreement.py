import gzip

import pytest

from paper.tasks.agreement import AgreementData, find_shared, pack_texts
from paper.tasks.agreement_files import PLURAL, SINGULAR, Sentence
from universal_transformer.data.tokenizer import END, UNKNOWN
from universal_transformer.errors import UserError

HEAD = "sentence\tsubj_idx\tverb_idx\tverb_pos\tverb\tinflected_verb\n"
NOUNS = ["key", "door", "cat", "dog", "tree", "house", "river", "boat", "child", "song"]


def parts(folder):
    """All files of the data set, small; some training texts are sentences of a test."""
    sva = folder / "sva"
    for name in ("colorless/linzen_testset", "rnn_agr_simple", "edinburgh_wiki"):
        (sva / name).mkdir(parents=True)
    tested = [f"the {noun} of the old {other}s in town is new ." for noun in NOUNS[:4] for other in NOUNS[:4]]
    (sva / "colorless/linzen_testset/subj_agr_filtered.text").write_text("".join(f"{s} <eos>\n" for s in tested))
    (sva / "colorless/linzen_testset/subj_agr_filtered.gold").write_text(
        "".join(f"8\tis\tare\t{n % 2}\n" for n in range(len(tested)))
    )
    for attractors in range(1, 6):
        (sva / f"rnn_agr_simple/numpred.test.{attractors}").write_text("VBP\tthe keys to the door by the NN\n")
    lines = [f"VBZ\tthe {noun}\n" for noun in NOUNS] + [f"VBP\tthe {noun}s\n" for noun in NOUNS]
    lines += ["VBP\tthe keys to the door by the NN\n", "VBZ\tthe key of the old doors in town\n"]
    lines += [f"VBP\t{noun}s to and by\n" for noun in NOUNS]
    (sva / "rnn_agr_simple/numpred.val").write_text("".join(lines))
    rows = [f"a {noun} is old and the {other} is new .\t1\t2\tVBZ\tis\tare\n" for noun in NOUNS for other in NOUNS]
    rows += [f"the {noun}s of town are in\t1\t4\tVBP\tare\tis\n" for noun in NOUNS]
    (sva / "edinburgh_wiki/wiki-dev.txt").write_text(HEAD + "".join(rows))
    (sva / "edinburgh_wiki/wiki-test.txt").write_text(HEAD + f"{tested[0]}\t1\t8\tVBZ\tis\tare\n" + rows[0])
    return folder


def rendered(examples, codec):
    return [codec.render(example.target) for example in examples]


def test_parts(tmp_path):
    task = AgreementData(data_dir=str(parts(tmp_path)), validation=0.1).load()
    assert task.metric == "ranking"
    assert len(task.test["verbs"]) == 16
    assert len(task.test["tags"]) == 8 + 5
    example = task.test["verbs"][0]
    assert task.codec.render(example.target) == "the key of the old keys in town is"
    assert task.codec.render(example.source) == "the key of the old keys in town are"
    assert example.group == "0 attractors"
    assert task.codec.render(task.test["tags"][0].target).endswith("in town VBZ")
    assert [task.test["tags"][-1].group, task.codec.render(task.test["tags"][-1].source)] == [
        "5 attractors",
        f"the keys to the door by the <unknown> {SINGULAR}",  # NN occurs in no text that is trained on
    ]
    assert all(example.source == () for example in task.train)
    assert all(example.source[:-1] == example.target[:-1] for example in task.validation)
    whole = [text for text, e in zip(rendered(task.train, task.codec), task.train, strict=True) if e.target[-1] == END]
    assert all(len(text.split()) in (6, 10) for text in whole)
    assert "a changed split" in task.notes[0]
    assert task.notes[1].startswith("3 of 144 training texts left out")
    # beginnings of one sentence, and sentences that occur twice, are not in training and in validation
    seen = {tuple(example.target) for example in task.train}
    assert len(task.validation) > 0
    assert not seen & {tuple(example.target) for example in task.validation}
    assert (
        AgreementData(data_dir=str(tmp_path)).load().train[:] == AgreementData(data_dir=str(tmp_path)).load().train[:]
    )


def test_a_verb_whose_forms_are_alike_has_no_tag(tmp_path):
    gold = parts(tmp_path) / "sva/colorless/linzen_testset/subj_agr_filtered.gold"
    gold.write_text(gold.read_text().replace("8\tis\tare\t0\n", "8\tis\tis\t0\n", 1))
    task = AgreementData(data_dir=str(tmp_path), validation=0.1).load()
    assert len(task.test["tags"]) == 7 + 5


def test_a_damaged_training_file_is_an_error(tmp_path):
    (parts(tmp_path) / "sva/rnn_agr_simple/numpred.train").write_text("VBZ\tthe key\nno tag\n")
    with pytest.raises(UserError, match=r"numpred\.train:2: found 'no tag'; expected VBZ or VBP"):
        AgreementData(data_dir=str(tmp_path)).load()


def test_no_sentence_of_a_test_is_trained_on(tmp_path):
    task = AgreementData(data_dir=str(parts(tmp_path)), validation=0.1).load()
    trained = {text.rpartition(" ")[0] for text in rendered([*task.train, *task.validation], task.codec)}
    for examples in task.test.values():
        for text in rendered(examples, task.codec):
            assert text.rpartition(" ")[0] not in trained
            assert not any(other.startswith(text) for other in trained)


def sentence(text, verb, *, whole=True):
    return Sentence(tuple(text.split()), verb, "is", "are", whole=whole)


@pytest.mark.parametrize(
    ("training", "test", "shared"),
    [
        (
            sentence("the cat is here", 2),
            sentence("the cat is there", 2),
            True,
        ),  # the same words before the verb
        (sentence("the cat is here", 2), sentence("the cats are here", 2), False),
        (sentence("a b c d e f is g", 6), sentence("a b c d e f is g h i is", 10), True),
        (sentence("a b c d e is g h", 5), sentence("a b c d e is g x", 7), False),
        # the rare word of the test stands as its tag in training
        (sentence("a b c d NN f g VBZ", 7, whole=False), sentence("a b c d zebra f g is h", 7), True),
        (sentence("a b c d NN f g VBZ", 7, whole=False), sentence("a b c d zebra f q is h", 7), False),
        (sentence("a b c d zebra f g is h", 7), sentence("a b c d NN f g VBZ", 7, whole=False), True),
    ],
)
def test_what_counts_as_the_same_sentence(training, test, shared):
    spelled = sentence("a b c d f g h i q", 2)
    assert find_shared([training, spelled], [test]) == ({0} if shared else set())


def test_texts_are_kept_as_they_were():
    texts = pack_texts([([4, 5, 6], 7, "1 attractor"), ([8], 0, "")])
    first, second = texts
    assert (first.source, first.target, first.group) == ((4, 5, 7), (4, 5, 6), "1 attractor")
    assert (second.source, second.target) == ((), (8,))
    assert texts[-1] == second
    assert texts[:1] == [first]
    with pytest.raises(IndexError):
        texts[2]


def test_the_official_file_is_split_by_the_seed(tmp_path):
    (tmp_path / "linzen").mkdir()
    head = "sentence\tverb_pos\tverb_index\tn_intervening\tn_diff_intervening\n"
    nouns = [(one, two) for one in NOUNS for two in NOUNS]
    rows = [f"the {a} of {b} is {n}\tVBZ\t5\t1\t{n % 2}\n" for n in range(4) for a, b in nouns]
    rows += [f"the {a}s are {n}\tVBP\t3\t0\t0\n" for n in range(10) for a in NOUNS]
    rows += ["these are\tVBP\t2\t0\t0\n"] * 20  # repeated sentences must not be in two parts
    content = gzip.compress((head + "".join(rows)).encode())
    (tmp_path / "linzen/agr_50_mostcommon_10K.tsv.gz").write_bytes(content)
    task = AgreementData(corpus="official", data_dir=str(tmp_path)).load()
    assert {example.group for example in task.test["verbs"]} == {"0 attractors", "1 attractor", "mixed"}
    trained = rendered(task.train, task.codec)
    assert 5 * len(trained) < len(task.test["verbs"]) < 520
    assert not any("these are" in text for text in trained)
    other = AgreementData(corpus="official", data_dir=str(tmp_path), seed=1).load()
    assert rendered(other.train, other.codec) != trained


def test_more_text_is_trained_on_beside_the_sentences(tmp_path, monkeypatch):
    monkeypatch.setenv("UT_CACHE", str(tmp_path / "cache"))
    data = str(parts(tmp_path))
    (tmp_path / "novels/corpus").mkdir(parents=True)
    novel = (
        "The zebra (a horse) runs (or not). “The zebra ran!” Yes. "
        + "and so on " * 20
        + ". The zebra sleeps here again."
    )
    (tmp_path / "novels/corpus/Anon_Clara_1864.txt").write_text(novel, encoding="utf-8")
    (tmp_path / "wikitext2_heldout").mkdir()
    lines = ["= Keys =", "The key of the old doors in town is new .", "A well @-@ known <unk> runs here . It runs ."]
    (tmp_path / "wikitext2_heldout/valid.txt").write_text("".join(f" {line} \n" for line in lines))
    alone = AgreementData(data_dir=data).load()
    task = AgreementData(data_dir=data, more_text=True, repeat=3).load()
    vocabulary = task.codec.source.vocabulary
    assert vocabulary.words[: len(alone.codec.source.vocabulary.words)] == alone.codec.source.vocabulary.words
    assert {"zebra", "runs"} <= set(vocabulary.words)
    assert not {"<unk>", "horse"} & set(vocabulary.words)  # not a word, and a word seen once
    assert rendered(task.train, task.codec)[len(alone.train) * 3 :] == [
        "the zebra ( a <unknown> ) runs ( <unknown> <unknown> ) .",
        "<unknown> the zebra <unknown> <unknown> <unknown>",
        "the zebra <unknown> here <unknown> .",
        "a <unknown> <unknown> runs here .",
    ]
    assert all(example.target[-1] == END for example in task.train[len(alone.train) * 3 :])
    assert task.train[: len(alone.train)] == alone.train[:]
    assert task.train[len(alone.train) : 2 * len(alone.train)] == alone.train[:]
    assert any("on 3 sentences of novels and 1 of WikiText-2's" in note and "(1 that" in note for note in task.notes)


def test_the_error_of_missing_files_says_how_to_get_them(tmp_path):
    with pytest.raises(
        UserError, match=r"subj_agr_filtered\.text: no such file in the data folder .*ut data fetch sva"
    ):
        AgreementData(data_dir=str(tmp_path)).load()
    with pytest.raises(UserError, match=r"agr_50_mostcommon_10K\.tsv\.gz: .*ut data fetch linzen"):
        AgreementData(corpus="official", data_dir=str(tmp_path)).load()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_size": 4}, "data.vocabulary_size: expected a whole number, at least 5"),
        ({"validation": 1.0}, "data.validation: expected a number, more than 0 and below 1"),
        ({"seed": -1}, "data.seed: expected a whole number, at least 0"),
    ],
)
def test_fields_that_cannot_work(changes, message):
    with pytest.raises(UserError, match=message):
        AgreementData(**changes)


@pytest.mark.slow
def test_published_counts(shared_data):
    """SOURCE.txt: 7,489 sentences with 0 to 4 attractors, and beginnings with 1 to 5."""
    if not (shared_data / "sva").is_dir():
        pytest.skip(f"no agreement data in {shared_data}")
    task = AgreementData(vocabulary_size=1_000_000).load()
    counts = {"0 attractors": 1970, "1 attractor": 52_599, "2 attractors": 9380, "3 attractors": 2051}
    counts |= {"4 attractors": 561, "5 attractors": 159}
    groups = [example.group for example in task.test["tags"]]
    assert {group: groups.count(group) for group in counts} == counts
    assert len(groups) == sum(counts.values())
    (note,) = [note for note in task.notes if note.startswith("verbs: ") and "left out" in note]
    assert "of 7,489 sentences" in note
    assert len(task.test["verbs"]) > 7000
    assert not any(UNKNOWN in (example.target[-1], example.source[-1]) for example in task.test["verbs"])
    corpus = AgreementData()._parts()
    tests = [sentence for sentences in corpus.test.values() for sentence in sentences]
    before, whole = {s.words[: s.verb] for s in tests}, {s.words for s in tests}
    assert not any(s.words[: s.verb] in before or s.words in whole for s in (*corpus.train, *corpus.validation))
    assert {PLURAL, SINGULAR} == {task.codec.render(example.target[-1:]) for example in task.test["tags"]}
