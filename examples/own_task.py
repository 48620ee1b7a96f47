"""A task of your own: a dataclass, a recipe, and the commands of the package for both.

Run as it is, the script trains for a few updates, evaluates, and predicts. With arguments it is the command ``ut`` that
knows the task: ``python own_task.py train sort --training.minutes 2``, ``python own_task.py predict RUN words.txt``.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar

from universal_transformer import DepthConfig, HaltingConfig, ModelConfig, Sizes, StepConfig
from universal_transformer.cli import main
from universal_transformer.recipes import RECIPES
from universal_transformer.tasks import TASKS, Codec, Task
from universal_transformer.tasks.sides.listed import Symbols
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.task import Saved
from universal_transformer.training.run_config import RunConfig, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class SortingData:
    """Words whose letters are sorted."""

    sides: ClassVar[Sides] = (Symbols, Symbols)
    longest: int = 8
    """Letters of the longest word."""
    seed: int = 0
    """The same seed gives the same words."""

    def load(self, saved: Saved | None = None) -> Task:
        del saved  # nothing is learned from files
        letters, draw = Symbols(symbols="abcdefgh"), Random(self.seed)
        words = ["".join(draw.choices(letters.symbols, k=draw.randint(4, self.longest))) for _ in range(3000)]
        examples = [letters.example(word, "".join(sorted(word))) for word in dict.fromkeys(words)]
        return Task(
            name="sorting",
            codec=Codec.shared(letters),
            train=examples[400:],
            validation=examples[:200],
            test={"test": examples[200:400]},
            metric="sequence",
        )


def sort() -> RunConfig:
    """Sort the letters of a word, with a decoder that halts."""
    return RunConfig(
        recipe="sort",
        data=SortingData(),
        model=ModelConfig(
            sizes=Sizes(width=64, filter_width=256, num_heads=4),
            step=StepConfig(norm="pre"),
            depth=DepthConfig(max_steps=4),
            halting=HaltingConfig(side="decoder"),
        ),
        training=TrainingConfig(minutes=1.0, batch_tokens=1024, learning_rate=2e-3, schedule="cosine"),
    )


TASKS["sorting"] = SortingData
RECIPES["sort"] = sort


def show(folder):
    """Train briefly, evaluate, and sort two words."""
    run, words = f"{folder}/run", Path(folder, "words.txt")
    words.write_text("hgfedcba\nbadcafe\n", encoding="utf-8")
    limits = ["--training.minutes", "None", "--training.max-updates", "60", "--training.warmup-updates", "10"]
    code = main(["train", "sort", "--run", run, "--quiet", *limits])
    return code or main(["evaluate", run]) or main(["predict", run, str(words)])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main())
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(show(temporary))
