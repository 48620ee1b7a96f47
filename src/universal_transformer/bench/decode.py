"""``ut bench decode``: greedy, cached generation of an encoder-decoder, beside T5 of the same shape."""

import dataclasses

import torch
from torch import Tensor
from torch.nn.functional import linear

from universal_transformer.bench.peers import installed, t5
from universal_transformer.bench.result import Measurement, Settings
from universal_transformer.bench.subject import Shape
from universal_transformer.bench.timing import Side, alternate, median_ratio, medians
from universal_transformer.decoding import generate
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.encoder_decoder import EncoderDecoder
from universal_transformer.nn.block import Block

SHAPE = Shape(width=512, heads=8, filter_width=2048, batch=16, length=32, max_steps=6)
QUICK = Shape(width=16, heads=2, filter_width=32, batch=2, length=5, max_steps=2)
VOCABULARY, NEW_TOKENS = 8000, 32
LEAST = {torch.float32: 2.0, torch.bfloat16: 3.0}


def endless(shape: Shape, *, vocabulary: int) -> EncoderDecoder:
    """Our model with random weights, its end token made impossible: every row gets all its tokens."""
    torch.manual_seed(0)
    config = ModelConfig(
        width=shape.width,
        num_heads=shape.heads,
        filter_width=shape.filter_width,
        max_steps=shape.max_steps,
        vocabulary_size=vocabulary,
        dropout=0.0,
    )
    model = EncoderDecoder(config).eval()
    assert model.target.bias is not None
    with torch.no_grad():
        model.target.bias[config.end_id] = -1e4
    return model


def products(model: EncoderDecoder, *, batch: int, tokens: int) -> Side:
    """Only the matrix products of ``tokens`` steps of decoding: what generation could cost at least."""
    block = model.target.recurrence.blocks[0]
    assert isinstance(block, Block)
    assert block.cross_attention is not None
    remembered = block.cross_attention.key_value.weight  # once for a source, not once a token
    width, dtype = model.config.width, model.source.input.weight.dtype
    narrow = torch.randn(batch, width, dtype=dtype)
    wide = torch.randn(batch, model.config.filter_width, dtype=dtype)
    weights: list[Tensor] = [value for name, value in block.named_parameters() if value.dim() == 2]
    weights = [value for value in weights if value is not remembered]
    table = model.source.input.weight

    def side() -> None:
        with torch.inference_mode():
            for _ in range(tokens):
                for _ in range(model.config.max_steps):
                    for weight in weights:
                        linear(narrow if weight.shape[1] == width else wide, weight)
                linear(narrow, table)

    return side


def compare(
    shape: Shape, *, vocabulary: int, tokens: int, dtype: torch.dtype, settings: Settings
) -> list[Measurement]:
    """Tokens a second of ours, of T5, and of the matrix products alone."""
    model = endless(shape, vocabulary=vocabulary).to(dtype)
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(3, vocabulary, (shape.batch, shape.length), generator=generator)
    sides: dict[str, Side] = {
        "ours": lambda: generate(model, source, max_new_tokens=tokens),
        "products": products(model, batch=shape.batch, tokens=tokens),
    }
    if installed("transformers"):
        peer = t5(shape, vocabulary=vocabulary).to(dtype)
        sides["T5"] = lambda: peer.generate(  # type: ignore[operator]
            source, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, num_beams=1
        )
    times = alternate(sides, seconds=settings.seconds * 1.5, least=4)
    middle = medians(times)
    common = Measurement(
        case="decode",
        name=f"{shape}, {tokens} tokens",
        dtype=str(dtype).removeprefix("torch."),
        shape=vars(shape) | {"vocabulary": vocabulary, "new_tokens": tokens},
        seconds=middle,
        turns=len(times["ours"]),
        ours="ours",
        details={
            "tokens_per_second": {name: shape.batch * tokens / value for name, value in middle.items()},
        },
    )
    found = []
    if "T5" in times:
        ratio = median_ratio(times["T5"], times["ours"])
        found.append(dataclasses.replace(common, over="T5", ratio=ratio, least=LEAST[dtype]))
    share = median_ratio(times["products"], times["ours"])
    name = f"share of the matrix products: {shape}"
    found.append(dataclasses.replace(common, name=name, over="products", ratio=share, bound=1.0, least=0.6))
    return found


def run(settings: Settings) -> list[Measurement]:
    """All comparisons of this case."""
    if settings.quick:
        return compare(QUICK, vocabulary=20, tokens=3, dtype=torch.float32, settings=settings)
    return [
        each
        for dtype in LEAST
        for each in compare(SHAPE, vocabulary=VOCABULARY, tokens=NEW_TOKENS, dtype=dtype, settings=settings)
    ]
