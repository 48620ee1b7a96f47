"""Universal Transformers in Hugging Face transformers: importing this package registers them with the Auto classes.

>>> import universal_transformer.interop.transformers
>>> model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)
"""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from universal_transformer.interop.transformers.depth_cache import DepthCache
from universal_transformer.interop.transformers.modeling import UniversalTransformerModel
from universal_transformer.interop.transformers.pair_pipeline import PairPipeline
from universal_transformer.interop.transformers.shared_config import UniversalTransformerConfig
from universal_transformer.interop.transformers.task_models import (
    UniversalTransformerForCausalLM,
    UniversalTransformerForConditionalGeneration,
    UniversalTransformerForSequenceClassification,
    UniversalTransformerForTokenClassification,
)

__all__ = [
    "DepthCache",
    "PairPipeline",
    "UniversalTransformerConfig",
    "UniversalTransformerForCausalLM",
    "UniversalTransformerForConditionalGeneration",
    "UniversalTransformerForSequenceClassification",
    "UniversalTransformerForTokenClassification",
    "UniversalTransformerModel",
]

AutoConfig.register(UniversalTransformerConfig.model_type, UniversalTransformerConfig)
AutoModel.register(UniversalTransformerConfig, UniversalTransformerModel)
AutoModelForCausalLM.register(UniversalTransformerConfig, UniversalTransformerForCausalLM)
# by these names `Trainer` knows for which models it shifts the labels that it smooths
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[UniversalTransformerConfig.model_type] = UniversalTransformerForCausalLM.__name__
AutoModelForSeq2SeqLM.register(UniversalTransformerConfig, UniversalTransformerForConditionalGeneration)
AutoModelForSequenceClassification.register(UniversalTransformerConfig, UniversalTransformerForSequenceClassification)
AutoModelForTokenClassification.register(UniversalTransformerConfig, UniversalTransformerForTokenClassification)
