"""What greedy search, sampling and beam search share: a batch of sequences that are continued token by token.

Each sequence is one row. :func:`start_generation` checks the input (a source, or prompts of any lengths, padded on the
left) and feeds it to the model. :meth:`GenerationBatch.advance` feeds one more token for each row, and
``state.reorder`` selects, repeats or drops rows before it.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from universal_transformer.axes import Bool, Float, Int, Tensor
from universal_transformer.decoding.ids import Source, lengths_of, prompts_of, sources_of
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.execution.packing import PackedLinear, packed
from universal_transformer.models.model import Model
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.models.target import TargetSide
from universal_transformer.nn.trace import Trace


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Use evaluation mode and ``torch.inference_mode``; afterwards every module is in its earlier mode again."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


@dataclass
class GenerationBatch:
    """Sequences that are being continued, one a row.

    ``log_probabilities`` are those of the next token of each row. ``limits`` is how many tokens each row may get, end
    token included. ``source_steps``: depth steps of the encoder for each real position of its source.
    """

    model: Model
    state: Any
    log_probabilities: Float[Tensor, "rows classes"]
    limits: list[int]
    source_steps: list[list[float]]

    @property
    def steps(self) -> Float[Tensor, "rows"]:
        """Depth steps that the model made to predict the next token of each row; 0 for a model without depth."""
        trace, rows = self.state.trace, self.log_probabilities
        return rows.new_zeros(len(rows)) if trace is None else trace.steps[:, -1]

    def advance(self, tokens: Int[Tensor, "rows"], *, done: Bool[Tensor, "rows"] | None = None) -> None:
        """Feed one token for each row; rows that are ``done`` are fed padding, to which no position attends."""
        padding = None
        if done is not None:
            padding = done.unsqueeze(1)
            tokens = tokens.masked_fill(done, self.model.config.vocabulary.padding_id)
        logits = self.model.target.advance(tokens.unsqueeze(1), self.state, padding=padding)
        self.log_probabilities = next_log_probabilities(logits[:, -1], config=self.model.config, done=done)


def check_model(model: Model) -> None:
    """UserError unless ``model`` generates token by token."""
    if model.writes != "tokens":
        raise UserError(f"{type(model).__name__} cannot generate: EncoderDecoder and LanguageModel can")


def prepared(model: Model) -> Model:
    """A copy of ``model`` that shares its parameters and whose matrices are packed for fast products on a CPU.

    The model itself is returned where nothing can be packed, or where it is packed already. The packed matrices do not
    follow later changes of the weights.
    """
    if not isinstance(model.target, TargetSide) or any(isinstance(part, PackedLinear) for part in model.modules()):
        return model
    copy = packed(model)
    if copy.target is not model.target:  # a hooked module is no copy
        copy.target.pack_logits()
    return copy


def next_log_probabilities(
    logits: Float[Tensor, "rows classes"], *, config: BaseConfig, done: Bool[Tensor, "rows"] | None = None
) -> Float[Tensor, "rows classes"]:
    """``log softmax(logits)``, then minus infinity for what is never generated: padding and the start token, and in
    answers of fixed length the end token.

    A score is therefore the log-likelihood that the same model gives to the same target under teacher forcing.
    UserError when a row that is not ``done`` has logits that are not finite.
    """
    least, most = logits.aminmax()  # both are NaN if one logit is NaN
    if not math.isfinite((most - least).item()):
        bad = ~torch.isfinite(logits).all(dim=1)
        if bool((bad if done is None else bad & ~done).any()):
            raise UserError("the model's logits are not finite: its weights or its training went wrong")
    result = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    result[:, config.vocabulary.padding_id] = float("-inf")
    if config.start_id != config.vocabulary.end_id:
        result[:, config.start_id] = float("-inf")
    if config.generation.fixed_length:
        result[:, config.vocabulary.end_id] = float("-inf")
    return result


def start_sources(
    model: Model, source: Source, options: DecodingOptions, *, reserve: bool = True
) -> tuple[Tensor, Any, list[int], list[list[float]]]:
    """Sources as a tensor, the state after encoding them, and of each row how many tokens or frames it may get, and the
    depth steps of its positions. ``reserve``: as of :func:`start_generation`.
    """
    given, config = sources_of(source, model=model), model.config
    lengths = lengths_of(given, padding_id=config.vocabulary.padding_id)
    limits = [model.target.limit(length, most=options.max_new_tokens) for length in lengths]
    state = model.start(given, capacity=max(limits) if reserve else 1, depth=options.depth)
    return given, state, limits, steps_of(state.trace, real=~model.source.input.padding(given))


def start_generation(
    model: Model, source: Source, options: DecodingOptions, *, reserve: bool = True
) -> GenerationBatch:
    """Check the input, then encode the source or feed the prompts; the first new token comes next.

    The target says how many tokens a row may get after its source (or prompt). With ``reserve`` the caches have space
    for the new tokens, without it only for the tokens that are fed here.
    """
    check_model(model)
    model, config, device = prepared(model), model.config, next(model.parameters()).device
    if model.source is not None:
        _, state, limits, source_steps = start_sources(model, source, options, reserve=reserve)
        tokens, padding = torch.full((len(limits), 1), config.start_id, device=device), None
    else:
        prompts = [torch.tensor(prompt) for prompt in prompts_of(source, model=model)]
        lengths = [len(prompt) for prompt in prompts]
        tokens = pad_sequence(
            prompts, batch_first=True, padding_value=config.vocabulary.padding_id, padding_side="left"
        ).to(device)
        longest = tokens.shape[1]
        padding = torch.arange(longest, device=device) < longest - torch.tensor(lengths, device=device).unsqueeze(1)
        limits = [model.target.limit(length, fed=length, most=options.max_new_tokens) for length in lengths]
        capacity = longest + (max(limits) - 1 if reserve else 0)
        state = model.start(batch=len(prompts), capacity=capacity, depth=options.depth)
        source_steps = [[] for _ in prompts]
    logits = model.target.advance(tokens, state, padding=padding)[:, -1]
    first = next_log_probabilities(logits, config=config)
    return GenerationBatch(model, state, first, limits, source_steps)


def steps_of(trace: Trace | None, *, real: Bool[Tensor, "batch position"]) -> list[list[float]]:
    """N of the real positions of each row; empty lists for a model without depth."""
    if trace is None:
        return [[] for _ in real]
    return [
        [steps for steps, kept in zip(row, mask, strict=True) if kept]
        for row, mask in zip(trace.steps.tolist(), real.tolist(), strict=True)
    ]
