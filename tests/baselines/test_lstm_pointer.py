"""An LSTM that points at a word of the text (attention sum), against loops."""

import pytest
import torch

from baselines.test_lstm import embedded, read, real, zeros
from configs import config_of
from small_baselines import small_lstm
from universal_transformer.baselines.baseline_config import LstmConfig
from universal_transformer.errors import UserError
from universal_transformer.models.heads import FLOOR, Pointer
from universal_transformer.registry import build, load_pretrained

POINTER = {"architecture": "classifier", "pooling": "pointer", "num_classes": 9}
SOURCE = torch.tensor([[4, 5, 4, 1, 6, 7, 0], [4, 1, 5, 5, 5, 5, 5], [8, 7, 8, 8, 1, 0, 0]])
"""Text, the start token, question, padding."""


@torch.no_grad()
def test_the_probability_of_a_word_is_the_attention_to_its_occurrences():
    model = small_lstm(**POINTER)
    assert isinstance(model.head, Pointer)
    found = model(SOURCE).logits.exp()
    for row, tokens in enumerate(map(real, SOURCE)):
        states, _ = read(
            model.source.layers, [embedded(model.source.input, t) for t in tokens], zeros(model.source.layers)
        )
        query = model.head.query.weight @ states[-1]
        text = tokens[: tokens.index(1)]
        weights = [torch.exp(state @ query / 6**0.5) for state in states[: len(text)]]
        for word in range(9):
            expected = sum(weight for weight, token in zip(weights, text, strict=True) if token == word)
            torch.testing.assert_close(found[row, word], expected / sum(weights) + FLOOR, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_only_words_in_front_of_the_question_have_a_probability():
    probability = small_lstm(**POINTER)(SOURCE).logits.exp()
    torch.testing.assert_close(probability.sum(1), torch.ones(3).double())
    assert [row.nonzero().flatten().tolist() for row in probability > 1e-6] == [[4, 5], [4], [7, 8]]


@torch.no_grad()
def test_neither_padding_nor_the_order_of_rows_changes_a_row():
    model = small_lstm(**POINTER)
    expected = model(SOURCE).logits
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(model(SOURCE[order]).logits, expected[order])
    for row, tokens in enumerate(map(real, SOURCE)):
        torch.testing.assert_close(model(torch.tensor([tokens])).logits[0], expected[row])


def test_it_learns_to_find_the_word_that_the_question_names():
    torch.manual_seed(1)
    sizes = {"width": 32, "num_layers": 1, "vocabulary_size": 12, "dropout": 0.0}
    model = build(config_of(LstmConfig, **{**POINTER, **sizes, "num_classes": 12}))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(80):
        text = torch.stack([torch.randperm(8)[:5] + 4 for _ in range(32)])
        asked = torch.randint(5, (32, 1))
        source = torch.cat((text, torch.ones(32, 1, dtype=torch.long), text.gather(1, asked)), dim=1)
        target = text.gather(1, asked).squeeze(1)
        logits = model(source).logits
        loss = torch.nn.functional.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float((logits.argmax(1) == target).float().mean()) > 0.9


def test_a_question_without_a_text_is_refused():
    with pytest.raises(UserError, match="a question without a text"):
        small_lstm(**POINTER)(torch.tensor([[1, 4, 5]]))


@torch.no_grad()
def test_it_is_saved_and_loaded(tmp_path):
    model = small_lstm(**POINTER).float()
    model.save_pretrained(tmp_path)
    assert torch.equal(load_pretrained(tmp_path)(SOURCE).logits, model(SOURCE).logits)
