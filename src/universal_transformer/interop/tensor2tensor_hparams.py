"""The configuration that official hyper-parameters describe.

The names and their meaning are those of tensor2tensor's ``universal_transformer.py`` at commit ``bafdc1b`` (2023), the
last one. A hyper-parameter that is left out has the value that ``universal_transformer_base`` gives it.
"""

from collections.abc import Mapping
from typing import Any, Literal

from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.interop.tensor2tensor_config import OfficialConfig, Tensor2TensorConfig
from universal_transformer.models.components import (
    Architecture,
    InputsConfig,
    OutputsConfig,
    VocabularyConfig,
)
from universal_transformer.nn.config import (
    AttentionConfig,
    CoordinatesConfig,
    DepthConfig,
    HaltingConfig,
    Sizes,
    StepConfig,
    TransitionConfig,
)
from universal_transformer.typed import NumberOf, typed

TARGET_SPACES = 32  # rows of the official embedding of problems
DEFAULTS: dict[str, Any] = {
    "act_epsilon": 0.01,
    "act_halting_bias_init": 1.0,
    "act_loss_weight": 0.01,
    "act_type": "basic",
    "add_or_concat_timing_signal": "add",
    "add_position_timing_signal": True,
    "add_sru": False,
    "add_step_timing_signal": True,
    "attention_dropout": 0.0,
    "attention_key_channels": 0,
    "attention_value_channels": 0,
    "causal_decoder_self_attention": True,
    "ffn_layer": "dense_relu_dense",
    "hard_attention_k": 0,
    "layer_postprocess_sequence": "da",
    "layer_prepostprocess_dropout": 0.0,
    "layer_preprocess_sequence": "n",
    "mix_with_transformer": None,
    "multiply_embedding_mode": "sqrt_depth",
    "norm_epsilon": 1e-6,
    "norm_type": "layer",
    "num_inrecurrence_layers": 1,
    "num_mixedin_layers": 2,
    "pos": "timing",
    "position_start_index": None,
    "prepend_mode": "none",
    "proximity_bias": False,
    "recurrence_type": "basic",
    "relu_dropout": 0.0,
    "self_attention_type": "dot_product",
    "shared_embedding": False,
    "shared_embedding_and_softmax_weights": True,
    "step_timing_signal_type": "learned",
    "transformer_ffn_type": "fc",
    "unidirectional_encoder": False,
    "use_pad_remover": True,
    "use_target_space_embedding": True,
}
ALLOWED: dict[str, tuple[Any, ...]] = {
    "recurrence_type": ("basic", "act"),
    "act_type": ("basic", "accumulated", "global"),
    "add_sru": (False,),
    "add_or_concat_timing_signal": ("add", "concat"),
    "step_timing_signal_type": ("learned", "sinusoid"),
    "position_start_index": (None, "step"),
    "pos": (None, "none", "timing"),
    "transformer_ffn_type": ("fc", "sepconv"),
    "ffn_layer": ("dense_relu_dense", "conv_hidden_relu"),  # two names of one layer
    "norm_type": ("layer",),
    "self_attention_type": ("dot_product",),
    "causal_decoder_self_attention": (True,),
    "unidirectional_encoder": (False,),
    "proximity_bias": (False,),
    "prepend_mode": (None, "none"),
    "hard_attention_k": (0,),
}
"""What we can compute, of the hyper-parameters that name a way to compute."""
NORMS: dict[tuple[str, str], Literal["pre", "post"]] = {
    ("n", "da"): "pre",
    ("n", "a"): "pre",
    ("none", "dan"): "post",
    ("none", "an"): "post",
}
"""Norm before or after, by ``layer_preprocess_sequence`` and ``layer_postprocess_sequence``."""
ASKED_IF: dict[str, tuple[str, Any]] = {
    "act_type": ("recurrence_type", "act"),
    "step_timing_signal_type": ("add_step_timing_signal", True),
    "position_start_index": ("add_position_timing_signal", True),
    "pos": ("add_position_timing_signal", False),
    "ffn_layer": ("transformer_ffn_type", "fc"),
}
"""A hyper-parameter that is read only when another has a certain value."""


class Unsupported(UserError):  # noqa: N818 - not every refusal is a mistake
    """An official model that this package does not have: the message names the hyper-parameter and its value."""


