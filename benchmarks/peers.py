"""Encoders with tied layers and decoders with a cache from other libraries (optional extra ``peers``).

All have the same sizes, the same matrix products, two LayerNorms for each step, and torch's attention. The differences
are small: torch.nn and ALBERT add biases in attention, ALBERT normalises its inputs once more, and this project's
encoder adds coordinates at every step.
"""

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from benchmarks.random_models import BenchmarkSizes

Encoder = Callable[[Tensor], Tensor]


class RepeatedLayer(nn.Module):
    """One layer applied ``max_steps`` times."""

    def __init__(self, layer: nn.Module, *, max_steps: int) -> None:
        super().__init__()
        self.layer, self.max_steps = layer, max_steps

    def forward(self, states: Tensor) -> Tensor:
        for _ in range(self.max_steps):
            states = self.layer(states)
        return states


class Albert(nn.Module):
    """ALBERT, from embeddings to the states of its last layer."""

    def __init__(self, shape: BenchmarkSizes) -> None:
        super().__init__()
        from transformers import AlbertConfig, AlbertModel

        config = AlbertConfig(
            vocab_size=8,
            embedding_size=shape.width,
            hidden_size=shape.width,
            num_hidden_layers=shape.max_steps,
            num_hidden_groups=1,
            inner_group_num=1,
            num_attention_heads=shape.heads,
            intermediate_size=shape.filter_width,
            hidden_act="relu",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=max(shape.length, 8),
            attn_implementation="sdpa",
        )
        self.model = AlbertModel(config, add_pooling_layer=False)
        # both sizes are equal: the product is not needed
        self.model.encoder.embedding_hidden_mapping_in = nn.Identity()

    def forward(self, states: Tensor) -> Tensor:
        return self.model(inputs_embeds=states).last_hidden_state


def torch_nn(shape: BenchmarkSizes) -> nn.Module:
    """One ``nn.TransformerEncoderLayer``, applied repeatedly."""
    layer = nn.TransformerEncoderLayer(
        shape.width, shape.heads, shape.filter_width, dropout=0.0, activation="relu", batch_first=True
    )
    return RepeatedLayer(layer, max_steps=shape.max_steps)


def x_transformers(shape: BenchmarkSizes) -> nn.Module:
    """The encoder of x-transformers with one layer, applied repeatedly."""
    from x_transformers import Encoder as Layers

    layer = Layers(
        dim=shape.width,
        depth=1,
        heads=shape.heads,
        attn_dim_head=shape.width // shape.heads,
        attn_flash=True,
        ff_mult=shape.filter_width // shape.width,
        ff_custom_activation=nn.ReLU(),
        pre_norm=False,
    )
    return RepeatedLayer(layer, max_steps=shape.max_steps)


PEERS: dict[str, tuple[str, Callable[[BenchmarkSizes], nn.Module]]] = {
    "torch.nn": ("torch", torch_nn),
    "x-transformers": ("x_transformers", x_transformers),
    "ALBERT": ("transformers", Albert),
}
"""Name -> (package, function that builds the encoder)."""


def installed(package: str) -> bool:
    """Whether a package can be imported."""
    return find_spec(package) is not None


def encoders(shape: BenchmarkSizes) -> dict[str, nn.Module]:
    """The encoders of the installed packages, with random weights."""
    torch.manual_seed(0)
    return {name: build(shape) for name, (package, build) in PEERS.items() if installed(package)}


def t5(shape: BenchmarkSizes, *, vocabulary: int) -> nn.Module:
    """T5 of the same sizes with ``max_steps`` layers on each side; it never ends a sequence by itself."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=vocabulary,
        d_model=shape.width,
        d_kv=shape.width // shape.heads,
        d_ff=shape.filter_width,
        num_layers=shape.max_steps,
        num_heads=shape.heads,
        dropout_rate=0.0,
        feed_forward_proj="relu",
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config).eval()
    model.generation_config.eos_token_id = None  # then it neither looks for an end token nor masks its logits
    return model
