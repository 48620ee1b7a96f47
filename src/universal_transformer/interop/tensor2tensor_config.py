"""The hyper-parameters of official checkpoints (tensor2tensor) as a configuration of ours, which has choices that exist
for these alone. Needs no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.models.components import MOST_BLOCKS, Architecture, CoordinatesConfig, OutputsConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.step_config import HaltingConfig, Sizes, StepConfig
from universal_transformer.rules import Refusals
from universal_transformer.typed import Count, NumberOf, Range, replaced, typed

FixedDepth = Literal["basic", "highway", "skip", "dwa", "gru", "lstm"]
"""Official recurrences of a fixed number of steps; the other one halts."""
Layers = Annotated[int, Range(0, MOST_BLOCKS)]


@dataclass(frozen=True, kw_only=True)
class Tensor2TensorConfig:
    """Choices of official checkpoints. The defaults switch all of them off."""

    concatenate_coordinates: bool = False
    """``X = W [H; π; τ]`` in place of ``H + π + τ``."""
    shift_positions_by_step: bool = False
    """The position signal of step t is ``π_{i + trunc(n t / T)}``, of n positions."""
    plain_layers_before: Layers = 0
    """Blocks that are applied once, before the recurrence."""
    plain_layers_after: Layers = 0
    """Blocks that are applied once, after the recurrence."""
    zero_padding: bool = False
    """The feed-forward transition of the encoder gives 0 at padding (the pad remover)."""
    ponder_padding: bool = False
    """Padding takes steps like any other position."""
    sru: bool = False
    """A simple recurrent unit goes over the positions after the coordinates of each step."""
    recurrence: FixedDepth = "basic"
    """How the state of a step follows from what its block computes (`recurrences.py`)."""
    gates_inputs: str = "i"
    """What the gates of highway and skip read: letters of "sti"."""
    coupled_gates: bool = True
    """The carry gate of highway and skip is 1 - g in place of a gate of its own."""
    depth_embedding: bool = True
    """A learned vector of each step is added to what dwa reads."""
    dwa_elements: bool = True
    """dwa has a weight for each channel."""
    lstm_forget_bias: float = 1.0
    """Added to the forget gate of lstm."""
    ends_with_memory: bool = False
    """The memory of the last step is the last state: the cell of lstm, or of the others the first input."""
    ffn_in_transition: bool = False
    """The block of gru and lstm has its feed-forward transition too."""
    num_target_spaces: Count = 0
    """Learned vectors s, one for each problem: ``H^0 + s`` at every source position. 0: none."""
    start_is_padding: bool = False
    """The token before the first target token has the id of padding."""


@dataclass(frozen=True, kw_only=True)
class OfficialConfig(ModelConfig):
    """A configuration with the choices of official checkpoints.

    All of them multiply a learned step table by the square root of its width, ``τ_t = √c E[t]`` with c channels, and a
    decoder may see later positions: it then scores targets, but does not generate.
    """

    kind: ClassVar[str] = "tensor2tensor"
    parts: ClassVar[str] = "universal_transformer.interop.tensor2tensor_parts:PARTS"
    builder: ClassVar[str] = "universal_transformer.interop.tensor2tensor_parts:OfficialBuilder"
    may_look_ahead = True

    tensor2tensor: Tensor2TensorConfig = Tensor2TensorConfig()
    """Choices for official checkpoints only."""

    @property
    def start_id(self) -> int:
        padding = self.tensor2tensor.start_is_padding
        return self.vocabulary.padding_id if padding else self.vocabulary.start_id

    @property
    def looks_ahead(self) -> bool:
        chosen = self.tensor2tensor
        return (self.decodes and (chosen.shift_positions_by_step or chosen.sru)) or super().looks_ahead

    @property
    def ponders_padding(self) -> bool:
        return self.tensor2tensor.ponder_padding

    @property
    def interaction(self) -> str:
        if self.tensor2tensor.shift_positions_by_step:
            return "tensor2tensor.shift_positions_by_step shifts positions by a part of the length"
        return super().interaction

    @property
    def unread_states(self) -> str:
        follow = "plain layers follow the recurrence (tensor2tensor.plain_layers_after): its states predict nothing"
        return follow if self.tensor2tensor.plain_layers_after else super().unread_states

    def rules(self) -> Refusals:
        chosen, group = self.coordinates, self.tensor2tensor
        every_step, shifted = chosen.injection == "every_step", "tensor2tensor.shift_positions_by_step"
        if group.shift_positions_by_step:
            signal = every_step and chosen.position in ("sinusoidal", "learned")
            yield shifted, not signal, "shifts the signal that is added at every step: a sinusoidal or learned one"
            yield "coordinates.from_end", chosen.from_end, "positions that are shifted by step have no fixed end"
            yield shifted, self.depth.max_steps == "length", "needs a number of steps"
            picture = self.outputs.kind == "raster" or self.inputs.kind == "patches"
            yield shifted, picture, "rows and columns are not shifted"
        yield from super().rules()
        learned = every_step and chosen.position in ("learned", "grid")
        inside = "layers before the recurrence do not get positions that are learned inside it"
        yield "tensor2tensor.plain_layers_before", group.plain_layers_before > 0 and learned, inside
        after = self.expects_loss and group.plain_layers_after > 0
        yield "tensor2tensor.plain_layers_after", after, "ponder needs the output after every step: leave it out"
        yield "step.residual", self.step.residual == "previous", "the authors' code adds the transition to A^t"
        joined = self.step.residual == "state" and group.concatenate_coordinates
        yield "step.residual", joined, "coordinates are concatenated to the state, not added: leave it out"
        carries, path = group.recurrence != "basic", "tensor2tensor.recurrence"
        yield path, carries and self.halts, "positions do not halt with it: leave halting out"
        again = carries and self.execution.activation_checkpointing
        yield "execution.activation_checkpointing", again, "steps of this recurrence are not repeated: leave it out"
        counts = group.recurrence in ("gru", "lstm") and chosen.step != "none"
        yield "coordinates.step", counts, "gru and lstm count their steps themselves: leave it out"
        known = group.gates_inputs and set(group.gates_inputs) <= set("sti")
        yield "tensor2tensor.gates_inputs", not known, 'letters of "sti": the state, what the block computed, the input'
        gated = self.reads and group.recurrence in ("highway", "skip")
        twice = gated and not group.coupled_gates and group.zero_padding
        yield "tensor2tensor.coupled_gates", twice, "the authors' code fails with the pad remover: zero_padding=False"
        frames = self.outputs.kind == "frames"
        yield "outputs.kind", frames, "official models write tokens: leave the choices of tensor2tensor out"


PRESET = OfficialConfig(
    outputs=OutputsConfig(output_bias=False),
    coordinates=CoordinatesConfig(layout="split", step="learned"),
    step=StepConfig(norm="pre"),
    halting=HaltingConfig(bias=1.0, remainder_at_cap=False, output="interpolate", state="evolving"),
    tensor2tensor=Tensor2TensorConfig(
        zero_padding=True, ponder_padding=True, num_target_spaces=32, start_is_padding=True
    ),
)
"""The choices of the authors' code."""


