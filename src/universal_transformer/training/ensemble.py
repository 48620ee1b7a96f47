"""Several runs of one shape trained as one program: seeds of a row of a table, side by side.

``L = Σ_k L_k(θ_k, batch_k)``: the weights of all members are stacked along a first axis, one vectorised pass computes
every member's loss on its own batch, and as no weight of one member is in the loss of another, the gradient of the sum
is each one's own gradient. Clipping, Adam, validation, checkpoints and the order of batches are those of the member
alone, which is an ordinary `Session` in an ordinary run folder, and can be gone on with alone.

A member computes what it would alone, up to rounding: first weights and random positions are drawn from its own seed,
and batches are padded to the largest of their turn with rows and columns that no loss sees. Halting makes all steps to
the cap, masked. Only dropout differs: its masks are drawn for all members at once, from the same distribution.

This is for a GPU that one small model leaves idle. On a CPU, padding costs more than it saves (docs/log.md).
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch.func import functional_call, vmap
from torch.nn.functional import pad

from universal_transformer.axes import Int, Tensor
from universal_transformer.baselines.config import LstmConfig
from universal_transformer.data.batch import Batch
from universal_transformer.data.example import NO_CLASS, PADDING
from universal_transformer.errors import UserError
from universal_transformer.models.build import Model, build
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.kinds import AnyModelConfig
from universal_transformer.nn.coordinates import draw_positions
from universal_transformer.nn.trace import Trace
from universal_transformer.tasks.task import Task
from universal_transformer.training import folder as folders
from universal_transformer.training.config import RunConfig
from universal_transformer.training.files import CONFIG
from universal_transformer.training.interruption import StopRequest, stop_on_signals
from universal_transformer.training.objective import loss_of
from universal_transformer.training.randomness import (
    random_states,
    repeatable,
    restore_random_states,
    seed_everything,
)
from universal_transformer.training.session import AVERAGED, Session
from universal_transformer.training.tracking import Display, Glance, display
from universal_transformer.training.trainer import (
    TrainingResult,
    check_extras,
    device_of,
    disk_errors,
    finish,
    unit_of,
)
from universal_transformer.training.vectorised import Folded


def train_together(
    configs: Sequence[RunConfig],
    run_folders: Sequence[Path],
    *,
    tasks: Sequence[Task] | None = None,
    resume: bool = False,
    quiet: bool = False,
    deadline: float = math.inf,
) -> list[TrainingResult | UserError]:
    """Train every configuration in its folder, all at once; return what came of each, in order.

    `tasks` are what ``config.data.load()`` gives, for callers that have it already; the same object may stand for
    several members. With `resume`, folders that hold a run are gone on with, and the others begin. A member whose loss
    is not finite, or whose checkpoint cannot be written, is a UserError in its place, and the others go on. A signal
    stops all, saved, and so does `deadline`, a time of `time.monotonic`.

    Raises UserError where members cannot be one program: another shape of model, device, precision, threads, label
    smoothing, or a model that is not made of vectorisable parts (an LSTM, tensor2tensor's steps over padding).
    """
    if not configs or len(configs) != len(run_folders):
        raise UserError(
            f"{len(configs)} configurations and {len(run_folders)} folders: one folder each is needed"
        )
    if len({path.resolve() for path in run_folders}) != len(run_folders):
        raise UserError("two runs in one folder: every run needs a folder of its own")
    going_on = [resume and (path / CONFIG).is_file() for path in run_folders]
    changes = [
        folders.check_usable(path, config, resume=old)
        for config, path, old in zip(configs, run_folders, going_on, strict=True)
    ]
    tasks = [config.data.load() for config in configs] if tasks is None else tasks
    models = [task.configure(config.model) for config, task in zip(configs, tasks, strict=True)]
    _check_alike(configs, models)
    for config, task in zip(configs, tasks, strict=True):
        check_extras(config)
        if not task.train:
            raise UserError(f"data: there are no examples to train on in {task.name}")
    device = device_of(configs[0])
    with ExitStack() as stack:
        stack.enter_context(repeatable(threads=configs[0].training.threads, device=device))
        for config, path in zip(configs, run_folders, strict=True):
            stack.enter_context(disk_errors(path))
            stack.enter_context(folders.claimed(path, config))
        stop = stack.enter_context(stop_on_signals(deadline=deadline))
        members = [
            Member.build(config, model, folder=path, task=task, device=device)
            for config, model, path, task in zip(configs, models, run_folders, tasks, strict=True)
        ]
        shown = stack.enter_context(closing(display(quiet=quiet, unit=unit_of(members[0].model))))
        for member, change, old in zip(members, changes, going_on, strict=True):
            member.shown = Corner(shown, name=member.folder.name)
            stack.callback(member.close)
            with member.own_randomness():
                member.start(change, resume=old)
        found = _run(members, stop)
        return [found[id(member)] for member in members]


def _run(members: Sequence[Member], stop: StopRequest) -> dict[int, TrainingResult | UserError]:
    """Train until every member has a reason to stop; what came of each, by its identity."""
    found: dict[int, TrainingResult | UserError] = {}
    program: Program | None = None
    running = list(members)
    while running:
        for member in list(running):
            try:
                with disk_errors(member.folder):
                    reason = member.between(stop)
                    if reason is None:
                        continue
                    found[id(member)] = finish(member, reason=reason, stop=stop)
            except UserError as error:
                found[id(member)] = error
                member.give_up()
            running.remove(member)
            program = None
        if running:
            program = program or Program(running)
            for member, failure in program.update():
                found[id(member)] = failure
                member.give_up()
                running.remove(member)
                program = None
    return found


class Member(Session):
    """A run in progress whose gradients come from elsewhere. ``random`` are the random states it would have alone."""

    random: dict[str, Tensor]

    @classmethod
    def build(
        cls, config: RunConfig, model: AnyModelConfig, *, folder: Path, task: Task, device: torch.device
    ) -> Member:
        """A member whose first weights are those that its seed gives."""
        outside = random_states(device)
        try:
            seed_everything(config.training.seed)
            built = build(model).to(device)
            member = cls(config, folder=folder, task=task, model=built, device=device, shown=Display())
            member.random = random_states(device)
        finally:
            restore_random_states(outside, device=device)
        return member

    @contextmanager
    def own_randomness(self) -> Iterator[None]:
        """Inside, what is drawn and kept is the member's own."""
        outside = random_states(self.device)
        restore_random_states(self.random, device=self.device)
        try:
            yield
            self.random = random_states(self.device)
        finally:
            restore_random_states(outside, device=self.device)

    def save(self) -> None:
        """Write a checkpoint that the member alone could go on from."""
        with self.own_randomness():
            super().save()

    def give_up(self) -> None:
        """Close the files, also on a disk that refuses what is left to write."""
        with suppress(OSError):
            self.close()

    def update_alone(self) -> None:
        """Make one update as an ordinary run does."""
        with self.own_randomness():
            self._update()

    def positions(self, batch: Batch) -> dict[str, Tensor]:
        """The random positions of a batch, drawn as the model alone would draw them."""
        config = self.model.config
        if not isinstance(config, ModelConfig) or config.position_offsets == "none":
            return {}
        lengths = {"target_positions": batch.target.shape[-1]} if config.architecture != "classifier" else {}
        if batch.source is not None:
            lengths["source_positions"] = batch.source.shape[1]

        def draw(length: int) -> Tensor:
            return draw_positions(
                len(batch.indices),
                length,
                offsets=config.position_offsets,
                max_positions=config.max_positions,
                device=self.device,
            )

        with self.own_randomness():
            if config.independent_offsets:  # the source is drawn first
                return {name: draw(lengths[name]) for name in sorted(lengths)}
            drawn = draw(max(lengths.values()))
            return {name: drawn[:, :length] for name, length in lengths.items()}


class Program:
    """One vectorised update of several members, whose parameters become views of the stacked ones."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        self.base: Model = self.members[0].model
        models = [dict(member.model.named_parameters()) for member in self.members]
        with torch.no_grad():
            self.stacked = {
                name: torch.stack([model[name].detach() for model in models]).requires_grad_()
                for name in models[0]
            }
        for index, model in enumerate(models):
            for name, parameter in model.items():
                parameter.data = self.stacked[name].detach()[index]

    def update(self) -> list[tuple[Member, UserError]]:
        """Make one update of every member; return those that could not make it."""
        began = time.perf_counter()
        batches, counts = zip(*(member.stream.current() for member in self.members), strict=True)
        pairs = zip(self.members, batches, strict=True)
        given = _inputs([*batches], [member.positions(batch) for member, batch in pairs])
        losses = self._losses(given)
        torch.autograd.backward(losses["loss"].sum())
        norms = []
        for index, member in enumerate(self.members):
            for name, parameter in member.model.named_parameters():
                gradient = self.stacked[name].grad
                parameter.grad = None if gradient is None else gradient[index]
            norms.append(member.gradient_norm())
            member.stream.advance()
        parts = [losses[name].detach() for name in AVERAGED[:-1]] + [torch.stack(norms)]
        values = torch.stack([part.float() for part in parts], dim=1).tolist()
        failed: list[tuple[Member, UserError]] = []
        for index, (member, batch, targets) in enumerate(zip(self.members, batches, counts, strict=True)):
            numbers = dict(zip(AVERAGED, values[index], strict=True))
            numbers |= {"updates": 1, "examples": len(batch.indices), "targets": targets}
            try:
                with disk_errors(member.folder):
                    member.step(numbers, traces=_traces(losses, index), began=began)
            except UserError as error:
                failed.append((member, error))
        for weights in self.stacked.values():
            weights.grad = None
        return failed

    def _losses(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        """Loss, its parts and steps over depth of every member, member by member."""
        first = self.members[0]
        weights = torch.tensor([member.ponder_weight for member in self.members], device=first.device)
        smoothing = first.training.label_smoothing
        architecture = self.base.config.architecture

        def one(
            parameters: dict[str, Tensor], inputs: dict[str, Tensor], weight: Tensor
        ) -> dict[str, Tensor]:
            names = {"encoder_decoder": ("source", "target"), "language_model": ("target",)}
            called = tuple(inputs[name] for name in names.get(architecture, ("source",)))
            options = {name: inputs[name] for name in inputs if name.endswith("positions")}
            # a shared embedding is one module under two names: tied by itself, and torch would put it back wrongly
            output = functional_call(self.base, parameters, called, options, tie_weights=False)
            loss = loss_of(output, inputs["target"], label_smoothing=smoothing, ponder_weight=weight)
            parts = (loss.total, loss.cross_entropy, loss.ponder, loss.mean_steps)
            found = dict(zip(AVERAGED[:-1], parts, strict=True))
            for side, trace in (("encoder", output.encoder), ("decoder", output.decoder)):
                if trace is not None and trace.probability is not None:
                    assert trace.padding is not None
                    found |= {f"{side}_steps": trace.steps, f"{side}_padding": trace.padding}
            return found

        self.base.train()
        _seed_dropout(self.members)
        with straight(), first.precision(), Folded():
            return vmap(one, randomness="different")(self.stacked, given, weights)


class Corner(Display):
    """What one member shows: its notes, with its name; the bar is shared."""

    def __init__(self, shown: Display, *, name: str) -> None:
        self._shown, self._name = shown, name

    def show(self, glance: Glance) -> None:
        """Show how the members stand by the one that spoke last."""
        self._shown.show(glance)

    def note(self, text: str) -> None:
        """Say it with the member's name."""
        self._shown.note(f"{self._name}: {text}")


def _seed_dropout(members: Sequence[Member]) -> None:
    """Masks are a function of who is trained together and of how far each is: after a resume they are the same."""
    named = [(member.training.seed, member.standing.update) for member in members]
    torch.manual_seed(int.from_bytes(hashlib.sha256(repr(named).encode()).digest()[:7]))


def _inputs(batches: Sequence[Batch], positions: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Batches of all members as one tensor each, padded with rows and columns that no loss sees."""
    given = {"target": _stacked([batch.target for batch in batches])}
    sources = [batch.source for batch in batches if batch.source is not None]
    if sources:
        given["source"] = _stacked(sources)
    for name in positions[0]:
        given[name] = _stacked([drawn[name] for drawn in positions])
    return given


def _stacked(tensors: Sequence[Int[Tensor, ...]]) -> Int[Tensor, "member ..."]:
    """Tensors side by side, each padded at its ends to the largest size of every axis."""
    shape = [max(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True)]
    blank = NO_CLASS if len(shape) == 1 else PADDING

    def padded(tensor: Tensor) -> Tensor:
        missing = [most - size for most, size in zip(shape, tensor.shape, strict=True)]
        return pad(tensor, [end for count in reversed(missing) for end in (0, count)], value=blank)

    return torch.stack([padded(tensor) for tensor in tensors])


def _traces(losses: dict[str, Tensor], index: int) -> list[Trace]:
    """What a member's encoder and decoder did, as far as the watch over halting asks."""
    found = []
    for side in ("encoder", "decoder"):
        if f"{side}_steps" in losses:
            steps, padding = losses[f"{side}_steps"][index].detach(), losses[f"{side}_padding"][index]
            found.append(Trace(steps, torch.zeros_like(steps), padding, probability=steps.unsqueeze(0)))
    return found


#: Fields of `TrainingConfig` that all members share, for they are one program.
SHARED = ("device", "precision", "threads", "label_smoothing")


def _check_alike(configs: Sequence[RunConfig], models: Sequence[AnyModelConfig]) -> None:
    """Refuse members that cannot be one program, naming the field."""
    first = configs[0]
    for config, model in zip(configs[1:], models[1:], strict=True):
        if type(model) is not type(models[0]):
            raise UserError(
                f"{type(model).__name__} beside {type(models[0]).__name__}: train them one at a time"
            )
        for field in dataclasses.fields(model):
            _compare(f"model.{field.name}", getattr(models[0], field.name), getattr(model, field.name))
        for name in SHARED:
            _compare(f"training.{name}", getattr(first.training, name), getattr(config.training, name))
    if any(config.training.compile for config in configs):
        raise UserError("training.compile: runs trained together are not compiled; leave it off")
    if any(config.training.depth != "fixed" for config in configs):
        raise UserError("training.depth: every run draws its own: train runs of random depth one at a time")
    model = models[0]
    if isinstance(model, LstmConfig):
        raise UserError("model: an LSTM's kernels take one set of weights: train its runs one at a time")
    if isinstance(model, ModelConfig) and model.activation_checkpointing:
        raise UserError(
            "model.activation_checkpointing: runs trained together keep their activations; leave it off"
        )
    if isinstance(model, ModelConfig):
        for name, value in (("ponder_padding", True), ("position_start", "step")):
            if getattr(model, name) == value:
                raise UserError(
                    f"model.{name}={value!r} makes a batch's padding part of the result: train such runs one at a time"
                )


def _compare(name: str, ours: Any, theirs: Any) -> None:
    if ours != theirs:
        raise UserError(
            f"{name}: {ours!r} beside {theirs!r}: runs trained together are of one shape; train one at a time"
        )


__all__ = ["Member", "Program", "train_together"]
