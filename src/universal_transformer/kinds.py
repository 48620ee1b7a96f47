"""The kinds of configuration: the Universal Transformer and the baselines. Needs no torch."""

from universal_transformer.baselines.baseline_config import LstmConfig, NeuralGpuConfig
from universal_transformer.models.model_config import ModelConfig

AnyModelConfig = ModelConfig | LstmConfig | NeuralGpuConfig
