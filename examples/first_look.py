"""A Universal Transformer in ten lines: build it, run it, read how many steps each position took."""

import torch

from universal_transformer import (
    DepthConfig,
    EncoderDecoder,
    HaltingConfig,
    ModelConfig,
    VocabularyConfig,
)

config = ModelConfig(
    vocabulary=VocabularyConfig(size=100), depth=DepthConfig(max_steps=8), halting=HaltingConfig(side="both")
)
model = EncoderDecoder(config).eval()
source, target = torch.randint(3, 100, (2, 12)), torch.randint(3, 100, (2, 7))
output = model(source, target)  # teacher forced: the shift to the right happens inside
print(output.logits.shape)  # [batch, target, vocabulary]
print(output.encoder.steps)  # N: how many steps each source position took
print(output.ponder_cost)  # mean N + R, what training adds to the loss
print(model(source, target, max_steps=3).mean_steps)  # any other depth, at run time
model.save_pretrained("my_model")  # safetensors and JSON
model = EncoderDecoder.from_pretrained("my_model")
