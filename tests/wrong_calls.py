"""Wrong calls of the Python API, each with what the error must say. Run as a script it prints the calls that were not
refused by one line of a ValueError: annotations are not executed then, as they are not for a user.
"""

import re
import sys

import torch

import universal_transformer as ut
from universal_transformer.baselines.baseline_config import LstmConfig
from universal_transformer.interop import tensor2tensor
from universal_transformer.registry import build

torch.manual_seed(0)
SMALL = {"sizes": ut.Sizes(width=8, filter_width=8, num_heads=2), "depth": ut.DepthConfig(max_steps=2)}
HALTING = {**SMALL, "halting": ut.HaltingConfig(side="both")}
WORDS = ut.VocabularyConfig(size=9)
CLASSES = ut.VocabularyConfig(size=9, num_classes=2)

pair = ut.EncoderDecoder(ut.ModelConfig(vocabulary=WORDS, **SMALL)).eval()
halting = ut.EncoderDecoder(ut.ModelConfig(vocabulary=WORDS, **HALTING)).eval()
language = ut.LanguageModel(ut.ModelConfig(vocabulary=WORDS, **SMALL)).eval()
classes = ut.Classifier(ut.ModelConfig(vocabulary=CLASSES, **SMALL)).eval()
facts = ut.Classifier(
    ut.ModelConfig(
        architecture="classifier",
        vocabulary=ut.VocabularyConfig(size=9, num_classes=2, max_fact_words=3),
        inputs=ut.InputsConfig(kind="facts"),
        **SMALL,
    )
).eval()
sound = build(
    ut.ModelConfig(vocabulary=WORDS, outputs=ut.OutputsConfig(kind="frames", features=4, stride=2), **SMALL)
).eval()
lstm = ut.LanguageModel(LstmConfig(width=8, vocabulary=WORDS)).eval()

rows = torch.tensor([[3, 4, 2], [5, 2, 0]])
row, floats = rows[0], rows.float()
begun = language.start(batch=2, capacity=4)

