"""LSTM baselines: encoder and decoder with global attention, language model, classifier.

The attention is Luong's (Luong, Pham and Manning 2015, "Effective Approaches to Attention-based Neural Machine
Translation", section 3.1), without input feeding, so that a whole target is one call of ``torch.nn.LSTM``:

======================================= ============================================================
``h_t = LSTM(E y_{t-1}, h_{t-1})``      decoder states; ``h_0`` is the encoder's final state
``a_t(s) = softmax_s(h_t W s)``         over source states ``s`` (equations 7 and 8, "general")
``c_t = Σ_s a_t(s) s``                  the context
``g_t = tanh(W_c [c_t; h_t])``          the attentional state (equation 5)
``p(y_t) = softmax(W_o g_t)``           the output (equation 6)
======================================= ============================================================
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from universal_transformer.axes import Bool, Float, Int, Padding, States, Tensor
from universal_transformer.baselines.baseline_config import LstmConfig
from universal_transformer.models.heads import head_of
from universal_transformer.models.inputs import TokenInput, check_ids
from universal_transformer.models.model import Call, Parts
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.positions.numbering import without_padding
from universal_transformer.models.source import InputSide
from universal_transformer.models.target import OutputSide, shifted_right
from universal_transformer.nn.trace import Trace

HiddenState = tuple[Float[Tensor, "layers batch hidden"], Float[Tensor, "layers batch hidden"]]
"""Hidden states h and cells c of the layers."""


@dataclass
class LstmState:
    """The hidden state after the last token, and what a decoder attends to: the states of the source.

    Its size does not depend on the length of the text.
    """

    hidden: Float[Tensor, "layers batch hidden"]
    cell: Float[Tensor, "layers batch hidden"]
    states: Float[Tensor, "batch source width"] | None = None
    padding: Bool[Tensor, "batch source"] | None = None
    trace: Trace | None = None

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Replace the rows, and the rows of the source, by the rows ``index``."""
        self.hidden, self.cell = self.hidden[:, index], self.cell[:, index]
        self.states = None if self.states is None else self.states[index]
        self.padding = None if self.padding is None else self.padding[index]


class LstmLayers(nn.Module):
    """``nn.LSTM`` over the real positions of each row: padding at any position changes no state and gives zeros.

    Weights start uniform over ``± hidden^-1/2``, biases at 0, those of the forget gate at 1 (Gers, Schmidhuber and
    Cummins 2000; Jozefowicz, Zaremba and Sutskever 2015).
    """

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            config.width,
            config.width,
            num_layers=config.num_layers,
            batch_first=True,
            dropout=config.dropout if config.num_layers > 1 else 0.0,
        )
        with torch.no_grad():
            for name, parameter in self.lstm.named_parameters():
                if name.startswith("bias"):
                    parameter.zero_()
                    if name.startswith("bias_ih"):  # order of the gates: input, forget, cell, output
                        hidden = self.lstm.hidden_size
                        parameter[hidden : 2 * hidden] = 1.0

    def begin(self, batch: int) -> HiddenState:
        """``h = c = 0``."""
        weight = next(self.lstm.parameters())
        zeros = weight.new_zeros(self.lstm.num_layers, batch, self.lstm.hidden_size)
        return zeros, zeros

    def forward(
        self, inputs: States, hidden_state: HiddenState, *, padding: Padding | None = None
    ) -> tuple[States, HiddenState]:
        """States of the last layer at each position, and the hidden state after the last real position."""
        if padding is None:
            outputs, after = self.lstm(inputs, hidden_state)
            return outputs, after
        order = padding.long().argsort(dim=1, stable=True)  # real positions first
        real = (~padding).sum(dim=1)
        lengths = real.clamp(min=1).cpu()  # a row of padding only is computed here and replaced below
        packed = pack_padded_sequence(_permuted(inputs, order), lengths, batch_first=True, enforce_sorted=False)
        packed, (hidden, cell) = self.lstm(packed, hidden_state)
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=inputs.shape[1])
        outputs = _permuted(outputs, order.argsort(dim=1)).masked_fill(padding.unsqueeze(-1), 0.0)
        some = (real > 0).view(1, -1, 1)
        return outputs, (torch.where(some, hidden, hidden_state[0]), torch.where(some, cell, hidden_state[1]))


