"""A text becomes a picture, and the picture becomes a text again: two small models, trained on made-up pictures.

The pictures have 6 × 6 pixels, black or white: a dot, a line or a square, each in a random place. The first model reads
a word and writes pixels; the second one reads the columns of pixels and names what they show.
"""

import torch
from torch.nn.functional import cross_entropy

from universal_transformer import (
    Classifier,
    DepthConfig,
    EncoderDecoder,
    ModelConfig,
    Sizes,
    StepConfig,
    VocabularyConfig,
)
from universal_transformer.decoding import Sampling, generate
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.models.components import GenerationConfig, InputsConfig, OutputsConfig

WORDS, SIDE, FIRST, UPDATES = ("dot", "line", "square"), 6, 3, 150
SMALL = {"sizes": Sizes(width=32, filter_width=64, num_heads=2), "depth": DepthConfig(max_steps=2)}


def batch(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return words as classes, and pictures [row, SIDE, SIDE] of 0 and 1."""
    words, pictures = torch.randint(len(WORDS), (rows,)), torch.zeros(rows, SIDE, SIDE, dtype=torch.long)
    for word, picture in zip(words.tolist(), pictures, strict=True):
        height, width = ((1, 1), (1, 4), (3, 3))[word]
        row, column = (int(torch.randint(SIDE - length + 1, ())) for length in (height, width))
        picture[row : row + height, column : column + width] = 1
    return words, pictures


torch.manual_seed(0)
draw = EncoderDecoder(
    ModelConfig(
        vocabulary=VocabularyConfig(size=FIRST + len(WORDS), target_size=FIRST + 2),
        outputs=OutputsConfig(kind="raster", columns=SIDE),
        generation=GenerationConfig(max_new_tokens=SIDE**2, fixed_length=True),
        step=StepConfig(norm="pre", dropout=0.0),
        **SMALL,
    )
)
read = Classifier(
    ModelConfig(
        architecture="classifier",
        inputs=InputsConfig(kind="patches", features=SIDE, stride=2),
        vocabulary=VocabularyConfig(num_classes=len(WORDS)),
        step=StepConfig(norm="pre", dropout=0.0),
        **SMALL,
    )
)
optimizer = torch.optim.Adam([*draw.parameters(), *read.parameters()], lr=3e-3)
for _ in range(UPDATES):
    words, pictures = batch(32)
    target = FIRST + pictures.flatten(1)
    drawn = draw(FIRST + words.unsqueeze(1), target).logits
    named = read(pictures.transpose(1, 2).float()).logits  # a picture is the sequence of its columns
    loss = cross_entropy(drawn.transpose(1, 2), target) + cross_entropy(named, words)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

draw.eval()
read.eval()
for number, word in enumerate(WORDS):
    (found,) = generate(draw, [[FIRST + number]], DecodingOptions(sampling=Sampling(temperature=1.0, seed=number + 1)))
    pixels = (torch.tensor(found.tokens) - FIRST).reshape(SIDE, SIDE)
    with torch.no_grad():
        answer = WORDS[int(read(pixels.T.unsqueeze(0).float()).logits.argmax())]
    print(f"asked for a {word}, read as a {answer}")
    print("\n".join("".join("·█"[pixel] for pixel in row) for row in pixels.tolist()))
