"""A complete training loop on your own data: words to reverse, with halting, generation, saving and loading."""

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

import universal_transformer as ut

pairs = [("stressed", "desserts"), ("drawer", "reward"), ("live", "evil"), ("rats", "star"), ("pool", "loop")]
END, LETTERS = 2, "abcdefghijklmnopqrstuvwxyz"  # 0 is padding, 1 the start of a target, 2 its end


def encode(texts):
    rows = [torch.tensor([3 + LETTERS.index(letter) for letter in text] + [END]) for text in texts]
    return pad_sequence(rows, batch_first=True)


source, target = (encode(side) for side in zip(*pairs, strict=True))
config = ut.ModelConfig(
    vocabulary=ut.VocabularyConfig(size=3 + len(LETTERS)),
    sizes=ut.Sizes(width=64, filter_width=128, num_heads=4),
    step=ut.StepConfig(norm="pre"),
    depth=ut.DepthConfig(max_steps=6),
    halting=ut.HaltingConfig(side="both"),
)
model = ut.EncoderDecoder(config)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(150):
    output = model(source, target)  # teacher forcing: the shift to the right happens inside
    loss = cross_entropy(output.logits.flatten(0, 1), target.flatten(), ignore_index=0)
    (loss + 0.01 * output.ponder_cost).backward()  # ponder cost: mean of N + R (paper, section 2.2)
    optimizer.step()
    optimizer.zero_grad()

for answer in model.generate(source, max_new_tokens=10):
    print("".join(LETTERS[token - 3] for token in answer.tokens), answer.source_steps)
model.save_pretrained("my_model")  # safetensors and JSON
model = ut.EncoderDecoder.from_pretrained("my_model")
print(model(source, target, max_steps=3).mean_steps)  # any other depth, at run time
