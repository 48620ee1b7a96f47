"""A small model of each form that a page shows, with an input for it."""

from functools import cache

import torch

from small_server import digits, writer
from small_task_models import model_for
from universal_transformer.evaluation.pipeline import Pipeline
from universal_transformer.tasks import LabelledData, TaggedData
from universal_transformer.tasks.stories import StoriesData
from universal_transformer.tasks.sudoku import SudokuData

STORY = "1 Mary went to the kitchen.\n2 John ran to the garden.\n3 Mary took the ball.\n4 Where is the ball?\t\t1 3"
BOARD = "1..." + "." * 8 + "..2."


def of_rows(folder, rows, data, **fields):
    path = folder / "rows.tsv"
    path.write_text("".join(f"{row}\n" for row in rows))
    return data(train=str(path), validation=str(path), test=str(path), **fields).load()


@cache
def stories(*, recent_first=False, **changes):
    sizes = {"train_stories": 30, "validation_stories": 2, "test_stories": 5}
    task = StoriesData(**sizes, recent_first=recent_first).load()
    return halting(Pipeline(model_for(task, **changes), task.codec))


@cache
def boards():
    task = SudokuData(side=4, train_boards=20, validation_boards=5, test_boards=5).load()
    return halting(Pipeline(model_for(task), task.codec))


def halting(pipeline):
    """With a halting unit whose positions differ."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in pipeline.model.named_parameters():
            if name.endswith("halting.weight"):
                parameter.normal_(std=2.0)
            if name.endswith("halting.bias"):
                parameter.fill_(-0.5)
    return pipeline


def explored(folder):
    """Form -> pipeline and text."""
    labelled = of_rows(folder, ["a red hat\tA", "the blue cup\tB", "a red cup\tB"], LabelledData)
    several = of_rows(folder, ["a red hat\tA|B", "the blue cup\tB", "a cup\t|"], LabelledData, label_separator="|")
    tagged = of_rows(folder, ["the\tD\ncat\tN\nsat\tV\n", "a\tD\nhat\tN\nfell\tV\n"], TaggedData)
    return {
        "story": (stories(), STORY),
        "story, latest fact first": (stories(recent_first=True), STORY),
        "story, fixed depth": (stories(halting=False), STORY),
        "board": (boards(), BOARD),
        "sequence": (digits(), "12+34"),
        "language model": (writer(), "the red hat"),
        "label": (Pipeline(model_for(labelled), labelled.codec), "a red hat"),
        "several labels": (Pipeline(model_for(several), several.codec), "a red hat"),
        "tags": (Pipeline(model_for(tagged), tagged.codec), "the cat sat"),
    }
