"""Interfaces of models of every kind: evaluation and decoding use models through these alone.

============================== ===================================================================================
role                           what it does
============================== ===================================================================================
``AnyClassifier``              source to one class
``AnyEncoderDecoder``          source to target, one token after the other: `start`, then `advance`
``AnyLanguageModel``           prompt to continuation, one token after the other: `start`, then `advance`
``NonAutoregressive``          source to target, all tokens at once: `output_logits`
============================== ===================================================================================

Called as a module with source and target (of those that it has), each returns a ``ModelOutput``. A model whose
configuration has ``max_steps=0`` has no depth: it takes no ``max_steps`` or ``halting_threshold``
and returns no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from universal_transformer.axes import Bool, Float, Int, Padding, Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.config import BaseConfig
from universal_transformer.models.pretrained import Pretrained
from universal_transformer.nn.trace import Trace


@runtime_checkable
class GenerationState(Protocol):
    """State of generation between two tokens. ``trace``: the trace over depth of the last call, if there is one."""

    trace: Trace | None

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Rows ``index`` in place of the present ones."""


class AnyClassifier(Pretrained):
    """Tokens or facts to one of ``num_classes``."""

    architecture = "classifier"

    def __init__(self, config: BaseConfig) -> None:
        super().__init__(config)
        if config.vocabulary.num_classes < 1:
            raise UserError(
                "vocabulary.num_classes=0: a classifier needs classes; take them from the data or set the field"
            )


class _TokenByToken(Pretrained):
    """A model that generates from left to right.

    ``start(source, …)`` of an encoder-decoder encodes the source, and ``start(batch=…, …)`` of a language model begins
    sequences. Both take ``capacity``, the number of tokens with the start token and the prompt, ``max_steps`` and
    ``halting_threshold``, and return a `GenerationState`.
    """

    target: Any
    start: Callable[..., Any]

    def advance(
        self, tokens: Int[Tensor, "batch new"], state: Any, *, padding: Padding | None = None
    ) -> Float[Tensor, "batch new classes"]:
        """Feed the next tokens (first ``start_id`` and the prompt, if there is one); logits after each of them.

        ``padding`` marks positions without a token.
        """
        return self.target.advance(tokens, state, padding=padding)


class AnyEncoderDecoder(_TokenByToken):
    """Source tokens to target tokens, generated from left to right."""

    architecture = "encoder_decoder"


class AnyLanguageModel(_TokenByToken):
    """Predict every token from those to its left."""

    architecture = "language_model"


class NonAutoregressive(Pretrained):
    """Source tokens to target tokens, all of them predicted at once."""

    architecture = "encoder_decoder"

    def output_logits(
        self, source: Int[Tensor, "batch source"]
    ) -> tuple[Float[Tensor, "batch place classes"], Bool[Tensor, "batch place"]]:
        """Logits of every place of the output, and which places belong to a row."""
        raise NotImplementedError


def refuse_depth(*, max_steps: int | None, halting_threshold: float | None, model: Pretrained) -> None:
    """UserError when another depth is requested from a model without depth."""
    for name, value in (("max_steps", max_steps), ("halting_threshold", halting_threshold)):
        if value is not None:
            raise UserError(f"{name}={value}: {type(model).__name__} has no depth to choose; leave it out")
