"""Synthetic pairs: seeded, in one part each, right by rules of their own, and named as synthetic on every page."""

import re
from itertools import islice

import pytest

from universal_transformer.cli import main
from universal_transformer.errors import UserError
from universal_transformer.tasks import Codec, synthetic
from universal_transformer.tasks.pairs import PairsData
from universal_transformer.tasks.synthetic import CAVEATS, DRUGS, KINDS, MONTHS, NUMBERS, PARTS, synthetic_pairs
from universal_transformer.tasks.task import Saved

TINY = ["--width", "8", "--filter-width", "8", "--num-heads", "1", "--max-steps", "2", "--minutes", "None", "--quiet"]
NOTE = "all training examples are synthetic, and scores say nothing about real texts"


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_follow_from_the_seed_and_no_source_is_in_two_parts(kind):
    found = {part: [*islice(synthetic_pairs(kind, part, seed=0), 200)] for part in PARTS}
    assert found["train"][:50] == [*islice(synthetic_pairs(kind, "train", seed=0), 50)]
    assert found["train"][:50] != [*islice(synthetic_pairs(kind, "train", seed=1), 50)]
    assert len({pair.source for pairs in found.values() for pair in pairs}) == 600


def test_a_record_has_the_fields_of_its_order():
    for source, target in islice(synthetic_pairs("records", "train", seed=0), 300):
        fields = dict(field.split("=") for field in target.split("; "))
        assert list(fields) == ["order", "item", "colour", "number", "name", "town", "date"]
        for key in ("order", "item", "colour", "name", "town"):
            assert fields[key] == "-" or re.search(rf"\b{fields[key]}", source)
        number = int(fields["number"])
        assert re.search(rf"\b({number}|{NUMBERS[number - 1]}) ", source)
        if fields["date"] == "-":
            assert " on " not in source
            continue
        month, day = map(int, fields["date"].split("-"))
        written = (f"on {day} {MONTHS[month - 1]}", f"on {MONTHS[month - 1]} {day}", f"on {day}.{month}.")
        assert any(date in source for date in written)


def test_a_summary_has_the_facts_of_its_report():
    for source, target in islice(synthetic_pairs("summaries", "train", seed=0), 300):
        pattern = r"(\w+) will (\w+ the [\w ]+) for (\d+),000 euros, decided with (\d+) to (\d+) votes\."
        town, work, cost, votes, against = re.fullmatch(pattern, target).groups()
        (decision,) = [one for one in re.split(r"(?<=\.) ", source) if f" to {work}" in one]
        assert town in source
        assert int(votes) > int(against)
        assert sorted(re.findall(r"\d+", decision)) == sorted([votes, against])
        assert f"{cost},000 euros" in source


def treated(source, *, factor=1):
    """What the rule gives to the patient of a record, read from its text alone."""
    age, allergy, visits = re.fullmatch(r"age (\d+), allergy (\w+); (.+)", source).groups()
    drugs = {condition: second if first == allergy else first for condition, (first, second) in DRUGS.items()}
    dose = factor * (1 if int(age) >= 70 else 2)
    given = [visit.split(": ")[1].split(", ") for visit in visits.split("; ")]
    return "; ".join(
        "none"
        if seen == ["no change"]
        else ", ".join(f"stop {drugs[one[:-5]]}" if one.endswith(" gone") else f"{drugs[one]} {dose}" for one in seen)
        for seen in given
    )


@pytest.mark.claim("JP treatments")
def test_the_rule_treats_nine_patients_in_ten_as_they_were_and_the_others_have_double_doses():
    pairs = [*islice(synthetic_pairs("treatments", "train", seed=0), 2000)]
    as_the_rule = [target == treated(source) for source, target in pairs]
    assert sum(as_the_rule) / len(pairs) == pytest.approx(0.9, abs=0.02)
    assert all(
        target == treated(source, factor=2)
        for (source, target), same in zip(pairs, as_the_rule, strict=True)
        if not same
    )


def test_treatments_are_never_scored_without_saying_that_the_model_is_no_medical_device(tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"fever {n}\trest {n}\n" for n in range(40)))
    own = PairsData(train=str(tmp_path / "a.tsv"), tokenizer="word", synthetic="treatments").load()
    made = PairsData(synthetic="treatments", train_pairs=30, test_pairs=4, tokenizer="word").load()
    assert all(CAVEATS["treatments"] in task.notes for task in (own, made))
    assert (NOTE in own.notes, NOTE in made.notes) == (False, True)
    assert "no medical device" in CAVEATS["treatments"]


@pytest.mark.claim("JP treatments")
@pytest.mark.parametrize("kind", KINDS)
def test_every_report_says_that_the_examples_are_synthetic(kind, tmp_path, capsys):
    run, few = tmp_path / "run", ["--train-pairs", "40", "--test-pairs", "2", "--data.tokenizer", "word"]
    given = ["--max-updates", "1", "--validate-every", "1", "--training.select-by", "loss", "--run", str(run)]
    assert main(["train", kind, *TINY, *few, *given]) == 0
    assert main(["evaluate", str(run), "--max-new-tokens", "4"]) == 0
    shown = capsys.readouterr().out
    assert f"{kind} · test · 2 examples" in shown
    assert f"note: {NOTE}" in shown
    assert ("ROUGE-L" if kind == "summaries" else "sequence accuracy") in shown


def test_own_files_take_the_place_of_synthetic_pairs(tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"one {n}\ttwo {n}\n" for n in range(40)))
    task = PairsData(train=str(tmp_path / "a.tsv"), tokenizer="word", synthetic="records").load()
    assert (task.name, len(task.train) + len(task.validation), list(task.test)) == ("records", 40, ["validation"])
    assert NOTE not in task.notes
    with pytest.raises(UserError, match=r"--data\.train is not set"):
        PairsData().load()


def test_a_saved_task_is_the_task_that_was_trained_on(tmp_path):
    data = PairsData(synthetic="records", train_pairs=30, test_pairs=4, tokenizer="character")
    task = data.load()
    task.codec.save(tmp_path)
    again = data.load(Saved(codec=Codec.load(tmp_path), held_out=tmp_path))
    assert [*again.train] == [*task.train]
    assert {name: [*found] for name, found in again.test.items()} == {name: [*one] for name, one in task.test.items()}
    assert NOTE in again.notes


def test_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setitem(KINDS, "records", lambda draw: synthetic.Pair(str(draw.randint(0, 9)), "x"))
    monkeypatch.setattr(synthetic, "TRIES", 100)
    with pytest.raises(UserError, match="no other synthetic pair in 100 draws"):
        list(synthetic_pairs("records", "train", seed=0))
