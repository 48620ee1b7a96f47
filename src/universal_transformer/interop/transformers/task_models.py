"""Universal Transformers with a head, as transformers has them for each task, and their losses.

The loss is the cross-entropy plus ``ponder_weight`` times the ponder cost, both means over the labels that count, so
that gradients that are accumulated over parts of a batch are those of the whole batch: of a decoder the mean of N + R
over the positions whose labels count, and of the encoder before it the mean over each source, weighted by the number of
these labels. The ponder cost of a classifier is the mean over its sequences of the mean over their positions.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.functional import cross_entropy, pad
from transformers import GenerationMixin

from universal_transformer.axes import Float, Int, PerPosition, Scalar, Tensor
from universal_transformer.errors import UserError, refuse
from universal_transformer.interop.transformers.depth_cache import DepthCache
from universal_transformer.interop.transformers.modeling import (
    DepthOutput,
    UniversalTransformerModel,
    UniversalTransformerPreTrainedModel,
    called_by_transformers,
    padding_of,
)
from universal_transformer.interop.transformers.shared_config import UniversalTransformerConfig
from universal_transformer.models.components import Architecture
from universal_transformer.models.heads import head_of
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.halting import Accumulating, Rule
from universal_transformer.nn.recurrence import Recurrence

IGNORED = -100
"""The label of a position whose answer does not count."""
COSTS = (Rule.cost, Accumulating.cost)
"""Costs of a rule that are N + R, or none."""


class ModelForTask(UniversalTransformerPreTrainedModel):
    """A model with a head."""

    architecture: ClassVar[Architecture]

    def __init__(self, config: UniversalTransformerConfig) -> None:
        super().__init__(config)
        self.model = UniversalTransformerModel(config, self.architecture)
        config.become(self.architecture)
        self.add_head(self.model.ours)
        self.post_init()

    def add_head(self, ours: ModelConfig) -> None:
        """Make the head."""
        raise NotImplementedError

    def sides(self, labels: Tensor | None, inputs: dict[str, Any]) -> DepthOutput:
        """The output of the sides, with N + R of all positions where a loss follows from ``labels``.

        UserError in training for a model whose loss another program cannot compute: `Trainer` computes it of the logits
        alone where it smooths labels, and leaves out the ponder cost.
        """
        shown = self.config.output_steps if inputs.get("output_steps") is None else inputs["output_steps"]
        if labels is not None or (self.training and torch.is_grad_enabled() and not shown):
            costs = [type(part.halting).cost for part in self.modules() if isinstance(part, Recurrence)]
            rule, weight = self.model.ours.halting.rule, self.config.ponder_weight
            own = f"model.halting.rule={rule}: its loss is another one; train this model with ut train"
            alone = (
                f"ponder_weight={weight}: a loss without labels, as with label_smoothing_factor, has no ponder cost; "
            )
            remedy = "set it to 0, give labels, or ask for output_steps to add the cost"
            refuse(
                (self.training and not {*costs} <= {*COSTS}, own),
                (labels is None and weight and self.model.ours.halts, alone + remedy),
            )
        if labels is not None:
            inputs["output_steps"] = True
        found: DepthOutput = self.model(**inputs, return_dict=True)
        return found

    def loss(
        self, logits: Tensor, labels: Int[Tensor, "batch position"], read: DepthOutput, *, items: Any, mask: Any = None
    ) -> Scalar:
        """The loss of ``logits`` that predict ``labels``. ``items``: how many labels count in the whole batch, of which
        this may be a part; ``mask``: that of the source.
        """
        counted = labels != IGNORED
        number = counted.sum().clamp(min=1) if items is None else items
        wide = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))
        total = cross_entropy(wide, labels.flatten(), ignore_index=IGNORED, reduction="sum")
        if self.config.ponder_weight and read.ponder is not None:
            ponder = (read.ponder * counted).sum()
            if read.encoder_ponder is not None:
                ponder = ponder + (means(read.encoder_ponder, mask) * counted.sum(1)).sum()
            total = total + self.config.ponder_weight * ponder
        return total / number

    def output(
        self, read: DepthOutput, *, logits: Tensor, loss: Tensor | None, options: Mapping[str, Any]
    ) -> DepthOutput:
        """What the model returns of what the sides returned."""
        shown, asked = replace(read, loss=loss, logits=logits, last_hidden_state=None), options.get("output_steps")
        if not (self.config.output_steps if asked is None else asked):
            shown = replace(shown, steps=None, ponder=None, encoder_steps=None, encoder_ponder=None)
        return shown


class Writer(ModelForTask, GenerationMixin):
    """Base of the models that write tokens."""

    accepts_loss_kwargs = True

    def add_head(self, ours: ModelConfig) -> None:
        self.lm_head = nn.Linear(ours.sizes.width, ours.vocabulary.written, bias=ours.outputs.output_bias)

    def prepare_inputs_for_generation(
        self, *inputs: Any, tokenizer: object = None, assistant_tokenizer: object = None, **kwargs: Any
    ) -> Any:
        """Without the tokenizers that strings to stop at are found with: `generate` hands them on to each call."""
        del tokenizer, assistant_tokenizer
        return super().prepare_inputs_for_generation(*inputs, **kwargs)

    def _prepare_generated_length(self, **lengths: Any) -> Any:
        """The limit of this library where none is asked for: the answer to a long source may be long."""
        chosen, decoder = lengths["generation_config"], self.model.decoder
        if chosen.max_new_tokens is None and lengths["has_default_max_length"]:
            assert decoder is not None
            given = lengths["inputs_tensor"].shape[1]
            chosen.max_new_tokens = decoder.limit(given, fed=lengths["input_ids_length"])
        return super()._prepare_generated_length(**lengths)

    def _prepare_cache_for_generation(
        self,
        generation_config: Any,
        model_kwargs: dict[str, Any],
        generation_mode: Any,
        batch_size: int,
        max_cache_length: int,
    ) -> None:
        """A cache that leaves out halted positions, unless another one is asked for."""
        own = generation_config.use_cache is not False and generation_config.cache_implementation is None
        if own and model_kwargs.get("cache") is None:
            assert self.model.decoder is not None
            model_kwargs["cache"] = DepthCache(self.model.decoder, capacity=max(1, max_cache_length))
        super()._prepare_cache_for_generation(
            generation_config, model_kwargs, generation_mode, batch_size, max_cache_length
        )


class UniversalTransformerForCausalLM(Writer):
    """A language model: every token from those to its left. ``labels`` are the ``input_ids``, -100 where one does not
    count.
    """

    architecture = "language_model"
    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.decoder.embedding.weight"}

    @called_by_transformers
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        **options: Any,
    ) -> DepthOutput:
        """Logits of the token after each of the last ``logits_to_keep`` positions, or of those that it numbers (0: of
        all). ``options``: those of `modeling.ASKED`, ``num_items_in_batch``, and ``shift_labels``, the label of each
        position itself, which counts in place of ``labels``.
        """
        items, shifted = options.pop("num_items_in_batch", None), options.pop("shift_labels", None)
        if shifted is None and labels is not None:
            shifted = pad(labels[:, 1:], (0, 1), value=IGNORED)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "inputs_embeds": inputs_embeds}
        read = self.sides(shifted, {**inputs, "cache": cache, **options})
        states, loss = read.last_hidden_state, None
        assert states is not None
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(states[:, kept])
        if shifted is not None:
            few = logits.shape[1] < shifted.shape[1]
            refuse((few, f"logits_to_keep={logits_to_keep}: a loss needs all logits; leave it out, or the labels"))
            loss = self.loss(logits, shifted, read, items=items)
        return self.output(read, logits=logits, loss=loss, options=options)


class UniversalTransformerForConditionalGeneration(Writer):
    """Source to target: the paper's model. ``labels`` end with the end token, and are -100 at padding."""

    architecture = "encoder_decoder"
    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.encoder.side.input.weight"}

    def add_head(self, ours: ModelConfig) -> None:
        super().add_head(ours)
        if ours.vocabulary.target_size is not None:
            self._tied_weights_keys = UniversalTransformerForCausalLM._tied_weights_keys  # type: ignore[misc]

    def prepare_decoder_input_ids_from_labels(self, labels: Int[Tensor, "batch target"]) -> Int[Tensor, "batch target"]:
        """The token before each label: the start token before the first."""
        before = pad(labels[:, :-1], (1, 0), value=self.config.decoder_start_token_id)
        return before.masked_fill(before == IGNORED, self.model.ours.vocabulary.padding_id)

    @called_by_transformers
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Any = None,
        labels: Tensor | None = None,
        **options: Any,
    ) -> DepthOutput:
        """Logits of the token after each token of the decoder, which are those before the labels if they are not given.

        ``options``: ``inputs_embeds``, ``decoder_inputs_embeds``, those of `modeling.ASKED`, ``num_items_in_batch``.
        """
        items = options.pop("num_items_in_batch", None)
        if labels is not None and decoder_input_ids is None and options.get("decoder_inputs_embeds") is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
            if decoder_attention_mask is None:  # padding at the end takes no steps
                decoder_attention_mask = (labels != IGNORED).flip(1).cummax(1).values.flip(1)
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "decoder_input_ids": decoder_input_ids,
            "decoder_attention_mask": decoder_attention_mask,
            "encoder_outputs": encoder_outputs,
            "cache": cache,
        }
        read = self.sides(labels, {**inputs, **options})
        logits, loss = self.lm_head(read.last_hidden_state), None
        if labels is not None:
            loss = self.loss(logits, labels, read, items=items, mask=attention_mask)
        return self.output(read, logits=logits, loss=loss, options=options)