CALLS = {
    # frames
    "tokens for frames": (lambda: sound(rows, rows), r"target of type torch.int64 .* \[batch, frame, 4\]"),
    "frames of fewer rows": (lambda: sound(rows, torch.zeros(1, 3, 4)), "2 sources, but 1 targets"),
    # depth
    "steps before a stop that does not come": (lambda: pair(rows, rows, min_steps=1), "min_steps=1: .*without halting"),
    # ids of a forward pass
    "source of one dimension": (lambda: pair(row, rows), r"source of shape \[3\]: .*source.unsqueeze\(0\)"),
    "target of one dimension": (lambda: pair(rows, row), r"target of shape \[3\]: .*target.unsqueeze\(0\)"),
    "source of three dimensions": (lambda: pair(rows[None], rows), r"source of shape \[1, 2, 3\]"),
    "floating source": (lambda: pair(floats, rows), "source of type torch.float32: .*torch.long"),
    "floating target": (lambda: pair(rows, floats), "target of type torch.float32"),
    "bytes instead of ids": (lambda: pair(rows.byte(), rows), "source of type torch.uint8: .*torch.long"),
    "mask instead of ids": (lambda: pair(rows > 0, rows), "source of type torch.bool"),
    "other batch size": (lambda: pair(rows, rows[:1]), "2 sources, but 1 targets"),
    "no rows": (lambda: pair(rows[:0], rows[:0]), r"source of shape \[0, 3\]"),
    "no positions": (lambda: pair(rows[:, :0], rows), r"source of shape \[2, 0\]"),
    "empty target": (lambda: pair(rows, rows[:, :0]), r"target of shape \[2, 0\]"),
    "source id too large": (lambda: pair(rows + 6, rows), "token id 11: allowed are 0 to 8"),
    "target id below zero": (lambda: pair(rows, rows - 1), "token id -1: allowed are 0 to 8"),
    "prompt of one dimension": (lambda: language(row), r"target of shape \[3\]"),
    "floating prompt": (lambda: language(floats), "target of type torch.float32"),
    "one text to a classifier": (lambda: classes(row), r"source of shape \[3\]"),
    "no texts to a classifier": (lambda: classes(rows[:0]), r"source of shape \[0, 3\]"),
    "facts to a classifier of tokens": (lambda: classes(rows[None]), r"source of shape \[1, 2, 3\]: .*\[batch, pos"),
    "tokens to a classifier of facts": (lambda: facts(rows), r"source of shape \[2, 3\]: .*\[batch, fact, word\]"),
    "fact too long": (lambda: facts(torch.ones(1, 1, 4, dtype=torch.long)), "a fact of 4 words: .* at most 3"),
    "row to an LSTM": (lambda: lstm(row), r"target of shape \[3\]"),
    # options of a forward pass
    "no steps": (lambda: pair(rows, rows, max_steps=0), "max_steps: expected a whole number, at least 1"),
    "half a step": (lambda: pair(rows, rows, max_steps=1.5), "max_steps: expected .*found 1.5"),
    "threshold without halting": (lambda: pair(rows, rows, halting_threshold=0.5), "halting_threshold=0.5: .*leave it"),
    "threshold of a language model": (lambda: language(rows, halting_threshold=0.5), "without halting"),
    "threshold of a classifier": (lambda: classes(rows, halting_threshold=0.5), "without halting"),
    "exit together with a threshold": (
        lambda: halting(rows, rows, halting_threshold=0.5, exit=ut.Exit("confidence", 0.9)),
        "halting_threshold=0.5: confidence:0.9 replaces the halting unit",
    ),
    "threshold above one": (
        lambda: halting(rows, rows, halting_threshold=1.5),
        "halting_threshold: expected .*found 1.5",
    ),
    "depth of an LSTM": (lambda: lstm(rows, max_steps=2), "max_steps=2: .*no depth"),
    # generation
    "generate from a row": (lambda: pair.generate(row), r"source of shape \[3\]: .*unsqueeze"),
    "generate from a flat list": (lambda: pair.generate([3, 4, 2]), r"sources: found \[3, 4, 2\]; .*write \[\["),
    "generate from floats": (lambda: pair.generate([[3.0]]), r"source 0: found \[3.0\]"),
    "generate from a number": (lambda: pair.generate(3), "sources: found 3"),
    "generate from nothing": (lambda: pair.generate([]), "no sources"),
    "generate from an empty source": (lambda: pair.generate([[3], []]), "source row 1 is empty"),
    "generate from unknown ids": (lambda: pair.generate([[9]]), "token id 9: allowed are 0 to 8"),
    "generate from text": (lambda: pair.generate(["a b"]), r"no tokenizer: .*load\(RUN\)"),
    "generate from one text": (lambda: pair.generate("a b"), "a list of texts"),
    "generate from texts and ids": (lambda: pair.generate(["a", [3]]), "texts and ids in one list"),
    "continue a flat list": (lambda: language.generate([3, 4]), r"prompts: found \[3, 4\]"),
    "continue no prompts": (lambda: language.generate([]), "no prompts"),
    "continue padding": (lambda: language.generate([[3, 0]]), "token id 0"),
    "no new tokens": (
        lambda: pair.generate(rows, max_new_tokens=0),
        "max_new_tokens: expected a whole number, at least 1 .*found 0",
    ),
    "half a new token": (
        lambda: pair.generate(rows, max_new_tokens=1.5),
        "max_new_tokens: expected a whole number, .*found 1.5",
    ),
    "no beams": (lambda: pair.generate(rows, beams=0), "beams: expected a whole number, at least 1 .*found 0"),
    "beams and samples": (
        lambda: pair.generate(rows, beams=2, sampling=ut.Sampling(temperature=1.0)),
        "choose beams or sampling",
    ),
    "penalty without beams": (
        lambda: pair.generate(rows, beams=ut.Beams(1, length_penalty=1.0)),
        "length_penalty=1.0 is for a beam",
    ),
    "top_k without temperature": (lambda: ut.Sampling(top_k=3), "top_k=3: .*temperature"),
    "negative temperature": (lambda: ut.Sampling(temperature=-1.0), "temperature: expected a number, at least 0"),
    "tokens that are numbers": (lambda: language.target.advance(floats, begun), "tokens of type torch.float32"),
    "no new token": (lambda: language.target.advance(rows[:, :0], begun), r"tokens of shape \[2, 0\]"),
    "tokens of other rows": (lambda: language.target.advance(rows[:1], begun), "tokens of 1 rows: the state is of 2"),
    "half a beam": (lambda: pair.generate(rows, beams=2.5), "beams: expected a whole number, .*found 2.5"),
    "a penalty that is text": (
        lambda: pair.generate(rows, beams=ut.Beams(2, length_penalty="a")),
        "length_penalty: expected a n",
    ),
    "no sampling": (lambda: pair.generate(rows, sampling=None), "sampling=None: expected Sampling"),
    "an exit that is text": (
        lambda: pair.generate(rows, exit="confidence:0.5"),
        "exit: expected Exit or None, found 'confidence:0.5'",
    ),
    "generate from a huge id": (
        lambda: pair.generate([[2**70]]),
        "source 0: found .* below 2.63",
    ),
    "a list for a tensor": (lambda: pair([[3]], rows), r"source: found \[\[3\]\]; expected a tensor of token ids"),
    "options that are text": (lambda: ut.DecodingOptions(beams="3"), "beams: expected a whole number"),
    "a threshold that is text": (
        lambda: ut.DecodingOptions(halting_threshold="0.5"),
        "halting_threshold: expected a n",
    ),
    "generate without steps": (
        lambda: pair.generate(rows, max_steps=0),
        "max_steps: expected a whole number, at least 1",
    ),
    "generate with a threshold": (lambda: pair.generate(rows, halting_threshold=0.5), "without halting"),
    # models
    "another architecture": (
        lambda: ut.LanguageModel(ut.ModelConfig(architecture="classifier")),
        'architecture="classifier": LanguageModel needs "language_model"',
    ),
    "no vocabulary": (lambda: ut.EncoderDecoder(ut.ModelConfig()), "vocabulary.size=None"),
    "no classes": (lambda: ut.Classifier(ut.ModelConfig(vocabulary=WORDS)), "vocabulary.num_classes=None"),
    "one side of a language model": (
        lambda: ut.LanguageModel(ut.ModelConfig(vocabulary=WORDS, halting=ut.HaltingConfig(side="encoder"))),
        "halting.side='encoder': a language_model has no encoder",
    ),
    "a number among texts": (
        lambda: ut.load("reverse")(["a", 3]),
        "text 1: found 3; expected text",
    ),
    "no hyper-parameters": (lambda: tensor2tensor.load({}, None), "hyper-parameters: found None; expected an object"),
    "no run": (lambda: ut.load("no/such/run"), "no such file"),
}


def not_refused():
    """Yield what is wrong with the error of each call whose error is not a one-line ValueError that says why."""
    for name, (call, message) in CALLS.items():
        try:
            call()
        except ValueError as error:
            if "\n" in str(error) or not re.search(message, str(error)):
                yield f"{name}: {error!r} does not match {message!r}"
        except Exception as error:
            yield f"{name}: {error!r}"
        else:
            yield f"{name}: accepted"


if __name__ == "__main__":
    found = list(not_refused())
    print("\n".join(found))
    sys.exit(bool(found))
