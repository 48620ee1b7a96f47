"""The target side of a model of tokens: embedding, decoder recurrence and logits, in one pass or token by token."""

import torch
from torch import nn
from torch.nn.functional import linear, pad

from universal_transformer.axes import Float, Int, Padding, Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution.packing import PackedLinear, packs
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.decoder import DecoderSide, DecoderState
from universal_transformer.models.inputs import WRITTEN, TokenInput, check_ids, check_tokens
from universal_transformer.models.model import Call, EncodedSource
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.positions.numbering import without_padding
from universal_transformer.rules.exits import Head


def shifted_right(
    labels: Int[Tensor, "batch target"], *, start_id: int, padding: Padding | None
) -> Int[Tensor, "batch target"]:
    """The token before each label: the start token before the first one, also where ``padding`` is on the left."""
    ids = pad(labels, (1, -1), value=start_id)
    return ids if padding is None else ids.scatter(1, padding.long().argmin(dim=1, keepdim=True), start_id)


class TargetSide(DecoderSide):
    """Targets shifted right, embedded, refined over depth, mapped to logits (paper, section 2.1, equation 8)."""

    embedding: TokenInput

    def __init__(self, config: ModelConfig, source: nn.Module | None) -> None:
        embedding = WRITTEN[config.outputs.kind].of_targets(config, config.sizes.width, source=source)
        super().__init__(config, embedding=embedding, cross_attention=source is not None)
        size = embedding.weight.shape[0]
        self.output = None if config.outputs.tie_output else nn.Linear(config.sizes.width, size, bias=False)
        self.bias = nn.Parameter(torch.zeros(size)) if config.outputs.output_bias else None
        self.packed_logits: PackedLinear | None = None

    @property
    def head(self) -> Head:
        """States to logits."""
        return self.logits

    def logits(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows classes"]:
        """An affine map of states; its matrix is the embedding unless ``tie_output`` is off."""
        if self.packed_logits is not None:
            return self.packed_logits(states)
        return linear(states, self.matrix, self.bias)

    @property
    def matrix(self) -> Float[Tensor, "classes width"]:
        """The output matrix."""
        return self.embedding.weight if self.output is None else self.output.weight

    def pack_logits(self) -> None:
        """Pack the matrix of the logits as it is now (:mod:`~universal_transformer.execution.packing`)."""
        if packs(self.matrix):
            self.packed_logits = PackedLinear(self.matrix, self.bias)

    def length(self, labels: Int[Tensor, "batch target"]) -> int:
        """Positions of a target."""
        return labels.shape[1]

    def forward(self, labels: Int[Tensor, "batch target"], encoded: EncodedSource | None, call: Call) -> ModelOutput:
        """Teacher forcing: position ``i`` predicts ``labels[:, i]`` from the labels to its left."""
        check_ids(labels, size=self.matrix.shape[0])  # the last label is no input
        padding = self.padding(labels)
        ids = shifted_right(labels, start_id=self.config.start_id, padding=padding)
        inputs = self.dropout(self.embedding(ids))
        states, trace = self.recurrence(inputs, self.context(labels.shape[1], call, padding=padding, encoded=encoded))
        every = None if trace.states is None else self.logits(trace.states)
        return ModelOutput(self.logits(states), None if encoded is None else encoded.trace, trace, step_logits=every)

    def padding(self, labels: Int[Tensor, "batch target"]) -> Padding | None:
        """Where labels are padding; None where none is."""
        return without_padding(labels == self.config.vocabulary.padding_id)

    def advance(
        self, tokens: Int[Tensor, "batch new"], state: DecoderState, *, padding: Padding | None = None
    ) -> Float[Tensor, "batch new classes"]:
        """Logits after each of the new tokens. The caches of ``state`` grow in place; ``padding``: `refine_next`."""
        check_tokens(tokens, name="tokens")
        if len(tokens) != len(state.padding):
            raise UserError(f"tokens of {len(tokens)} rows: the state is of {len(state.padding)}")
        return self.logits(self.refine_next(self.embedding.feed(tokens, state), state, padding=padding))
