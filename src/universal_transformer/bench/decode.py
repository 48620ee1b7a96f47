"""``ut bench decode``: greedy, cached generation of an encoder-decoder, beside T5 of the same shape."""

import dataclasses
from collections.abc import Callable

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
from universal_transformer.execution.packing import PackedLinear, packs

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


def products(model: EncoderDecoder, *, batch: int, length: int, tokens: int) -> Side:
    """Only the matrix products of the encoder and of ``tokens`` steps of decoding, packed where a CPU packs them: what
    generation could cost at least.
    """
    kind = model.source.input.weight.dtype
    rows: dict[tuple[int, int], Tensor] = {}  # by number and width

    def times(weight: Tensor, count: int) -> Callable[[], Tensor]:
        given = rows.setdefault((count, weight.shape[1]), torch.randn(count, weight.shape[1], dtype=kind))
        if packs(weight):
            packed = PackedLinear(weight, None)
            return lambda: packed(given)
        return lambda: linear(given, weight)

    encoder, decoder = (side.recurrence.blocks[0] for side in (model.source, model.target))
    assert isinstance(encoder, Block)
    assert isinstance(decoder, Block)
    assert decoder.cross_attention is not None
    remembered = decoder.cross_attention.key_value.weight  # once for a source, not once a token
    encoding = [times(value, batch * length) for value in encoder.parameters() if value.dim() == 2]
    once = times(remembered, batch * length)
    matrices = [value for value in decoder.parameters() if value.dim() == 2 and value is not remembered]
    decoding = [times(value, batch) for value in matrices]
    classes = times(model.target.matrix, batch)

    def side() -> None:
        with torch.inference_mode():
            for product in encoding * model.config.max_steps:
                product()
            once()
            for _ in range(tokens):
                for product in decoding * model.config.max_steps:
                    product()
                classes()

    return side


def peers_of(dtype: torch.dtype) -> dict[str, torch.dtype]:
    """T5 in the same numbers, and where those are not float32 also in float32."""
    return {"T5": dtype} | ({} if dtype == torch.float32 else {"T5 float32": torch.float32})


def t5_side(shape: Shape, source: Tensor, *, vocabulary: int, tokens: int, dtype: torch.dtype) -> Side:
    """Greedy, cached generation by T5."""
    peer = t5(shape, vocabulary=vocabulary).to(dtype)
    return lambda: peer.generate(source, max_new_tokens=tokens, do_sample=False, num_beams=1)  # type: ignore[operator]


def compare(
    shape: Shape, *, vocabulary: int, tokens: int, dtype: torch.dtype, settings: Settings
) -> list[Measurement]:
    """Ours beside T5 and beside the matrix products alone; all of it with the encoding of the source."""
    model = endless(shape, vocabulary=vocabulary).to(dtype)
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(3, vocabulary, (shape.batch, shape.length), generator=generator)
    sides: dict[str, Side] = {
        "ours": lambda: generate(model, source, max_new_tokens=tokens),
        "products": products(model, batch=shape.batch, length=shape.length, tokens=tokens),
    }
    if installed("transformers"):
        sides |= {
            name: t5_side(shape, source, vocabulary=vocabulary, tokens=tokens, dtype=each)
            for name, each in peers_of(dtype).items()
        }
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
    for name, least in (("T5", LEAST[dtype]), ("T5 float32", None)):
        if name in times:
            ratio = median_ratio(times[name], times["ours"])
            found.append(dataclasses.replace(common, over=name, ratio=ratio, least=least))
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