class Unsupported(UserError):  # noqa: N818 - not every refusal is a mistake
    """An official model that this package does not have: the message names the hyper-parameter and its value."""


DEFAULTS: dict[str, tuple[Any, str]] = {
    "act_epsilon": (0.01, ""),
    "act_halting_bias_init": (1.0, "halting.bias"),
    "act_loss_weight": (0.01, ""),
    "add_sru": (False, "tensor2tensor.sru"),
    "add_position_timing_signal": (True, ""),
    "add_step_timing_signal": (True, ""),
    "add_ffn_unit_to_the_transition_function": (False, "tensor2tensor.ffn_in_transition"),
    "attention_dropout": (0.0, "attention.dropout"),
    "couple_carry_transform_gates": (True, "tensor2tensor.coupled_gates"),
    "depth_embedding": (True, "tensor2tensor.depth_embedding"),
    "dwa_elements": (True, "tensor2tensor.dwa_elements"),
    "gates_inputs": ("i", "tensor2tensor.gates_inputs"),
    "layer_prepostprocess_dropout": (0.0, "step.dropout"),
    "layer_postprocess_sequence": ("da", ""),
    "layer_preprocess_sequence": ("n", ""),
    "lstm_forget_bias": (1.0, "tensor2tensor.lstm_forget_bias"),
    "mix_with_transformer": ("none", ""),
    "multiply_embedding_mode": ("sqrt_depth", ""),
    "norm_epsilon": (1e-6, "step.norm_epsilon"),
    "num_inrecurrence_layers": (1, ""),
    "num_mixedin_layers": (2, ""),
    "relu_dropout": (0.0, "transition.dropout"),
    "shared_embedding": (False, ""),
    "shared_embedding_and_softmax_weights": (True, "outputs.tie_output"),
    "use_memory_as_final_state": (False, "tensor2tensor.ends_with_memory"),
    "use_pad_remover": (True, "tensor2tensor.zero_padding"),
    "use_target_space_embedding": (True, ""),
}
"""What ``universal_transformer_base`` gives to the hyper-parameters that are read, those of ``KINDS`` left out, and the
field of ours that has the same value, if there is one."""
NORMS: dict[tuple[str, str], str] = {
    ("n", "da"): "pre",
    ("n", "a"): "pre",
    ("none", "dan"): "post",
    ("none", "an"): "post",
}
"""Norm before or after, by ``layer_preprocess_sequence`` and ``layer_postprocess_sequence``."""
KINDS: dict[str, tuple[Any, ...]] = {
    "act_type": ("basic", "accumulated", "global"),
    "add_or_concat_timing_signal": ("add", "concat"),
    "attention_key_channels": (0,),
    "attention_value_channels": (0,),
    "causal_decoder_self_attention": (True,),
    "ffn_layer": ("dense_relu_dense", "conv_hidden_relu"),  # two names of one layer
    "gate_ffn_layer": ("dense",),
    "hard_attention_k": (0,),
    "norm_type": ("layer",),
    "pos": ("timing", "none"),
    "position_start_index": ("none", "step"),
    "prepend_mode": ("none",),
    "proximity_bias": (False,),
    "recurrence_type": (*get_args(FixedDepth), "act"),
    "self_attention_type": ("dot_product",),
    "step_timing_signal_type": ("learned", "sinusoid"),
    "transformer_ffn_type": ("fc", "sepconv"),
    "unidirectional_encoder": (False,),
}
"""Hyper-parameters that name a way to compute, with the ways that are supported, first the default."""
ASKED_IF: dict[str, tuple[str, Any]] = {
    "act_type": ("recurrence_type", "act"),
    "step_timing_signal_type": ("add_step_timing_signal", True),
    "position_start_index": ("add_position_timing_signal", True),
    "pos": ("add_position_timing_signal", False),
    "ffn_layer": ("transformer_ffn_type", "fc"),
}
"""A hyper-parameter that is read only when another has a certain value."""


