"""Complete configurations by name: the choices of the paper and of the authors' code, in its sizes."""

from universal_transformer.errors import refusal
from universal_transformer.interop import tensor2tensor_config
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.step_config import Sizes
from universal_transformer.typed import listed, replaced

_PRINTED = {"step.residual": "previous", "attention.scale": "width"}
PRESETS: dict[str, ModelConfig] = {
    "paper": ModelConfig(),
    "patent": replaced(ModelConfig(), _PRINTED),
    "tensor2tensor": tensor2tensor_config.PRESET,
}
"""``paper``: the paper's choices, as its figure 4 draws them. ``patent``: the equations as version 1 and US 10,740,433
print them. ``tensor2tensor``: the choices of the authors' code.

What each source prints, where ``paper`` differs from it:

=================== ==================================================================================
tutorial            the scale ``sqrt(d)`` (D18), affine projections (D4)
ICLR                the same, equation 5 with a residual without coordinates (D5), the last state as output (D8)
version 1           the same, and the transition is added to ``A^{t-1}`` (D5)
US                  as version 1, without D4
listing 2           the output ``interpolate``, no remainder at the cap, halted states that go on changing
=================== ==================================================================================
"""

SIZES: dict[str, Sizes] = {
    "tiny": Sizes(width=128, filter_width=512, num_heads=4),
    "small": Sizes(width=512, filter_width=2048, num_heads=8),
    "base": Sizes(width=1024, filter_width=4096, num_heads=16),
    "big": Sizes(width=2048, filter_width=8192, num_heads=16),
}
"""Width, filter width and heads by name."""


def preset(name: str = "paper", *, size: str = "tiny") -> ModelConfig:
    if name not in PRESETS:
        raise refusal("preset", name, f"allowed: {listed(PRESETS)}")
    if size not in SIZES:
        raise refusal("size", size, f"allowed: {listed(SIZES)}")
    return replaced(PRESETS[name], {"sizes": SIZES[size]})
