"""Small tasks that all tests of evaluation share."""

import pytest

from universal_transformer.tasks.algorithmic import AlgorithmicData
from universal_transformer.tasks.pairs import PairsData
from universal_transformer.tasks.stories import StoriesData
from universal_transformer.tasks.text import TextData


@pytest.fixture(scope="module")
def stories():
    return StoriesData(train_stories=30, validation_stories=5, test_stories=20).load()


@pytest.fixture(scope="module")
def copying():
    return AlgorithmicData(train_examples=10, validation_examples=5, test_examples=3, test_lengths=(5, 12)).load()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "train.tsv"
    path.write_text("".join(f"a b {n} c\tc {n} b a\n" for n in range(100)))
    return PairsData(train=str(path), vocabulary_size=300).load()


@pytest.fixture
def text_task(tmp_path):
    """A language model's task with tokens of a kind."""

    def load(kind):
        path = tmp_path / "text.txt"
        path.write_text("".join(f"line {n} of a short text\n" for n in range(200)))
        return TextData(train=str(path), tokenizer=kind, block_length=20).load()

    return load
