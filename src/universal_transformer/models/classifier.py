"""The classifier: the encoder alone, and one class for the whole sequence."""

import torch
from torch import nn

from universal_transformer.axes import Float, Padding, Positions, States, Tensor
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.initialise import initialise
from universal_transformer.models.inputs import check_source
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.pointer import Pointer
from universal_transformer.models.positions import without_padding
from universal_transformer.models.roles import AnyClassifier, check_threshold_applies
from universal_transformer.models.source import Source, SourceSide
from universal_transformer.nn.config import Exit
from universal_transformer.nn.exits import ExitUnit
from universal_transformer.nn.trace import NOTHING, Kept


def pool(states: States, *, padding: Padding | None, how: str) -> Float[Tensor, "batch width"]:
    """The mean over real positions, or the state of the last real position."""
    real = torch.ones_like(states[..., 0], dtype=torch.bool) if padding is None else ~padding
    if how == "mean":
        count = real.sum(dim=1, keepdim=True).clamp(min=1)
        return (states * real.unsqueeze(-1)).sum(dim=1) / count
    last = states.shape[1] - 1 - real.long().flip(1).argmax(dim=1)
    return states[torch.arange(states.shape[0], device=states.device), last]


class Classifier(AnyClassifier):
    """A source to one of ``num_classes``."""

    config: ModelConfig

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        config = self.config
        self.source = SourceSide(config)
        self.head: nn.Linear | Pointer
        width, classes = config.sizes.width, config.vocabulary.num_classes
        if config.outputs.pooling == "pointer":
            self.head = Pointer(width, num_classes=classes, start_id=config.start_id)
        else:
            self.head = nn.Linear(width, classes)
        initialise(self, noisy_masks=config.inputs.fact_mask_init == "noise")

    def forward(
        self,
        source: Source,
        *,
        source_positions: Positions | None = None,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
        keep: Kept = NOTHING,
    ) -> ModelOutput:
        """Logits ``[batch, classes]``; with ``keep.states`` also those of the states after each step.

        With ``exit`` all positions of a sequence stop together.

        Raises UserError for shapes, types and options that do not fit, and on a CPU for ids outside of the vocabulary.
        """
        check_source(source, config=self.config)
        self.source.check_positions(source_positions, of=source)
        check_threshold_applies(halting_threshold, config=self.config)
        if self.training and self.config.coordinates.offsets != "none" and source_positions is None:
            source_positions = self.source.draw_positions(source)
        padding = without_padding(self.source.input.padding(source))

        def read(states: States) -> Float[Tensor, "batch classes"]:
            """Logits from states."""
            if isinstance(self.head, Pointer):
                return self.head(states, source, padding=padding)
            logits: Tensor = self.head(pool(states, padding=padding, how=self.config.outputs.pooling))
            return logits

        unit = None if exit is None else ExitUnit(exit, read, scope="sequence")
        states, _, trace = self.source(
            source,
            positions=source_positions,
            depth=self.source.recurrence.depth(max_steps=max_steps, threshold=halting_threshold, exit=unit),
            keep=keep,
        )
        every = None if trace.states is None else torch.stack([read(each) for each in trace.states])
        return ModelOutput(read(states), trace, None, step_logits=every)
