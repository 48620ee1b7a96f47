"""The loss of a model that writes frames.

With ``Y`` the frames of the target, ``Ŷ`` those of the model, F features, the stop logit ``z`` of the position that
wrote a frame, ``e`` 1 for the frames of the last position and 0 for others, and n real frames:

    1/n Σ_i [ 1/F Σ_f (|Ŷ_if - Y_if| + (Ŷ_if - Y_if)²) - w e_i log σ(z_i) - (1 - e_i) log(1 - σ(z_i)) ]

The absolute difference gives weak bands more weight, and the square gives loud bands more weight. Few positions are
the last one, so that ``w = STOP_WEIGHT`` counts them more often.
"""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from universal_transformer.axes import Int, Scalar, Tensor
from universal_transformer.models.frame_target import Written
from universal_transformer.models.frames import blank_frames
from universal_transformer.models.outputs import FrameOutput

STOP_WEIGHT = 5.0


def frame_loss(output: FrameOutput, target: Written) -> tuple[Scalar, Int[Tensor, ""]]:
    """The sum over real frames of the loss, and of how many it is right that their position is the last one or not."""
    real = ~blank_frames(target)
    wide = torch.promote_types(output.frames.dtype, torch.float32)
    difference = output.frames.to(wide) - target.nan_to_num()
    spectral = (difference.abs() + difference.square()).mean(-1)
    place = output.places
    last = place == (place * real).amax(dim=1, keepdim=True)
    logits = output.stop.to(wide)[:, place]
    weight = torch.tensor(STOP_WEIGHT, dtype=wide, device=logits.device)
    stop = binary_cross_entropy_with_logits(logits, last.to(wide), pos_weight=weight, reduction="none")
    return ((spectral + stop) * real).sum(), (((logits > 0) == last) & real).sum()
