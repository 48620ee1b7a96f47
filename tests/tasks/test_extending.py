"""A task and a side of a codec from outside: one class and one entry in `TASKS` or `SIDES` each, for every command."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import pytest

from universal_transformer import DepthConfig, ModelConfig, Sizes
from universal_transformer.cli import main
from universal_transformer.data.example import Example
from universal_transformer.errors import UserError
from universal_transformer.recipes import RECIPES
from universal_transformer.tasks import TASKS, Codec, Task
from universal_transformer.tasks.sides import SIDES
from universal_transformer.tasks.sides.listed import Classes, Symbols
from universal_transformer.tasks.sides.side import Side, Sides
from universal_transformer.tasks.task import Saved
from universal_transformer.training.run_config import RunConfig, TrainingConfig


@dataclass(frozen=True)
class Bits(Side):
    """Bits to ids: 0 is padding."""

    kind: ClassVar[str] = "bits"

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "tokens", "vocabulary.size": 3}

    def encode(self, bits: str) -> tuple[int, ...]:
        return tuple(1 + int(bit) for bit in bits)

    def read_line(self, line: str, *, where: str) -> Example:
        if set(line.strip()) - {"0", "1"}:
            raise UserError(f"{where}: expected bits")
        return Example(self.encode(line.strip()), ())

    def names(self, positions: Sequence[int]) -> list[str]:
        return [str(index - 1) for index in positions]


@dataclass(frozen=True, kw_only=True)
class ParityData:
    """Is the number of ones odd?"""

    sides: ClassVar[Sides] = (Bits, Classes)
    length: int = 8
    """Bits of a source."""

    def load(self, saved: Saved | None = None) -> Task:
        codec = Codec(Bits(), Classes(("even", "odd")))
        texts = ["".join(Random(index).choices("01", k=self.length)) for index in range(80)]
        examples = [Example(codec.source.encode(text), text.count("1") % 2) for text in texts]
        train, held, test = examples[:60], examples[60:70], examples[70:]
        return Task("parity", codec, train, held, {"test": test}, "error")


@dataclass(frozen=True, kw_only=True)
class SortData:
    """Digits to write in order, with a codec of the package."""

    sides: ClassVar[Sides] = (Symbols, Symbols)
    length: int = 4
    """Digits of a source."""

    def load(self, saved: Saved | None = None) -> Task:
        symbols = Symbols(symbols="0123456789")
        texts = ["".join(Random(index).choices(symbols.symbols, k=self.length)) for index in range(60)]
        examples = [symbols.example(text, "".join(sorted(text))) for text in texts]
        train, held, test = examples[:40], examples[40:50], examples[50:]
        return Task("sort", Codec.shared(symbols), train, held, {"test": test}, "sequence")


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
    monkeypatch.setitem(SIDES, "bits", Bits)
    monkeypatch.setitem(RECIPES, name, recipe)
    config = recipe()
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert main(["train", name, "--length", "6", "--run", str(tmp_path / "run"), "--quiet"]) == 0
    assert RunConfig.load(tmp_path / "run/config.json").data == data(length=6)
    task = data(length=6).load()
    capsys.readouterr()
    assert Codec.load(tmp_path / "run/model") == task.codec
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
    ParityData().load().codec.save(tmp_path)
    with pytest.raises(UserError, match="source: unknown kind 'bits'; known are text"):
        Codec.load(tmp_path)
