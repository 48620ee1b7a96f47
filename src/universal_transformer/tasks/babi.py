"""bAbI question answering, tasks 1 to 20 v1.2 in English: one task, several, or all in one model (table 1).

Weston et al., "Towards AI-complete question answering: a set of prerequisite toy tasks", 2015.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

from universal_transformer.data.download import find
from universal_transformer.data.example import Example
from universal_transformer.data.story_lines import Question, parse
from universal_transformer.errors import UserError
from universal_transformer.files import read_lines, show, show_path
from universal_transformer.tasks.exchange import ExchangedExamples
from universal_transformer.tasks.facts import FactCodec, encode_question, fact_codec
from universal_transformer.tasks.sides.fact_list import Facts
from universal_transformer.tasks.sides.listed import Classes
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import NumberOf, Share, check

TASK_NAMES = {
    1: "single-supporting-fact",
    2: "two-supporting-facts",
    3: "three-supporting-facts",
    4: "two-arg-relations",
    5: "three-arg-relations",
    6: "yes-no-questions",
    7: "counting",
    8: "lists-sets",
    9: "simple-negation",
    10: "indefinite-knowledge",
    11: "basic-coreference",
    12: "conjunction",
    13: "compound-coreference",
    14: "time-reasoning",
    15: "basic-deduction",
    16: "basic-induction",
    17: "positional-reasoning",
    18: "size-reasoning",
    19: "path-finding",
    20: "agents-motivations",
}
_FOLDERS = {"1k": "en", "10k": "en-10k"}
_QUESTIONS = {"1k": 1_000, "10k": 10_000}
_PARTIAL = "qa{number}_{name}_train_10k-partial.txt"


@dataclass(frozen=True, kw_only=True)
class BabiData:
    """The bAbI question-answering tasks, read from the published files."""

    sides: ClassVar[Sides] = (Facts, Classes)
    task: str = "1"
    """A task from 1 to 20, several with commas between them (one model for all of them), or "joint": all 20."""
    size: Literal["1k", "10k"] = "10k"
    """Training questions of each task; the test questions are the same for both."""
    data_dir: str = ""
    """Folder with the data sets; empty: that of the environment variable UT_DATA, or else "data"."""
    validation: Share = 0.1
    """Share of each task's training stories, the last ones, that is held out for validation."""
    recent_first: bool = False
    """Give the model the latest fact first (the question stays last)."""
    max_facts: NumberOf = 0
    """Keep only so many facts of a story, the latest; 0 keeps all."""
    repeat: str = ""
    """Tasks to train on several times an epoch, as task:times with commas between, such as "16:4,17:2"."""
    exchanged: NumberOf = 0
    """Further forms of each training question: names of persons, places and objects exchanged (not in the paper)."""

    def __post_init__(self) -> None:
        check(self, field="data")
        _ = self.times

    @property
    def tasks(self) -> tuple[int, ...]:
        """The numbers that `task` names, in order."""
        if self.task.strip() == "joint":
            return tuple(TASK_NAMES)
        parts = self.task.split(",")
        numbers = {int(part) for part in parts if re.fullmatch(r"\s*\d\d?\s*", part, re.ASCII)}
        if len(numbers) < len(parts) or not numbers <= TASK_NAMES.keys():
            raise UserError(
                "task must be a number from 1 to 20, several different ones with commas, or joint, "
                f"found {show(self.task)}"
            )
        return tuple(sorted(numbers))

    @property
    def times(self) -> dict[int, int]:
        """How often an epoch has the training questions of each task (ours: not in the paper)."""
        once = dict.fromkeys(self.tasks, 1)
        parts = self.repeat.split(",") if self.repeat else []
        matches = [re.fullmatch(r"\s*(\d\d?)\s*:\s*(\d\d?)\s*", part, re.ASCII) for part in parts]
        given = {int(match[1]): int(match[2]) for match in matches if match}
        if len(given) < len(parts) or not given.keys() <= once.keys() or 0 in given.values():
            raise UserError(
                f"repeat must give tasks of {show(self.task)}, each once, and times from 1 to 99, as in 16:4,17:2, "
                f"found {show(self.repeat)}"
            )
        return once | given

    def load(self, saved: Saved | None = None) -> Task:
        """Read the files and encode them; of a new run, vocabulary and answers are those of the training files."""
        notes = [f"the latest {self.max_facts} facts of each story only"] if self.max_facts else []
        notes += [f"task {task}: trained on {n} times an epoch" for task, n in self.times.items() if n > 1]
        train: dict[int, list[Question]] = {}
        test: dict[int, list[Question]] = {}
        for number in self.tasks:
            path = self._training_file(number)
            train[number] = _read(path)
            test[number] = _read(self._file(number, "test"))
            if path.name == _PARTIAL.format(number=number, name=TASK_NAMES[number]):
                whole = _QUESTIONS[self.size]
                notes.append(f"task {number}: {len(train[number]):,} of {whole:,} training questions")
        codec: FactCodec = (
            saved.codec
            if saved
            else fact_codec(
                [question for questions in train.values() for question in questions],
                max_facts=self.max_facts,
                recent_first=self.recent_first,
            )
        )
        if self.exchanged:
            notes.append(f"trained on {self.exchanged} further forms of each question, with names exchanged")

        def encode(tasks: Mapping[int, Sequence[Question]]) -> dict[int, list[Example]]:
            groups = {number: f"task {number} {TASK_NAMES[number]}" for number in tasks}
            return {n: [encode_question(codec, one, group=groups[n]) for one in asked] for n, asked in tasks.items()}

        parts = {number: self._split(questions) for number, questions in train.items()}
        to_train = encode({number: part[0] * self.times[number] for number, part in parts.items()})
        further = ExchangedExamples(to_train, codec=codec, forms=self.exchanged)
        return Task(
            name=f"babi {self.size} {_title(self.tasks)}",
            codec=codec,
            train=further if self.exchanged else [*chain(*to_train.values())],
            validation=[*chain(*encode({number: part[1] for number, part in parts.items()}).values())],
            test={"test": [*chain(*encode(test).values())]},
            metric="error",
            notes=tuple(notes),
        )

    def _split(self, questions: list[Question]) -> tuple[list[Question], list[Question]]:
        """Split off the last stories; each part keeps at least one story."""
        num_stories = questions[-1].story + 1
        if num_stories < 2:
            raise UserError(f"{questions[0].where}: one story only; expected one to train and one to validate on")
        first = num_stories - min(num_stories - 1, max(1, round(self.validation * num_stories)))
        train = [question for question in questions if question.story < first]
        return train, [question for question in questions if question.story >= first]

    def _file(self, number: int, part: str) -> Path:
        name = f"{_FOLDERS[self.size]}/qa{number}_{TASK_NAMES[number]}_{part}.txt"
        return find("babi", self.data_dir, file=name)

    def _training_file(self, number: int) -> Path:
        """Return the training file; where the 10K one is missing, the part of it in a folder ``derived``, if any."""
        try:
            return self._file(number, "train")
        except UserError:
            with suppress(UserError):
                root = find("babi", self.data_dir)
                for folder in (root.parent / "derived", root / "derived"):
                    part = folder / _PARTIAL.format(number=number, name=TASK_NAMES[number])
                    if self.size == "10k" and part.is_file():
                        return part
            raise


def _read(path: Path) -> list[Question]:
    return list(parse(read_lines(path), name=show_path(path)))


def _title(tasks: tuple[int, ...]) -> str:
    if len(tasks) == len(TASK_NAMES):
        return "joint"
    return f"task {tasks[0]}" if len(tasks) == 1 else f"tasks {','.join(map(str, tasks))}"
