"""Configurations of the baselines. Needs no torch."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from universal_transformer.models.components import NUMBERS, pointer_rules
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.rules import Refusals
from universal_transformer.typed import DropoutRate, Positive, Range

Few = Annotated[int, Range(1, 64)]


@dataclass(frozen=True, kw_only=True)
class LstmConfig(BaseConfig):
    """An LSTM: encoder and decoder with attention (Luong, Pham and Manning 2015), language model or classifier."""

    kind: ClassVar[str] = "lstm"
    parts: ClassVar[str] = "universal_transformer.baselines.lstm:PARTS"

    width: Positive = 128
    """Channels of a state."""
    num_layers: Few = 2
    """LSTM layers of each side."""
    pooling: Literal["last", "mean", "pointer"] = "last"
    """What a classifier reads: the final state, the mean over positions, or attention over the source tokens, one of
    which is the answer (`models.heads.Pointer`)."""
    dropout: DropoutRate = 0.1
    """Dropout of embeddings, between layers and of the states that the output reads."""

    def rules(self) -> Refusals:
        yield from super().rules()
        tags = "an LSTM gives a class to a sequence, not to each position: choose a recipe of another model"
        yield "architecture", self.architecture == "tagger", tags
        tokens = "an LSTM reads tokens or facts: choose a recipe of another model"
        yield "inputs.kind", self.inputs.kind in NUMBERS, tokens
        if self.pooling == "pointer":
            yield from pointer_rules(self, "pooling")


@dataclass(frozen=True, kw_only=True)
class NeuralGpuConfig(BaseConfig):
    """The Neural GPU (Kaiser and Sutskever 2016): gated convolutions over an image of the sequence."""

    kind: ClassVar[str] = "neural_gpu"
    parts: ClassVar[str] = "universal_transformer.baselines.neural_gpu:PARTS"
    longer_answers: ClassVar[str] = "train with a larger model.output_extra, which is its limit"

    width: Positive = 24
    """Channels of the mental image (m)."""
    image_width: Few = 4
    """Columns of the mental image (w). The first one holds the input and then the output."""
    num_layers: Few = 2
    """Gated units applied in one step (l)."""
    kernel_size: Few = 3
    """Height and width of the convolution kernels, but no column of them is outside the image. Odd."""
    cutoff: Annotated[float, Range(1, 10)] = 1.2
    """Gates are clamp(c · sigmoid(x) - (c - 1) / 2, 0, 1), which saturates for c > 1. 1 is a plain sigmoid."""
    output_extra: Annotated[int, Range(1, 2**16)] = 1
    """Output positions beyond one for each input symbol: at least one, for the end of the target."""
    dropout: DropoutRate = 0.0
    """Dropout of the candidates of the gated units."""

    def answer_limit(self, given: int) -> int:
        return given + self.output_extra

    def rules(self) -> Refusals:
        yield from super().rules()
        other = self.architecture != "encoder_decoder" or self.inputs.kind != "tokens"
        pairs = "a Neural GPU maps a sequence of tokens to another one: allowed: encoder_decoder"
        yield "architecture", other, f"{pairs}; choose a recipe of another model for this task"
        yield "kernel_size", self.kernel_size % 2 == 0, "an odd number is needed, so that a kernel has a middle"
