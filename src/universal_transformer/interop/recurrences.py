"""The other recurrences of the authors' code: how the state ``s`` of a step follows from what its block computes.

With ``t = Block(s + P^t)`` the result of the block, ``e`` the input of the first step, ``LN`` the norm of a pre-norm
model (none with post-norm), and ``σ`` the sigmoid:

=========== ==========================================================================================================
highway     ``s ← s (1 - g) + t g``, ``g = σ(W [LN(x)] + b)`` of the gate inputs x, of s, t and e
skip        ``s ← e (1 - g) + t g``, with the same gate
dwa         ``s = Σ_j m_j softmax(W m_j + b)`` enters step t, of ``m_0 = e`` and the results ``m_j`` of steps j < t - 1,
            each with a learned vector of its depth; the softmax is over channels
gru         ``z = LN(t)``, ``s ← LN((1 - u) z + u tanh(W [z; r s] + b))``, gates u and r of ``[z; s]``
lstm        ``z = LN(t)``, ``c ← c σ(f + 1) + σ(i) tanh(m)``, ``s ← LN(σ(o) tanh(c))``, all of ``[z; s]``
=========== ==========================================================================================================

The block of gru and lstm is attention alone. Gates are 0 at the padding of an encoder with the pad remover; the forget
gate is then 0 before its bias. (tensor2tensor, `universal_transformer_util.py`, commit bafdc1b.)
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import nn

from universal_transformer.axes import Padding, States, Tensor
from universal_transformer.errors import refuse
from universal_transformer.interop.tensor2tensor_config import OfficialConfig

Memory = tuple[States, ...]


class SimpleRecurrentUnit(nn.Module):
    """``c_i = f c_{i-1} + (1 - f) u``, ``y_i = r c_i + (1 - r) x_i`` from left to right, two layers (Lei et al. 2018).

    u, f and r are linear maps of ``x_i``, the last two with a sigmoid.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(2)])

    def forward(self, states: States) -> States:
        for layer in self.layers:
            mapped, forget, reset = layer(states).chunk(3, dim=-1)
            forget, reset = forget.sigmoid(), reset.sigmoid()
            cells = [torch.zeros_like(states[:, 0])]
            for keep, new in zip(forget.unbind(1), (mapped * (1.0 - forget)).unbind(1), strict=True):
                cells.append(keep * cells[-1] + new)
            states = reset * torch.stack(cells[1:], dim=1) + (1.0 - reset) * states
        return states


class Dense(nn.Linear):
    """``f(W [x_1; …; x_n] + b)`` of n inputs, 0 at ``padding``."""

    def __init__(self, width: int, inputs: int, *, function: Callable[[Tensor], Tensor] = torch.sigmoid) -> None:
        super().__init__(inputs * width, width)
        self.function = function

    def forward(self, *inputs: States, padding: Padding | None) -> States:  # type: ignore[override]
        result = self.function(super().forward(torch.cat(inputs, dim=-1)))
        return result if padding is None else result.masked_fill(padding.unsqueeze(-1), 0.0)


class Carry(nn.Module):
    """What a recurrence carries from step to step: its state, and a ``memory`` of its own.

    ``names``: paths of modules inside -> official names of their weights.
    """

    names: ClassVar[dict[str, str]] = {}
    attention_alone: ClassVar[bool] = False
    """Whether the block of a step has no transition."""

    def __init__(self, config: OfficialConfig) -> None:
        super().__init__()
        self.config, self.chosen, self.width = config, config.tensor2tensor, config.sizes.width

    def norm(self) -> nn.Module:
        """The next norm before a function: LayerNorm in a pre-norm model, else nothing."""
        step = self.config.step
        return nn.LayerNorm(self.width, eps=step.norm_epsilon) if step.norm == "pre" else nn.Identity()

    def start(self, states: States) -> Memory:
        """The memory before the first step."""
        return (states,)

    def enter(self, states: States, memory: Memory) -> States:
        """The state that a step starts from."""
        del memory
        return states

    def forward(self, states: States, new: States, memory: Memory, *, padding: Padding | None) -> tuple[States, Memory]:
        """State and memory after a step whose block has computed ``new`` from ``states``."""
        raise NotImplementedError


