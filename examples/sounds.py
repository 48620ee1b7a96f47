"""A text becomes a sound, and the sound becomes a text again: two small models, trained on made-up melodies.

A frame holds how loud each of five notes is for a tenth of a second. The first model reads a word and writes frames
until it decides to stop; the second one reads frames and names the melody. The sounds are written as WAV files.
"""

import numpy as np
import soundfile
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from universal_transformer import (
    Classifier,
    DepthConfig,
    FrameGenerator,
    ModelConfig,
    Sizes,
    StepConfig,
    VocabularyConfig,
)
from universal_transformer.decoding import generate_frames
from universal_transformer.models.components import GenerationConfig, InputsConfig, OutputsConfig
from universal_transformer.training.objective import frame_loss

MELODIES = {"rise": (0, 1, 2, 3, 4), "fall": (4, 3, 2, 1, 0), "jump": (0, 4, 0, 4), "tone": (2, 2, 2)}
NOTES, FIRST, UPDATES, RATE = 5, 3, 300, 8000
SMALL = {"sizes": Sizes(width=32, filter_width=64, num_heads=2), "depth": DepthConfig(max_steps=2)}


def batch(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return melodies as classes, and their frames [row, frame, NOTES], a little louder or softer, padded with NaN."""
    names = torch.randint(len(MELODIES), (rows,))
    notes = [torch.tensor(list(MELODIES.values())[name]) for name in names.tolist()]
    frames = [torch.eye(NOTES)[one] * (0.8 + 0.4 * torch.rand(())) for one in notes]
    return names, pad_sequence(frames, batch_first=True, padding_value=torch.nan)


def samples(frames: np.ndarray) -> np.ndarray:
    """Return the sum of the notes of C, D, E, G and A, as loud as each frame says."""
    seconds = np.arange(len(frames) * RATE // 10) / RATE
    tones = np.sin(2 * np.pi * seconds[:, None] * [261.6, 293.7, 329.6, 392.0, 440.0])
    return 0.2 * (np.repeat(frames, RATE // 10, axis=0) * tones).sum(1)


torch.manual_seed(0)
say = FrameGenerator(
    ModelConfig(
        vocabulary=VocabularyConfig(size=FIRST + len(MELODIES)),
        outputs=OutputsConfig(kind="frames", features=NOTES, prenet_dropout=0.0),
        generation=GenerationConfig(max_new_tokens=10),
        step=StepConfig(norm="pre", dropout=0.0),
        **SMALL,
    )
)
hear = Classifier(
    ModelConfig(
        architecture="classifier",
        inputs=InputsConfig(kind="frames", features=NOTES),
        vocabulary=VocabularyConfig(num_classes=len(MELODIES)),
        step=StepConfig(norm="pre", dropout=0.0),
        **SMALL,
    )
)
optimizer = torch.optim.Adam([*say.parameters(), *hear.parameters()], lr=3e-3)
for _ in range(UPDATES):
    names, frames = batch(32)
    spectral, _ = frame_loss(say(FIRST + names.unsqueeze(1), frames), frames)
    loss = spectral / (~frames[..., 0].isnan()).sum() + cross_entropy(hear(frames).logits, names)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

hear.eval()
for number, name in enumerate(MELODIES):
    (said,) = generate_frames(say, [[FIRST + number]])
    soundfile.write(f"{name}.wav", samples(said.frames), RATE)
    with torch.no_grad():
        heard = list(MELODIES)[int(hear(torch.from_numpy(said.frames)[None]).logits.argmax())]
    melody = " ".join("CDEGA"[note] for note in said.frames.argmax(1))
    print(f"asked for {name}, heard as {heard}: {melody}{'' if said.finished else ' …'}, in {name}.wav")
