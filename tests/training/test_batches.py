"""Batches of examples that are read from disk, window after window, and of examples in memory."""

import itertools
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from configs import config_of
from universal_transformer.data import sampler
from universal_transformer.data.example import Example, sizes
from universal_transformer.errors import UserError
from universal_transformer.runs.journal import read_metrics
from universal_transformer.runs.resume import data_digest
from universal_transformer.runs.trainer import train
from universal_transformer.tasks import TextData
from universal_transformer.tasks.lazy import GradedExamples, MappedExamples
from universal_transformer.training.batches import PlaceInData, TrainingBatches
from universal_transformer.training.processes import Processes
from universal_transformer.typed import replaced

from . import tiny

EXAMPLES = [Example(source=(4,) * (1 + i % 7), target=(5,) * (1 + i % 5)) for i in range(83)]
ON_DISK = MappedExamples(
    EXAMPLES.__getitem__,
    count=len(EXAMPLES),
    sizes=np.array(sizes(EXAMPLES)).__getitem__,
    digest="a",
    longest_target=5,
)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(sampler, "BLOCK", 4)
    monkeypatch.setattr(sampler, "WINDOW", 3)


def batches(examples=ON_DISK, **place):
    return TrainingBatches(examples, batch_tokens=20, seed=3, device=torch.device("cpu"), **place)


def indices(found):
    return [index for part in found.parts if part.weight for index in part.batch.indices.tolist()]


@pytest.mark.parametrize("examples", [EXAMPLES, ON_DISK])
def test_batches_from_any_place_are_those_of_the_undisturbed_run(examples):
    undisturbed = batches(examples)
    seen = []
    while undisturbed.epoch < 2:
        seen.append((undisturbed.epoch, undisturbed.index, indices(undisturbed)))
        undisturbed.advance()
    for number, (epoch, index, _) in enumerate(seen):
        found = batches(examples, start=PlaceInData(epoch, index))
        for expected in seen[number : number + 3]:
            assert (found.epoch, found.index, indices(found)) == expected
            found.advance()


@pytest.mark.parametrize(("size", "passes"), [*itertools.product((1, 2, 3), (1, 2))])
def test_each_example_on_disk_is_seen_once_an_epoch_by_one_process(size, passes):
    seen = []
    for rank in range(size):
        found = batches(passes=passes, processes=Processes(rank=rank, size=size))
        while found.epoch == 0:
            seen += indices(found)
            found.advance()
    assert sorted(seen) == list(range(len(EXAMPLES)))


def test_a_batch_has_no_more_passes_than_rows():
    found = batches(passes=1_000_000)
    while found.epoch == 0:
        assert len(found.parts) == found.rows
        assert all(part.weight == 1.0 for part in found.parts)
        found.advance()


@pytest.mark.parametrize("examples", [EXAMPLES, ON_DISK])
def test_a_curriculum_begins_with_the_shortest_batches_and_lets_in_all_in_the_end(examples):
    found, epochs = batches(examples, start=PlaceInData(longest=0)), []
    while not epochs or found.epoch < 30:
        longest = max(
            size for part in found.parts for size in sizes([examples[i] for i in part.batch.indices.tolist()])
        )
        assert longest <= found.longest
        if found.epoch == len(epochs):
            epochs.append([])
            found.grow() if found.epoch % 2 else None
        epochs[-1] += indices(found)
        found.advance()
    seen = [set(sizes([examples[i] for i in epoch])) for epoch in epochs]
    assert max(seen[0]) < max(sizes(EXAMPLES))
    assert [max(one) for one in seen] == sorted(max(one) for one in seen)
    assert sorted(epochs[-1]) == list(range(len(EXAMPLES)))


def graded():
    """Examples whose targets say their level."""
    return GradedExamples(
        lambda index, level: Example(source=(4,) * (1 + index % 3), target=(4 + level,)), count=40, levels=4
    )


def test_levels_begin_when_all_lengths_are_let_in():
    longest = max(sizes(graded()))
    found = batches(graded(), start=PlaceInData(longest=longest - 1))
    seen = []
    for _ in range(6):
        levels = {int(token) - 4 for part in found.parts for token in part.batch.target[:, 0]}
        seen.append((found.longest - longest, levels))
        found.grow()
    assert seen == [(-1, {1}), (0, {1}), (1, {2}), (2, {3}), (3, {4}), (3, {4})]


