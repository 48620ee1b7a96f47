"""From ids to states, against sums by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from configs import config_of
from small_models import small
from universal_transformer.errors import UserError
from universal_transformer.models.components import InputsConfig, VocabularyConfig
from universal_transformer.models.inputs import FactInput, TokenInput
from universal_transformer.models.model_config import ModelConfig, config_from_dict
from universal_transformer.nn.step_config import Sizes
from universal_transformer.registry import build

CONFIG = config_of(vocabulary_size=5, max_fact_words=2, padding_id=3)
TWO_TEXTS = ModelConfig(
    architecture="classifier",
    vocabulary=VocabularyConfig(size=9, num_classes=2),
    inputs=InputsConfig(segments=2),
    sizes=Sizes(width=8, filter_width=8, num_heads=1),
)
STORIES = st.lists(st.lists(st.integers(0, 8), min_size=4, max_size=4), min_size=1, max_size=5)


def facts(**fields):
    return small(architecture="classifier", inputs="facts", max_fact_words=4, num_classes=3, **fields).source.input


@given(story=STORIES, scale=st.booleans())
@torch.no_grad()
def test_a_fact_is_the_sum_of_its_words_times_the_mask_of_their_places(story, scale):
    module = facts(scale_embeddings=scale)
    states = module(torch.tensor([story]))
    for fact, state in zip(story, states[0], strict=True):
        for channel in range(8):
            total = 0.0
            for place, word in enumerate(fact):
                if word != 0:
                    total += float(module.mask[place, channel]) * float(module.weight[word, channel])
            assert float(state[channel]) == pytest.approx((math.sqrt(8) if scale else 1.0) * total)


@given(story=STORIES)
def test_a_fact_is_padding_when_it_has_no_word(story):
    assert facts().padding(torch.tensor([story])).tolist() == [[not any(fact) for fact in story]]


@given(story=STORIES)
def test_blanks_after_the_words_of_a_fact_change_nothing(story):
    module = small(architecture="classifier", inputs="facts", max_fact_words=6, num_classes=3).source.input
    wider = torch.tensor([[[*fact, 0, 0] for fact in story]])
    torch.testing.assert_close(module(torch.tensor([story])), module(wider))


def test_a_fact_of_too_many_words_is_refused():
    with pytest.raises(UserError, match="a fact of 5 words: this model takes at most 4"):
        facts()(torch.ones(1, 2, 5, dtype=torch.long))


@torch.no_grad()
def test_masks_start_at_one_with_noise():
    sizes = {"architecture": "classifier", "inputs": "facts", "max_fact_words": 50, "num_classes": 2}
    noisy = build(config_of(**sizes, vocabulary_size=9)).source.input.mask
    assert noisy.mean().item() == pytest.approx(1.0, abs=0.1)
    assert noisy.std().item() == pytest.approx(1.0, abs=0.1)


@pytest.mark.claim("US 2", "US 3", "US 15", "US 16")
@given(ids=st.lists(st.integers(0, 8), min_size=1, max_size=9), scale=st.booleans())
def test_a_token_is_its_embedding_and_padding_is_zero(ids, scale):
    module = small(scale_embeddings=scale).source.input
    for token, state in zip(ids, module(torch.tensor([ids]))[0], strict=True):
        expected = module.weight[token] * (math.sqrt(8) if scale else 1.0) * (token != 0)
        torch.testing.assert_close(state, expected)


@given(ids=st.lists(st.integers(0, 8), min_size=1, max_size=9))
@torch.no_grad()
def test_a_token_of_several_texts_has_the_embedding_of_its_text_too(ids):
    """The id 2 ends a text; texts after the last segment share it."""
    module = build(TWO_TEXTS).source.input.double()
    segment = 0
    for token, state in zip(ids, module(torch.tensor([ids]))[0], strict=True):
        expected = (module.weight[token] * math.sqrt(8) + module.segments[segment]) * (token != 0)
        torch.testing.assert_close(state, expected)
        segment = 1 if token == 2 else segment


def test_segments_are_off_by_default():
    assert small().source.input.segments is None
    assert TWO_TEXTS.to_dict()["inputs"]["segments"] == 2
    assert config_from_dict(TWO_TEXTS.to_dict()) == TWO_TEXTS
    with pytest.raises(UserError, match=r"inputs\.segments=2: .*classifier"):
        ModelConfig(inputs=InputsConfig(segments=2))


def test_padding_learns_nothing():
    module = TokenInput(CONFIG, 4)
    torch.nn.init.ones_(module.weight)
    module(torch.tensor([[3, 1, 3]])).sum().backward()
    assert module.weight.grad.abs().sum(dim=1).tolist() == [0.0, 8.0, 0.0, 0.0, 0.0]
    module = FactInput(CONFIG, 4)
    torch.nn.init.ones_(module.weight)
    torch.nn.init.ones_(module.mask)
    module(torch.tensor([[[3, 1], [1, 3]]])).sum().backward()
    assert module.weight.grad[3].abs().sum() == 0.0


@pytest.mark.parametrize("token", [-1, 9, 10**9])
def test_ids_out_of_the_vocabulary_are_refused_on_every_side(token):
    message = f"token id {token}: allowed are 0 to 8"
    good, bad = torch.tensor([[3, 4, 2]]), torch.tensor([[3, token, 2]])
    seq2seq, language = small(), small(architecture="language_model")
    classifier = small(architecture="classifier", num_classes=3)
    tale = small(architecture="classifier", num_classes=3, inputs="facts", max_fact_words=3)
    for call in (
        lambda: seq2seq(bad, good),
        lambda: seq2seq(good, bad),
        lambda: seq2seq.start(bad, capacity=3),
        lambda: seq2seq.target.advance(bad, seq2seq.start(good, capacity=3)),
        lambda: language(bad),
        lambda: classifier(bad),
        lambda: tale(bad.unsqueeze(0)),
    ):
        with pytest.raises(UserError, match=message):
            call()
