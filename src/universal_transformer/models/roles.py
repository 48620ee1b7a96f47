"""Interfaces of models of every kind: evaluation and decoding use models through these alone.

============================== ===================================================================================
role                           what it does
============================== ===================================================================================
``AnyClassifier``              source to one class
``AnyTagger``                  source to one class for each of its positions
``AnyEncoderDecoder``          source to target, one token after the other: `start`, then `advance`
``AnyLanguageModel``           prompt to continuation, one token after the other: `start`, then `advance`
``NonAutoregressive``          source to target, all tokens at once: `output_logits`
``AnyFrameGenerator``          source to frames, those of one position after the other: `start`, then `advance`
============================== ===================================================================================

Called as a module with source and target (of those that it has), each returns a ``ModelOutput``, and the last one a
``FrameOutput``. A model whose configuration has ``max_steps=0`` has no depth: it takes no ``max_steps`` or
``halting_threshold`` and returns no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from universal_transformer.axes import Bool, Float, Int, Padding, Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.config import BaseConfig, ModelConfig
from universal_transformer.models.generated import GREEDY, Generated, Sampling
from universal_transformer.models.pretrained import Pretrained
from universal_transformer.nn.config import Exit
from universal_transformer.nn.exits import FIRST_STEP
from universal_transformer.nn.halting import check_threshold
from universal_transformer.nn.trace import Trace

DECODING = "universal_transformer.decoding"
"""Imports the models, and is imported when a model generates for the first time."""


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
        _check_classes(self.config)


class AnyTagger(Pretrained):
    """Tokens to one of ``num_classes`` for each position. Class 0 is that of a position without a class: no target."""

    architecture = "tagger"

    def __init__(self, config: BaseConfig) -> None:
        super().__init__(config)
        _check_classes(self.config)


def _check_classes(config: BaseConfig) -> None:
    if config.vocabulary.num_classes < 1:
        raise UserError(
            f"vocabulary.num_classes=0: a {config.architecture} needs classes; take them from the data or set the field"
        )


class Generating(Pretrained):
    """A model that writes sequences."""

    codec: Any = None
    """Turns texts into ids and back; `load` sets it. Without a codec `generate` takes ids alone."""

    def generate(
        self,
        source: Tensor | Sequence[Any],
        *,
        max_new_tokens: int | None = None,
        beams: int = 1,
        length_penalty: float | None = None,
        sampling: Sampling = GREEDY,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
        target_space: int = 0,
    ) -> list[Generated]:
        """Return the sequence that the model writes for each row of ``source``, as ``ut predict`` does.

        ``source`` holds the source ids of an encoder-decoder or the prompts of a language model: a tensor
        ``[batch, position]``, padded, or a list of ids for each row. A prompt gets the start token if it does not begin
        with it. A model with a codec takes a list of texts too. A sequence has at most ``max_new_tokens``, its end
        included (None: ``config.generation.limit`` of the length of its row). One beam and greedy ``sampling`` choose
        the likeliest token; several ``beams`` search for a sequence of high probability, with ``length_penalty`` (None:
        0.6) as the exponent of the length penalty. ``max_steps`` and ``halting_threshold`` are the model's own where
        they are None. With ``exit`` each position stops by itself. ``target_space`` is the problem of an official
        model (tensor2tensor), which its encoder embeds.

        Raises UserError for ids, shapes and options that do not fit the model.
        """
        decoding = import_module(DECODING)
        options = decoding.DecodingOptions(
            sampling=sampling,
            max_new_tokens=max_new_tokens,
            max_steps=max_steps,
            halting_threshold=halting_threshold,
            exit=exit,
            target_space=target_space,
        )
        found: list[Generated] = decoding.answer(
            self, source, beams=beams, length_penalty=length_penalty, options=options
        )
        return found


class _TokenByToken(Generating):
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


class NonAutoregressive(Generating):
    """Source tokens to target tokens, all of them predicted at once."""

    architecture = "encoder_decoder"

    def output_logits(
        self, source: Int[Tensor, "batch source"]
    ) -> tuple[Float[Tensor, "batch place classes"], Bool[Tensor, "batch place"]]:
        """Logits of every place of the output, and which places belong to a row."""
        raise NotImplementedError


class AnyFrameGenerator(Pretrained):
    """Source to frames, generated from left to right until the model stops."""

    architecture = "encoder_decoder"
    target: Any
    start: Callable[..., Any]
    advance: Callable[..., Any]


def check_threshold_applies(halting_threshold: float | None, *, config: BaseConfig) -> None:
    """UserError for a threshold that is none, or is given to a model without halting: it would change nothing."""
    if halting_threshold is None:
        return
    check_threshold(halting_threshold)
    if not config.halts:
        raise UserError(
            f"halting_threshold={halting_threshold}: this model was trained without halting and has no threshold; "
            "leave it out"
        )


def check_exit_applies(exit: Exit | None, *, max_steps: int | None, model: Pretrained) -> None:
    """UserError for an exit from a model that has no depth, too few steps, or no head that reads their states.

    ``max_steps`` are those of the call; None: the model's own.
    """
    config = model.config
    if not isinstance(config, ModelConfig):
        refuse_depth(max_steps=None, halting_threshold=None, exit=exit, model=model)
    elif exit is not None and exit.reads_output and config.tensor2tensor.plain_layers_after:
        raise UserError(
            f"exit {exit}: no head reads the states of the steps, because plain layers follow "
            "(tensor2tensor.plain_layers_after); use state_change or second_difference"
        )
    elif exit is not None and exit.reads_output and config.outputs.kind == "frames":
        raise UserError(f"exit {exit}: frames have no probabilities to read; use state_change or second_difference")
    elif exit is not None:
        _check_stops_early(exit, max_steps=max_steps, config=config)


def _check_stops_early(exit: Exit, *, max_steps: int | None, config: ModelConfig) -> None:
    """UserError for an exit that decides on no side before the last step: it would change nothing."""
    # an encoder has no output to read; a model of one side has the same steps under both names
    depths = [
        (
            max_steps or config.max_steps_of(decoder=decoder),
            max(FIRST_STEP[exit.kind], config.min_steps_of(decoder=decoder)),
        )
        for decoder in ((True,) if exit.reads_output else (True, False))
    ]
    if any(first < steps for steps, first in depths):
        return
    steps, first = max(depths)
    cause = " (min_steps)" if first > FIRST_STEP[exit.kind] else ""
    side = "decoder" if exit.reads_output and config.architecture == "encoder_decoder" else "model"
    raise UserError(
        f"exit {exit}: it decides first after step {first}{cause}, so that it needs at least {first + 1} steps to stop "
        f"a position early; {f'max_steps={steps}' if max_steps else f'the {side} has {steps}'}"
    )


def refuse_depth(
    *, max_steps: int | None, halting_threshold: float | None, exit: Exit | None, model: Pretrained
) -> None:
    """UserError when another depth is requested from a model without depth."""
    for name, value in (("max_steps", max_steps), ("halting_threshold", halting_threshold), ("exit", exit)):
        if value is not None:
            raise UserError(f"{name}={value}: {type(model).__name__} has no depth to choose; leave it out")
