"""How weights start. A module says what differs: ``initialise`` of its own parameters, ``initialise_parts`` of those
of its layers.

=====================================  ==============================================================
weights                                start
=====================================  ==============================================================
attention projections, transitions     Glorot uniform, each projection by itself; biases 0. With DeepNorm the values,
                                       the outputs and the transitions are smaller, by ``α^-1 / √2``
LayerNorm                              scale 1, shift 0 (torch's start)
token and fact embeddings, tables      normal, standard deviation ``width^-1/2``
depthwise convolutions                 uniform over ``± kernel^-1/2``
halting unit                           by default weight 0 and bias ``-ln(2T - 1)``; with ``halting.bias`` the weight is
                                       Glorot uniform and the bias this number.
                                       With ponder: weight 0, bias the logit of the prior's rate by default
classifier                             Glorot uniform, bias 0
=====================================  ==============================================================
"""

import torch
from torch import nn
from torch.nn import init

from universal_transformer.nn.attention import CrossAttention, SelfAttention
from universal_transformer.nn.block import Block


@torch.no_grad()
def initialise(model: nn.Module) -> None:
    """Give every parameter of ``model`` its starting value, drawn from torch's global generator.

    A model on the meta device has no values; drawing them there would import torch's compiler, which takes a second.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        return
    for module in model.modules():
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Conv1d):
            bound = module.kernel_size[0] ** -0.5
            init.uniform_(module.weight, -bound, bound)
        elif callable(own := getattr(module, "initialise", None)):
            own()
    for module in model.modules():  # fused projections: each part by its own fan
        if isinstance(module, SelfAttention):
            for part in torch.split(module.query_key_value.weight, module.channels):
                init.xavier_uniform_(part)
        elif isinstance(module, CrossAttention):
            for part in module.key_value.weight.chunk(2):
                init.xavier_uniform_(part)
        elif callable(own := getattr(module, "initialise_parts", None)):
            own()
    for module in model.modules():
        if isinstance(module, Block) and (scale := module.after_attention.scale) != 1.0:
            _shrink(module, by=scale * 2**0.5)


def _shrink(block: Block, *, by: float) -> None:
    """Divide the weights through which states pass linearly: values, outputs and transitions, not queries and keys."""
    torch.split(block.attention.query_key_value.weight, block.attention.channels)[2].div_(by)
    block.attention.output.weight.div_(by)
    if block.cross_attention is not None:
        block.cross_attention.key_value.weight.chunk(2)[1].div_(by)
        block.cross_attention.output.weight.div_(by)
    for part in block.transition.modules():
        if isinstance(part, nn.Linear):
            part.weight.div_(by)
