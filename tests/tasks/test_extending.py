"""A task from outside the package: one dataclass, one entry in `TASKS`, and every command knows it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import pytest

from universal_transformer import DepthConfig, ModelConfig, Sizes
from universal_transformer.cli import main
from universal_transformer.data.example import NO_CLASS, Example
from universal_transformer.errors import UserError
from universal_transformer.recipes import RECIPES
from universal_transformer.tasks import TASKS, Task, load_codec
from universal_transformer.tasks.algorithmic import CharacterCodec
from universal_transformer.tasks.codecs import SavedCodec
from universal_transformer.training.config import RunConfig, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class ParityCodec(SavedCodec):
    """Bits to ids (0 is padding) and the class 1 for an odd number of ones."""

    kind: ClassVar[str] = "parity"
    names: tuple[str, ...] = ("even", "odd")

    def encode(self, bits: str, target: int = NO_CLASS) -> Example:
        return Example(source=tuple(1 + int(bit) for bit in bits), target=target)

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        for number, text in lines:
            if set(text.strip()) - {"0", "1"}:
                raise UserError(f"{name}:{number}: expected bits")
            yield self.encode(text.strip())

    def render(self, target: int) -> str:
        return self.names[target]

    def words(self, example: Example) -> list[str]:
        return [str(index - 1) for index in example.source]


@dataclass(frozen=True, kw_only=True)
class ParityData:
    """Is the number of ones odd?"""

    codec_class: ClassVar[type] = ParityCodec
    length: int = 8
    """Bits of a source."""

    def load(self) -> Task:
        texts = ["".join(Random(index).choices("01", k=self.length)) for index in range(80)]
        examples = [ParityCodec().encode(text, target=text.count("1") % 2) for text in texts]
        fields = {
            "architecture": "classifier",
            "inputs.kind": "tokens",
            "vocabulary.size": 3,
            "vocabulary.num_classes": 2,
        }
        train, held, test = examples[:60], examples[60:70], examples[70:]
        return Task("parity", ParityCodec(), train, held, {"test": test}, "error", fields)


@dataclass(frozen=True, kw_only=True)
class SortData:
    """Digits to write in order, with a codec of the package."""

    codec_class: ClassVar[type] = CharacterCodec
    length: int = 4
    """Digits of a source."""

    def load(self) -> Task:
        codec = CharacterCodec(symbols="0123456789")
        texts = ["".join(Random(index).choices(codec.symbols, k=self.length)) for index in range(60)]
        examples = [codec.example(text, "".join(sorted(text))) for text in texts]
        train, held, test = examples[:40], examples[40:50], examples[50:]
        return Task("sort", codec, train, held, {"test": test}, "sequence", dict(codec.model_fields))


TINY = ModelConfig(sizes=Sizes(width=8, num_heads=1, filter_width=8), depth=DepthConfig(max_steps=2))
BRIEF = TrainingConfig(max_updates=2, validate_every=2, batch_tokens=64)


@pytest.mark.parametrize(
    ("name", "data", "line", "answers"),
    [("parity", ParityData, "0110", {"even", "odd"}), ("sort", SortData, "3120", None)],
)
def test_a_task_from_outside_the_package_works_in_every_command(
    tmp_path, capsys, monkeypatch, name, data, line, answers
):
    def recipe() -> RunConfig:
        """A run of two updates."""
        return RunConfig(recipe=name, data=data(length=5), model=TINY, training=BRIEF)

    monkeypatch.setitem(TASKS, name, data)
    monkeypatch.setitem(RECIPES, name, recipe)
    config = recipe()
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert main(["train", name, "--length", "6", "--run", str(tmp_path / "run"), "--quiet"]) == 0
    assert RunConfig.load(tmp_path / "run/config.json").data == data(length=6)
    task = data(length=6).load()
    capsys.readouterr()
    assert load_codec(tmp_path / "run/model") == task.codec
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    assert name in capsys.readouterr().out
    (tmp_path / "lines").write_text(line + "\n")
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "lines")]) == 0
    answer = capsys.readouterr().out.strip()
    assert answers is None or answer.split("\t")[0] in answers


def test_a_task_that_is_not_registered_is_refused_by_name(tmp_path):
    config = RunConfig(recipe="parity", data=ParityData(), model=TINY, training=BRIEF)
    with pytest.raises(UserError, match="ParityData is no task; known are stories"):
        config.to_dict()
    ParityCodec().save(tmp_path)
    with pytest.raises(UserError, match="unknown kind 'parity'; known are facts"):
        load_codec(tmp_path)
