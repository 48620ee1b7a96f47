"""A read and a write of a Neural Turing Machine (Graves et al. 2014) are one step of a Universal Transformer.

Its controller has emitted keys k with strengths β, an erase vector e and an add vector a. With the memory M it computes

    w(i) = softmax_i(β cos(k, M(i)))    r = Σ_i w(i) M(i)    M'(i) = M(i) ⊙ (1 - w(i) e) + w(i) a

Positions are the controller and the cells. First all attend to the controller, and hear what it says. Then each head
of the machine is a head of attention with the query β k / |k|, which moves contents to read and addresses to write,
since these sum to w. The transition erases and adds, in all cells at once.
"""

import torch
from torch import nn

from universal_transformer.nn.attention import SelfAttention
from universal_transformer.nn.block import Block, PostNorm
from universal_transformer.nn.context import Context, Depth, PositionEncoding
from universal_transformer.nn.coordinates import Coordinates, PositionEncoder
from universal_transformer.nn.halting import FixedDepth
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.step_config import AttentionConfig, Sizes, StepConfig


class EraseAndAdd(nn.Module):
    """``M'(i) - M(i)``, and the same of the direction M(i) / |M(i)|, from which cosines are computed."""

    def forward(self, states, context, *, slot):
        del context, slot
        part = {name: states[..., channels] for name, channels in self.channels.items()}
        weight = (part["weights"] * part["address"]).sum(-1, keepdim=True)  # w(i) in cell i, 0 elsewhere
        new, change = part["content"] * (1 - weight * part["erase"]) + weight * part["add"], torch.zeros_like(states)
        change[..., self.channels["content"]] = new - part["content"]
        change[..., self.channels["direction"]] = nn.functional.normalize(new, dim=-1) - part["direction"]
        return change


def block_of(channels, width, *heads):
    """Each head compares channels of the query with others of the key, and moves channels of the value to others."""
    attention, size = SelfAttention(Sizes(width=width, num_heads=2), AttentionConfig()).double(), width // 2
    query, key, value = attention.query_key_value.weight.zero_().split(width)
    output, transition = attention.output.weight.zero_(), EraseAndAdd()
    transition.channels = channels
    for rows, (asked, shown, source, target) in zip(torch.arange(width).split(size), heads, strict=False):
        query[rows[: len(asked)], asked], key[rows[: len(asked)], shown] = size**0.5, 1.0
        value[rows[: len(source)], source] = output[target, rows[: len(source)]] = 1.0
    block = Block(attention, transition, norm=lambda: PostNorm(width, StepConfig(dropout=0.0)))
    block.after_attention.norm = block.after_transition.norm = nn.Identity()  # the residual sums alone
    return block


@torch.no_grad()
def read_and_write(memory, *, read, write, erase, add):
    """Return r and M' of a memory ``[cell, channel]``; `read` and `write` are keys, each with its strength."""
    (cells, size), said = memory.shape, [beta * nn.functional.normalize(key, dim=0) for key, beta in (read, write)]
    sizes = dict.fromkeys(("content", "direction", "result", "read key", "write key", "erase", "add"), size)
    sizes |= {"address": cells, "weights": cells, "sharp": 1, "controller": 1, "cell": 1, "said": 4 * size}
    width = 2 * sum(sizes.values())
    place = dict(zip(sizes, torch.arange(width // 2).split([*sizes.values()]), strict=True))
    heard = torch.cat([place[name] for name in ("read key", "write key", "erase", "add")])
    cell = torch.cat([place["direction"], place["cell"]])
    listen = block_of(place, width, (place["sharp"], place["controller"], place["said"], heard))
    reading = torch.cat([place["read key"], place["sharp"]]), cell, place["content"], place["result"]
    writing = torch.cat([place["write key"], place["sharp"]]), cell, place["address"], place["weights"]
    blocks = [listen, block_of(place, width, reading, writing)]
    states = torch.zeros(cells + 1, width, dtype=torch.float64)
    states[0, place["controller"]] = states[1:, place["cell"]] = 1.0
    states[:, place["sharp"]] = 60.0  # a logit: positions that are not meant have exp(-60) of the weight
    states[0, place["said"]], states[1:, place["content"]] = torch.cat([*said, erase, add]), memory
    states[1:, place["address"]] = torch.eye(cells).double()
    step = Recurrence(Coordinates(PositionEncoder(), None), blocks, depth=Depth(FixedDepth(), 1), blocks_per_step=2)
    encoding = PositionEncoding(torch.arange(cells + 1)[None])
    states = step(states[None], Context(depth=step.depth(), encoding=encoding))[0][0]
    return states[0, place["result"]], states[1:, place["content"]]


if __name__ == "__main__":
    memory, key, add = (torch.randn(*shape).double() for shape in ((6, 4), (4,), (4,)))
    held, memory = read_and_write(memory, read=(key, 50.0), write=(key, 50.0), erase=torch.ones(4), add=add)
    found, _ = read_and_write(memory, read=(add, 50.0), write=(key, 0.0), erase=torch.zeros(4), add=torch.zeros(4))
    print("what was read, what was written in its place, and what is read there now:", held, add, found, sep="\n")
