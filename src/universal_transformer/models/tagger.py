"""The tagger: the encoder alone, and one class for each position."""

from torch import nn

from universal_transformer.axes import Positions
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.initialise import initialise
from universal_transformer.models.inputs import check_source
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.roles import AnyTagger, check_threshold_applies
from universal_transformer.models.source import Source, SourceSide
from universal_transformer.nn.config import Exit
from universal_transformer.nn.exits import ExitUnit
from universal_transformer.nn.trace import NOTHING, Kept


class Tagger(AnyTagger):
    """``logits_i = W h_i + b``: the state of each position to one of ``num_classes``."""

    config: ModelConfig

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.source = SourceSide(self.config)
        self.head = nn.Linear(self.config.sizes.width, self.config.vocabulary.num_classes)
        initialise(self)

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
        """Logits ``[batch, source, classes]``; with ``keep.states`` also those of the states after each step.

        Those of padding have no meaning. With ``exit`` each position stops by itself.

        Raises UserError for shapes, types and options that do not fit, and on a CPU for ids outside of the vocabulary.
        """
        check_source(source, config=self.config)
        self.source.check_positions(source_positions, of=source)
        check_threshold_applies(halting_threshold, config=self.config)
        if self.training and self.config.coordinates.offsets != "none" and source_positions is None:
            source_positions = self.source.draw_positions(source)
        unit = None if exit is None else ExitUnit(exit, self.head)
        states, _, trace = self.source(
            source,
            positions=source_positions,
            depth=self.source.recurrence.depth(max_steps=max_steps, threshold=halting_threshold, exit=unit),
            keep=keep,
        )
        every = None if trace.states is None else self.head(trace.states)
        return ModelOutput(self.head(states), trace, None, step_logits=every)
