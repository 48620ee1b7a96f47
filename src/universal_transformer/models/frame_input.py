"""From numbers to states: frames of a sound or of observations, and patches of a picture.

Frames are ``[batch, frame, feature]``. A picture is a sequence of frames too: its columns of pixels, from left to
right, each from top to bottom. Padding is a frame that is NaN in all features.
"""

from typing import ClassVar

import torch
from torch import nn
from torch.nn.functional import gelu, pad

from universal_transformer.axes import Bool, Float, Padding, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.components import needed
from universal_transformer.models.model_config import BaseConfig

Frames = Float[Tensor, "batch frame feature"]


def check_frames(frames: Tensor, *, features: int, name: str = "source") -> None:
    """UserError unless ``frames`` are [batch, frame, feature], with NaN only in whole frames (on a CPU)."""
    if torch.compiler.is_compiling():
        return
    shape = list(frames.shape)
    if not frames.is_floating_point() or frames.ndim != 3 or shape[2] != features or 0 in shape:
        raise UserError(
            f"{name} of type {frames.dtype} and shape {shape}: expected floating-point numbers [batch, frame, "
            f"{features}], at least one row of at least one frame"
        )
    if frames.device.type == "cpu":
        blank = frames.isnan()
        if bool((blank.any(dim=-1) & ~blank.all(dim=-1)).any()) or bool(frames.isinf().any()):
            raise UserError(f"{name}: a number that is not finite; only padding is NaN, in all features of a frame")
        if bool(blank.flatten(1).all(dim=1).any()):
            raise UserError(f"{name}: a row without a frame; each row needs one at least")


def blank_frames(source: Frames) -> Bool[Tensor, "batch frame"]:
    return source.isnan().all(dim=-1)


def join_blank(blank: Bool[Tensor, "batch frame"], *, stride: int) -> Bool[Tensor, "batch position"]:
    """Return which groups of ``stride`` frames are padding in all frames; the last group is filled with padding."""
    whole = pad(blank, (0, -blank.shape[1] % stride), value=True)
    return whole.reshape(blank.shape[0], -1, stride).all(dim=-1)


class _NumberInput(nn.Module):
    """A linear map to states, after convolutions with stride 2 if there are any."""

    convolution: ClassVar[type[nn.Conv1d | nn.Conv2d]]
    lines: ClassVar[bool] = False
    """Whether a frame has several positions."""

    def __init__(self, config: BaseConfig, width: int) -> None:
        super().__init__()
        inputs = config.inputs
        self.features = needed(inputs.features, "inputs.features", by=f"{inputs.kind} need the number of features")
        self.stride = inputs.stride
        channels, joined = (1, self.stride**2) if self.lines else (self.features, self.stride * self.features)
        halvings = self.stride.bit_length() - 1 if inputs.stem == "convolution" else 0
        self.stem = nn.ModuleList(
            [self.convolution(width if layer else channels, width, 3, stride=2, padding=1) for layer in range(halvings)]
        )
        self.project = nn.Linear(width if halvings else joined, width)

    def check(self, source: Tensor) -> None:
        check_frames(source, features=self.features)

    def padding(self, source: Frames) -> Padding:
        blank, line = join_blank(blank_frames(source), stride=self.stride), source.shape[2] // self.stride
        return blank.repeat_interleave(line, dim=1) if self.lines else blank

    def initialise_parts(self) -> None:
        """Convolutions normal, standard deviation ``(2 / fan_in)^1/2`` (He et al. 2015), biases 0.

        With Glorot's, the embedding of one channel of pixels would be about 100 times smaller than the position signal.
        """
        for convolution in self.stem:
            weight, bias = convolution.parameters()
            nn.init.kaiming_normal_(weight, nonlinearity="relu")
            nn.init.zeros_(bias)

    def numbers(self, source: Frames) -> Frames:
        """Return the numbers of the source, 0 at padding, in the type of the weights."""
        return source.nan_to_num().to(self.project.weight.dtype)


class FrameInput(_NumberInput):
    """``h_i = W [f_{is}; …; f_{is+s-1}] + b``: one position for each ``inputs.stride`` s frames, 0 at padding.

    With ``inputs.stem="convolution"``, ``log2 s`` convolutions of 3 frames with stride 2, each followed by GELU, and
    then ``W h + b``. Numbers of padding are 0 in every layer, so that padding changes no position.
    """

    convolution = nn.Conv1d

    def forward(self, source: Frames) -> States:
        blank, frames = blank_frames(source), self.numbers(source)
        for convolution in self.stem:
            blank = join_blank(blank, stride=2)
            made = gelu(convolution(frames.transpose(1, 2))).transpose(1, 2)
            frames = made.masked_fill(blank.unsqueeze(-1), 0.0)
        if not self.stem:
            blank = join_blank(blank, stride=self.stride)
            whole = pad(frames, (0, 0, 0, -frames.shape[1] % self.stride))
            frames = whole.reshape(whole.shape[0], -1, self.stride * whole.shape[2])
        return self.project(frames).masked_fill(blank.unsqueeze(-1), 0.0)


class PatchInput(_NumberInput):
    """``h_p = W pixels_p + b``: one position for each square patch of ``inputs.stride`` s × s pixels, 0 at padding.

    A picture of ``inputs.features`` rows has ``L = features / s`` patches in each column of patches. Position ``p`` is
    the patch in row ``p mod L`` and column ``⌊p / L⌋``: pictures are padded on the right. With
    ``inputs.stem="convolution"``, ``log2 s`` convolutions of 3 × 3 pixels with stride 2, each followed by GELU, and
    then ``W h + b``.
    """

    convolution, lines = nn.Conv2d, True

    def forward(self, source: Frames) -> States:
        blank, pixels, stride = blank_frames(source), self.numbers(source), self.stride
        if self.stem:
            picture = pixels.unsqueeze(1)
            for convolution in self.stem:
                blank = join_blank(blank, stride=2)
                picture = gelu(convolution(picture)).masked_fill(blank[:, None, :, None], 0.0)
            patches = picture.permute(0, 2, 3, 1)
        else:
            whole = pad(pixels, (0, 0, 0, -pixels.shape[1] % stride))
            rows, columns, height = whole.shape
            squares = whole.reshape(rows, columns // stride, stride, height // stride, stride)
            patches = squares.transpose(2, 3).flatten(3)
        states = self.project(patches.flatten(1, 2))
        return states.masked_fill(self.padding(source).unsqueeze(-1), 0.0)
