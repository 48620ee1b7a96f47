"""``ut bench ensemble``: several seeds trained as one program, beside one after the other."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from universal_transformer.bench.result import Measurement, Settings
from universal_transformer.bench.timing import alternate, median_ratio, medians
from universal_transformer.models.config import InputsConfig, ModelConfig, OutputsConfig
from universal_transformer.nn.config import CoordinatesConfig, DepthConfig, HaltingConfig, Sizes, StepConfig
from universal_transformer.tasks import AlgorithmicData, StoriesData
from universal_transformer.training.config import RunConfig, TrainingConfig
from universal_transformer.training.ensemble import Member, Program
from universal_transformer.training.randomness import repeatable
from universal_transformer.training.trainer import device_of

UPDATES = 10_000
"""Updates of the run that runs per hour are counted in."""


@dataclass(frozen=True)
class Case:
    """A configuration, and how many seeds of it are trained."""

    name: str
    config: RunConfig
    members: int


def _stories(model: ModelConfig, *, stories: int = 1000) -> RunConfig:
    """Questions about stories, a batch of about 1,000 facts."""
    return RunConfig(
        recipe="stories",
        data=StoriesData(recent_first=True, train_stories=stories, validation_stories=5, test_stories=5),
        model=model,
        training=TrainingConfig(max_updates=UPDATES, batch_tokens=1024, log_every=UPDATES),
    )


def _copy(model: ModelConfig) -> RunConfig:
    """Copying digits, a batch of about 2,000."""
    return RunConfig(
        recipe="copy",
        data=AlgorithmicData(train_examples=5000),
        model=model,
        training=TrainingConfig(max_updates=UPDATES, batch_tokens=2048, log_every=UPDATES),
    )


HALTING = HaltingConfig(side="both")
STORIES = ModelConfig(
    architecture="classifier",
    inputs=InputsConfig(kind="facts"),
    outputs=OutputsConfig(pooling="last"),
    step=StepConfig(norm="pre", dropout=0.1),
)
SMALLEST = replace(
    STORIES, sizes=Sizes(width=16, filter_width=32, num_heads=2), depth=DepthConfig(max_steps=2)
)
COPY = ModelConfig(coordinates=CoordinatesConfig(offsets="random"), step=StepConfig(dropout=0.0))
QUICK = Case(
    "quick",
    _stories(
        replace(STORIES, sizes=Sizes(width=16, filter_width=32, num_heads=2), depth=DepthConfig(max_steps=2)),
        stories=20,
    ),
    2,
)
CASES = (
    Case(
        "stories, width 32",
        _stories(replace(STORIES, sizes=Sizes(width=32, filter_width=128), halting=HALTING)),
        10,
    ),
    Case("stories, width 128", _stories(STORIES), 10),
    Case("stories, width 128, halting", _stories(replace(STORIES, halting=HALTING)), 10),
    Case(
        "copy, width 128",
        _copy(COPY),
        4,
    ),
)


def run(settings: Settings) -> list[Measurement]:
    """All comparisons of this case, on a GPU if there is one."""
    return [measure(case, settings=settings) for case in ([QUICK] if settings.quick else CASES)]


def measure(case: Case, *, settings: Settings) -> Measurement:
    """One update of every member, one after the other, and all in one program."""
    with _members(case) as members:
        program = Program(members)

        def alone() -> None:
            for member in members:
                member.update_alone()

        def together() -> None:
            failed = program.update()
            assert not failed, failed[0][1]

        device = members[0].device
        times = alternate({"alone": alone, "together": together}, seconds=settings.seconds, device=device)
        parameters = members[0].model.num_parameters()
    seconds = medians(times)
    model, training = case.config.model, case.config.training
    assert isinstance(model, ModelConfig)
    return Measurement(
        case="ensemble",
        name=f"{case.members} runs: {case.name}",
        shape={
            "members": case.members,
            "width": model.sizes.width,
            "max_steps": model.max_steps,
            "batch_tokens": training.batch_tokens,
            "parameters": parameters,
        },
        seconds=seconds,
        turns=len(times["alone"]),
        ours="together",
        over="alone",
        ratio=median_ratio(times["alone"], times["together"]),
        details={
            "device": device.type,
            "updates_of_a_run": UPDATES,
            "runs_per_hour": {name: _runs_per_hour(case, value) for name, value in seconds.items()},
        },
    )


def _runs_per_hour(case: Case, seconds: float) -> float:
    return 3600.0 * case.members / (UPDATES * seconds)


@contextmanager
def _members(case: Case) -> Iterator[Sequence[Member]]:
    """Members ready to be updated, with seeds 0, 1, 2 …, in folders that are thrown away."""
    task = case.config.data.load()
    model = task.configure(case.config.model)
    device = device_of(case.config)
    with ExitStack() as stack:
        stack.enter_context(repeatable(threads=torch.get_num_threads(), device=device))
        folder = Path(stack.enter_context(TemporaryDirectory()))
        members = []
        for seed in range(case.members):
            config = replace(case.config, training=replace(case.config.training, seed=seed))
            place = folder / str(seed)
            place.mkdir()
            member = Member.build(config, model, folder=place, task=task, device=device)
            stack.callback(member.close)
            member.start([], resume=False)
            members.append(member)
        yield members
