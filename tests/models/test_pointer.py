import pytest
import torch

from configs import config_of, with_fields
from universal_transformer.errors import UserError
from universal_transformer.models.heads import FLOOR, Pointer
from universal_transformer.models.universal import Classifier
from universal_transformer.registry import build

CONFIG = config_of(
    architecture="classifier",
    pooling="pointer",
    vocabulary_size=12,
    num_classes=12,
    width=16,
    filter_width=32,
    num_heads=2,
    max_steps=3,
    dropout=0.0,
)


def test_the_attention_sum_is_that_of_a_loop():
    pointer = Pointer(8, num_classes=12, start_id=1).double()
    states = torch.randn(3, 7, 8, dtype=torch.float64)
    source = torch.tensor([[4, 5, 4, 1, 6, 7, 0], [4, 1, 5, 5, 5, 5, 5], [8, 9, 8, 8, 1, 0, 0]])
    found = pointer(states, source, padding=source == 0).exp()
    for row in range(3):
        cut = source[row].tolist().index(1)
        query = pointer.query(states[row, int((source[row] != 0).sum()) - 1])
        scores = torch.stack([states[row, place] @ query / 8**0.5 for place in range(cut)])
        expected = torch.zeros(12, dtype=torch.float64)
        for place, share in enumerate(scores.softmax(0)):
            expected[source[row, place]] += share
        torch.testing.assert_close(found[row], expected + FLOOR, rtol=1e-12, atol=1e-12)


def test_only_words_in_front_of_the_question_can_be_said():
    model = build(CONFIG).eval()
    assert isinstance(model, Classifier)
    source = torch.tensor([[4, 5, 6, 1, 7, 8], [9, 4, 1, 10, 0, 0]])
    probability = model(source).logits.exp()
    torch.testing.assert_close(probability.sum(1), torch.ones(2))
    assert (probability > 1e-6).nonzero().tolist() == [[0, 4], [0, 5], [0, 6], [1, 4], [1, 9]]


def test_padding_changes_nothing():
    model = build(CONFIG).eval()
    short = model(torch.tensor([[4, 5, 6, 1, 7]])).logits
    padded = model(torch.tensor([[4, 5, 6, 1, 7, 0, 0]])).logits
    torch.testing.assert_close(short, padded)


def test_it_learns_to_point():
    """The answer is the word that the question names."""
    torch.manual_seed(1)
    model = build(with_fields(CONFIG, norm="pre", max_steps=2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(150):
        context = torch.stack([torch.randperm(8)[:5] + 4 for _ in range(32)])
        asked = torch.randint(5, (32, 1))
        source = torch.cat((context, torch.ones(32, 1, dtype=torch.long), context.gather(1, asked)), dim=1)
        target = context.gather(1, asked).squeeze(1)
        output = model(source)
        loss = torch.nn.functional.cross_entropy(output.logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float((output.logits.argmax(1) == target).float().mean()) > 0.9


def test_a_question_without_a_text_is_refused():
    with pytest.raises(UserError, match="a question without a text"):
        build(CONFIG)(torch.tensor([[1, 4, 5]]))


def test_it_is_saved_and_loaded(tmp_path):
    model = build(CONFIG).eval()
    model.save_pretrained(tmp_path)
    source = torch.tensor([[4, 5, 6, 1, 7]])
    torch.testing.assert_close(Classifier.from_pretrained(tmp_path).eval()(source).logits, model(source).logits)


def test_configurations_that_cannot_point():
    with pytest.raises(UserError, match="the classes of a pointer are the tokens"):
        with_fields(CONFIG, num_classes=3)
    with pytest.raises(UserError, match=r'inputs\.kind must be "tokens"'):
        with_fields(CONFIG, inputs="facts", max_fact_words=3)
