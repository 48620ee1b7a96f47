"""The configuration of a run: the name of its recipe, its data, model and training. Needs no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from universal_transformer.data.text import read_json, show
from universal_transformer.data.typed import check_names, listed, typed
from universal_transformer.errors import UserError
from universal_transformer.models.config import EXECUTION, ModelConfig
from universal_transformer.models.kinds import AnyModelConfig, kind_of
from universal_transformer.tasks import (
    TASKS,
    AgreementData,
    AlgorithmicData,
    BabiData,
    LabelledData,
    LambadaData,
    LearningToExecuteData,
    PairsData,
    ReadingData,
    StoriesData,
    TextData,
    TranslationData,
)

TaskFields = (
    StoriesData
    | BabiData
    | AlgorithmicData
    | LearningToExecuteData
    | PairsData
    | TextData
    | LabelledData
    | TranslationData
    | AgreementData
    | LambadaData
    | ReadingData
)

MAX_SEED = 2**63 - 1
"""The largest seed that torch accepts."""
_ABOVE_ZERO = ("batch_tokens", "learning_rate", "epsilon", "validate_every", "log_every")
_AT_LEAST_ZERO = (
    *("minutes", "max_updates", "warmup_updates", "clip_norm", "weight_decay", "label_smoothing", "seed"),
    *("ponder_weight", "ponder_warmup_updates", "halting_delay"),
    *("patience", "average_checkpoints", "save_minutes", "threads"),
)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained, and for how long: `minutes`, `max_updates` or both must be given."""

    minutes: float = 0.0
    """Time to train, counted over resumes; 0 means no limit."""
    max_updates: int = 0
    """Updates of the weights to make; 0 means no limit."""
    batch_tokens: int = 4096
    """Positions in a batch, padding included: rows times the longest row."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """Adam adds the weight decay to the gradient, AdamW subtracts it from the weights."""
    learning_rate: float = 1e-3
    """The highest learning rate, reached at the end of the warm-up."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Decay of Adam's running means of the gradient and of its square."""
    epsilon: float = 1e-9
    """Added to Adam's denominator."""
    weight_decay: float = 0.0
    """Decay of matrices; norms, biases and embeddings never decay."""
    schedule: Literal["inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    """After the warm-up; cosine and linear end at 0 at `max_updates` (or at `minutes`, if that is all there is)."""
    warmup_updates: int = 400
    """Updates over which the learning rate rises from 0."""
    clip_norm: float = 1.0
    """Largest norm of the whole gradient; 0 means no clipping."""
    label_smoothing: float = 0.0
    """Probability that is moved from the right answer to all answers equally."""
    ponder_weight: float = 0.01
    """Weight of the ponder cost in the loss."""
    ponder_warmup_updates: int = 0
    """Updates over which the ponder weight rises from 0."""
    halting_delay: float = 0.0
    """First part of the run (of `max_updates`, or of `minutes`, if that is all there is) in which halting probabilities
    are those of the bias alone and thinking is free: with a low halting_bias the model learns at its full depth first,
    and to stop afterwards; the best weights are chosen from those after it. From 0 to 1."""
    validate_every: int = 500
    """Updates between two validations; there is always one at the end."""
    depth: Literal["fixed", "random"] = "fixed"
    """Steps of an update: the model's max_steps, or a number drawn uniformly from 1 to them (seeded)."""
    patience: int = 0
    """Validations without improvement after which training stops; 0 means never."""
    average_checkpoints: int = 0
    """Average the weights of this many last validations, used if better than the best; 0 or 1 means none."""
    save_minutes: float = 5.0
    """Minutes between two checkpoints; there is always one where validation improves and at the end."""
    log_every: int = 20
    """Number of updates that one line of metrics.jsonl averages."""
    seed: int = 0
    """Seed of the initial weights, the order of the data and dropout."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 computes matrix products in 16 bits (autocast); weights stay in 32."""
    threads: int = 0
    """CPU threads; 0 leaves the choice to torch. Their number changes the last bits of a sum."""
    compile: bool = False
    """Compile the block with torch.compile: a slow start, then faster."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    tensorboard: bool = False
    """Write TensorBoard files too (needs the extra `tensorboard`)."""

    def __post_init__(self) -> None:
        for field in _ABOVE_ZERO:
            _require(getattr(self, field) > 0, field=field, value=getattr(self, field), allowed="more than 0")
        for field in _AT_LEAST_ZERO:
            _require(getattr(self, field) >= 0, field=field, value=getattr(self, field), allowed="0 or more")
        for field, hint in get_type_hints(type(self)).items():
            value = getattr(self, field)
            if get_origin(hint) is Literal:
                _require(value in get_args(hint), field=field, value=value, allowed=listed(get_args(hint)))
            if isinstance(value, float):
                _require(math.isfinite(value), field=field, value=value, allowed="a finite number")
        _require(
            self.seed <= MAX_SEED, field="seed", value=self.seed, allowed=f"from 0 to {MAX_SEED} (2^63 - 1)"
        )
        for beta in self.betas:
            _require(0 <= beta < 1, field="betas", value=self.betas, allowed="two numbers in [0, 1)")
        _require(
            self.label_smoothing < 1, field="label_smoothing", value=self.label_smoothing, allowed="[0, 1)"
        )
        _require(
            self.halting_delay <= 1, field="halting_delay", value=self.halting_delay, allowed="from 0 to 1"
        )
        if not self.minutes and not self.max_updates:
            raise UserError(
                "training.minutes and training.max_updates are both 0: give one (or both) a limit"
            )


#: Fields of `TrainingConfig` that may change when a run continues. Cosine and linear schedules and `halting_delay`
#: depend on the length of the run: they jump to their values in a run of the new length. A resume warns of it.
LIMITS = ("minutes", "max_updates", "patience", "save_minutes", "log_every", "tensorboard")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The whole configuration of a run."""

    recipe: str
    """Name of the recipe it came from."""
    data: TaskFields
    """What to train on."""
    model: AnyModelConfig
    """What to train; sizes that follow from the data are filled in from them."""
    training: TrainingConfig
    """How to train."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; the data carry the name of their task under "task"."""
        task = next((name for name, kind in TASKS.items() if kind is type(self.data)), None)
        if task is None:
            raise UserError(f"data: {type(self.data).__name__} is no task; known are {listed(TASKS)}")
        return {
            "recipe": self.recipe,
            "data": {"task": task, "fields": _plain(dataclasses.asdict(self.data))},
            "model": self.model.to_dict(),
            "training": _plain(dataclasses.asdict(self.training)),
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any], *, name: str = "config") -> RunConfig:
        """Undo `to_dict`; a missing, unknown or wrongly typed field is a UserError that names it."""
        check_names(fields, expected={"recipe", "data", "model", "training"}, where=name)
        data = fields["data"]
        check_names(data, expected={"task", "fields"}, where=name, field="data")
        if not isinstance(data["task"], str) or data["task"] not in TASKS:
            raise UserError(f"{name}: data.task: {data['task']!r} is no task; known are {listed(TASKS)}")
        return cls(
            recipe=typed(fields["recipe"], str, where=name, field="recipe"),
            data=typed(data["fields"], TASKS[data["task"]], where=name, field="data"),
            model=_model(fields["model"], where=name),
            training=typed(fields["training"], TrainingConfig, where=name, field="training"),
        )

    def digest(self) -> str:
        """Return 12 hexadecimal digits that change with every field."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        """Read what a run's config.json holds; any fault is a UserError that names the file."""
        return cls.from_dict(read_json(path), name=str(path))


def _require(condition: bool, *, field: str, value: object, allowed: str) -> None:
    if not condition:
        raise UserError(f"training.{field}: {value!r} is not allowed; allowed: {allowed}")


def _plain(value: Any) -> Any:
    """Python values as JSON has them: tuples as lists, paths as text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.as_posix() if isinstance(value, Path) else value


def _model(fields: Any, *, where: str) -> AnyModelConfig:
    """Build the model configuration of the kind that `fields` name; without a name it is a `ModelConfig`."""
    if not isinstance(fields, dict):
        raise UserError(f"{where}: model: expected an object, found {show(fields)}")
    kind = kind_of(fields, where=f"{where}: model")
    if kind is ModelConfig:
        fields = {**EXECUTION, **fields}
    named = {name: value for name, value in fields.items() if name != "kind"}
    model: AnyModelConfig = typed(named, kind, where=where, field="model")
    return model
