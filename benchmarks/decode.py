"""``ut bench decode``: greedy and beam search of an encoder-decoder with a cache, compared with T5 of equal sizes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from benchmarks.peers import installed, t5
from benchmarks.random_models import QUICK, BenchmarkSizes, without_end
from benchmarks.result import Measurement, Settings
from benchmarks.timing import Side, alternate, comparison, medians
from universal_transformer.decoding import DecodingOptions, beam_search, generate
from universal_transformer.execution.packing import PackedLinear, packs
from universal_transformer.models.components import DepthConfig, VocabularyConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.universal import EncoderDecoder
from universal_transformer.nn.block import Block
from universal_transformer.nn.step_config import StepConfig

SHAPE = BenchmarkSizes(width=512, heads=8, filter_width=2048, batch=16, length=32, max_steps=6)
NARROW = BenchmarkSizes(width=128, heads=4, filter_width=512, batch=32, length=32, max_steps=6)
VOCABULARY, NEW_TOKENS = 8000, 32
BEAMS, BEAM_CASES = 4, ((SHAPE, NEW_TOKENS), (NARROW, NEW_TOKENS), (NARROW, 128))
LEAST = {torch.float32: 2.0, torch.bfloat16: 3.0}


def endless(shape: BenchmarkSizes, *, vocabulary: int) -> EncoderDecoder:
    """Build a model with random weights that never generates the end token, so that every row gets all its tokens."""
    torch.manual_seed(0)
    config = ModelConfig(
        vocabulary=VocabularyConfig(size=vocabulary),
        sizes=shape.sizes,
        depth=DepthConfig(max_steps=shape.max_steps),
        step=StepConfig(dropout=0.0),
    )
    return without_end(EncoderDecoder(config))


def products(model: EncoderDecoder, *, batch: int, length: int, tokens: int) -> Side:
    """Compute only the matrix products of the encoder and of ``tokens`` steps of decoding: a lower bound on the time.

    Matrices are packed where a CPU packs them.
    """
    kind = model.target.embedding.weight.dtype
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
    key_value = decoder.cross_attention.key_value.weight  # used once for a source, not once for a token
    encoding = [times(value, batch * length) for value in encoder.parameters() if value.dim() == 2]
    once = times(key_value, batch * length)
    matrices = [value for value in decoder.parameters() if value.dim() == 2 and value is not key_value]
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


def compare(
    shape: BenchmarkSizes, *, vocabulary: int, tokens: int, dtype: torch.dtype, settings: Settings
) -> list[Measurement]:
    """Compare generation with T5 and with its matrix products alone; every side encodes the source too."""
    model = endless(shape, vocabulary=vocabulary).to(dtype)
    source = sources(shape, vocabulary=vocabulary)
    sides: dict[str, Side] = {
        "ours": lambda: generate(model, source, DecodingOptions(max_new_tokens=tokens)),
        "products": products(model, batch=shape.batch, length=shape.length, tokens=tokens),
    }
    if installed("transformers"):
        kinds = {"T5": dtype, "T5 float32": torch.float32}
        for name in ("T5",) if dtype == torch.float32 else kinds:
            peer: Any = t5(shape, vocabulary=vocabulary).to(kinds[name])
            sides[name] = partial(peer.generate, source, max_new_tokens=tokens, do_sample=False, num_beams=1)
    times = alternate(sides, seconds=settings.seconds * 1.5, least=4)
    rates = {name: shape.batch * tokens / value for name, value in medians(times).items()}
    required = {"T5": (LEAST[dtype], None), "T5 float32": (None, None), "products": (0.6, 1.0)}
    return [
        Measurement(
            name=f"share of the matrix products: {shape}" if bound else f"{shape}, {tokens} tokens",
            dtype=str(dtype).removeprefix("torch."),
            shape=vars(shape) | {"vocabulary": vocabulary, "new_tokens": tokens},
            **comparison(times, over=over),
            bound=bound,
            least=least,
            details={"tokens_per_second": rates},
        )
        for over, (least, bound) in required.items()
        if over in times
    ]


def compare_beams(shape: BenchmarkSizes, *, vocabulary: int, tokens: int, settings: Settings) -> list[Measurement]:
    """Compare beam search with that of T5."""
    if not installed("transformers"):
        return []
    model, source = endless(shape, vocabulary=vocabulary), sources(shape, vocabulary=vocabulary)
    options = DecodingOptions(beams=BEAMS, max_new_tokens=tokens)
    peer: Any = t5(shape, vocabulary=vocabulary)
    sides: dict[str, Side] = {
        "ours": lambda: beam_search(model, source, options),
        "T5": partial(peer.generate, source, max_new_tokens=tokens, do_sample=False, num_beams=BEAMS),
    }
    return [
        Measurement(
            name=f"{shape}, {tokens} tokens, {BEAMS} beams",
            dtype="float32",
            shape=vars(shape) | {"vocabulary": vocabulary, "new_tokens": tokens, "beams": BEAMS},
            **comparison(alternate(sides, seconds=settings.seconds * 1.5, least=4), over="T5"),
        )
    ]


def sources(shape: BenchmarkSizes, *, vocabulary: int) -> Tensor:
    """Random tokens, the same in every call."""
    generator = torch.Generator().manual_seed(3)
    return torch.randint(3, vocabulary, (shape.batch, shape.length), generator=generator)


def run(settings: Settings) -> list[Measurement]:
    """All comparisons of this case."""
    if settings.quick:
        greedy = compare(QUICK, vocabulary=20, tokens=3, dtype=torch.float32, settings=settings)
        return greedy + compare_beams(QUICK, vocabulary=20, tokens=3, settings=settings)
    greedy = [
        each
        for dtype in LEAST
        for each in compare(SHAPE, vocabulary=VOCABULARY, tokens=NEW_TOKENS, dtype=dtype, settings=settings)
    ]
    return greedy + [
        each
        for shape, tokens in BEAM_CASES
        for each in compare_beams(shape, vocabulary=VOCABULARY, tokens=tokens, settings=settings)
    ]
