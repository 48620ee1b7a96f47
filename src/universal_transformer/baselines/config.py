"""What a baseline is: frozen, validated configurations beside ``ModelConfig``. Needs no torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from universal_transformer.errors import UserError
from universal_transformer.models.config import check_types

AnyBaseline = TypeVar("AnyBaseline", bound="BaselineConfig")


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """What every baseline has: what goes in and out, and the sizes that follow from the data."""

    kind: ClassVar[str]
    """Its name in files."""
    halting: ClassVar[bool] = False
    max_steps: ClassVar[int] = 0
    """There is no depth to choose: no block is repeated over it."""

    architecture: Literal["encoder_decoder", "language_model", "classifier"] = "encoder_decoder"
    """What goes in and out: sequence to sequence, next token, or one class a sequence."""
    width: int = 128
    """Channels of a state."""
    vocabulary_size: int = 0
    """Source (or only) vocabulary; 0 means: taken from the data."""
    target_vocabulary_size: int = 0
    """Target vocabulary; 0 means: the source's vocabulary serves both sides."""
    num_classes: int = 0
    """Classes of a classifier; 0 means: taken from the data."""
    inputs: Literal["tokens", "facts"] = "tokens"
    """One token a position, or one fact (a short sentence) a position."""
    max_fact_words: int = 0
    """Longest fact in words; 0 means: taken from the data."""
    padding_id: int = 0
    """Token id of padding."""
    start_id: int = 1
    """Token id that stands before the first target token."""
    end_id: int = 2
    """Token id that ends a target."""

    def __post_init__(self) -> None:
        check_types(vars(self), kind=type(self))
        for name in ("vocabulary_size", "target_vocabulary_size", "num_classes", "max_fact_words"):
            self._check_size(name, least=0)
        for name in ("padding_id", "start_id", "end_id"):
            self._check_size(name, least=0)
        self._check_size("width", least=1)
        if self.inputs == "facts" and self.architecture != "classifier":
            raise UserError(f"inputs='facts': architecture must be \"classifier\", not {self.architecture!r}")
        if self.end_id == self.padding_id and self.architecture != "classifier":
            raise UserError(f"end_id={self.end_id}: must differ from padding_id, or no target could end")

    def _check_size(self, name: str, *, least: int) -> None:
        value = getattr(self, name)
        if not least <= value < 2**31:
            raise UserError(f"{name}={value!r}: at least {least} and below 2^31")

    def _check_probability(self, name: str) -> None:
        value = getattr(self, name)
        if not 0.0 <= value < 1.0:
            raise UserError(f"{name}={value!r}: a probability in [0, 1)")

    def to_dict(self) -> dict[str, Any]:
        """Fields as JSON values, and which kind of model they are of."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls: type[AnyBaseline], fields: Mapping[str, Any]) -> AnyBaseline:
        """Undo `to_dict`; UserError for unknown fields and for values of the wrong type."""
        known = {field.name for field in dataclasses.fields(cls)}
        given = {name: value for name, value in fields.items() if name != "kind"}
        if unknown := sorted(given.keys() - known):
            raise UserError(f"model configuration has unknown fields {', '.join(unknown)}")
        check_types(given, kind=cls)
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class LstmConfig(BaselineConfig):
    """An LSTM: encoder and decoder with attention (Luong, Pham and Manning 2015), language model or classifier."""

    kind: ClassVar[str] = "lstm"

    num_layers: int = 2
    """LSTM layers of each side."""
    bidirectional: bool = False
    """The encoder (or classifier) reads in both directions, with half of the width for each."""
    attention: Literal["general", "dot"] = "general"
    """How a decoder state h is scored against a source state s: h W s, or h s (Luong et al. 2015, equation 8)."""
    pooling: Literal["last", "mean"] = "last"
    """What a classifier reads: the final states of its directions, or the mean over positions."""
    tie_output: bool = True
    """Use the target embedding as the output matrix."""
    dropout: float = 0.1
    """On embeddings, between layers and on the states that are read."""
    fact_mask_init: Literal["noise", "ones"] = "noise"
    """How the word-position mask of facts starts: 1 + noise, or all ones (a bag of words)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_size("num_layers", least=1)
        self._check_probability("dropout")
        if self.num_layers > 64:
            raise UserError(f"num_layers={self.num_layers}: at most 64")
        if self.bidirectional and self.width % 2:
            raise UserError(f"width={self.width}: two directions share it: an even width is needed")
        if self.bidirectional and self.architecture == "language_model":
            raise UserError("bidirectional=True: a language model does not know the tokens that follow")


@dataclass(frozen=True, kw_only=True)
class NeuralGpuConfig(BaselineConfig):
    """The Neural GPU (Kaiser and Sutskever 2016): a gated convolutions over an image of the sequence."""

    kind: ClassVar[str] = "neural_gpu"

    width: int = 24
    """Channels of the mental image (m)."""
    image_width: int = 4
    """Columns of the mental image (w); the first one holds the input and then the output."""
    num_layers: int = 2
    """Gated units applied in one step (l)."""
    kernel_size: int = 3
    """Height and width of the convolutions' kernels; odd."""
    cutoff: float = 1.2
    """Gates are clamp(c · sigmoid(x) - (c - 1) / 2, 0, 1), which saturates for c > 1; 1 gives a plain sigmoid."""
    output_ratio: float = 1.0
    """Places for symbols to write, for each symbol read: 2 where targets are twice as long as sources."""
    output_extra: int = 1
    """Places to write besides: at least one, for the end of the target."""
    dropout: float = 0.0
    """On the candidates of the gated units."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.architecture != "encoder_decoder" or self.inputs != "tokens":
            raise UserError(
                f"architecture={self.architecture!r}: a Neural GPU turns a sequence of tokens into another one: "
                "allowed: encoder_decoder; choose a recipe of another model for this task"
            )
        for name in ("image_width", "num_layers", "kernel_size"):
            self._check_size(name, least=1)
            if getattr(self, name) > 64:
                raise UserError(f"{name}={getattr(self, name)}: at most 64")
        self._check_size("output_extra", least=1)
        self._check_probability("dropout")
        if self.kernel_size % 2 == 0:
            raise UserError(
                f"kernel_size={self.kernel_size}: an odd number is needed, so that a kernel has a middle"
            )
        if not 1.0 <= self.cutoff <= 10.0:
            raise UserError(f"cutoff={self.cutoff}: between 1 (a plain sigmoid) and 10")
        if not 1.0 <= self.output_ratio <= 100.0:
            raise UserError(f"output_ratio={self.output_ratio}: between 1 and 100")

    def num_places(self, symbols: int) -> int:
        """Return how many places a source of so many symbols gets: ``ceil(output_ratio · symbols) + output_extra``."""
        return math.ceil(round(symbols * self.output_ratio, 6)) + self.output_extra
