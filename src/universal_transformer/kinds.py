"""The kinds of configuration: the Universal Transformer and the baselines. Needs no torch."""

from universal_transformer.baselines.config import LstmConfig, NeuralGpuConfig
from universal_transformer.models.config import ModelConfig

AnyModelConfig = ModelConfig | LstmConfig | NeuralGpuConfig
