"""What the official hyper-parameters say, in our words.

The names and their meaning are those of tensor2tensor's ``universal_transformer.py`` at commit ``bafdc1b`` (2023), the
last one. A hyper-parameter that is left out has the value that ``universal_transformer_base`` gives it.
"""

from collections.abc import Mapping
from typing import Any, Literal

from universal_transformer.errors import UserError
from universal_transformer.models.config import ModelConfig

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
NORMS = {("n", "da"): "pre", ("n", "a"): "pre", ("none", "dan"): "post", ("none", "an"): "post"}
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
    """An official model that ours cannot be: the message names the hyper-parameter and its value."""


def complete(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """``hparams`` with the defaults filled in and ways to say "none" made one; sizes must be given."""
    full = DEFAULTS | dict(hparams)
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


def _blocks(full: Mapping[str, Any]) -> dict[str, Any]:
    mixed = full["mix_with_transformer"] or ""  # the official code looks for these words in it
    return {
        "layers_per_step": full["num_inrecurrence_layers"],
        "plain_layers_before": full["num_mixedin_layers"] if "before_ut" in mixed else 0,
        "plain_layers_after": full["num_mixedin_layers"] if "after_ut" in mixed else 0,
        "norm": NORMS[full["layer_preprocess_sequence"], full["layer_postprocess_sequence"]],
        "norm_epsilon": float(full["norm_epsilon"]),
        "transition": "feed_forward" if full["transformer_ffn_type"] == "fc" else "separable_convolution",
        "zero_padding": bool(full["use_pad_remover"]),
        "dropout": float(full["layer_prepostprocess_dropout"]),
        "attention_dropout": float(full["attention_dropout"]),
        "transition_dropout": float(full["relu_dropout"]),
    }


def _coordinates(full: Mapping[str, Any]) -> dict[str, Any]:
    every_step = bool(full["add_position_timing_signal"])
    learned = full["step_timing_signal_type"] == "learned"
    steps = ("learned" if learned else "sinusoidal") if full["add_step_timing_signal"] else "none"
    concatenate = every_step and full["add_or_concat_timing_signal"] == "concat"
    return {
        "coordinate_layout": "split",
        "position_coordinates": "sinusoidal" if every_step or full["pos"] == "timing" else "none",
        "position_injection": "every_step" if every_step else "input",
        "position_start": "step" if every_step and full["position_start_index"] == "step" else "fixed",
        "step_coordinates": steps,
        "scale_step_table": steps == "learned",
        "combine_coordinates": "concatenate" if concatenate else "add",
    }


def _halting(full: Mapping[str, Any]) -> dict[str, Any]:
    """The halting of the official code: padding ponders, halted positions go on changing, the cap has no remainder."""
    act = full["recurrence_type"] == "act"
    return {
        "max_steps": full["act_max_steps" if act else "num_rec_steps"],
        "halting": act,
        "halting_threshold": 1.0 - full["act_epsilon"],
        "halting_bias": float(full["act_halting_bias_init"]),
        "remainder_at_cap": False,
        "halting_output": "mean" if full["act_type"] == "accumulated" else "interpolate",
        "halting_state": "evolving",
        "halting_scope": "sequence" if act and full["act_type"] == "global" else "position",
        "ponder_padding": True,
    }


def config_from_hparams(
    hparams: Mapping[str, Any],
    *,
    architecture: Literal["encoder_decoder", "language_model", "classifier"] = "encoder_decoder",
) -> ModelConfig:
    """The configuration that computes what the official code computes with ``hparams``.

    Token ids are the official ones: 0 is padding, and stands in front of the first target too; 1 ends a text. Global
    halting and the start index "step" let a decoder see its future; official checkpoints have them, so they are allowed
    here (``allow_look_ahead``).

    Raises Unsupported, naming hyper-parameter and value, where ours cannot be the same.
    """
    full = complete(hparams)
    check(full)
    blocks, coordinates, halting = _blocks(full), _coordinates(full), _halting(full)
    sees_ahead = halting["halting_scope"] == "sequence" or coordinates["position_start"] == "step"
    spaces = architecture != "language_model" and full["use_target_space_embedding"]
    return ModelConfig(
        architecture=architecture,
        width=full["hidden_size"],
        filter_width=full["filter_size"],
        num_heads=full["num_heads"],
        padding_id=0,
        start_id=0,
        end_id=1,
        tie_output=bool(full["shared_embedding_and_softmax_weights"]),
        output_bias=False,
        scale_embeddings=full["multiply_embedding_mode"] == "sqrt_depth",
        num_target_spaces=TARGET_SPACES if spaces else 0,
        allow_look_ahead=sees_ahead,
        **blocks,
        **coordinates,
        **halting,
    )
