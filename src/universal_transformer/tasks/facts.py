"""Questions about stories as examples: the codec of facts and answers, which bAbI and the generated stories share."""

from collections.abc import Sequence
from dataclasses import replace

from universal_transformer.data.example import NO_CLASS, Example
from universal_transformer.data.story_lines import Question, words
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.sides.fact_list import Facts
from universal_transformer.tasks.sides.listed import Classes

FactCodec = Codec[Facts, Classes]


def fact_codec(questions: Sequence[Question], *, max_facts: int = 0, recent_first: bool = False) -> FactCodec:
    """The codec whose vocabulary, answers and longest fact are those of `questions`."""
    texts = {text for question in questions for text in (*question.facts, question.text)}
    split = [words(text) for text in texts]
    facts = Facts(
        vocabulary=tuple(sorted({word for text in split for word in text})),
        max_fact_words=max(map(len, split)),
        max_facts=max_facts,
        recent_first=recent_first,
    )
    answers = sorted({question.answer for question in questions if question.answer is not None})
    return Codec(source=facts, target=Classes(tuple(answers)))


def encode_question(codec: FactCodec, question: Question, *, group: str = "") -> Example:
    """A question as an example; an answer that is no class becomes `NO_CLASS`."""
    target = NO_CLASS if question.answer is None else codec.target.ids.get(question.answer, NO_CLASS)
    return replace(codec.source.encode(question), target=target, group=group)
