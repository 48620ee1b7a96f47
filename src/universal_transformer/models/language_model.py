"""The language model: the decoder alone."""

from universal_transformer.axes import Int, Positions, Tensor
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.decoder import DecoderState
from universal_transformer.models.initialise import initialise
from universal_transformer.models.inputs import TokenInput, check_tokens
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.positions import check_positions, draw_positions
from universal_transformer.models.roles import AnyLanguageModel, check_threshold_applies
from universal_transformer.models.target import TargetSide
from universal_transformer.nn.config import Exit
from universal_transformer.nn.trace import NOTHING, Kept


class LanguageModel(AnyLanguageModel):
    """Predict every token from those to its left."""

    config: ModelConfig
    target: TargetSide

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        config = self.config
        embedding = TokenInput(config, config.sizes.width)
        self.target = TargetSide(config, embedding=embedding, cross_attention=False)
        initialise(self)

    def forward(
        self,
        target: Int[Tensor, "batch target"],
        *,
        target_positions: Positions | None = None,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
        keep: Kept = NOTHING,
    ) -> ModelOutput:
        """Logits for every token of ``target`` given those to its left; with ``keep.states`` also those of the states
        after each step. With ``exit`` each position stops by itself.

        Raises UserError for shapes, types and options that do not fit, and on a CPU for ids outside of the vocabulary.
        """
        check_tokens(target, name="target")
        check_positions(target_positions, of=target, name="target_positions")
        check_threshold_applies(halting_threshold, config=self.config)
        if self.training and self.config.coordinates.offsets != "none" and target_positions is None:
            target_positions = draw_positions(self.config.coordinates, *target.shape[:2], device=target.device)
        logits, trace = self.target(
            target,
            positions=target_positions,
            depth=self.target.depth(max_steps=max_steps, threshold=halting_threshold, exit=exit),
            keep=keep,
        )
        every = None if trace.states is None else self.target.logits(trace.states)
        return ModelOutput(logits, None, trace, step_logits=every)

    def start(
        self,
        *,
        batch: int,
        capacity: int,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
    ) -> DecoderState:
        """Return an empty state with caches for ``capacity`` tokens (start token and prompt included).

        Raises UserError for ``max_steps``, ``halting_threshold`` and ``exit`` that do not fit the model, and where it
        depends on later tokens (``halting.scope="sequence"``), so that it cannot generate.
        """
        check_threshold_applies(halting_threshold, config=self.config)
        depth = self.target.depth(max_steps=max_steps, threshold=halting_threshold, exit=exit)
        return self.target.start(batch=batch, capacity=capacity, depth=depth)
