"""What one written answer adds to the scores: exact match, or text that is compared with the text of its target."""

from __future__ import annotations

import re
from collections.abc import Sequence

from universal_transformer.data.example import Example
from universal_transformer.evaluation.brackets import bracket_sums, load_pyevalb
from universal_transformer.evaluation.rouge import load_rouge, rouge_sums
from universal_transformer.evaluation.scores import ScoreSums, bleu_scorer
from universal_transformer.evaluation.tensors import target_ids
from universal_transformer.tasks.accuracy import character_accuracy, sequence_accuracy, until_end, word_errors
from universal_transformer.tasks.task import Codec, Measure, OpenCodec, Task

NO_TOKEN = -1
"""An id that no target has."""

_SENTENCE = re.compile(r".*?(?:[.!?](?=\s)|[。！？])")


def sequence_sums(tokens: Sequence[int], example: Example, *, codec: Codec) -> ScoreSums:
    """Return what the tokens of an answer add to character and sequence accuracy. An unknown one is never right."""
    given = [NO_TOKEN if _is_unknown(token, codec) else token for token in tokens]
    names = {"characters": character_accuracy, "sequences": sequence_accuracy}
    return ScoreSums(sums={name: of(given, target_ids(example)) for name, of in names.items()})


def answer_text(tokens: Sequence[int], *, codec: Codec) -> str:
    """Return the text of an answer without its unknown tokens."""
    return codec.render([token for token in tokens if not _is_unknown(token, codec)])


def _is_unknown(token: int, codec: Codec) -> bool:
    return isinstance(codec, OpenCodec) and token == codec.unknown_target


def text_sums(text: str, example: Example, *, metric: Measure, codec: Codec) -> ScoreSums:
    """Return what the text of an answer (`answer_text`) adds to the metrics "bleu", "rouge", "words" and "brackets"."""
    reference = codec.render(until_end(target_ids(example))) if example.written is None else example.written[1]
    match metric:
        case "rouge":
            return ScoreSums(sums=rouge_sums(text, reference))
        case "words":
            return ScoreSums(sums=word_errors(text, reference))
        case "brackets":
            return ScoreSums(sums=bracket_sums(text, reference, words=codec.words(example)))
    return ScoreSums(texts=[(text, reference)])


def check_packages(task: Task) -> None:
    """UserError if a package that the metric of a task needs is missing."""
    match task.metric:
        case "bleu":
            bleu_scorer(task.bleu_tokenizer)
        case "rouge":
            load_rouge()
        case "brackets":
            load_pyevalb()


def first_sentence(text: str) -> str:
    """Return the text up to its first full stop, question or exclamation mark; all of it if it has none."""
    found = _SENTENCE.match(text)
    return found.group() if found else text
