"""The configuration of a Universal Transformer as Hugging Face transformers keeps it: ours, with fields by their names.

``components`` is the whole :class:`~universal_transformer.models.model_config.ModelConfig`. The fields that
transformers and its users know by other names are mirrored: their values are those of ``components`` unless they are
given, and then they replace these. So there is one source, and either form follows from the other.
"""

from __future__ import annotations

import copy
from dataclasses import asdict
from operator import attrgetter
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from universal_transformer.errors import UserError
from universal_transformer.models.components import ENCODERS, Architecture
from universal_transformer.models.model_config import ModelConfig, config_from_dict
from universal_transformer.typed import replaced

MIRRORED = {
    "vocab_size": "vocabulary.size",
    "hidden_size": "sizes.width",
    "intermediate_size": "sizes.filter_width",
    "num_attention_heads": "sizes.num_heads",
    "tie_word_embeddings": "outputs.tie_output",
    "pad_token_id": "vocabulary.padding_id",
    "bos_token_id": "vocabulary.start_id",
    "eos_token_id": "vocabulary.end_id",
}
"""Name in transformers -> path in a ModelConfig."""
DEFAULT_SIZE = 100
"""Tokens of a configuration of which nothing is given."""


class UniversalTransformerConfig(PreTrainedConfig):
    """``components`` and what is mirrored of them, and what only transformers has.

    ``num_hidden_layers`` counts what a cache holds: the blocks of a step times the steps. Another number is another
    depth. ``architecture``: None in a configuration that no model has been made of.
    """

    model_type: ClassVar[str] = "universal_transformer"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache", "steps", "ponder", "encoder_steps", "encoder_ponder"]
    attribute_map: ClassVar[dict[str, str]] = {"num_hidden_layers": "num_slots"}

    components: dict[str, Any] | None = None
    architecture: Architecture | None = None
    vocab_size: int | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    num_attention_heads: int | None = None
    num_slots: int | None = None
    tie_word_embeddings: bool | None = None
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    decoder_start_token_id: int | None = None
    use_cache: bool = True
    ponder_weight: float = 0.0
    """Weight of the ponder cost in the loss: of N + R, of the positions whose labels count."""
    output_steps: bool = False
    """Whether outputs have the steps N and the cost N + R of every position."""

    def __post_init__(self, **kwargs: Any) -> None:
        layers = kwargs.pop("num_hidden_layers", None)
        self.components = merged(blank(), self.components or {})
        for name, path in MIRRORED.items():
            if getattr(self, name) is None:
                setattr(self, name, at(self.components, path))
        if self.num_slots is None:
            self.num_slots = self.steps * self.components["step"]["blocks"] if layers is None else layers
        if self.architecture is not None or self.is_encoder_decoder:
            self.become(self.architecture or "encoder_decoder")
        if self.id2label is None and "num_labels" not in kwargs and self.components["vocabulary"]["num_classes"]:
            kwargs["num_labels"] = self.components["vocabulary"]["num_classes"]
        super().__post_init__(**kwargs)

    @property
    def steps(self) -> int:
        """Depth steps of the side that is read last: what a decoder makes, where there is one."""
        assert self.components is not None
        depth = self.components["depth"]
        decodes = self.architecture not in ENCODERS
        steps = (depth["decoder_max_steps"] if decodes else None) or depth["max_steps"]
        return 1 if steps == "length" else int(steps)

    def become(self, architecture: Architecture) -> None:
        """Be the configuration of a model of this architecture."""
        self.architecture, self.is_encoder_decoder = architecture, architecture == "encoder_decoder"
        if self.is_encoder_decoder and self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.bos_token_id

    @classmethod
    def of(cls, config: ModelConfig, **fields: Any) -> UniversalTransformerConfig:
        """The configuration that says the same as ``config``; ``fields``: those that only transformers has.

        UserError for a model that transformers cannot hold.
        """
        check_supported(config)
        if config.writes == "labels":
            fields = {"problem_type": "multi_label_classification"} | fields
        return cls(components=config.to_dict(), architecture=config.architecture, **fields)

    def model_config(self, architecture: Architecture | None = None) -> ModelConfig:
        """Our configuration, of a model of this ``architecture`` (None: of the one that it has).

        UserError for values that do not fit, and for a configuration of another architecture.
        """
        known = self.architecture or architecture or "language_model"
        wanted = architecture or known
        if known != wanted and not {known, wanted} <= {*ENCODERS}:
            raise UserError(f'architecture="{known}": this class of model needs "{wanted}"')
        assert self.components is not None
        fields = merged(self.components, {"architecture": wanted})
        changed = {path: getattr(self, name) for name, path in MIRRORED.items()}
        if wanted in ENCODERS:
            changed["vocabulary.num_classes"] = self.num_labels
        if self.pad_token_id == self.eos_token_id:  # of a tokenizer without padding: masks say what is none
            del changed["vocabulary.padding_id"]
        blocks, slots = fields["step"]["blocks"], self.num_slots
        if slots != self.steps * blocks:
            if not isinstance(slots, int) or slots % blocks or slots < 1:
                raise UserError(f"num_hidden_layers={slots}: a multiple of the blocks of a step, {blocks}, is needed")
            decoder = wanted not in ENCODERS and fields["depth"]["decoder_max_steps"] is not None
            changed["depth.decoder_max_steps" if decoder else "depth.max_steps"] = slots // blocks
        for path, value in changed.items():
            if value is not None and not isinstance(value, list):  # a list of tokens that end a text
                component, field = path.split(".")
                fields[component][field] = value
        found: ModelConfig = config_from_dict(fields, where="UniversalTransformerConfig")
        check_supported(found)
        return found


def blank() -> dict[str, Any]:
    """The components of a configuration of which nothing is given."""
    config = replaced(ModelConfig(), {"vocabulary.size": DEFAULT_SIZE})
    return {"kind": ModelConfig.kind, **asdict(config)}


def merged(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """A copy of ``fields`` with those of ``given``, at every level, in their place."""
    result = copy.deepcopy(fields)
    for name, value in given.items():
        inside = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merged(result[name], value) if inside else value
    return result


def at(fields: dict[str, Any], path: str) -> Any:
    """The value at a dotted path."""
    for name in path.split("."):
        fields = fields[name]
    return fields


def check_supported(config: ModelConfig) -> None:
    """UserError unless ``config`` is of a model of tokens that our own blocks make up."""
    only = "the models of transformers read and write tokens"
    refusals = (
        ("kind", config.kind != ModelConfig.kind, "only Universal Transformers and Transformers can be converted"),
        ("inputs.kind", config.inputs.kind != "tokens", only),
        ("outputs.kind", config.decodes and config.outputs.kind != "tokens", only),
    )
    for path, wrong, reason in refusals:
        if wrong:
            raise UserError(f"model.{path}={attrgetter(path)(config)}: {reason}")
