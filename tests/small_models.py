"""Models small enough for laws to be checked on many of them."""

import torch

from configs import config_of
from universal_transformer.interop.recurrences import CARRIES
from universal_transformer.registry import build

SIZES = {
    "width": 8,
    "filter_width": 12,
    "num_heads": 2,
    "max_steps": 3,
    "vocabulary_size": 9,
    "max_positions": 40,
}

COORDINATES = {
    "sinusoidal": {},
    "split": {"coordinate_layout": "split"},
    "learned": {"position_coordinates": "learned", "step_coordinates": "learned"},
    "rotary": {"position_coordinates": "rotary"},
    "none": {"position_coordinates": "none", "step_coordinates": "none"},
    "concatenated": {"combine_coordinates": "concatenate"},
    "at the input": {"position_injection": "input"},
    "as printed": {"step.residual": "state", "attention.scale": "width"},
    "as in the patent": {"step.residual": "previous", "attention.scale": "width"},
}

ROTARY_SOURCE = {"position_coordinates": "rotary", "rotary_source": True}

SOURCES = {
    "rotary source": ROTARY_SOURCE,
    "both ends": {**ROTARY_SOURCE, "end_coordinates": True, "plain_layers_before": 1},
    "sink": {"source_sink": True, "tied": False, "attention_bias": True},
    "parts": {"separator_id": (4, 5)},
    "distance": {"position_coordinates": "distance"},
    "halting with a sink": {"halting": True, "source_sink": True, "separator_id": 4},
    "halting": {**ROTARY_SOURCE, "source_sink": True, "separator_id": 4, "halting": True, "norm": "pre"},
}
"""Choices of how a decoder finds its way in the source: encoder-decoders alone have them."""

DEPTHS = {
    "fixed": {},
    "untied": {"tied": False},
    "layered": {"layers_per_step": 2, "plain_layers_before": 1, "plain_layers_after": 1},
    "halting layered": {
        "halting": True,
        "layers_per_step": 2,
        "plain_layers_before": 1,
        "plain_layers_after": 1,
    },
    "without remainder": {"halting": True, "remainder_at_cap": False},
    "untied halting": {"halting": True, "tied": False},
}

HALTING = {
    f"{output} {state}": {"halting": True, "halting_output": output, "halting_state": state}
    for output in ("mean", "interpolate", "final")
    for state in ("frozen", "evolving")
}

MODERN = {"norm": "rms", "transition": "swiglu", "attention.key_value_heads": 1}
"""The choices of recent language models together."""

BLOCKS = {
    f"{norm} {transition}": {"norm": norm, "transition": transition}
    for norm in ("post", "pre")
    for transition in ("feed_forward", "separable_convolution")
}


def small(**fields):
    """A model in float64 whose weights, biases and halting are anything but their neutral starting values."""
    model = build(config_of(**{**SIZES, **fields})).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.3 * torch.randn_like(parameter)
            if name.endswith("halting.weight"):
                parameter.normal_()
            elif name.endswith("halting.bias"):
                parameter.fill_(1.0)
    return model


def variants():
    """Every block with every halting; every kind of depth and of coordinates with some."""
    cases = {f"{block}, {halting}": {**BLOCKS[block], **HALTING[halting]} for block in BLOCKS for halting in HALTING}
    for block in ("post feed_forward", "pre separable_convolution"):
        cases |= {f"{block}, {depth}": {**BLOCKS[block], **DEPTHS[depth]} for depth in DEPTHS}
    for name, fields in (COORDINATES | {"modern": MODERN, "modern, rotary": MODERN | COORDINATES["rotary"]}).items():
        cases |= {f"{name}, fixed": fields, f"{name}, halting": {**fields, "halting": True}}
    for kind in CARRIES:
        cases[f"{kind} over depth"] = {"tensor2tensor.recurrence": kind, "step_coordinates": "none"}
    return cases
