"""Your own files: pairs of texts, text, labelled texts, tagged sentences.

The defaults were chosen by measurements on nine data sets: ``results/studies/own_file_defaults.md``.
"""

from __future__ import annotations

from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import CoordinatesConfig, DepthConfig, Sizes, StepConfig
from universal_transformer.tasks import LabelledData, PairsData, TaggedData, TextData
from universal_transformer.training.config import RunConfig, TrainingConfig


def pairs() -> RunConfig:
    """Your own pairs of source and target texts: --data.train FILE (TSV, JSON lines, or two parallel files)."""
    return RunConfig(
        recipe="pairs",
        data=PairsData(vocabulary_size=4000),
        model=ModelConfig(
            sizes=Sizes(width=192, filter_width=768, num_heads=4),
            coordinates=CoordinatesConfig(position="distance"),
            depth=DepthConfig(max_steps=4),
            step=StepConfig(norm="pre", dropout=0.1),
        ),
        training=TrainingConfig(
            minutes=10.0,
            batch_tokens=1024,
            learning_rate=1.5e-3,
            schedule="cosine",
            warmup_updates=200,
            label_smoothing=0.1,
            validate_every=500,
            average_checkpoints=3,
            save_minutes=1.0,
        ),
    )


def text() -> RunConfig:
    """A language model on your own text: --data.train FILE (UTF-8, one sentence, verse or paragraph a line)."""
    return RunConfig(
        recipe="text",
        data=TextData(block_length=128),
        model=ModelConfig(
            architecture="language_model",
            sizes=Sizes(width=128, filter_width=512, num_heads=4),
            depth=DepthConfig(max_steps=4),
            step=StepConfig(norm="pre", dropout=0.1),
        ),
        training=TrainingConfig(
            minutes=10.0,
            batch_tokens=2048,
            learning_rate=2e-3,
            schedule="cosine",
            warmup_updates=200,
            validate_every=250,
        ),
    )


def labelled() -> RunConfig:
    """Texts with a label each, from your own file: --data.train FILE (`text<TAB>label` or JSON lines)."""
    return RunConfig(
        recipe="labelled",
        data=LabelledData(),
        model=ModelConfig(
            architecture="classifier",
            sizes=Sizes(width=128, filter_width=512, num_heads=4),
            depth=DepthConfig(max_steps=4),
            step=StepConfig(norm="pre", dropout=0.2),
        ),
        training=TrainingConfig(
            minutes=10.0,
            batch_tokens=2048,
            learning_rate=1e-3,
            schedule="cosine",
            warmup_updates=200,
            validate_every=200,
            patience=10,
        ),
    )


def tagged() -> RunConfig:
    """Sentences with a tag for each token, from your own file: --data.train FILE (CoNLL columns)."""
    return RunConfig(
        recipe="tagged",
        data=TaggedData(),
        model=ModelConfig(
            architecture="tagger",
            sizes=Sizes(width=128, filter_width=512, num_heads=4),
            coordinates=CoordinatesConfig(position="distance"),
            depth=DepthConfig(max_steps=4),
            step=StepConfig(norm="pre", dropout=0.2),
        ),
        training=TrainingConfig(
            minutes=10.0,
            batch_tokens=2048,
            learning_rate=1e-3,
            schedule="cosine",
            warmup_updates=200,
            validate_every=200,
            patience=10,
        ),
    )
