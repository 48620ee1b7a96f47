"""The last word as a sequence of pieces, against sums over all pieces by hand and a greedy choice piece by piece."""

import math

import numpy as np
import pytest
import torch

from paper.last_word_pieces import LastWordPieces
from paper.tasks.lambada import HELD_OUT, SETS
from paper.tasks.novels import read_novels
from paper.tasks.pieces import Pieces, PiecesData, piece_ids
from paper.tasks.treebank import split_words
from universal_transformer.data.example import Example
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.evaluation.metrics.metric import Inference
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.recipes import RECIPES
from universal_transformer.registry import build
from universal_transformer.typed import replaced

TEXT = "Then Anna, who didn't know Boris, went out. “Stop!” cried the old gardener to Anna. "


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("UT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "novels/corpus").mkdir(parents=True)
    for name in ("Anon_Clara_1864.txt", "b.txt"):
        (tmp_path / "novels/corpus" / name).write_text(TEXT * 40, encoding="utf-8")
    (tmp_path / "lambada").mkdir()
    for name in ("development", "test"):
        (tmp_path / "lambada" / SETS[name]).write_text("then anna went out . with anna\nthen boris saw zorro\n")
    return tmp_path


@pytest.fixture
def task(folder):
    return PiecesData(data_dir=str(folder), vocabulary_size=290, block_length=32, validation_passages=2).load()


@pytest.fixture
def model(task):
    small = {"sizes.width": 16, "sizes.filter_width": 16, "depth.max_steps": 2, **task.codec.model_fields}
    torch.manual_seed(1)
    model = build(replaced(ModelConfig(), small)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3.0)  # far from uniform, so that greedy choices differ
    return model


def test_training_is_the_text_of_the_novels_and_a_word_is_the_same_pieces_everywhere(folder, task):
    tokenizer = task.codec.target.tokenizer
    novels, _ = read_novels(folder).split(HELD_OUT)
    words = [novels.types[index] for index in novels.tokens.tolist()]
    whole = [*tokenizer.encode("".join(f" {word}" for word in words[:-1])), tokenizer.end_id]
    assert [index for example in task.train for index in example.target] == whole
    assert piece_ids(novels, tokenizer).dtype == np.int32
    assert words[:-1] == split_words(TEXT * 40)
    first, second = task.test["test"]
    assert task.codec.render(first.target) == " then anna went out . with anna"
    assert task.codec.render(second.target) == " then boris saw zorro"  # a word that the novels lack
    assert list(task.test) == ["control", "development", "test"]
    assert isinstance(task.codec.target, Pieces)
    assert task.codec.target.read_line("Then Boris saw Zorro", where="line 1").target == second.target


def probabilities(model, ids):
    """The distribution after `ids`, of a call of its own."""
    with torch.no_grad():
        logits = model(torch.tensor([[*ids, 0]])).logits
    return logits[0, len(ids)].double().softmax(-1).tolist()


@pytest.mark.parametrize("words", ["then anna went out", "then boris saw zorro", "anna , who did n't", "a the stop"])
def test_probability_and_greedy_choice_are_those_of_a_naive_loop(words, task, model):
    tokenizer = task.codec.target.tokenizer
    vocabulary = range(len(tokenizer))
    begins = [tokenizer.decode([index]).startswith(" ") or index == tokenizer.end_id for index in vocabulary]
    *before, last = words.split()
    context, word = (tokenizer.encode("".join(f" {one}" for one in some)) for some in (before, [last]))
    p = probabilities(model, context)
    nats = math.log(sum(p[index] for index in vocabulary if begins[index]))
    for place, piece in enumerate(word):
        nats -= math.log(probabilities(model, [*context, *word[:place]])[piece])
    after = probabilities(model, [*context, *word])
    nats -= math.log(sum(after[index] for index in vocabulary if begins[index]))
    greedy = [max((index for index in vocabulary if begins[index]), key=p.__getitem__)]
    while len(greedy) <= len(word):
        q = probabilities(model, [*context, *greedy])
        greedy.append(max(vocabulary, key=q.__getitem__))
    # a word of one piece, the greedy one, is right if and only if the likeliest piece after it begins a word
    alone = max(vocabulary, key=probabilities(model, [*context, greedy[0]]).__getitem__)
    examples = [Example(source=(), target=(*context, *pieces)) for pieces in (word, greedy[:1])]
    with torch.no_grad():
        ours, simple = LastWordPieces(task).answers(Inference(model, DecodingOptions()), examples)
    assert ours.sums["nats"] == pytest.approx(nats, rel=1e-4)
    assert ours.sums["right"] == (greedy[:-1] == word and begins[greedy[-1]])
    assert simple.sums["right"] == begins[alone]
    assert ours.sums["tokens"] == simple.sums["tokens"] == 1


def test_the_probabilities_of_all_words_add_up_to_one(task):
    """Of three kinds of pieces, two of which begin a word, with the same distribution at each place."""
    metric = LastWordPieces(task)
    tokenizer = task.codec.target.tokenizer
    one, two = [index for index in metric.begins.nonzero()[:, 0].tolist() if index != tokenizer.end_id][:2]
    (inner,) = tokenizer.encode("x")
    logits = torch.full((9, len(tokenizer)), -1e9, dtype=torch.float64)
    logits[:, [one, two, inner]] = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64).log()
    total = 0.0
    for first in (one, two):
        for length in range(8):
            pieces = (first, *[inner] * length)
            nats, given = metric.word(logits[: len(pieces) + 1], pieces)
            total += math.exp(-nats)
            assert given == (one,) * (len(pieces) + 1)
    assert total == pytest.approx(1 - 0.3**8)


def test_a_model_is_evaluated_and_the_baseline_has_the_frequency_of_each_piece(task, model):
    report = evaluate(model, task)
    (row,) = [row for row in report.totals if row.set == "test"]
    assert row.metrics["perplexity"] > 1
    assert 0 <= row.metrics["accuracy"] <= 1
    metric = LastWordPieces(task)
    baseline = metric.learn(task.train, model.config)
    (example, _) = task.test["test"]
    word = example.target[metric.first_piece(example.target) :]
    assert task.codec.render(word) == " anna"
    assert metric.trivial(baseline, example).sums["nats"] == pytest.approx(sum(baseline.nats[index] for index in word))


def test_a_vocabulary_without_room_for_all_bytes_is_refused():
    with pytest.raises(UserError, match="vocabulary-size 100: expected 260"):
        PiecesData(vocabulary_size=100)


@pytest.mark.parametrize("model", ["", "-lstm", "-transformer", "-ut-halting"])
def test_a_recipe_can_say_every_word(model):
    assert isinstance(RECIPES[f"lambada-pieces{model}"]().data, PiecesData)
