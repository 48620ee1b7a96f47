"""What greedy search, sampling and beam search share: a batch of sequences being continued token by token.

A sequence is a row. :func:`open_session` checks and feeds what is given (a source, or prompts of any lengths, padded
on the left), :meth:`Session.advance` feeds one more token a row, and :meth:`Session.keep` picks, repeats or drops rows.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from universal_transformer.axes import Bool, Float, Int, Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.encoder_decoder import EncoderDecoder
from universal_transformer.models.kinds import AnyModelConfig
from universal_transformer.models.language_model import LanguageModel
from universal_transformer.models.roles import AllAtOnce, AnyEncoderDecoder, AnyLanguageModel, GenerationState
from universal_transformer.models.target import TargetSide
from universal_transformer.execution.packing import PackedLinear, packed
from universal_transformer.nn.trace import Trace

AnyModel = TypeVar("AnyModel", bound=nn.Module)
Generator = AnyEncoderDecoder | AnyLanguageModel
Source = Int[Tensor, "batch source"] | Sequence[Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Generated:
    """One generated sequence.

    ``log_probability`` sums the model's log-probabilities of its tokens (and of the end token, when ``finished``);
    ``score`` is what sequences are ranked by: the same, over the length penalty in a beam search. ``steps`` is the
    mean number of depth steps the decoder made for a token, ``source_steps`` those of the encoder for each source
    position (empty for a language model).
    """

    tokens: list[int]
    score: float
    log_probability: float
    finished: bool
    steps: float
    source_steps: list[float]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No dropout, nothing kept for gradients; afterwards every module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


@dataclass
class Session:
    """Rows being continued. ``log_probabilities`` are those of the next token of each row, ``steps`` what they cost.

    ``limits`` is how many tokens each row may get, end token included.
    """

    model: Generator
    state: GenerationState
    log_probabilities: Float[Tensor, "rows classes"]
    steps: Float[Tensor, "rows"]
    limits: list[int]
    source_steps: list[list[float]]

    def advance(self, tokens: Int[Tensor, "rows"], *, done: Bool[Tensor, "rows"] | None = None) -> None:
        """Feed one token a row; rows that are ``done`` are fed padding, which nothing sees."""
        padding = None
        if done is not None:
            padding = done.unsqueeze(1)
            tokens = tokens.masked_fill(done, self.model.config.padding_id)
        logits = self.model.advance(tokens.unsqueeze(1), self.state, padding=padding)
        self.log_probabilities = next_log_probabilities(logits[:, -1], config=self.model.config, done=done)
        self.steps = _last_steps(self.state, self.log_probabilities)

    def keep(self, index: Int[Tensor, "kept"]) -> None:
        """Rows ``index``, in that order, in place of the present ones: picked, repeated or dropped."""
        self.state.reorder(index)
        self.log_probabilities, self.steps = self.log_probabilities[index], self.steps[index]


def check_model(model: nn.Module) -> None:
    """UserError unless ``model`` generates token by token."""
    if isinstance(model, AllAtOnce):
        raise UserError(
            f"{type(model).__name__} writes all tokens at once: there are no beams to search; use beams=1"
        )
    if not isinstance(model, AnyEncoderDecoder | AnyLanguageModel):
        raise UserError(f"{type(model).__name__} cannot generate: EncoderDecoder and LanguageModel can")


def check_source(source: Source, *, model: nn.Module) -> Int[Tensor, "batch source"]:
    """UserError unless ``source`` is a tensor of at least one token."""
    if not isinstance(source, Tensor):
        kind = type(model).__name__
        raise UserError(f"an {kind} generates from a tensor of source tokens [batch, source]")
    if source.dim() != 2 or not source.numel():
        raise UserError(
            f"source of shape {list(source.shape)}: [batch, source] with at least one row of at least one position"
        )
    return source


def prepared(model: AnyModel) -> AnyModel:
    """A twin of ``model`` that shares its parameters and has its matrices packed for a CPU's products, where that can
    be. What is done to the weights later does not reach it; a twin is its own twin.
    """
    if not isinstance(model, EncoderDecoder | LanguageModel):
        return model
    if any(isinstance(part, PackedLinear) for part in model.modules()):
        return model
    twin = packed(model)
    assert isinstance(twin.target, TargetSide)
    twin.target.pack_logits()
    return twin


def next_log_probabilities(
    logits: Float[Tensor, "rows classes"], *, config: AnyModelConfig, done: Bool[Tensor, "rows"] | None = None
) -> Float[Tensor, "rows classes"]:
    """``log softmax(logits)``, then minus infinity for padding and the start token, which are never generated.

    So a score is the log-likelihood that the same model gives to the same target when it is teacher-forced.
    UserError when a row that is not ``done`` has logits that are not finite.
    """
    least, most = logits.aminmax()  # not a number, if one of them is not
    if not math.isfinite((most - least).item()):
        bad = ~torch.isfinite(logits).all(dim=1)
        if bool((bad if done is None else bad & ~done).any()):
            raise UserError("the model's logits are not finite: its weights or its training went wrong")
    result = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    result[:, config.padding_id] = float("-inf")
    if config.start_id != config.end_id:
        result[:, config.start_id] = float("-inf")
    return result


def _last_steps(
    state: GenerationState, log_probabilities: Float[Tensor, "rows classes"]
) -> Float[Tensor, "rows"]:
    """What the last token of each row cost; 0 of a model without depth."""
    if state.trace is None:
        return log_probabilities.new_zeros(log_probabilities.shape[0])
    return state.trace.steps[:, -1]


def open_session(
    model: Generator,
    source: Source,
    *,
    max_new_tokens: int | None,
    max_steps: int | None,
    halting_threshold: float | None,
    room: bool = True,
) -> Session:
    """Check what is given, encode the source or feed the prompts, and stand before the first new token.

    ``max_new_tokens=None`` gives each row twice the length of its source (or prompt) and ten more, as far as a
    learned position table reaches. Without ``room`` the caches hold what is fed here and no more.
    """
    check_model(model)
    model, config = prepared(model), model.config
    if isinstance(model, AnyEncoderDecoder):
        source = check_source(source, model=model)
        lengths = (source != config.padding_id).sum(dim=1).tolist()
        limits = _limits(lengths, [1] * len(lengths), max_new_tokens=max_new_tokens, config=config)
        state = model.start(
            source,
            capacity=max(limits) if room else 1,
            max_steps=max_steps,
            halting_threshold=halting_threshold,
        )
        source_steps = _per_row(state.trace, real=source != config.padding_id)
        tokens, padding = torch.full_like(source[:, :1], config.start_id), None
    else:
        if isinstance(source, Tensor):
            raise UserError("a LanguageModel continues a list of prompts, each a list of ids, not a tensor")
        tokens, padding = _pad_left(source, model=model)
        lengths = [len(prompt) for prompt in source]
        limits = _limits(lengths, lengths, max_new_tokens=max_new_tokens, config=config)
        state = model.start(
            batch=len(source),
            capacity=tokens.shape[1] + (max(limits) - 1 if room else 0),
            max_steps=max_steps,
            halting_threshold=halting_threshold,
        )
        source_steps = [[] for _ in source]
    logits = model.advance(tokens, state, padding=padding)[:, -1]
    first = next_log_probabilities(logits, config=config)
    return Session(model, state, first, _last_steps(state, first), limits, source_steps)


def check_limit(max_new_tokens: int | None) -> None:
    """UserError for fewer than one new token."""
    if max_new_tokens is not None and max_new_tokens < 1:
        raise UserError(f"max_new_tokens={max_new_tokens}: at least 1")


def _limits(
    lengths: Sequence[int], fed: Sequence[int], *, max_new_tokens: int | None, config: AnyModelConfig
) -> list[int]:
    """New tokens each row may get; ``fed`` tokens (start token included) stand in front of them."""
    check_limit(max_new_tokens)
    wanted = [2 * length + 10 if max_new_tokens is None else max_new_tokens for length in lengths]
    if not isinstance(config, ModelConfig) or config.position_coordinates != "learned":
        return wanted
    limits = []
    for row, (given, limit) in enumerate(zip(fed, wanted, strict=True)):
        room = config.max_positions - given + 1  # the last new token is not fed
        if room < 1 or (max_new_tokens is not None and limit > room):
            asked = f" and max_new_tokens={max_new_tokens}" if max_new_tokens is not None else ""
            raise UserError(
                f"row {row}: a prompt of {given} tokens{asked} does not fit the learned table of "
                f"max_positions={config.max_positions}"
                + (f": at most {room} new tokens" if room > 0 else ": shorten the prompt")
            )
        limits.append(min(limit, room))
    return limits


def _pad_left(
    prompts: Sequence[Sequence[int]], *, model: AnyLanguageModel
) -> tuple[Int[Tensor, "batch prompt"], Bool[Tensor, "batch prompt"]]:
    """One tensor of all prompts, aligned at their ends, and where it holds no token."""
    config = model.config
    if not prompts:
        raise UserError("no prompts: give at least one, of at least the start token")
    for row, prompt in enumerate(prompts):
        if not prompt or prompt[0] != config.start_id:
            raise UserError(
                f"prompt {row} begins with {prompt[0] if prompt else 'nothing'}: "
                f"the model learned from sequences that begin with start_id={config.start_id}"
            )
        for token in prompt[1:]:
            if not 0 <= token < config.vocabulary_size or token == config.padding_id:
                raise UserError(
                    f"prompt {row}: token id {token}: allowed are 0 to {config.vocabulary_size - 1} "
                    f"without padding_id={config.padding_id}"
                )
    longest = max(map(len, prompts))
    rows = [[config.padding_id] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    blanks = [[place < longest - len(prompt) for place in range(longest)] for prompt in prompts]
    device = next(model.parameters()).device
    return torch.tensor(rows, device=device), torch.tensor(blanks, device=device)


def _per_row(trace: Trace | None, *, real: Bool[Tensor, "batch source"]) -> list[list[float]]:
    """Depth steps of the real positions of each row; none of a model without depth."""
    if trace is None:
        return [[] for _ in real]
    return [
        [steps for steps, kept in zip(row, mask, strict=True) if kept]
        for row, mask in zip(trace.steps.tolist(), real.tolist(), strict=True)
    ]
