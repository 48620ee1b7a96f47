"""The target side of a model that writes frames, such as those of a sound: several frames at each position.

With ``s = outputs.stride`` frames ``Y`` at a position, ``x_0 = 0`` and ``x_i = Y_{is-1}`` the last frame of the
position before:

    h_i = D(ReLU(W_2 D(ReLU(W_1 x_i + b_1)) + b_2))      D: dropout ``outputs.prenet_dropout``
    [Y_{is}; …; Y_{is+s-1}] = W H_i + b                  H: ``h`` refined over depth
    P(position i is the last one) = sigmoid(v · H_i + c)

D is applied in training, and in generation where masks are given. Without this dropout in generation, models stop less
reliably and recognisers read their speech less often (notebook/README.md). Teacher forcing in evaluation has no D.

(Wang et al. 2017, Tacotron; Shen et al. 2018, Tacotron 2; Li et al. 2019 for a Transformer.) Dropout in the
prenet, the layers before the recurrence, keeps the model from copying the previous frame.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.functional import pad, relu

from universal_transformer.axes import Float, Padding, States, Tensor
from universal_transformer.models.components import needed
from universal_transformer.models.frame_input import blank_frames, check_frames, join_blank
from universal_transformer.models.model import Call, EncodedSource
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.outputs import FrameOutput
from universal_transformer.models.positions.numbering import without_padding
from universal_transformer.models.target import DecoderSide, DecoderState

Written = Float[Tensor, "batch target output"]
Before = Float[Tensor, "batch new output"]
Masks = Float[Tensor, "2 batch #new width"]
Stops = Float[Tensor, "batch new"]


class FrameTarget(DecoderSide):
    """The equations of this module."""

    embedding: nn.Sequential

    def __init__(self, config: ModelConfig, source: nn.Module | None) -> None:
        outputs, width = config.outputs, config.sizes.width
        features = needed(outputs.features, "outputs.features", by="frames need the number of features")
        prenet = nn.Sequential(
            *(nn.Linear(features, width), nn.ReLU(), nn.Dropout(outputs.prenet_dropout)),
            *(nn.Linear(width, width), nn.ReLU(), nn.Dropout(outputs.prenet_dropout)),
        )
        super().__init__(config, embedding=prenet, cross_attention=source is not None)
        self.stride, self.features = outputs.stride, features
        self.output = nn.Linear(width, self.stride * self.features)
        self.stop = nn.Linear(width, 1)

    def check(self, labels: Tensor) -> None:
        check_frames(labels, features=self.features, name="target")

    def length(self, frames: Written) -> int:
        return -(-frames.shape[1] // self.stride)

    def limit(self, length: int, *, fed: int = 1, most: int | None = None) -> int:
        """The positions of which no frame is beyond ``most`` (None: as the configuration says), but at least one."""
        del fed
        frames = self.config.generation.limit(length) if most is None else most
        return max(1, min(frames // self.stride, self.reach or frames))

    def forward(self, frames: Written, encoded: EncodedSource | None, call: Call) -> FrameOutput:
        """Teacher forcing: position ``i`` predicts its frames from those of the positions before.

        ``frames`` are padded on the right with NaN; where the last position of a row has less than ``stride`` of them,
        the others are predicted all the same. UserError for numbers that are not finite.
        """
        padding = without_padding(join_blank(blank_frames(frames), stride=self.stride))
        last, count = frames[:, self.stride - 1 :: self.stride].nan_to_num(), self.length(frames)
        before = pad(last, (0, 0, 1, 0))[:, :count].to(self.output.weight.dtype)
        inputs = self.dropout(self.embed(before, padding=padding))
        states, trace = self.recurrence(inputs, self.context(count, call, padding=padding, encoded=encoded))
        written, stop = self._read(states)
        source = None if encoded is None else encoded.trace
        return FrameOutput(written[:, : frames.shape[1]], stop, self.stride, source, trace)

    def embed(self, before: Before, *, padding: Padding | None = None, masks: Masks | None = None) -> States:
        """The frame before each position through the prenet, 0 at padding."""
        states: Tensor = before
        if masks is None:
            states = self.embedding(before)
        else:
            for layer, mask in zip((self.embedding[0], self.embedding[3]), masks, strict=True):
                states = relu(layer(states)) * mask
        return states if padding is None else states.masked_fill(padding.unsqueeze(-1), 0.0)

    def _read(self, states: States) -> tuple[Written, Stops]:
        frames: Tensor = self.output(states)
        stop: Tensor = self.stop(states)
        return frames.reshape(len(frames), -1, self.features), stop.squeeze(-1)

    def first(self, rows: int) -> Before:
        """The frame before the first position."""
        return torch.zeros(rows, 1, self.features, dtype=self.output.weight.dtype, device=self.output.weight.device)

    def masks(self, generators: Sequence[torch.Generator]) -> Masks:
        """Draw D of one position of each row, by a generator for each row: 0, or ``1 / (1 - prenet_dropout)``."""
        rate, weight = self.config.outputs.prenet_dropout, self.output.weight
        drawn = torch.stack([torch.rand(2, 1, weight.shape[1], generator=each) for each in generators], dim=1)
        return ((drawn >= rate) / (1 - rate)).to(weight)

    def advance(
        self, before: Before, state: DecoderState, *, padding: Padding | None = None, masks: Masks | None = None
    ) -> tuple[Written, Stops]:
        """The frames of new positions, ``stride`` for each, and their stop logits. The caches of ``state`` grow.

        ``before`` has the frame before each new position: `first`, then the last frame of each position.
        """
        return self._read(self.refine_next(self.embed(before, masks=masks), state, padding=padding))
