"""Universal Transformers as models of transformers: our sides and heads, called as transformers calls models.

The recurrences, blocks and halting rules are those of `nn/` and `rules/`, unchanged, and so are the numbers. Padding
is where ``attention_mask``, ``[batch, position]``, is 0; positions are counted over the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import torch
from torch import nn
from torch.nn.functional import embedding
from transformers import PreTrainedModel
from transformers.utils import ModelOutput
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import can_return_tuple

from universal_transformer.axes import Int, Padding, PerPosition, States, Tensor
from universal_transformer.errors import UserError, refuse
from universal_transformer.interop.transformers.depth_cache import DepthCache, SlotsOfCache
from universal_transformer.interop.transformers.shared_config import UniversalTransformerConfig
from universal_transformer.models.components import Architecture
from universal_transformer.models.initialise import initialise
from universal_transformer.models.inputs import texts_of
from universal_transformer.models.model import Call, EncodedSource
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.positions.numbering import default_positions, draw_positions, without_padding
from universal_transformer.models.source import SourceSide
from universal_transformer.models.target import DecoderSide
from universal_transformer.nn.context import Kept
from universal_transformer.nn.recurrence import Recurrence

FORMER_NAME = "past_key_values"
"""Of a cache, before transformers 5.24."""
LAST_VERSION = "5.40.0"
"""The version of transformers that does not know it any more."""
Shown = tuple[Tensor, ...] | None
Drawn = tuple[Tensor | None, Tensor | None]


@dataclass
class DepthOutput(ModelOutput):
    """What the models return. ``steps`` are N and ``ponder`` are N + R of each position of the side that is read last,
    on request (``output_steps``); ``encoder_steps`` and ``encoder_ponder`` those of the source of an encoder-decoder.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    last_hidden_state: Tensor | None = None
    cache: Any = None
    hidden_states: Shown = None
    attentions: Shown = None
    decoder_hidden_states: Shown = None
    decoder_attentions: Shown = None
    cross_attentions: Shown = None
    encoder_last_hidden_state: Tensor | None = None
    encoder_hidden_states: Shown = None
    encoder_attentions: Shown = None
    steps: Tensor | None = None
    ponder: Tensor | None = None
    encoder_steps: Tensor | None = None
    encoder_ponder: Tensor | None = None
    positions: Tensor | None = None
    """Of a source whose positions are not 0, 1, 2 …."""


ASKED = {
    "output_attentions": "attentions",
    "output_hidden_states": "hidden_states",
    "output_steps": "steps",
    "use_cache": "use_cache",
}
"""Name of a choice in transformers -> field of `Asked`."""


class Asked(NamedTuple):
    """What a call asks for besides its inputs."""

    attentions: bool
    hidden_states: bool
    steps: bool
    use_cache: bool

    @classmethod
    def of(cls, config: UniversalTransformerConfig, options: Mapping[str, Any]) -> "Asked":
        """The choices of ``options``, by default those of the configuration. UserError for what is no choice."""
        if unknown := [name for name, value in options.items() if name not in ASKED and value is not None]:
            raise UserError(f"{', '.join(unknown)}: a Universal Transformer takes no such input; leave it out")
        given = (getattr(config, name) if options.get(name) is None else options[name] for name in ASKED)
        return cls(*map(bool, given))

    @property
    def keep(self) -> Kept:
        """What a trace keeps."""
        return Kept(attention=self.attentions, states=self.hidden_states)


Forward = TypeVar("Forward", bound=Callable[..., DepthOutput])


def called_by_transformers(forward: Forward) -> Forward:
    """``forward`` with ``return_dict``, and a cache by its former name too."""
    return cast("Forward", can_return_tuple(deprecate_kwarg(FORMER_NAME, LAST_VERSION, new_name="cache")(forward)))


