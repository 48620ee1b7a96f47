"""LSTM baselines: encoder and decoder with global attention, language model, classifier.

The attention is Luong's (Luong, Pham and Manning 2015, "Effective Approaches to Attention-based Neural Machine
Translation", section 3.1), without input feeding, so that a whole target is one call of ``torch.nn.LSTM``:

======================================= ============================================================
``h_t = LSTM(E y_{t-1}, h_{t-1})``      decoder states; ``h_0`` is the encoder's final state
``a_t(s) = softmax_s(h_t W s)``         over source states ``s`` (equations 7 and 8; "dot" has no W)
``c_t = Σ_s a_t(s) s``                  the context
``g_t = tanh(W_c [c_t; h_t])``          the attentional state (equation 5)
``p(y_t) = softmax(W_o g_t)``           the output (equation 6)
======================================= ============================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from universal_transformer.axes import Bool, Float, Int, Padding, States, Tensor
from universal_transformer.baselines.config import LstmConfig
from universal_transformer.errors import UserError
from universal_transformer.models.classifier import pool
from universal_transformer.models.initialise import initialise
from universal_transformer.models.inputs import FactInput, TokenInput
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.positions import without_padding
from universal_transformer.models.roles import (
    AnyClassifier,
    AnyEncoderDecoder,
    AnyLanguageModel,
    refuse_depth,
)
from universal_transformer.nn.trace import Trace

Memory = tuple[Float[Tensor, "layers batch hidden"], Float[Tensor, "layers batch hidden"]]
"""What an LSTM remembers: hidden states h and cells c of its layers (one after the other for two directions)."""


Sources = Float[Tensor, "batch source width"]
SourcePadding = Bool[Tensor, "batch source"]


@dataclass
class LstmState:
    """What generation carries from token to token: a few vectors a row, however long the text."""

    hidden: Float[Tensor, "layers batch hidden"]
    cell: Float[Tensor, "layers batch hidden"]
    source: Sources | None = None
    source_padding: SourcePadding | None = None
    trace: Trace | None = None

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Rows ``index`` in place of the present ones; the source moves along."""
        self.hidden, self.cell = self.hidden[:, index], self.cell[:, index]
        self.source = None if self.source is None else self.source[index]
        self.source_padding = None if self.source_padding is None else self.source_padding[index]


class Layers(nn.Module):
    """``nn.LSTM`` over the real positions of each row: padding, wherever it stands, changes no state and gives zeros.

    Weights start uniform over ``± hidden^-1/2``, biases at 0, those of the forget gate at 1 (Gers, Schmidhuber and
    Cummins 2000; Jozefowicz, Zaremba and Sutskever 2015).
    """

    def __init__(self, config: LstmConfig, *, bidirectional: bool = False) -> None:
        super().__init__()
        self.width = config.width
        self.lstm = nn.LSTM(
            config.width,
            config.width // 2 if bidirectional else config.width,
            num_layers=config.num_layers,
            bidirectional=bidirectional,
            batch_first=True,
            dropout=config.dropout if config.num_layers > 1 else 0.0,
        )
        with torch.no_grad():
            for name, parameter in self.lstm.named_parameters():
                if name.startswith("bias"):
                    parameter.zero_()
                    if name.startswith("bias_ih"):  # gates stand as input, forget, cell, output
                        hidden = self.lstm.hidden_size
                        parameter[hidden : 2 * hidden] = 1.0

    def begin(self, batch: int) -> Memory:
        """``h = c = 0``."""
        weight = next(self.lstm.parameters())
        layers = self.lstm.num_layers * (2 if self.lstm.bidirectional else 1)
        zeros = weight.new_zeros(layers, batch, self.lstm.hidden_size)
        return zeros, zeros

    def forward(
        self, inputs: States, *, memory: Memory | None = None, padding: Padding | None = None
    ) -> tuple[States, Memory]:
        """States of the last layer at each position, and what is remembered behind the last real one."""
        if memory is None:
            memory = self.begin(inputs.shape[0])
        if padding is None:
            outputs, after = self.lstm(inputs, memory)
            return outputs, after
        order = padding.long().argsort(dim=1, stable=True)  # real positions first
        lengths = (~padding).sum(dim=1)
        packed = pack_padded_sequence(
            _permuted(inputs, order),
            lengths.clamp(min=1).cpu(),  # a row of nothing but padding is computed, and forgotten below
            batch_first=True,
            enforce_sorted=False,
        )
        packed, (hidden, cell) = self.lstm(packed, memory)
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=inputs.shape[1])
        outputs = _permuted(outputs, order.argsort(dim=1)).masked_fill(padding.unsqueeze(-1), 0.0)
        some = (lengths > 0).view(1, -1, 1)
        return outputs, (torch.where(some, hidden, memory[0]), torch.where(some, cell, memory[1]))