class Reader(ModelForTask):
    """Base of the models that give classes to a source."""

    def add_head(self, ours: ModelConfig) -> None:
        self.classifier: Any = head_of(ours, ours.sizes.width, pooling=ours.outputs.pooling)

    def read(self, inputs: dict[str, Any], labels: Tensor | None) -> tuple[DepthOutput, Tensor]:
        """The output of the sides, and the logits."""
        ids, mask, ours = inputs["input_ids"], inputs["attention_mask"], self.model.ours
        if ids is None and (ours.inputs.segments > 1 or ours.outputs.pooling == "pointer"):
            raise UserError("inputs_embeds: the head of this model reads tokens; give input_ids")
        found = self.sides(labels, inputs)
        states = found.last_hidden_state
        assert states is not None
        padding = padding_of(mask, rows=len(states), length=states.shape[1])
        head, _ = self.classifier.reader(ids, padding=padding)
        return found, head(states)


class UniversalTransformerForSequenceClassification(Reader):
    """One of ``num_labels`` classes for a source, or as many numbers (``problem_type``)."""

    architecture = "classifier"
    accepts_loss_kwargs = False

    @called_by_transformers
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Any,
    ) -> DepthOutput:
        """Logits of the classes."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "inputs_embeds": inputs_embeds, **options}
        (found, logits), loss = self.read(inputs, labels), None
        if labels is not None:
            loss = self.loss_function(labels=labels, logits=logits, pooled_logits=logits, config=self.config)
            if self.config.ponder_weight and found.ponder is not None:
                loss = loss + self.config.ponder_weight * means(found.ponder, attention_mask).mean()
        return self.output(found, logits=logits, loss=loss, options=options)


class UniversalTransformerForTokenClassification(Reader):
    """One of ``num_labels`` classes for each position; a label of -100 does not count."""

    architecture = "tagger"
    accepts_loss_kwargs = True

    @called_by_transformers
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Any,
    ) -> DepthOutput:
        """Logits of the classes of each position."""
        items = options.pop("num_items_in_batch", None)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "inputs_embeds": inputs_embeds, **options}
        (found, logits), loss = self.read(inputs, labels), None
        if labels is not None:
            loss = self.loss(logits, labels, found, items=items)
        return self.output(found, logits=logits, loss=loss, options=options)


def means(ponder: PerPosition, mask: Tensor | None) -> Float[Tensor, "batch"]:
    """The mean over the real positions of each sequence."""
    if mask is None:
        return ponder.mean(1)
    real = mask != 0
    return (ponder * real).sum(1) / real.sum(1).clamp(min=1)