class TokenEmbedding(nn.Embedding):
    """``E[id] * sqrt(width)``, exactly 0 at padding, as `models/inputs.py` has it, with the class that transformers
    resizes.
    """

    def __init__(self, config: ModelConfig, size: int) -> None:
        width = config.sizes.width
        super().__init__(size, width)
        self.scale = width**0.5 if config.inputs.scale_embeddings else 1.0
        self.padding_id, self.end_id = config.vocabulary.padding_id, config.vocabulary.end_id
        segments = config.inputs.segments
        self.segments = nn.Parameter(torch.empty(segments, width)) if segments > 1 else None

    def initialise(self) -> None:
        """Tokens normal, standard deviation ``width^-1/2``; segments normal, standard deviation 1."""
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)
        if self.segments is not None:
            nn.init.normal_(self.segments)

    def padding(self, ids: Int[Tensor, "batch position"]) -> Padding:
        """Where there is no token."""
        return ids == self.padding_id

    def forward(self, input: Int[Tensor, "batch position"]) -> States:  # noqa: A002 - the name of torch
        blank = self.padding(input).unsqueeze(-1)
        states: States = (self.scale * embedding(input, self.weight)).masked_fill(blank, 0.0)
        if self.segments is None:
            return states
        segment = texts_of(input, end_id=self.end_id).clamp(max=len(self.segments) - 1)
        return states + embedding(segment, self.segments).masked_fill(blank, 0.0)


