"""A pipeline from text to text: transformers has none for encoder-decoders since version 5."""

from typing import Any

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, Pipeline
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.utils import has_file

TASK = "text-to-text"
TARGET = "target_tokenizer"
"""The folder of the tokenizer of targets, where these have a vocabulary of their own."""


class PairPipeline(Pipeline):
    """Texts to texts. Keywords that are not of the pipeline go to ``generate``.

    >>> answer = pipeline("text-to-text", FOLDER)
    >>> answer(["1234"], num_beams=4)
    [{'generated_text': '4321'}]
    """

    _load_tokenizer = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        place, self.writer = self.model.name_or_path, self.tokenizer
        if place and has_file(place, f"{TARGET}/tokenizer_config.json"):
            self.writer = AutoTokenizer.from_pretrained(place, subfolder=TARGET)

    def _sanitize_parameters(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {}, options, {}

    def preprocess(self, input_: str) -> Any:
        return self.tokenizer(input_, return_tensors="pt")

    def _forward(self, input_tensors: Any, **options: Any) -> Any:
        return self.model.generate(**input_tensors, **options)

    def postprocess(self, model_outputs: Any) -> dict[str, str]:
        (text,) = self.writer.batch_decode(model_outputs, skip_special_tokens=True)
        return {"generated_text": text}


PIPELINE_REGISTRY.register_pipeline(
    TASK, pipeline_class=PairPipeline, pt_model=AutoModelForSeq2SeqLM, default=None, type="text"
)
