import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.evaluation.prediction import words_of
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.sides.listed import Classes, Symbols
from universal_transformer.tasks.sides.tokenized import Text
from universal_transformer.tasks.task import Token

TEXTS = ["I_JUMP over the lazy dog", "don't stop", "Über  die Brücke"]


def codec(kind, *, lower_case=False):
    size = 270 if kind == "bpe" else 100
    tokenizer = Tokenizer.train(TEXTS, kind=kind, vocabulary_size=size, lower_case=lower_case)
    return Codec(Text(tokenizer, 99), Classes(("a", "b")))


def test_two_texts_have_their_own_words():
    both = dataclasses.replace(CODECS[0], source=dataclasses.replace(CODECS[0].source, segments=2))
    found = words_of(tokens_of(both, "don't\tstop it"), codec=both, line="don't\tstop it")
    assert [word.text for word in found] == ["don't", "stop", "it"]
    spans = both.source.spans("don't\tstop it")
    assert spans[-1] == (13, 13)
    assert (5, 5) in spans


CODECS = [codec(kind, lower_case=lower) for kind in ("bpe", "word", "character") for lower in (False, True)]


def tokens_of(chosen, line):
    (example,) = chosen.read([(1, line)], name="test")
    return [Token(name, float(place)) for place, name in enumerate(chosen.words(example))]


LETTERS = st.text(st.sampled_from("I_JUMPdon't ÜbÖ日 \t"), max_size=30)


@pytest.mark.parametrize("chosen", CODECS)
@given(line=st.one_of(st.sampled_from(TEXTS), LETTERS.filter(str.strip)))
def test_words_are_those_that_were_written_with_the_mean_steps_of_their_tokens(chosen, line):
    found = words_of(tokens_of(chosen, line), codec=chosen, line=line)
    words = list(re.finditer(r"\S+", line))
    assert [word.text for word in found] == [word.group() for word in words]
    spans = chosen.source.spans(line)
    for word, match in zip(found, words, strict=True):
        inside = [place for place, (first, end) in enumerate(spans) if first < match.end() and end > match.start()]
        assert word.steps == (sum(inside) / len(inside) if inside else None)
        assert inside


def test_tokens_are_the_words_where_the_codec_does_not_say_where_they_stand():
    digits = Codec.shared(Symbols(symbols="0123456789"))
    tokens = tokens_of(digits, "407")
    assert words_of(tokens, codec=digits, line="407") == tokens


def test_a_model_without_depth_has_words_without_steps():
    tokens = [Token(token.text, None) for token in tokens_of(CODECS[0], "don't stop")]
    assert words_of(tokens, codec=CODECS[0], line="don't stop") == [Token("don't", None), Token("stop", None)]
