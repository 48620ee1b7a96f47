"""Train a parser on a treebank of your own, and score and use it in Python.

The script writes a small treebank, one tree in brackets a line, trains for a few updates on it, and parses a sentence.
A treebank of thousands of trees and `max_updates` of thousands make a parser of it.
"""

import tempfile
from itertools import product
from pathlib import Path

import universal_transformer as ut
from universal_transformer.cli import main

WORDS = product(("the", "a"), ("dog", "cat", "child"), ("saw", "followed"), ("letter", "boat"))
TREES = [
    f"(TOP (S (NP-SBJ (DT {first}) (NN {who})) (VP (VBD {verb}) (NP (DT {first}) (NN {what}))) (. .)))"
    for first, who, verb, what in WORDS
]

with tempfile.TemporaryDirectory() as folder:
    trees, run = Path(folder, "trees.txt"), str(Path(folder, "run"))
    trees.write_text("\n".join(TREES))
    assert main(["data", "check", "parsing", "--data.train", str(trees)]) == 0
    sizes = ["--width", "32", "--filter-width", "64", "--num-heads", "2", "--step.dropout", "0"]
    updates = ["--max-updates", "40", "--validate-every", "40", "--learning-rate", "0.01", "--warmup-updates", "5"]
    assert main(["train", "parsing", "--data.train", str(trees), "--run", run, "--quiet", *sizes, *updates]) == 0
    assert main(["evaluate", run]) == 0
    print(ut.load(run)("the cat followed a boat .").text)
