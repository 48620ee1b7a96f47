"""The configuration of a run: the name of its recipe, its data, model and training. Needs no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from universal_transformer.baselines.baseline_config import LstmConfig, NeuralGpuConfig
from universal_transformer.errors import UserError, refuse, refuse_fields
from universal_transformer.files import read_json
from universal_transformer.models.model_config import ModelConfig, config_from_dict
from universal_transformer.rules import Refusals, Unread
from universal_transformer.tasks import TASKS, TaskData, task_name
from universal_transformer.typed import (
    AtLeastTwo,
    NonNegative,
    NumberOf,
    Positive,
    Range,
    Share,
    check,
    check_names,
    listed,
    typed,
)

AnyModelConfig = ModelConfig | LstmConfig | NeuralGpuConfig
MOST_SELECTED = 200
MAX_SEED = 2**63 - 1
"""The largest seed that torch accepts."""
MoreThanZero = Annotated[float, Range(0, above=True)]
Fraction = Annotated[float, Range(0, 1, below=True)]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained, and for how long: `minutes`, `max_updates` or both must be given."""

    minutes: MoreThanZero | None = None
    """Time to train, counted over resumes; None means no limit."""
    max_updates: Positive | None = None
    """Updates of the weights to make; None means no limit."""
    batch_tokens: Positive = 4096
    """Positions in a batch, padding included: rows times the longest row."""
    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    """Adam adds the weight decay to the gradient, AdamW subtracts it from the weights, and so does Muon, which makes
    the updates of the block's matrices orthogonal (all other weights: AdamW)."""
    curriculum: MoreThanZero | None = None
    """Train on the shortest batches first (Kaiser and Sutskever 2016): each time that the mean cross-entropy of
    `log_every` updates is below this number of nats, batches that are a tenth longer are let in, and then harder
    examples of a task that has them. None means all."""
    learning_rate: MoreThanZero = 1e-3
    """The highest learning rate, reached at the end of the warm-up."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.98)
    """Decay of Adam's running means of the gradient and of its square."""
    epsilon: MoreThanZero = 1e-9
    """Added to Adam's denominator."""
    weight_decay: NonNegative = 0.0
    """Decay of matrices; norms, biases and embeddings never decay."""
    accumulate: Positive = 1
    """Passes in which the gradient of a batch is computed: more of them need less memory and more time."""
    parallel: Literal["examples", "shards", "positions"] = "examples"
    """What several processes divide: "examples": the examples of a batch; "shards": also the weights, the gradients
    and the state of the optimizer, for large models; "positions": the positions of every sequence, for long ones."""
    schedule: Literal["inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    """Learning rate after the warm-up; cosine and linear fall to 0 just after `max_updates` (without it: after
    `minutes`)."""
    warmup_updates: NumberOf = 400
    """Updates over which the learning rate rises from 0."""
    clip_norm: MoreThanZero | None = 1.0
    """Largest norm of the whole gradient; None means no clipping."""
    skip_outliers: MoreThanZero | None = None
    """Leave out an update whose loss or gradient norm is more than this number of standard deviations above the mean
    of the last 128 updates; None means never, 6 is usual."""
    label_smoothing: Fraction = 0.0
    """Probability that is moved from the right answer to all answers equally."""
    ponder_weight: NonNegative = 0.01
    """Weight of the ponder cost in the loss."""
    ponder_warmup_updates: NumberOf = 0
    """First updates of the run, over which the ponder weight rises from 0."""
    halting_delay: Annotated[float, Range(0, 1)] = 0.0
    """First part of the run, from 0 to 1 (of `max_updates`, or of `minutes` without it). In it, halting probabilities
    follow from the bias alone and the ponder cost has weight 0: with a low `halting.bias` the model first learns at its
    full depth, and then to stop. The best weights and the mean of the last validations are those after this
    part."""
    validate_every: Positive = 500
    """Updates between two validations; there is always one at the end, and in a run of some `minutes` one after each
    eighth of them."""
    depth: Literal["fixed", "random"] = "fixed"
    """Steps of an update: the model's max_steps, or a number drawn uniformly from 1 to max_steps (seeded)."""
    step_loss: Literal["last", "mean", "increasing"] = "last"
    """What the loss reads: the output alone, or the states after all steps, each weighted equally or by its number."""
    stage: Literal["all", "halting"] = "all"
    """Train all weights, or the halting unit alone on those of a trained run (`ut train RUN --stage halting`)."""
    select_by: Literal["loss", "metric"] = "loss"
    """Choose the best weights by the validation loss (of classes: error), or by the metric of the task on free-running
    output: exact match, BLEU, accuracy of last words. The metric takes longer."""
    select_examples: Positive = MOST_SELECTED
    """Validation examples that this metric is computed on, evenly spread."""
    patience: Positive | None = None
    """Validations without improvement after which training stops; None means never."""
    average_checkpoints: AtLeastTwo | None = None
    """Average the weights of this many last validations, used if better than the best; None means no average."""
    ema_decay: Share | None = None
    """Decay of a running mean of the weights, which is validated and kept in their place; None means no mean. It helps
    where the learning rate does not fall to 0."""
    save_minutes: MoreThanZero | None = 5.0
    """Minutes between two checkpoints; there is always one where validation improves and at the end, and with None no
    other."""
    log_every: Positive = 20
    """Number of updates that one line of metrics.jsonl averages."""
    seed: Annotated[int, Range(0, MAX_SEED)] = 0
    """Seed of the initial weights, the order of the data and dropout."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 computes matrix products in 16 bits (autocast); weights stay in 32."""
    threads: Positive | None = None
    """CPU threads; None leaves the choice to torch. Their number changes the last bits of a sum."""
    compile: bool = False
    """Compile the block with torch.compile: a slow start, and not faster on a CPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    tracker: str | None = None
    """Where numbers are reported to, besides metrics.jsonl: an entry of ``TRACKERS``, such as tensorboard."""

    def __post_init__(self) -> None:
        check(self, field="training")
        unused = self.select_by == "loss" and self.select_examples != MOST_SELECTED
        unlimited = self.minutes is None and self.max_updates is None
        number = f"training.select_examples={self.select_examples}"
        refuse(
            (unused, f"{number} changes nothing without training.select_by metric"),
            (unlimited, "training.minutes and training.max_updates are both None: give one (or both) a limit"),
        )


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """The run whose weights a run starts from."""

    run: str
    """Its folder, as an absolute path."""
    weights: str
    """SHA-256 of its model.safetensors."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The whole configuration of a run."""

    recipe: str
    """Name of the recipe it came from."""
    data: TaskData
    """What to train on."""
    model: AnyModelConfig
    """What to train; sizes that follow from the data are filled in from them."""
    training: TrainingConfig
    """How to train."""
    warm_start: WarmStart | None = None
    """The run whose weights it starts from."""

    def __post_init__(self) -> None:
        refuse_fields(self, self.rules())

    def rules(self) -> Refusals:
        """The path of each field, whether its value does not fit the model, and the remedy."""
        model, training = self.model, self.training
        random, supervised = training.depth == "random", training.step_loss != "last"
        no_depth, same = "this model has no depth to choose; allowed here:", "allowed here: last"
        blockless = "this model has no block with matrices; allowed here: adam, adamw"
        yield "training.optimizer", training.optimizer == "muon" and not model.max_steps, blockless
        yield "training.depth", random and not model.max_steps, f"{no_depth} fixed"
        yield "training.step_loss", supervised and not model.max_steps, f"{no_depth} last"
        weighed = "the rule ponder weighs the loss of each step by its probability"
        yield "training.step_loss", supervised and model.expects_loss, f"{weighed}; {same}"
        yield "training.step_loss", supervised and model.unread_states != "", f"{model.unread_states}; {same}"
        number = 'draws up to model.depth.max_steps: that must be a number, not "length"'
        yield "training.depth", random and model.by_length(decoder=False), number
        uneven = model.max_steps_of(decoder=False) != model.max_steps_of(decoder=True)
        sides = "draws one number of steps for both sides: leave decoder_max_steps out"
        yield "training.depth", random and uneven, sides
        exchange = "training.compile does not compile an exchange between processes" if training.compile else ""
        obstacle = (model.interaction or exchange) if training.parallel == "positions" else ""
        yield "training.parallel", obstacle != "", f"{obstacle}; allowed here: examples, shards"
        nothing_to_fit = training.stage == "halting" and (self.warm_start is None or not model.halts)
        fits = "fits the halting unit of a trained run: ut train RUN --stage halting"
        yield "training.stage", nothing_to_fit, fits

    def unread(self) -> Unread:
        """The path of each field that changes nothing in this run, whatever its value, and why."""
        training = self.training
        yield from ((f"model.{path}", why) for path, why in self.model.unread())
        yield from ((f"data.{path}", why) for path, why in getattr(self.data, "unread", tuple)())
        if not self.model.halts:
            ponder = ("ponder_weight", "ponder_warmup_updates", "halting_delay")
            yield from ((f"training.{field}", "no side halts (model.halting.side none)") for field in ponder)
        elif training.ponder_weight == 0:
            yield "training.ponder_warmup_updates", "training.ponder_weight is 0"
        if training.weight_decay == 0 and training.optimizer != "muon":
            yield "training.optimizer", "adam and adamw differ in training.weight_decay alone, which is 0"
        if self.model.writes == "frames":
            yield "training.label_smoothing", "frames have no probabilities"
        if self.model.max_steps == 1:
            yield from ((f"training.{field}", "the model makes one step") for field in ("depth", "step_loss"))
        if os.environ.get("WORLD_SIZE", "1") == "1":
            yield "training.parallel", "one process trains; torchrun starts several"

    def to_dict(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "data": {"task": task_name(self.data), "fields": _plain(self.data)},
            "model": self.model.to_dict(),
            "training": _plain(self.training),
            "warm_start": dataclasses.asdict(self.warm_start) if self.warm_start else None,
        }

    @classmethod
    def from_dict(cls, fields: Any, *, name: str = "config") -> RunConfig:
        """Undo `to_dict`; a missing, unknown or wrongly typed field is a UserError that names it."""
        check_names(fields, expected={"recipe", "data", "model", "training", "warm_start"}, where=name)
        data = fields["data"]
        check_names(data, expected={"task", "fields"}, where=name, field="data")
        if not isinstance(data["task"], str) or data["task"] not in TASKS:
            raise UserError(f"{name}: data.task: {data['task']!r} is no task; known are {listed(TASKS)}")
        return cls(
            recipe=typed(fields["recipe"], str, where=name, field="recipe"),
            data=typed(data["fields"], TASKS[data["task"]], where=name, field="data"),
            model=config_from_dict(fields["model"], where=f"{name}: model"),
            training=typed(fields["training"], TrainingConfig, where=name, field="training"),
            warm_start=typed(fields["warm_start"], WarmStart | None, where=name, field="warm_start"),
        )

    def digest(self) -> str:
        return digest(self.to_dict())

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        """Read what a run's config.json holds; any fault is a UserError that names the file."""
        return cls.from_dict(read_json(path), name=str(path))


def digest(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def _plain(fields: Any) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(fields), default=Path.as_posix))
    return plain