def complete(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """``hparams`` with the defaults filled in and ways to say "none" made one; sizes must be given."""
    if not isinstance(hparams, Mapping):
        raise UserError(f"hyper-parameters: found {show(hparams)}; expected an object of names and values")
    full = DEFAULTS | dict(hparams)
    for name, default in DEFAULTS.items():
        typed(full[name], _kind(default), where="hyper-parameters", field=name)
    typed(
        full.get("symbol_modality_num_shards"),
        NumberOf | None,
        where="hyper-parameters",
        field="symbol_modality_num_shards",
    )
    for name in ("mix_with_transformer", "position_start_index", "pos"):
        full[name] = full[name] or None
    full["layer_preprocess_sequence"] = full["layer_preprocess_sequence"] or "none"
    full.setdefault("num_rec_steps", full.get("num_hidden_layers"))
    needed = ["hidden_size", "filter_size", "num_heads"]
    needed.append("act_max_steps" if full["recurrence_type"] == "act" else "num_rec_steps")
    missing = [name for name in needed if full.get(name) is None]
    if missing:
        raise UserError(f"the official hyper-parameters lack {', '.join(missing)}")
    return full


def _kind(default: object) -> Any:
    """Return the type of a hyper-parameter: that of its default. Names and sizes may be None, which stands for none."""
    return (
        type(default) if isinstance(default, bool | float) else int | None if isinstance(default, int) else str | None
    )


def check(full: Mapping[str, Any]) -> None:
    """Unsupported, naming hyper-parameter and value, unless our model computes the same."""
    for name, allowed in ALLOWED.items():
        condition, wanted = ASKED_IF.get(name, (name, full[name]))
        if full[condition] == wanted and full[name] not in allowed:
            shown = ", ".join(repr(value) for value in allowed)
            raise Unsupported(f"{name}={full[name]!r} is not supported: only {shown}")
    for name in ("attention_key_channels", "attention_value_channels"):
        if full[name] not in (0, None, full["hidden_size"]):
            raise Unsupported(f"{name}={full[name]!r} is not supported: only 0, which means hidden_size")
    norms = (full["layer_preprocess_sequence"], full["layer_postprocess_sequence"])
    if norms not in NORMS:
        shown = " or ".join(f"{before!r} with {after!r}" for before, after in NORMS)
        raise Unsupported(
            f"layer_preprocess_sequence={norms[0]!r} with layer_postprocess_sequence={norms[1]!r} "
            f"is not supported: only {shown}"
        )
    positions, steps = full["add_position_timing_signal"], full["add_step_timing_signal"]
    if full["add_or_concat_timing_signal"] == "concat" and steps and not positions:
        raise Unsupported(
            "add_or_concat_timing_signal='concat' without add_position_timing_signal is not supported: "
            "the official code does not project the state back then"
        )
    if full["mix_with_transformer"] and positions and not full["num_mixedin_layers"]:
        raise Unsupported("num_mixedin_layers=0 with mix_with_transformer is not supported: at least 1")


def _coordinates(full: Mapping[str, Any]) -> CoordinatesConfig:
    every_step = bool(full["add_position_timing_signal"])
    learned = full["step_timing_signal_type"] == "learned"
    return CoordinatesConfig(
        layout="split",
        position="sinusoidal" if every_step or full["pos"] == "timing" else "none",
        step=("learned" if learned else "sinusoidal") if full["add_step_timing_signal"] else "none",
        injection="every_step" if every_step else "input",
    )


def _halting(full: Mapping[str, Any]) -> HaltingConfig:
    """The halting of the official code: halted positions go on changing, and there is no remainder at the last step."""
    act = full["recurrence_type"] == "act"
    return HaltingConfig(
        side="both" if act else "none",
        threshold=1.0 - full["act_epsilon"],
        bias=float(full["act_halting_bias_init"]),
        remainder_at_cap=False,
        output="mean" if full["act_type"] == "accumulated" else "interpolate",
        state="evolving",
        scope="sequence" if act and full["act_type"] == "global" else "position",
    )


def _tensor2tensor(full: Mapping[str, Any], *, spaces: bool, step: str, scope: str) -> Tensor2TensorConfig:
    every_step = bool(full["add_position_timing_signal"])
    shifted = every_step and full["position_start_index"] == "step"
    mixed = full["mix_with_transformer"] or ""  # the official code looks for these words in it
    return Tensor2TensorConfig(
        scale_step_table=step == "learned",
        concatenate_coordinates=every_step and full["add_or_concat_timing_signal"] == "concat",
        shift_positions_by_step=shifted,
        plain_layers_before=full["num_mixedin_layers"] if "before_ut" in mixed else 0,
        plain_layers_after=full["num_mixedin_layers"] if "after_ut" in mixed else 0,
        zero_padding=bool(full["use_pad_remover"]),
        ponder_padding=True,
        num_target_spaces=TARGET_SPACES if spaces else 0,
        start_is_padding=True,
        allow_look_ahead=shifted or scope == "sequence",
    )


def config_from_hparams(
    hparams: Mapping[str, Any],
    *,
    architecture: Architecture = "encoder_decoder",
) -> OfficialConfig:
    """The configuration that computes what the official code computes with ``hparams``.

    Token ids are the official ones: 0 is padding and precedes the first target token, 1 ends a text. Global
    halting and the start index "step" let a decoder depend on later tokens; official checkpoints have them, so they are
    allowed here (``allow_look_ahead``).

    Raises Unsupported, naming hyper-parameter and value, where there is no equal configuration.
    """
    full = complete(hparams)
    check(full)
    coordinates, halting = _coordinates(full), _halting(full)
    spaces = architecture != "language_model" and bool(full["use_target_space_embedding"])
    steps = full["act_max_steps" if full["recurrence_type"] == "act" else "num_rec_steps"]
    return OfficialConfig(
        architecture=architecture,
        vocabulary=VocabularyConfig(padding_id=0, end_id=1),
        inputs=InputsConfig(scale_embeddings=full["multiply_embedding_mode"] == "sqrt_depth"),
        outputs=OutputsConfig(tie_output=bool(full["shared_embedding_and_softmax_weights"]), output_bias=False),
        sizes=Sizes(width=full["hidden_size"], filter_width=full["filter_size"], num_heads=full["num_heads"]),
        coordinates=coordinates,
        attention=AttentionConfig(dropout=float(full["attention_dropout"])),
        transition=TransitionConfig(
            kind="feed_forward" if full["transformer_ffn_type"] == "fc" else "separable_convolution",
            dropout=float(full["relu_dropout"]),
        ),
        step=StepConfig(
            norm=NORMS[full["layer_preprocess_sequence"], full["layer_postprocess_sequence"]],
            norm_epsilon=float(full["norm_epsilon"]),
            dropout=float(full["layer_prepostprocess_dropout"]),
            blocks=full["num_inrecurrence_layers"],
        ),
        depth=DepthConfig(max_steps=steps),
        halting=halting,
        tensor2tensor=_tensor2tensor(full, spaces=spaces, step=coordinates.step, scope=halting.scope),
    )