def _permuted(states: States, order: Int[Tensor, "batch position"]) -> States:
    return states.gather(1, order.unsqueeze(-1).expand_as(states))


class LstmEncoder(InputSide):
    """Tokens or facts, embedded and encoded by an LSTM."""

    config: LstmConfig

    def __init__(self, config: LstmConfig) -> None:
        super().__init__(config, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = LstmLayers(config)

    def forward(self, source: Int[Tensor, "batch source *words"], call: Call) -> LstmState:
        """The final states, the states of each position, and the padding (None when there is none)."""
        del call
        padding = self.padding(source)
        inputs = self.dropout(self.input(source))
        states, (hidden, cell) = self.layers(inputs, self.layers.begin(len(inputs)), padding=padding)
        return LstmState(hidden, cell, states=states, padding=padding)


class LstmDecoder(OutputSide):
    """Targets shifted right, embedded, decoded by an LSTM with attention to the source, if there is one."""

    config: LstmConfig

    def __init__(self, config: LstmConfig, source: nn.Module | None) -> None:
        super().__init__(config)
        self.embedding = TokenInput.of_targets(config, config.width, source=source)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = LstmLayers(config)
        self.score = self.combine = None
        if source is not None:
            self.combine = nn.Linear(2 * config.width, config.width, bias=False)
            self.score = nn.Linear(config.width, config.width, bias=False)
        self.bias = nn.Parameter(torch.zeros(len(self.embedding.weight)))

    def start(self, encoded: LstmState | None, call: Call, *, batch: int, capacity: int) -> LstmState:
        """The state before the first token: what was encoded, or nothing."""
        del call, capacity
        return LstmState(*self.layers.begin(batch)) if encoded is None else encoded

    def forward(self, labels: Int[Tensor, "batch target"], encoded: LstmState | None, call: Call) -> ModelOutput:
        """Teacher forcing: position ``i`` predicts ``labels[:, i]`` from the labels to its left."""
        state = self.start(encoded, call, batch=len(labels), capacity=labels.shape[1])
        check_ids(labels, size=self.embedding.weight.shape[0])  # the last label is no input
        blank = labels == self.config.vocabulary.padding_id
        padding = blank if bool(blank[:, 0].any()) else None  # on the left
        ids = shifted_right(labels, start_id=self.config.start_id, padding=padding)
        return ModelOutput(self.advance(ids, state, padding=padding))

    def _context(self, states: States, state: LstmState) -> States:
        """The context of each state: ``Σ_s softmax_s(h W s) s``."""
        source, padding = state.states, state.padding
        assert source is not None
        assert self.score is not None
        scores = self.score(states) @ source.transpose(1, 2)
        if padding is not None:
            blank = padding & ~padding.all(dim=1, keepdim=True)  # a row of padding only stays finite
            scores = scores.masked_fill(blank.unsqueeze(1), float("-inf"))
        return scores.softmax(dim=-1) @ source

    def advance(
        self, tokens: Int[Tensor, "batch new"], state: LstmState, *, padding: Padding | None = None
    ) -> Float[Tensor, "batch new classes"]:
        """Logits after each of the new tokens. ``state`` is updated in place."""
        padding = None if padding is None else without_padding(padding)
        inputs = self.dropout(self.embedding(tokens))
        states, (state.hidden, state.cell) = self.layers(inputs, (state.hidden, state.cell), padding=padding)
        if self.combine is not None:
            states = torch.tanh(self.combine(torch.cat((self._context(states, state), states), -1)))
        return linear(self.dropout(states), self.embedding.weight, self.bias)


PARTS = Parts(
    LstmEncoder,
    LstmDecoder,
    lambda config: head_of(config, config.width, pooling=config.pooling, dropout=config.dropout),
)
