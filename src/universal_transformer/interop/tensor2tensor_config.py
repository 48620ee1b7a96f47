"""The configuration of a model with choices that exist for official checkpoints (tensor2tensor) only. Needs no torch.

=========================== ==========================================================================================
choice                      what it changes
=========================== ==========================================================================================
``scale_step_table``        ``τ_t = √c E[t]`` with c channels
``concatenate_coordinates`` ``X = W [H; π; τ]`` in place of ``H + π + τ``
``shift_positions_by_step`` the position signal of step t is ``π_{i + trunc(n t / T)}``, of n positions
``plain_layers_…``          blocks that are applied once, before and after the recurrence
``zero_padding``            the feed-forward transition is 0 at padding
``ponder_padding``          padding takes steps like any other position
``num_target_spaces``       ``H^0 + s``, a learned vector s for each problem
=========================== ==========================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from universal_transformer.models.components import ENCODERS, OutputsConfig
from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import CoordinatesConfig, HaltingConfig, StepConfig
from universal_transformer.rules.choices import Refusals
from universal_transformer.typed import Count


@dataclass(frozen=True, kw_only=True)
class Tensor2TensorConfig:
    """Choices that exist for official checkpoints only. The defaults switch all of them off."""

    scale_step_table: bool = False
    """Multiply a learned step table by the square root of its width."""
    concatenate_coordinates: bool = False
    """Concatenate coordinates to the state and project back, instead of adding them."""
    shift_positions_by_step: bool = False
    """Positions start at ``trunc(length * t / T)`` at step t."""
    plain_layers_before: Count = 0
    """Ordinary layers before the recurrence."""
    plain_layers_after: Count = 0
    """Ordinary layers after the recurrence."""
    zero_padding: bool = False
    """The feed-forward transition of the encoder gives 0 at padding (the pad remover)."""
    ponder_padding: bool = False
    """Padding takes steps like any other position."""
    num_target_spaces: Count = 0
    """Rows of an embedding of the problem, added to every source position. 0: none."""
    start_is_padding: bool = False
    """The token before the first target token has the id of padding."""
    allow_look_ahead: bool = False
    """Accept choices with which a decoder sees later positions. Generation is refused then."""


@dataclass(frozen=True, kw_only=True)
class OfficialConfig(ModelConfig):
    """A configuration with the choices of official checkpoints."""

    kind: ClassVar[str] = "tensor2tensor"
    builder: ClassVar[str] = "universal_transformer.interop.tensor2tensor_parts:OfficialBuilder"

    tensor2tensor: Tensor2TensorConfig = Tensor2TensorConfig()
    """Choices for official checkpoints only."""

    @property
    def start_id(self) -> int:
        """Token id before the first target token."""
        padding = self.tensor2tensor.start_is_padding
        return self.vocabulary.padding_id if padding else self.vocabulary.start_id

    @property
    def num_blocks(self) -> int:
        """Blocks with weights of their own, over all sides."""
        plain = self.tensor2tensor.plain_layers_before + self.tensor2tensor.plain_layers_after
        return super().num_blocks + len(self.sides) * plain

    @property
    def looks_ahead(self) -> bool:
        """Whether a decoder of this configuration depends on later target positions."""
        shifted = self.architecture not in ENCODERS and self.tensor2tensor.shift_positions_by_step
        return shifted or super().looks_ahead

    @property
    def may_look_ahead(self) -> bool:
        """Whether such a decoder is accepted: it can score targets, but not generate."""
        return self.tensor2tensor.allow_look_ahead

    @property
    def ponders_padding(self) -> bool:
        """Whether padding takes steps like any other position."""
        return self.tensor2tensor.ponder_padding

    @property
    def interaction(self) -> str:
        """How positions interact besides attention; empty if they do not."""
        if self.tensor2tensor.shift_positions_by_step:
            return "tensor2tensor.shift_positions_by_step shifts positions by a part of the length"
        return super().interaction

    @property
    def unread_states(self) -> str:
        """Why no head reads the states after each step; empty where one does."""
        if self.tensor2tensor.plain_layers_after:
            return (
                "plain layers follow the recurrence (tensor2tensor.plain_layers_after), so that its states predict "
                "nothing"
            )
        return super().unread_states

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, and the kind, which files of a `ModelConfig` need not have."""
        return {"kind": self.kind, **super().to_dict()}

    def rules(self) -> Refusals:
        """The rules for combinations of fields."""
        yield from self._shift_rules()
        yield from super().rules()
        chosen, group = self.coordinates, self.tensor2tensor
        every_step = chosen.injection == "every_step"
        yield (
            "tensor2tensor.plain_layers_before",
            group.plain_layers_before > 0 and every_step and chosen.position in ("learned", "grid"),
            "layers before the recurrence do not get positions that are learned inside it: needs "
            'coordinates.injection="input", or another coordinates.position',
        )
        after = self.expects_loss and group.plain_layers_after > 0
        yield "tensor2tensor.plain_layers_after", after, "ponder needs the output after every step: leave it out"
        joined = self.step.residual == "state" and group.concatenate_coordinates
        yield "step.residual", joined, "coordinates are concatenated to the state, not added: leave it out"
        frames = self.outputs.kind == "frames"
        yield "outputs.kind", frames, "official models write tokens: leave the choices of tensor2tensor out"

    def _shift_rules(self) -> Refusals:
        """What positions that are shifted at every step need."""
        chosen, path = self.coordinates, "tensor2tensor.shift_positions_by_step"
        if not self.tensor2tensor.shift_positions_by_step:
            return
        fits = chosen.injection == "every_step" and chosen.position in ("sinusoidal", "learned")
        yield (
            path,
            not fits,
            "shifts the signal that is added at every step: needs coordinates.position sinusoidal or learned, and "
            'coordinates.injection="every_step"',
        )
        end = "needs shift_positions_by_step=False: shifted positions have no fixed end"
        yield "coordinates.from_end", chosen.from_end, end
        yield path, self.depth.max_steps == "length", "needs a number of steps"
        picture = self.outputs.kind == "raster" or self.inputs.kind == "patches"
        yield path, picture, "rows and columns are not shifted"
        yield (
            path,
            self.looks_ahead and not self.may_look_ahead,
            "lets a causal decoder depend on the length of later tokens: use it with a classifier, or set "
            "tensor2tensor.allow_look_ahead to score official checkpoints that were trained so",
        )


PRESET = OfficialConfig(
    outputs=OutputsConfig(output_bias=False),
    coordinates=CoordinatesConfig(layout="split", step="learned"),
    step=StepConfig(norm="pre"),
    halting=HaltingConfig(bias=1.0, remainder_at_cap=False, output="interpolate", state="evolving"),
    tensor2tensor=Tensor2TensorConfig(
        scale_step_table=True,
        zero_padding=True,
        ponder_padding=True,
        num_target_spaces=32,
        start_is_padding=True,
    ),
)
"""The choices of the authors' code."""
