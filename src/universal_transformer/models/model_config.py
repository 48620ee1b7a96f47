"""The configuration of a model: a frozen dataclass for each component, checked as a whole. Needs no torch.

>>> ModelConfig(sizes=Sizes(width=512, num_heads=8), depth=DepthConfig(max_steps=8), halting=HaltingConfig(side="both"))

`nn/step_config.py` has the components of the paper, `components.py` the others, each with the rules for combinations
that concern it. This module has the whole.
"""

import dataclasses
from dataclasses import dataclass
from operator import attrgetter
from pkgutil import resolve_name
from typing import Any, ClassVar

from universal_transformer.errors import UserError, refuse_fields, suggestion
from universal_transformer.files import show
from universal_transformer.models.components import (
    ENCODERS,
    MOST_BLOCKS,
    MOST_STEPS,
    NORMS,
    POSITIONS,
    TRANSITIONS,
    Architecture,
    CoordinatesConfig,
    DepthConfig,
    ExecutionConfig,
    GenerationConfig,
    InputsConfig,
    OutputsConfig,
    VocabularyConfig,
    Writes,
    needed,
    unused,
)
from universal_transformer.nn.step_config import AttentionConfig, HaltingConfig, Sizes, StepConfig, TransitionConfig
from universal_transformer.rules import HALTING_RULES, Refusals, Unread, choices_of, refusals
from universal_transformer.typed import check, hints, listed, typed

REGISTRIES = {
    "coordinates.position": POSITIONS,
    "step.norm": NORMS,
    "transition.kind": TRANSITIONS,
    "halting.rule": HALTING_RULES,
}
"""Fields that name a member of a registry."""
KINDS: dict[str, str] = {
    "universal_transformer": "universal_transformer.models.model_config:ModelConfig",
    "tensor2tensor": "universal_transformer.interop.tensor2tensor_config:OfficialConfig",
    "lstm": "universal_transformer.baselines.baseline_config:LstmConfig",
    "neural_gpu": "universal_transformer.baselines.baseline_config:NeuralGpuConfig",
}
"""Kind of a model, as files name it -> ``module:class`` of its configuration."""


NO_DEPTH: DepthConfig | None = None


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """What every model has, baselines included: these have no ``depth``, ``halting`` on no side, and no frames."""

    kind: ClassVar[str]
    """An entry of ``KINDS``."""
    parts: ClassVar[str]
    """What makes the sides and the head: ``module:attribute`` of a `models.model.Parts`."""
    longer_answers: ClassVar[str] = "raise the limit with --max-new-tokens"
    """How to get longer answers than those of the model."""

    architecture: Architecture = "encoder_decoder"
    """Sequence to sequence, next token, one class for each sequence, or one class for each position."""
    vocabulary: VocabularyConfig = VocabularyConfig()
    """Sizes and ids, from the data."""
    inputs: InputsConfig = InputsConfig()
    """From ids to states."""
    generation: GenerationConfig = GenerationConfig()
    """How long an answer may be."""

    depth = NO_DEPTH
    halting = HaltingConfig()
    outputs = OutputsConfig()

    def __post_init__(self) -> None:
        check(self)
        refuse_fields(self, self.rules())

    def rules(self) -> Refusals:
        """The path of each field, whether its value does not fit the others, and the remedy."""
        for component in vars(self).values():
            if hasattr(component, "rules"):
                yield from component.rules(self)

    def unread(self) -> Unread:
        """The path of each field that changes nothing in this model, whatever its value, and why."""
        for component in vars(self).values():
            if hasattr(component, "unread"):
                yield from component.unread(self)
        if not self.decodes:
            yield "generation.max_new_tokens", f"a {self.architecture} writes no text"
        if not self.halts:
            fields = (field for field in hints(HaltingConfig) if field != "side")
            yield from ((f"halting.{field}", "no side halts (model.halting.side none)") for field in fields)

    @property
    def start_id(self) -> int:
        """Token id before the first target token."""
        return self.vocabulary.start_id

    @property
    def reads(self) -> bool:
        return self.architecture != "language_model"

    @property
    def decodes(self) -> bool:
        """Whether there is a target that is written position by position."""
        return self.architecture not in ENCODERS

    def answer_limit(self, given: int) -> int:
        """How many tokens an answer to so many tokens may have."""
        return self.generation.limit(given)

    @property
    def writes(self) -> Writes:
        return "tokens" if self.decodes else "classes"

    @property
    def halts(self) -> bool:
        """Whether positions of any side halt."""
        return self.halts_in(decoder=False) or self.halts_in(decoder=True)

    @property
    def expects_loss(self) -> bool:
        """Whether the loss is the expectation over the step at which positions stop (PonderNet)."""
        return self.halts and choices_of(self.halting).expects_loss

    @property
    def ponders_padding(self) -> bool:
        """Whether padding takes steps like any other position."""
        return False

    @property
    def unread_states(self) -> str:
        """Why no head reads the states after each step; empty where one does."""
        return ""

    @property
    def interaction(self) -> str:
        """How positions interact besides attention, so that processes cannot share a sequence; empty if they can."""
        return "this model computes positions one after the other"

    @property
    def max_steps(self) -> int:
        """The largest number of steps of any side. 0: the model has no steps over depth."""
        return max(self.max_steps_of(decoder=False), self.max_steps_of(decoder=True))

    def halts_in(self, *, decoder: bool) -> bool:
        """Whether positions of this side halt."""
        return self.halting.side in ("both", "decoder" if decoder else "encoder")

    def max_steps_of(self, *, decoder: bool) -> int:
        if self.depth is None:
            return 0
        steps = (self.depth.decoder_max_steps if decoder else None) or self.depth.max_steps
        return MOST_STEPS if steps == "length" else steps

    def by_length(self, *, decoder: bool) -> bool:
        """Whether each sequence of this side makes as many steps as it has positions, or at most as many (D15)."""
        return not decoder and self.depth is not None and self.depth.max_steps == "length"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **dataclasses.asdict(self)}