class Highway(Carry):
    """The state or what the block computed, by a gate."""

    names: ClassVar[dict[str, str]] = {
        **{gate: f"{{scope}}/{gate}/kernel" for gate in ("transform", "carry")},
        **{f"norms.{n}": f"{{scope}}/{{norm}}{f'_{n}' if n else ''}/layer_norm/layer_norm_scale" for n in range(6)},
    }

    def __init__(self, config: OfficialConfig) -> None:
        super().__init__(config)
        inputs, gates = len(self.chosen.gates_inputs), 1 if self.chosen.coupled_gates else 2
        self.norms = nn.ModuleList([self.norm() for _ in range(inputs * gates)])
        self.transform = Dense(self.width, inputs)
        self.carry = Dense(self.width, inputs) if gates == 2 else None

    def kept(self, states: States, first: States) -> States:
        """What is kept where the gate is 0."""
        del first
        return states

    def forward(self, states: States, new: States, memory: Memory, *, padding: Padding | None) -> tuple[States, Memory]:
        (first,) = memory
        given = {"s": states, "t": new, "i": first}
        chosen: Sequence[States] = [given[name] for name in "sti" if name in self.chosen.gates_inputs]
        normed = [norm(each) for norm, each in zip(self.norms, chosen, strict=False)]
        gate = self.transform(*normed, padding=padding)
        carry = 1.0 - gate
        if self.carry is not None:  # the official code normalises its inputs a second time
            again = [norm(each) for norm, each in zip(self.norms[len(chosen) :], normed, strict=True)]
            carry = self.carry(*again, padding=padding)
        return self.kept(states, first) * carry + new * gate, memory


class Skip(Highway):
    """The input of the first step or what the block computed, by a gate."""

    def kept(self, states: States, first: States) -> States:
        del states
        return first


class DepthwiseAttention(Carry):
    """A weighted sum of the results of the steps before the last one."""

    names: ClassVar[dict[str, str]] = {"": "{scope}/depth_embedding", "dense": "{scope}/dense/kernel"}

    def __init__(self, config: OfficialConfig) -> None:
        super().__init__(config)
        places = config.max_steps + 1
        self.depth = nn.Parameter(torch.zeros(places, self.width)) if self.chosen.depth_embedding else None
        self.dense = nn.Linear(self.width, self.width if self.chosen.dwa_elements else 1)

    def enter(self, states: States, memory: Memory) -> States:
        read = memory[:-1]
        if not read:
            return torch.zeros_like(states)
        slots = torch.stack(read)
        if self.depth is not None:
            most = len(self.depth)
            refuse((len(read) > most, f"max_steps: the depth embedding of dwa has {most} rows; run fewer steps"))
            slots = slots + self.width**0.5 * self.depth[: len(read), None, None]
        mixed: States = (slots * self.dense(slots).softmax(-1)).sum(0)
        return mixed

    def forward(self, states: States, new: States, memory: Memory, *, padding: Padding | None) -> tuple[States, Memory]:
        del states, padding
        return new, (*memory, new)


class Gru(Carry):
    """A gated recurrent unit over depth."""

    attention_alone = True
    names: ClassVar[dict[str, str]] = {
        "before": "{scope}/{norm}/layer_norm/layer_norm_scale",
        "after": "{scope}/{norm}_1/layer_norm/layer_norm_scale",
        **{name: f"{{scope}}/gru/{name}/kernel" for name in ("update", "reset", "candidate")},
    }

    def __init__(self, config: OfficialConfig) -> None:
        super().__init__(config)
        self.before, self.after = self.norm(), self.norm()
        self.update, self.reset = Dense(self.width, 2), Dense(self.width, 2)
        self.candidate = Dense(self.width, 2, function=torch.tanh)

    def forward(self, states: States, new: States, memory: Memory, *, padding: Padding | None) -> tuple[States, Memory]:
        read = self.before(new)
        update, reset = (gate(read, states, padding=padding) for gate in (self.update, self.reset))
        candidate = self.candidate(read, reset * states, padding=padding)
        return self.after((1.0 - update) * read + update * candidate), memory


class Lstm(Carry):
    """A long short-term memory over depth."""

    attention_alone = True
    names: ClassVar[dict[str, str]] = {
        **{name: Gru.names[name] for name in ("before", "after")},
        **{name: f"{{scope}}/lstm/{name}/kernel" for name in ("input", "forget", "output", "input_modulation")},
    }

    def __init__(self, config: OfficialConfig) -> None:
        super().__init__(config)
        self.before, self.after = self.norm(), self.norm()
        self.input, self.output = Dense(self.width, 2), Dense(self.width, 2)
        self.forget = Dense(self.width, 2, function=lambda values: values)
        self.input_modulation = Dense(self.width, 2, function=torch.tanh)

    def start(self, states: States) -> Memory:
        return (torch.zeros_like(states),)

    def forward(self, states: States, new: States, memory: Memory, *, padding: Padding | None) -> tuple[States, Memory]:
        read, (cell,) = self.before(new), memory
        parts = (self.input, self.forget, self.output, self.input_modulation)
        inside, forget, outside, modulation = (part(read, states, padding=padding) for part in parts)
        cell = cell * torch.sigmoid(forget + self.chosen.lstm_forget_bias) + inside * modulation
        return self.after(torch.tanh(cell) * outside), (cell,)


CARRIES: dict[str, type[Carry]] = {
    "highway": Highway,
    "skip": Skip,
    "dwa": DepthwiseAttention,
    "gru": Gru,
    "lstm": Lstm,
}
"""Official `recurrence_type` -> its class; "basic" and "act" have none."""