def test_without_a_curriculum_examples_have_the_last_level():
    examples = graded()
    assert {int(token) for part in batches(examples).parts for token in part.batch.target[:, 0]} == {8}
    assert (examples[0].target, examples.at(1)[0].target) == ((8,), (5,))


def test_a_curriculum_leaves_the_examples_as_they_are():
    """Further runs of a process have the same ones, and a resume compares their digest."""
    examples = graded()
    before = data_digest(examples)
    found = batches(examples, start=PlaceInData(longest=0))
    for _ in range(9):
        assert data_digest(examples) == before
        found.grow()


@pytest.mark.parametrize("harder", [False, True])
def test_a_curriculum_waits_for_the_loss_and_resumes_exactly(harder, tmp_path):
    task = tiny.task("encoder_decoder")
    if harder:
        shown = [task.train[index] for index in range(len(task.train))]
        levels = [shown, [replace(one, target=one.target[::-1]) for one in shown], shown]
        made = GradedExamples(lambda index, level: levels[level - 1][index], count=len(shown), levels=3)
        task = replace(task, train=made)

    def longest_of(folder):
        return [line["longest"] for line in read_metrics(folder / "metrics.jsonl") if line["event"] == "update"]

    config = tiny.run_config(max_updates=20 if harder else 8, curriculum=100.0, log_every=2)
    train(config, tmp_path / "whole", task=task, quiet=True)
    parts = (5, 10, 12, 20) if harder else (5, 8)
    for updates in parts:
        part = replaced(config, {"training.max_updates": updates})
        train(part, tmp_path / "parts", task=task, quiet=True, resume=updates > 5)
    assert tiny.losses(tmp_path / "parts") == tiny.losses(tmp_path / "whole")
    if harder:
        assert longest_of(tmp_path / "whole")[-1] == max(sizes(task.train)) + 2
        return
    train(replaced(config, {"training.curriculum": 1e-9}), tmp_path / "waiting", task=task, quiet=True)
    shortest, longest = longest_of(tmp_path / "waiting")[0], max(sizes(task.train))
    assert longest_of(tmp_path / "waiting") == [shortest] * 4
    assert longest_of(tmp_path / "whole") == [min(shortest + i, longest) for i in range(4)]
    assert shortest < longest


def test_the_digest_of_examples_on_disk_is_that_of_their_file():
    other = MappedExamples(EXAMPLES.__getitem__, count=len(EXAMPLES), sizes=ON_DISK.sizes, digest="b", longest_target=5)
    assert data_digest(ON_DISK) == data_digest(ON_DISK) != data_digest(other)


def test_a_run_on_a_file_on_disk_resumes_exactly(tmp_path, monkeypatch):
    monkeypatch.setenv("UT_DATA", str(tmp_path / "data"))
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number} of it\n" for number in range(150)))
    data = TextData(train=str(text), block_length=8, memory_mb=0)
    model = config_of(width=16, filter_width=32, num_heads=2, max_steps=2, dropout=0.1, architecture="language_model")
    config = replaced(tiny.run_config(model), {"data": data, "training.max_updates": 9})

    def losses(folder):
        return [line["loss"] for line in read_metrics(folder / "metrics.jsonl") if line["event"] == "update"]

    train(config, tmp_path / "whole", quiet=True)
    for updates in (5, 9):
        part = replaced(config, {"training.max_updates": updates})
        train(part, tmp_path / "parts", quiet=True, resume=updates == 9)
    assert len(losses(tmp_path / "whole")) == 9
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    for limit, message in ((0, ""), (64, "the data have changed: examples were")):
        given = replaced(config, {"data.memory_mb": limit})
        with pytest.raises(UserError, match=message) if message else nullcontext():
            train(given, tmp_path / "parts", quiet=True, resume=True)
    text.write_text(text.read_text().replace("line 3 ", "line 4 "))
    with pytest.raises(UserError, match=r"the data have changed: the file of data\.train was .* bytes, is now other"):
        train(config, tmp_path / "parts", quiet=True, resume=True)
