"""What a baseline costs: operations and memory of one pass, and the shape of its matrix products. Needs no torch.

With width d, L layers, S source and N target positions of each of B rows, C classes (multiplication and addition: two):

=================================== ====================================================================
LSTM layer, one position            16 d²; 12 d² for two directions of half the width
attention to the source             4 S d + 4 d² a target position, and 2 d² more for "general"
Neural GPU, one place and step      6 k² m² w L (kernel k, m channels, w columns); n places take n steps
output                              2 d C a target position (of a classifier: a row)
=================================== ====================================================================
"""

from __future__ import annotations

import math

from universal_transformer.baselines.config import LstmConfig, NeuralGpuConfig


def forward_flops(config: LstmConfig | NeuralGpuConfig, *, rows: int, source: int, target: int) -> float:
    """Return the operations of one forward pass of a batch, by the table above."""
    d, classes = config.width, config.vocabulary.target_size or config.vocabulary.size
    if isinstance(config, NeuralGpuConfig):
        n = num_places(config, source=source)
        step = 6.0 * config.kernel_size**2 * d * d * config.image_width * config.num_layers
        return rows * n * (n * step + 2.0 * d * classes)
    reading = rows * source * config.num_layers * (12.0 if config.bidirectional else 16.0) * d * d
    if config.architecture == "classifier":
        return reading + rows * 2.0 * d * config.vocabulary.num_classes
    writing = rows * target * (config.num_layers * 16.0 * d * d + 2.0 * d * classes)
    if config.architecture == "language_model":
        return writing
    general = 2.0 * d * d if config.attention == "general" else 0.0
    return reading + writing + rows * target * (4.0 * source * d + 4.0 * d * d + general)


def activation_bytes(config: LstmConfig | NeuralGpuConfig, *, rows: int, source: int, target: int) -> float:
    """Return about how many bytes a forward pass keeps for the backward pass, in 32-bit floats.

    Of an LSTM: some 8 states of each position and layer, attention and logits. Of a Neural GPU: some 10 images of
    each unit and step.
    """
    d, classes = config.width, config.vocabulary.target_size or config.vocabulary.size
    if isinstance(config, NeuralGpuConfig):
        n = num_places(config, source=source)
        return 4.0 * rows * n * (10.0 * n * config.image_width * d * config.num_layers + 3.0 * classes)
    states = 8.0 * d * config.num_layers
    if config.architecture == "classifier":
        return 4.0 * rows * (source * states + 3.0 * config.vocabulary.num_classes)
    attention = 2.0 * source + 4.0 * d if config.architecture == "encoder_decoder" else 0.0
    return 4.0 * rows * (source * states + target * (states + attention + 3.0 * classes))


def num_places(config: NeuralGpuConfig, *, source: int) -> int:
    """Return how many places, and so how many steps, a Neural GPU takes for a source of so many symbols."""
    return math.ceil(round(source * config.output_ratio, 6)) + config.output_extra


def product_shape(config: LstmConfig | NeuralGpuConfig) -> tuple[int, int]:
    """Return rows and columns of the largest matrix that states are multiplied with."""
    if isinstance(config, NeuralGpuConfig):
        return config.kernel_size**2 * config.width, 2 * config.width
    return config.width, 4 * config.width
