"""The whole Universal Transformer in one file: an encoder-decoder in which each position halts by itself.

Dehghani et al., ICLR 2019: section 2.1 (one block for all steps), section 2.2 (adaptive computation time). This file
has what the paper describes and nothing that makes it fast or convenient: positions that have halted are computed
and thrown away. A test compares it with `universal_transformer.EncoderDecoder`.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, pad, scaled_dot_product_attention


def sinusoid(index: Tensor, width: int) -> Tensor:
    """Equations 6 and 7: sin and cos of ``index / 10000^(2j/d)``, in channels ``2j`` and ``2j + 1``; from 1."""
    angle = (index + 1).unsqueeze(-1) / 10_000 ** (torch.arange(0, width, 2) / width)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class Attention(nn.Module):
    """``softmax(Q K^T / sqrt(d/k)) V`` in each of k heads, then a map of them together (equations 1 to 3)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key_value, self.output = (nn.Linear(width, n * width, bias=False) for n in (1, 2, 1))

    def forward(self, states: Tensor, seen: Tensor, mask: Tensor) -> Tensor:
        """Queries come from ``states``, keys and values from ``seen``; ``mask`` is True where they may look."""
        parts = self.query(states), *self.key_value(seen).chunk(2, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Residual(nn.Module):
    """``LayerNorm(x + Dropout(z))``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(width, eps=1e-6), nn.Dropout(0.1)

    def forward(self, states: Tensor, change: Tensor) -> Tensor:
        return self.norm(states + self.dropout(change))


class Block(nn.Module):
    """Equations 4 and 5: self-attention, in a decoder attention to the source, transition."""

    def __init__(self, width: int, filter_width: int, heads: int, *, decoder: bool) -> None:
        super().__init__()
        self.attention, self.after_attention = Attention(width, heads), Residual(width)
        if decoder:
            self.cross_attention, self.after_cross_attention = Attention(width, heads), Residual(width)
        self.transition = nn.Sequential(nn.Linear(width, filter_width), nn.ReLU(), nn.Linear(filter_width, width))
        self.after_transition = Residual(width)

    def forward(self, states: Tensor, mask: Tensor, source: Tensor | None, source_mask: Tensor | None) -> Tensor:
        states = self.after_attention(states, self.attention(states, states, mask))
        if source is not None:
            states = self.after_cross_attention(states, self.cross_attention(states, source, source_mask))
        return self.after_transition(states, self.transition(states))


class Recurrence(nn.Module):
    """The loop over depth, with adaptive computation time (section 2.2; Graves 2016)."""

    def __init__(self, width: int, filter_width: int, heads: int, max_steps: int, *, decoder: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, filter_width, heads, decoder=decoder)])
        self.halting = nn.Linear(width, 1)
        self.max_steps, self.threshold = max_steps, 0.99

    def forward(
        self, states: Tensor, mask: Tensor, source: Tensor | None = None, source_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The mean of each position's states by its halting weights, its steps N and its remainder R."""
        batch, length, width = states.shape
        halted, steps, remainder = (states.new_zeros(batch, length) for _ in range(3))
        output, position = torch.zeros_like(states), sinusoid(torch.arange(length), width)
        for step in range(self.max_steps):
            running = halted < 1
            timed = states + position + sinusoid(torch.tensor(step), width)  # H + P^t
            p = torch.sigmoid(self.halting(timed)).squeeze(-1)
            last = running & ((halted + p > self.threshold) | (step == self.max_steps - 1))
            weight = torch.where(last, 1 - halted, p) * running
            new = self.blocks[0](timed, mask, source, source_mask)
            states = torch.where(running.unsqueeze(-1), new, states)  # others see the last state of a halted position
            output = output + weight.unsqueeze(-1) * states
            steps, remainder = steps + running, torch.where(last, weight, remainder)
            halted = torch.where(last, 1, halted + weight)
        return output, steps, remainder


class UniversalTransformer(nn.Module):
    """Tokens of a source and of a target to the logits of each token of the target. 0 is padding, 1 the start."""

    def __init__(self, vocabulary: int, *, width: int = 64, filter_width: int = 128, heads: int = 4, steps: int = 6):
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(vocabulary, width), nn.Dropout(0.1)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.encoder = Recurrence(width, filter_width, heads, steps, decoder=False)
        self.decoder = Recurrence(width, filter_width, heads, steps, decoder=True)

    def embed(self, ids: Tensor) -> Tensor:
        vectors = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return self.dropout(vectors.masked_fill(ids.eq(0).unsqueeze(-1), 0))

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of ``target`` given the tokens to the left, and the ponder cost: the mean of N + R on both sides."""
        real = source.ne(0)
        states, source_steps, source_rest = self.encoder(self.embed(source), real[:, None, None])
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
        shifted = pad(target, (1, -1), value=1)
        states, steps, rest = self.decoder(self.embed(shifted), causal, states, real[:, None, None])
        cost = (source_steps + source_rest)[real].mean() + (steps + rest)[target.ne(0)].mean()
        return linear(states, self.embedding.weight, self.bias), cost


if __name__ == "__main__":
    torch.manual_seed(0)
    model, digits = UniversalTransformer(13), torch.randint(3, 13, (64, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for update in range(101):  # copy six digits
        logits, ponder_cost = model(digits, digits)
        loss = cross_entropy(logits.flatten(0, 1), digits.flatten())
        optimizer.zero_grad()
        (loss + 0.01 * ponder_cost).backward()
        optimizer.step()
        if update % 25 == 0:
            print(f"update {update}: loss {loss:.3f}, ponder cost {ponder_cost:.2f}")