@dataclass(frozen=True, kw_only=True)
class ModelConfig(BaseConfig):
    """Every choice of a Universal Transformer or a Transformer. A UserError names the field, its value and the rule."""

    kind: ClassVar[str] = "universal_transformer"
    parts: ClassVar[str] = "universal_transformer.models.universal:PARTS"
    builder: ClassVar[str] = "universal_transformer.models.depth:RecurrenceBuilder"
    """What builds the recurrences: ``module:class``."""
    may_look_ahead: ClassVar[bool] = False
    """Whether a decoder may depend on later tokens: it then scores targets and does not generate."""

    outputs: OutputsConfig = OutputsConfig()
    """From states to logits, or to frames."""
    sizes: Sizes = Sizes()
    """Channels and heads."""
    coordinates: CoordinatesConfig = CoordinatesConfig()
    """How positions and steps are encoded."""
    attention: AttentionConfig = AttentionConfig()
    """Multi-head attention."""
    transition: TransitionConfig = TransitionConfig()
    """The transition function."""
    step: StepConfig = StepConfig()
    """What one depth step consists of."""
    depth: DepthConfig = DepthConfig()
    """How many steps there are."""
    halting: HaltingConfig = HaltingConfig()
    """Dynamic halting."""
    execution: ExecutionConfig = ExecutionConfig()
    """How it is computed."""

    def rules(self) -> Refusals:
        for path, members in REGISTRIES.items():
            name = attrgetter(path)(self)
            yield path, name not in members, f"allowed: {listed(members)}{suggestion(name, members)}"
        width, heads = self.sizes.width, self.sizes.num_heads
        divisors = [n for n in range(1, min(width, 1024) + 1) if width % n == 0]
        yield "sizes.num_heads", width % heads != 0, f"must divide width={width}: one of {divisors}"
        groups = self.attention.key_value_heads
        yield "attention.key_value_heads", groups is not None and heads % groups != 0, f"must divide num_heads={heads}"
        if not (self.reads and self.decodes):
            yield from unused(self.attention, "attention", ("rotary_source", "source_sink"), "an encoder_decoder")
            yield from unused(self.depth, "depth", ("decoder_max_steps",), "an encoder_decoder")
        missing = ("decoder",) * (not self.decodes) + ("encoder",) * (not self.reads)
        side = self.halting.side
        others = listed(sorted({"both", "encoder", "decoder", "none"} - {*missing}))
        yield "halting.side", side in missing, f"a {self.architecture} has no {side}; allowed here: {others}"
        yield from super().rules()
        if self.halts:
            yield from refusals(self)
        ahead = "lets a causal decoder depend on later tokens: use it with a classifier"
        yield "halting.scope", self.looks_ahead and not self.may_look_ahead, ahead
        blocks = self.step.blocks * (1 if self.step.tied else self.max_steps)
        yield "step.blocks", blocks > MOST_BLOCKS, f"{blocks:,} blocks of one side: at most {MOST_BLOCKS}"

    def unread(self) -> Unread:
        yield from super().unread()
        if self.max_steps == 1:
            yield "step.tied", "one step has the same blocks in any case (model.depth.max_steps 1)"

    @property
    def writes(self) -> Writes:
        kind = self.outputs.kind
        return kind if kind == "frames" or kind == "labels" else super().writes

    def line_of(self, *, decoder: bool) -> int | None:
        """How many positions a line of a picture has on one side; None where positions have one dimension (D17)."""
        if decoder:
            return self.outputs.columns
        if self.inputs.kind != "patches":
            return None
        return needed(self.inputs.features, "inputs.features", by="patches have a number of rows") // self.inputs.stride

    @property
    def source_attention(self) -> AttentionConfig:
        """Return `attention` with what the position "distance" means for attention to a source (D13)."""
        if self.coordinates.position != "distance" or not (self.reads and self.decodes):
            return self.attention
        return dataclasses.replace(self.attention, rotary_source=True, source_sink=True)

    @property
    def looks_ahead(self) -> bool:
        """Whether a decoder of this configuration depends on later target positions."""
        sequence = self.halts_in(decoder=True) and self.halting.scope == "sequence"
        return self.decodes and sequence

    @property
    def interaction(self) -> str:
        if resolve_name(TRANSITIONS[self.transition.kind]).pointwise:
            return ""
        return f"transition.kind {self.transition.kind!r} reads neighbours, which another process may have"

    @property
    def unread_states(self) -> str:
        if self.writes == "labels":
            return "this model gives labels, and no distribution over them"
        return "this model writes frames, which have no probabilities" if self.writes == "frames" else ""


def config_from_dict(fields: Any, *, where: str = "model configuration") -> Any:
    """Undo `to_dict` of a configuration of any kind; a missing, unknown or wrongly typed field is a UserError."""
    kind = fields.get("kind") if isinstance(fields, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise UserError(f"{where}: kind: expected one of {listed(KINDS)}, found {show(kind)}")
    named = {name: value for name, value in fields.items() if name != "kind"}
    return typed(named, resolve_name(KINDS[kind]), where=where)
