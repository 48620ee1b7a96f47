"""Scores of texts are those of the lines that the user wrote, whatever the tokenizer knows of them."""

import pytest

from small_task_models import model_for
from universal_transformer.data.tokenizer import UNKNOWN
from universal_transformer.decoding import Generated
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.evaluation.metrics import metric_of, written
from universal_transformer.tasks.pairs import PairsData

sacrebleu = pytest.importorskip("sacrebleu")
PLACES = [
    f"the {size} {{}} is on the {{}} {colour} table today" for size in ("big", "old") for colour in ("red", "tall")
]
KNOWN = [line.format(*words) for line in PLACES for words in (("cat", "dog"), ("dog", "cat"))]
LINES = [PLACES[n % 4].format(f"xylo{n}", f"Quagga{n}") for n in range(40)]


@pytest.fixture(params=["word", "whitespace", "character", "bpe"])
def pairs(request, tmp_path):
    """A task whose references have two words each that are not in the training lines, and those of its test."""
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    train.write_text("".join(f"{line}\t{line}\n" for line in KNOWN * 5))
    test.write_text("".join(f"{line}\t{line}\n" for line in LINES))
    return PairsData(train=str(train), test=str(test), tokenizer=request.param, vocabulary_size=300).load()


def ended(ids):
    """An answer that has ended."""
    zeros = [0.0] * (len(ids) + 1)
    return Generated(tokens=ids, finished=True, token_scores=zeros, token_steps=zeros, source_steps=[])


def test_bleu_and_chrf_are_those_of_sacrebleu_on_the_lines_of_the_file(pairs, monkeypatch):
    """The model writes each reference as far as its tokenizer knows it."""
    examples = pairs.test["test"]

    def perfect(model, source, options, **_):
        rows = {tuple(example.source): example.target[:-1] for example in examples}
        tokens = [list(rows[tuple(row[row != 0].tolist())]) for row in source]
        return list(map(ended, tokens))

    monkeypatch.setattr(written, "generate", perfect)
    model = model_for(pairs)
    report = evaluate(model, pairs, baseline=metric_of(pairs).learn(pairs.train, model.config))
    answers = [pairs.codec.render([i for i in one.target[:-1] if i != UNKNOWN]) for one in examples]
    (total,) = report.totals
    for answered, found in ((answers, total.metrics), (LINES, total.baseline)):
        assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(answered, [LINES], force=True).score)
        assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(answered, [LINES]).score)
    lossless = all(pairs.codec.target.tokenizer.unknown(line) == () for line in LINES)
    assert (total.metrics["bleu"] == pytest.approx(100)) == lossless


def test_an_example_has_the_lines_as_they_are_written(pairs):
    assert [one.written for one in pairs.test["test"]] == [(line, line) for line in LINES]
