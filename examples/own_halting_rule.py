"""A halting rule of your own: a subclass of the paper's rule, and one line that enters its name.

The rule here reads p as the probability to halt at this step, given that the position has not halted before. The weight
of step t is then p_t (1 - p_1) ... (1 - p_{t-1}), a distribution over steps whose last step takes the rest. The script
trains two small models on the same task, with the paper's rule and with this one, and compares steps and errors.
"""

import torch
from torch.nn.functional import cross_entropy

from universal_transformer import (
    Classifier,
    DepthConfig,
    HaltingConfig,
    ModelConfig,
    Sizes,
    StepConfig,
    VocabularyConfig,
)
from universal_transformer.nn.halting import ACT
from universal_transformer.rules import HALTING_RULES

CLASSES, LENGTH = 4, 6


class Survival(ACT):
    """The paper's probability, of the state before each step, with another sum."""

    def decide(self, halted, p):
        """``h`` after this step where a position goes on, and the weight of the step, ``(1 - h) p``."""
        weight = (1.0 - halted) * p
        return halted + weight, weight


HALTING_RULES["survival"] = f"{__name__}:Survival"


def batch(size):
    """Rows of tokens 1 to CLASSES; the class is the token that the first one points at."""
    tokens = torch.randint(1, CLASSES + 1, (size, LENGTH))
    return tokens, tokens.gather(1, tokens[:, :1]).squeeze(1) - 1


def train(rule, *, updates=400):
    torch.manual_seed(0)
    model = Classifier(
        ModelConfig(
            architecture="classifier",
            vocabulary=VocabularyConfig(size=CLASSES + 1, num_classes=CLASSES),
            sizes=Sizes(width=32, filter_width=64, num_heads=2),
            step=StepConfig(norm="pre", dropout=0.0),
            depth=DepthConfig(max_steps=4),
            halting=HaltingConfig(side="encoder", rule=rule),
        )
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(updates):
        tokens, classes = batch(64)
        output = model(tokens)
        (cross_entropy(output.logits, classes) + 0.01 * output.ponder_cost).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    tokens, classes = batch(1000)
    with torch.no_grad():
        output = model(tokens)
    weights = output.encoder.weight.sum(dim=0)
    assert torch.allclose(weights, torch.ones_like(weights), atol=1e-5), "the weights of a position sum to 1"
    error = (output.logits.argmax(dim=-1) != classes).float().mean()
    print(f"{rule:9} error {error:6.1%}, {output.mean_steps:.2f} steps a position")


if __name__ == "__main__":
    train("act")
    train("survival")