def _permuted(states: States, order: Int[Tensor, "batch position"]) -> States:
    return states.gather(1, order.unsqueeze(-1).expand_as(states))


def join_directions(memory: Memory, *, num_layers: int) -> tuple[Tensor, Tensor]:
    """Both directions of each layer side by side, so that a decoder of the whole width can start from them."""
    hidden, cell = memory
    if hidden.shape[0] == num_layers:
        return memory

    def joined(part: Tensor) -> Tensor:
        two = part.view(num_layers, 2, *part.shape[1:])
        return torch.cat((two[:, 0], two[:, 1]), dim=-1)

    return joined(hidden), joined(cell)


class Reader(nn.Module):
    """Tokens or facts, embedded and read by an LSTM."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.config = config
        self.input: TokenInput | FactInput = (
            _tokens(config, config.vocabulary_size) if config.inputs == "tokens" else _facts(config)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.layers = Layers(config, bidirectional=config.bidirectional)

    def forward(self, source: Int[Tensor, "batch source *words"]) -> tuple[States, Memory, Padding | None]:
        """States of each position, the final states, and the padding (None when there is none)."""
        padding = without_padding(self.input.padding(source))
        states, memory = self.layers(self.dropout(self.input(source)), padding=padding)
        return states, join_directions(memory, num_layers=self.config.num_layers), padding


class Writer(nn.Module):
    """Targets shifted right, embedded, read by an LSTM, and (with a source) attention; then logits."""

    def __init__(self, config: LstmConfig, *, embedding: TokenInput, attention: bool) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding
        self.dropout = nn.Dropout(config.dropout)
        self.layers = Layers(config)
        self.score = self.combine = None
        if attention:
            self.combine = nn.Linear(2 * config.width, config.width, bias=False)
            if config.attention == "general":
                self.score = nn.Linear(config.width, config.width, bias=False)
        size = embedding.weight.shape[0]
        self.output = None if config.tie_output else nn.Linear(config.width, size, bias=False)
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(
        self,
        labels: Int[Tensor, "batch target"],
        *,
        memory: Memory | None = None,
        source: Sources | None = None,
        source_padding: SourcePadding | None = None,
    ) -> Float[Tensor, "batch target classes"]:
        """Teacher forcing: position ``i`` predicts ``labels[:, i]`` from the labels to its left."""
        ids = torch.cat((torch.full_like(labels[:, :1], self.config.start_id), labels[:, :-1]), dim=1)
        blank, padding = labels == self.config.padding_id, None  # nothing real follows padding on the right
        if bool(blank[:, 0].any()):  # on the left: the start token stands before the first label
            ids = ids.scatter(1, blank.long().argmin(dim=1, keepdim=True), self.config.start_id)
            padding = blank
        states, _ = self.layers(self.dropout(self.embedding(ids)), memory=memory, padding=padding)
        return self.logits(states, source=source, source_padding=source_padding)

    def logits(
        self, states: States, *, source: Sources | None, source_padding: SourcePadding | None
    ) -> Float[Tensor, "batch target classes"]:
        """Attention to the source, if there is one, and the affine map to logits."""
        if self.combine is not None:
            assert source is not None
            states = torch.tanh(
                self.combine(torch.cat((self._look(states, source, source_padding), states), -1))
            )
        weight = self.embedding.weight if self.output is None else self.output.weight
        return linear(self.dropout(states), weight, self.bias)

    def _look(self, states: States, source: Sources, padding: SourcePadding | None) -> States:
        """The context of each state: ``Σ_s softmax_s(h W s) s``."""
        asked = states if self.score is None else self.score(states)
        scores = asked @ source.transpose(1, 2)
        if padding is not None:
            blank = padding & ~padding.all(dim=1, keepdim=True)  # a row of nothing but padding stays finite
            scores = scores.masked_fill(blank.unsqueeze(1), float("-inf"))
        return scores.softmax(dim=-1) @ source

    def advance(
        self, tokens: Int[Tensor, "batch new"], state: LstmState, *, padding: Padding | None
    ) -> Float[Tensor, "batch new classes"]:
        """Logits behind each of the new tokens; ``state`` goes on by them, in place."""
        padding = None if padding is None else without_padding(padding)
        states, (state.hidden, state.cell) = self.layers(
            self.embedding(tokens), memory=(state.hidden, state.cell), padding=padding
        )
        return self.logits(states, source=state.source, source_padding=state.source_padding)


def _tokens(config: LstmConfig, size: int) -> TokenInput:
    return TokenInput(size, config.width, padding_id=config.padding_id, scale=True)


def _facts(config: LstmConfig) -> FactInput:
    return FactInput(
        config.vocabulary_size,
        config.width,
        max_fact_words=config.max_fact_words,
        padding_id=config.padding_id,
        scale=True,
    )


class LstmEncoderDecoder(AnyEncoderDecoder):
    """Source tokens to target tokens, with attention.

    >>> model = LstmEncoderDecoder(LstmConfig(vocabulary_size=100))
    >>> logits = model(source, target).logits  # teacher forced: [batch, target, vocabulary]
    """

    config_kind = LstmConfig
    config: LstmConfig
    target: Writer

    def __init__(self, config: LstmConfig) -> None:
        super().__init__(config)
        self.source = Reader(config)
        shared = self.source.input
        assert isinstance(shared, TokenInput)
        if config.target_vocabulary_size:
            shared = _tokens(config, config.target_vocabulary_size)
        self.target = Writer(config, embedding=shared, attention=True)
        initialise(self)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
        *,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
    ) -> ModelOutput:
        """Logits for every label of ``target`` (end token included, padded on the right) given those to its left."""
        refuse_depth(max_steps=max_steps, halting_threshold=halting_threshold, model=self)
        states, memory, padding = self.source(source)
        return ModelOutput(self.target(target, memory=memory, source=states, source_padding=padding))

    def start(
        self,
        source: Int[Tensor, "batch source"],
        *,
        capacity: int,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
    ) -> LstmState:
        """Read ``source`` and get ready to write; any ``capacity`` will do."""
        del capacity
        refuse_depth(max_steps=max_steps, halting_threshold=halting_threshold, model=self)
        states, (hidden, cell), padding = self.source(source)
        return LstmState(hidden, cell, source=states, source_padding=padding)


class LstmLanguageModel(AnyLanguageModel):
    """Every token from those to its left: a plain LSTM."""

    config_kind = LstmConfig
    config: LstmConfig
    target: Writer

    def __init__(self, config: LstmConfig) -> None:
        super().__init__(config)
        self.target = Writer(config, embedding=_tokens(config, config.vocabulary_size), attention=False)
        initialise(self)

    def forward(
        self,
        target: Int[Tensor, "batch target"],
        *,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
    ) -> ModelOutput:
        """Logits for every token of ``target`` given those to its left."""
        refuse_depth(max_steps=max_steps, halting_threshold=halting_threshold, model=self)
        return ModelOutput(self.target(target))

    def start(
        self,
        *,
        batch: int,
        capacity: int,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
    ) -> LstmState:
        """Get ready to generate; any ``capacity`` will do."""
        del capacity
        refuse_depth(max_steps=max_steps, halting_threshold=halting_threshold, model=self)
        hidden, cell = self.target.layers.begin(batch)
        return LstmState(hidden, cell)


class LstmClassifier(AnyClassifier):
    """Tokens or facts to one of ``num_classes``, read from the final states or from the mean over positions."""

    config_kind = LstmConfig
    config: LstmConfig

    def __init__(self, config: LstmConfig) -> None:
        super().__init__(config)
        if config.num_classes < 1:
            raise UserError(
                "num_classes=0: a classifier needs classes; take them from the data or set the field"
            )
        self.source = Reader(config)
        self.head = nn.Linear(config.width, config.num_classes)
        self.dropout = nn.Dropout(config.dropout)
        initialise(self, noisy_masks=config.fact_mask_init == "noise")

    def forward(
        self,
        source: Int[Tensor, "batch source *words"],
        *,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
    ) -> ModelOutput:
        """Logits ``[batch, classes]``."""
        refuse_depth(max_steps=max_steps, halting_threshold=halting_threshold, model=self)
        states, (hidden, _), padding = self.source(source)
        pooled = hidden[-1] if self.config.pooling == "last" else pool(states, padding=padding, how="mean")
        return ModelOutput(self.head(self.dropout(pooled)))