class UniversalTransformerPreTrainedModel(PreTrainedModel):
    """What all models have in common."""

    config: UniversalTransformerConfig
    config_class = UniversalTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _can_compile_fullgraph = False
    _no_split_modules: ClassVar[list[str]] = ["Block"]
    _skip_keys_device_placement: ClassVar[list[str]] = ["cache"]

    def _initialize_weights(self, module: nn.Module, is_custom_code: bool = False) -> None:
        """Never as for code outside of transformers, where a module without weights of its own is left out."""
        del is_custom_code
        super()._initialize_weights(module)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The starting values of `models/initialise.py`, of each part as a whole; 0 and 1 where these are not drawn.
        What was read from a file stays.
        """
        if isinstance(module, PreTrainedModel) or all(module is not child for child in self.children()):
            return
        read = [(part, part.clone()) for part in module.parameters() if getattr(part, "_is_hf_initialized", False)]
        for parameter in module.parameters():
            parameter.zero_()
        for part in module.modules():
            if isinstance(part, nn.LayerNorm | nn.RMSNorm):
                part.reset_parameters()
        initialise(module)
        for place, value in read:
            place.copy_(value)

    def _set_gradient_checkpointing(self, enable: bool = True, **options: Any) -> None:
        """One state is kept for each position and step, as `execution.activation_checkpointing` says."""
        del options
        for module in self.modules():
            if isinstance(module, Recurrence):
                again = 'step.residual="previous" reads the step before, and is not computed again'
                refuse((enable and module.residual == "previous", f"gradient checkpointing: {again}"))
                module.checkpointed = enable

    @property
    def is_activation_checkpointing(self) -> bool:
        """Whether steps are computed again in the backward pass."""
        return any(module.checkpointed for module in self.modules() if isinstance(module, Recurrence))


class UniversalTransformerEncoder(UniversalTransformerPreTrainedModel):
    """The side that reads."""

    def __init__(self, config: UniversalTransformerConfig, ours: ModelConfig | None = None) -> None:
        super().__init__(config)
        self.ours = config.model_config() if ours is None else ours
        self.side = SourceSide(self.ours)
        assert self.ours.vocabulary.size is not None
        self.side.input = TokenEmbedding(self.ours, self.ours.vocabulary.size)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.side.input

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.side.input = value

    @called_by_transformers
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        drawn: Tensor | None = None,
        **options: Any,
    ) -> DepthOutput:
        """The refined states. ``drawn``: positions to train on."""
        options.pop("use_cache", None)
        asked, side = Asked.of(self.config, options), self.side
        states = embedded(side.embed, input_ids, inputs_embeds)
        padding = padding_of(attention_mask, rows=len(states), length=states.shape[1])
        places = drawn
        if side.part is not None:
            if input_ids is None:
                raise UserError("inputs_embeds: this model numbers positions by its separator tokens: give input_ids")
            places = side.positions(input_ids, drawn=drawn)
        numbered = at(EncodedSource(states, padding, places))
        call = Call(keep=asked.keep, read=nn.Identity())
        context = side.context(states.shape[1], call, padding=padding, positions=numbered)
        refined, trace = side.recurrence(side.dropout(states), context)
        shown = Refined(states, refined, trace, context.depth.max_steps, self.ours.halts_in(decoder=False))
        return DepthOutput(
            last_hidden_state=refined,
            hidden_states=shown.hidden_states(asked),
            attentions=shown.attentions(asked),
            steps=shown.steps if asked.steps else None,
            ponder=shown.ponder if asked.steps else None,
            positions=places,
        )


class Refined(NamedTuple):
    """What a side computed of its inputs."""

    inputs: States
    states: States
    trace: Any
    max_steps: int
    halts: bool

    @property
    def steps(self) -> PerPosition:
        """N."""
        steps: Tensor = self.trace.steps
        return steps

    @property
    def ponder(self) -> PerPosition:
        """N + R, 0 of a fixed depth."""
        return self.steps + self.trace.remainder if self.halts else torch.zeros_like(self.steps)

    def hidden_states(self, asked: Asked) -> Shown:
        """The inputs and the states after each step but the last, whose place the output has. A step that no position
        makes changes no state.
        """
        if not asked.hidden_states:
            return None
        made = list(self.trace.states)
        made += made[-1:] * (self.max_steps - len(made))
        return (self.inputs, *made[:-1], self.states)

    def attentions(self, asked: Asked, *, of: str = "self_attention") -> Shown:
        """The weights of each block and step that was made, without gradients."""
        weights = getattr(self.trace, of)
        return tuple(weights) if asked.attentions and weights is not None else None


class UniversalTransformerModel(UniversalTransformerPreTrainedModel):
    """The sides without a head, those that the architecture has."""

    def __init__(self, config: UniversalTransformerConfig, architecture: Architecture | None = None) -> None:
        super().__init__(config)
        self.ours = ours = config.model_config(architecture)
        self.encoder = UniversalTransformerEncoder(config, ours) if ours.reads else None
        self.decoder = None
        if ours.decodes:
            shared = ours.reads and ours.vocabulary.target_size is None
            table = nn.Identity() if shared else TokenEmbedding(ours, ours.vocabulary.written)
            self.decoder = DecoderSide(ours, embedding=table, cross_attention=ours.reads)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        if self.encoder is not None:
            return self.encoder.get_input_embeddings()
        assert self.decoder is not None
        return self.decoder.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        if self.encoder is not None:
            self.encoder.set_input_embeddings(value)
        elif self.decoder is not None:
            self.decoder.embedding = value

    @property
    def written_tokens(self) -> nn.Module:
        """The embedding of the tokens of the decoder."""
        assert self.decoder is not None
        shared = isinstance(self.decoder.embedding, nn.Identity)
        return self.get_input_embeddings() if shared else self.decoder.embedding

    @called_by_transformers
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Any = None,
        inputs_embeds: Tensor | None = None,
        **options: Any,
    ) -> DepthOutput:
        """The refined states of the decoder, or of the encoder where there is no decoder.

        ``decoder_inputs_embeds`` may take the place of ``decoder_input_ids``, as ``inputs_embeds`` that of
        ``input_ids``.
        """
        written = options.pop("decoder_inputs_embeds", None)
        if self.decoder is None:
            assert self.encoder is not None
            found: DepthOutput = self.encoder(input_ids, attention_mask, inputs_embeds, **options)
            return found
        asked = Asked.of(self.config, options)
        if self.encoder is None:
            states = embedded(self.decoder.embedding, input_ids, inputs_embeds)
            return self._decode(states, attention_mask, None, asked=asked, cache=cache, drawn=self._draw(states)[0])
        states = embedded(self.written_tokens, decoder_input_ids, written, prefix="decoder_")
        drawn: Drawn = (None, None)
        if encoder_outputs is None:
            given = inputs_embeds if input_ids is None else input_ids
            drawn = (None, None) if given is None else self._draw(given, states)
            wanted = {name: getattr(asked, field) for name, field in ASKED.items() if field != "use_cache"}
            encoder_outputs = self.encoder(
                input_ids, attention_mask, inputs_embeds, drawn=drawn[0], return_dict=True, **wanted
            )
        elif not isinstance(encoder_outputs, ModelOutput):
            encoder_outputs = DepthOutput(last_hidden_state=encoder_outputs[0])
        source: States = encoder_outputs.last_hidden_state
        padding = padding_of(attention_mask, rows=len(source), length=source.shape[1])
        places = encoder_outputs.get("positions")
        if places is None and self.encoder.side.part is not None:
            if input_ids is None:
                raise UserError(
                    "encoder_outputs without positions: this model numbers them by tokens: give input_ids too"
                )
            places = self.encoder.side.positions(input_ids)
        encoded = EncodedSource(source, padding, places)
        encoded.positions = at(encoded)
        found = self._decode(states, decoder_attention_mask, encoded, asked=asked, cache=cache, drawn=drawn[1])
        return DepthOutput(
            last_hidden_state=found.last_hidden_state,
            cache=found.cache,
            decoder_hidden_states=found.hidden_states,
            decoder_attentions=found.attentions,
            cross_attentions=found.cross_attentions,
            encoder_last_hidden_state=source,
            encoder_hidden_states=encoder_outputs.get("hidden_states"),
            encoder_attentions=encoder_outputs.get("attentions"),
            steps=found.steps,
            ponder=found.ponder,
            encoder_steps=encoder_outputs.get("steps"),
            encoder_ponder=encoder_outputs.get("ponder"),
        )

    def _decode(
        self,
        inputs: States,
        mask: Tensor | None,
        encoded: EncodedSource | None,
        *,
        asked: Asked,
        cache: Any,
        drawn: Any,
    ) -> DepthOutput:
        """The states of new positions of the decoder. The cache grows in place."""
        side, (rows, new) = self.decoder, inputs.shape[:2]
        assert side is not None
        if cache is None and asked.use_cache and not torch.is_grad_enabled():
            cache = DepthCache(side)
        if cache is None:
            padding = padding_of(mask, rows=rows, length=new)
            call = Call(positions=(None, drawn), keep=asked.keep)
            states, trace = side.recurrence(
                side.dropout(inputs), side.context(new, call, padding=padding, encoded=encoded)
            )
        else:
            slots = cache if isinstance(cache, DepthCache) else SlotsOfCache(cache, side)
            hidden = padding_of(mask, rows=rows, length=slots.get_seq_length() + new)
            state = slots.state(encoded, batch=rows, new=new, hidden=hidden)
            side = slots.decoder
            states = side.refine_next(side.dropout(inputs), state, keep=asked.keep)
            trace = state.trace
        depth = side.recurrence.trained_depth
        shown = Refined(inputs, states, trace, depth.max_steps, self.ours.halts_in(decoder=True))
        return DepthOutput(
            last_hidden_state=states,
            cache=cache if asked.use_cache else None,
            hidden_states=shown.hidden_states(asked),
            attentions=shown.attentions(asked),
            cross_attentions=shown.attentions(asked, of="cross_attention"),
            steps=shown.steps if asked.steps else None,
            ponder=shown.ponder if asked.steps else None,
        )

    def _draw(self, *inputs: Tensor) -> Drawn:
        """Positions of the inputs to train on, of one draw, where ``coordinates.offsets`` draws them."""
        coordinates = self.ours.coordinates
        if not self.training or coordinates.offsets == "none":
            return None, None
        lengths = [given.shape[1] for given in inputs]
        drawn = draw_positions(coordinates, len(inputs[0]), max(lengths), device=inputs[0].device)
        return drawn[:, : lengths[0]], drawn[:, : lengths[-1]]


def embedded(table: Any, ids: Tensor | None, states: Tensor | None, *, prefix: str = "") -> States:
    """The states of ``ids``, or given ones. UserError unless there is one of both."""
    if (ids is None) == (states is None):
        raise UserError(f"give exactly one of {prefix}input_ids and {prefix}inputs_embeds")
    found: States = table(ids) if states is None else states
    return found


def padding_of(mask: Tensor | None, *, rows: int, length: int) -> Padding | None:
    """Where ``mask`` is 0; None where it is nowhere. UserError for a mask of other axes."""
    if mask is None:
        return None
    if mask.shape != (rows, length):
        found = list(mask.shape)
        raise UserError(f"a mask of shape {found}: expected [batch, position], here {[rows, length]}, 0 at padding")
    return without_padding(mask == 0)


def at(encoded: EncodedSource) -> Int[Tensor, "#batch source"]:
    """The positions of a source: those that it has, or 0, 1, 2 …"""
    if encoded.positions is not None:
        return encoded.positions
    states = encoded.states
    return default_positions(states.shape[1], padding=encoded.padding, device=states.device)
