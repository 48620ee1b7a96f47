"""What a model can be asked for, whichever kind it is: evaluation and decoding know models by these alone.

============================== ===================================================================================
role                           what it does
============================== ===================================================================================
``AnyClassifier``              source to one class
``AnyEncoderDecoder``          source to target, one token after the other: `start`, then `advance`
``AnyLanguageModel``           prompt to continuation, one token after the other: `start`, then `advance`
``AllAtOnce``                  source to target, all tokens at once: `write`
============================== ===================================================================================

Called as a module with source and target (of those that it has), each returns a ``ModelOutput``. A model whose
configuration has ``max_steps=0`` has no depth: it takes no ``max_steps`` or ``halting_threshold``
and returns no trace.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from universal_transformer.axes import Bool, Float, Int, Padding, Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.pretrained import Pretrained
from universal_transformer.nn.trace import Trace


@runtime_checkable
class GenerationState(Protocol):
    """What generation carries from token to token. ``trace``: what the last call did over depth, if anything."""

    trace: Trace | None

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Rows ``index`` in place of the present ones."""


class AnyClassifier(Pretrained):
    """Tokens or facts to one of ``num_classes``."""

    architecture = "classifier"


class _TokenByToken(Pretrained):
    """What is written from left to right, by a target side."""

    target: Any

    def advance(
        self, tokens: Int[Tensor, "batch new"], state: Any, *, padding: Padding | None = None
    ) -> Float[Tensor, "batch new classes"]:
        """Feed the next tokens (``start_id``, then the prompt if there is one, first); logits behind each of them.

        ``padding`` marks those that are none.
        """
        return self.target.advance(tokens, state, padding=padding)


class AnyEncoderDecoder(_TokenByToken):
    """Source tokens to target tokens, written from left to right."""

    architecture = "encoder_decoder"

    def start(
        self,
        source: Int[Tensor, "batch source"],
        *,
        capacity: int,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
    ) -> Any:
        """Encode ``source`` and get ready to generate up to ``capacity`` tokens: a `GenerationState` of its own."""
        raise NotImplementedError


class AnyLanguageModel(_TokenByToken):
    """Every token from those to its left."""

    architecture = "language_model"

    def start(
        self,
        *,
        batch: int,
        capacity: int,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
    ) -> Any:
        """Get ready to generate: room for ``capacity`` tokens (start token and prompt included)."""
        raise NotImplementedError


class AllAtOnce(Pretrained):
    """Source tokens to target tokens, all of them predicted at once."""

    architecture = "encoder_decoder"

    def write(
        self, source: Int[Tensor, "batch source"]
    ) -> tuple[Float[Tensor, "batch place classes"], Bool[Tensor, "batch place"]]:
        """Logits of every place of the output, and which places belong to a row."""
        raise NotImplementedError


def refuse_depth(*, max_steps: int | None, halting_threshold: float | None, model: Pretrained) -> None:
    """UserError when a model without depth is asked for another one."""
    for name, value in (("max_steps", max_steps), ("halting_threshold", halting_threshold)):
        if value is not None:
            raise UserError(f"{name}={value}: {type(model).__name__} has no depth to choose; leave it out")