def complete(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """``hparams`` with the defaults filled in, and 0 or "none" in place of None.

    The names and their meaning are those of tensor2tensor's ``universal_transformer.py`` at commit ``bafdc1b`` (2023),
    the last one.
    """
    if not isinstance(hparams, Mapping):
        raise UserError(f"hyper-parameters: found {show(hparams)}; expected an object of names and values")
    full = {name: default for name, (default, _) in DEFAULTS.items()} | {
        name: found[0] for name, found in KINDS.items()
    }
    for name, default in full.items():
        none = {int: 0, str: "none"}.get(type(default))
        kind: Any = type(default) if none is None else (NumberOf if none == 0 else str) | None
        value = typed(hparams.get(name, default), kind, where="hyper-parameters", field=name)
        full[name] = value if none is None else value or none
    full = {**hparams, **full}
    for name in ("attention_key_channels", "attention_value_channels"):  # 0 means hidden_size
        full[name] = 0 if full[name] == full.get("hidden_size") else full[name]
    full.setdefault("num_rec_steps", full.get("num_hidden_layers"))
    return full


def _check(full: Mapping[str, Any]) -> None:
    """Unsupported, naming hyper-parameter and value, unless our model computes the same; UserError without a size."""
    for name, allowed in KINDS.items():
        condition, wanted = ASKED_IF.get(name, (name, full[name]))
        if full[condition] == wanted and full[name] not in allowed:
            raise Unsupported(f"{name}={full[name]!r} is not supported: only {', '.join(map(repr, allowed))}")
    before, after = full["layer_preprocess_sequence"], full["layer_postprocess_sequence"]
    if (before, after) not in NORMS:
        raise Unsupported(
            f"layer_preprocess_sequence={before!r} with layer_postprocess_sequence={after!r} is not supported: only "
            + " or ".join(f"{first!r} with {second!r}" for first, second in NORMS)
        )
    positions = full["add_position_timing_signal"]
    if full["add_or_concat_timing_signal"] == "concat" and full["add_step_timing_signal"] and not positions:
        raise Unsupported(
            "add_or_concat_timing_signal='concat' without add_position_timing_signal is not supported: "
            "the official code does not project the state back then"
        )
    if full["add_or_concat_timing_signal"] == "concat" and full["recurrence_type"] == "dwa":
        raise Unsupported(
            "add_or_concat_timing_signal='concat' with recurrence_type='dwa' is not supported: only 'add'"
        )
    if full["mix_with_transformer"] != "none" and positions and not full["num_mixedin_layers"]:
        raise Unsupported("num_mixedin_layers=0 with mix_with_transformer is not supported: at least 1")
    steps = "num_rec_steps" if full["recurrence_type"] in get_args(FixedDepth) else "act_max_steps"
    missing = [name for name in ("hidden_size", "filter_size", "num_heads", steps) if full.get(name) is None]
    if missing:
        raise UserError(f"the official hyper-parameters lack {', '.join(missing)}")


def config_from_hparams(
    hparams: Mapping[str, Any], *, architecture: Architecture = "encoder_decoder"
) -> OfficialConfig:
    """The configuration that computes what the official code computes with ``hparams``: `PRESET` but for these fields.

    Token ids are the official ones: 0 is padding and precedes the first target token, 1 ends a text. Global
    halting and the start index "step" let a decoder depend on later tokens.

    Raises Unsupported, naming hyper-parameter and value, where there is no equal configuration.
    """
    full = complete(hparams)
    _check(full)
    halts = full["recurrence_type"] not in get_args(FixedDepth)
    every_step = full["add_position_timing_signal"]
    step_signal = {"learned": "learned", "sinusoid": "sinusoidal"}.get(full["step_timing_signal_type"], "none")
    shifted = every_step and full["position_start_index"] == "step"
    together = halts and full["act_type"] == "global"
    mixed = full["mix_with_transformer"]  # the official code looks for words in it
    fields = {
        "architecture": architecture,
        "vocabulary.end_id": 1,
        "inputs.scale_embeddings": full["multiply_embedding_mode"] == "sqrt_depth",
        "sizes": Sizes(width=full["hidden_size"], filter_width=full["filter_size"], num_heads=full["num_heads"]),
        "coordinates.position": "sinusoidal" if every_step or full["pos"] == "timing" else "none",
        "coordinates.step": step_signal if full["add_step_timing_signal"] else "none",
        "coordinates.injection": "every_step" if every_step else "input",
        "transition.kind": {"fc": "feed_forward", "sepconv": "separable_convolution"}[full["transformer_ffn_type"]],
        "step.norm": NORMS[full["layer_preprocess_sequence"], full["layer_postprocess_sequence"]],
        "step.blocks": 1 if full["recurrence_type"] in ("gru", "lstm") else full["num_inrecurrence_layers"],
        "depth.max_steps": full["act_max_steps" if halts else "num_rec_steps"],
        "halting.side": "both" if halts else "none",
        "halting.threshold": 1.0 - full["act_epsilon"],
        "halting.output": "mean" if full["act_type"] == "accumulated" else "interpolate",
        "halting.scope": "sequence" if together else "position",
        "tensor2tensor.concatenate_coordinates": every_step and full["add_or_concat_timing_signal"] == "concat",
        "tensor2tensor.shift_positions_by_step": shifted,
        "tensor2tensor.plain_layers_before": full["num_mixedin_layers"] if "before_ut" in mixed else 0,
        "tensor2tensor.plain_layers_after": full["num_mixedin_layers"] if "after_ut" in mixed else 0,
        "tensor2tensor.recurrence": "basic" if halts else full["recurrence_type"],
    }
    fields |= {path: full[name] for name, (_, path) in DEFAULTS.items() if path}
    if architecture == "language_model" or not full["use_target_space_embedding"]:
        fields["tensor2tensor.num_target_spaces"] = 0
    return replaced(PRESET, fields)
