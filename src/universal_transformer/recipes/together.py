"""The seeds of a row trained as one program, then measured one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from universal_transformer.errors import UserError
from universal_transformer.files import write_json
from universal_transformer.recipes.reproduce import one_by_one
from universal_transformer.recipes.results import Result
from universal_transformer.recipes.runs import TOGETHER, Planned, Unfinished, Workshop


def together(todo: Sequence[Planned], workshop: Workshop) -> Iterator[tuple[Planned, Result | UserError]]:
    """Make the runs of one row after those of the other, all seeds of a row in one program where that can be.

    Where it cannot (an LSTM, say, or one seed alone), they are made one by one.
    """
    for row, found in groupby(sorted(todo, key=lambda run: run.row), key=lambda run: run.row):
        runs = list(found)
        untrained = [run for run in runs if not workshop.is_trained(run)]
        failed: dict[str, UserError] = {}
        if len(untrained) > 1:
            try:
                failed = _train(untrained, workshop, row=row)
            except UserError as error:
                workshop.say(f"{row}: one by one, for together they cannot be trained: {error}")
        yield from ((run, failed[run.name]) for run in runs if run.name in failed)
        yield from one_by_one([run for run in runs if run.name not in failed], workshop)


def _train(runs: Sequence[Planned], workshop: Workshop, *, row: str) -> dict[str, UserError]:
    """Train the runs; return those that failed, by name. UserError if they cannot be one program."""
    from universal_transformer.training.ensemble import train_together

    if workshop.rest <= 0:
        raise Unfinished("budget")
    task = runs[0].config.data.load()  # seeds are of training: the data are the same
    folders = [workshop.folder(run) for run in runs]
    for folder in folders:
        folder.parent.mkdir(parents=True, exist_ok=True)
    workshop.say(f"{row}: {len(runs)} seeds together, {runs[0].limit}")
    ends = train_together(
        [run.config for run in runs],
        folders,
        tasks=[task] * len(runs),
        resume=True,
        quiet=workshop.quiet,
        deadline=workshop.until,
    )
    for folder in folders:
        write_json(folder / TOGETHER, {"seeds": len(runs)})
    if any(not isinstance(end, UserError) and end.stopped == "interrupted" for end in ends):
        raise Unfinished(workshop.why)
    return {run.name: end for run, end in zip(runs, ends, strict=True) if isinstance(end, UserError)}
