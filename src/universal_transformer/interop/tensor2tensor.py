"""Official Universal Transformer weights in our models.

The authors' code (tensor2tensor, Apache-2.0) stores a model as variables with names and a set of hyper-parameters:

>>> reader = tf.train.load_checkpoint("model.ckpt-250000")
>>> variables = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
>>> model = load(variables, json.load(open("hparams.json")))

- :func:`load` a whole model with its embeddings: an encoder-decoder, or a language model when there is no encoder;
- :func:`load_body` the part between embeddings and logits;
- :func:`load_encoder`, :func:`load_decoder` one recurrence;
- :func:`config_from_hparams` the configuration alone.

Every variable must belong to a parameter and every parameter to a variable. The error names what is missing or left
over. Training state (``global_step``, slots of optimisers) is ignored. The results equal those of the last official
version; before September 2018 basic and global halting mixed states differently.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import pad

from universal_transformer.axes import Bool, Float, Padding, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.interop.tensor2tensor_config import OfficialConfig
from universal_transformer.interop.tensor2tensor_hparams import Unsupported, complete, config_from_hparams
from universal_transformer.interop.tensor2tensor_models import (
    OfficialEncoderDecoder,
    OfficialLanguageModel,
    check_space,
)
from universal_transformer.interop.tensor2tensor_names import (
    Variable,
    model_variables,
    recurrence_variables,
    space_variable,
)
from universal_transformer.interop.tensor2tensor_parts import OfficialBuilder, OfficialRecurrence
from universal_transformer.models.components import Architecture
from universal_transformer.models.positions.numbering import default_positions, without_padding
from universal_transformer.models.pretrained import check_tensors
from universal_transformer.nn.context import Context, ProjectedSource, key_mask
from universal_transformer.nn.trace import Trace
from universal_transformer.typed import replaced

__all__ = [
    "Body",
    "Unsupported",
    "config_from_hparams",
    "load",
    "load_body",
    "load_decoder",
    "load_encoder",
    "official_variables",
    "side_context",
]

Variables = Mapping[str, np.ndarray]
MODEL_SCOPE = re.compile(
    r"(?:[^/]+/)?(?:body/)?((?:encoder|decoder|target_space_embedding|symbol_modality_\d+_\d+)/.+)"
)
TRAINING_STATE = re.compile(
    r"(?:.*/)?(?:global_step|beta[12]_power(?:_\d+)?)"
    r"|(?:training|losses_avg|train_stats)/.*"
    r"|.*/(?:(?:Lazy|Multistep)?Adam(?:Optimizer)?|Adafactor|Momentum|Adagrad|RMSProp|ExponentialMovingAverage)(?:_\d+)?"
)
TABLE = re.compile(r"symbol_modality_(\d+)_\d+/(shared|input_emb|target_emb|softmax)/weights_(\d+)")


class Body(nn.Module):
    """Embedded inputs and targets to last states: what the official code calls the body.

    A position whose embedding is all zeros is padding. Either side may be absent.
    """

    def __init__(self, config: OfficialConfig, *, encoder: bool, decoder: bool) -> None:
        super().__init__()
        self.config = config
        self.encoder = OfficialBuilder(config, decoder=False).build() if encoder else None
        self.decoder = OfficialBuilder(config, decoder=True, cross_attention=encoder).build() if decoder else None
        self.space = None
        if encoder and config.tensor2tensor.num_target_spaces:
            self.space = nn.Parameter(torch.zeros(config.tensor2tensor.num_target_spaces, config.sizes.width))

    def encode(self, inputs: States, *, target_space: int = 0) -> tuple[States, Padding | None, Trace]:
        """The encoder's last states, the padding of the inputs, and the trace."""
        assert self.encoder is not None
        padding = without_padding((inputs == 0).all(dim=-1))
        if self.space is not None:
            inputs = inputs + self.space[check_space(target_space, spaces=len(self.space))]
        states, trace = self.encoder(inputs, side_context(self.encoder, inputs, padding=padding))
        return states, padding, trace

    def decode(
        self,
        targets: States,
        *,
        source: Float[Tensor, "batch source width"] | None = None,
        padding: Bool[Tensor, "batch source"] | None = None,
    ) -> tuple[States, Trace]:
        """The decoder's last states: position ``i`` sees the targets to its left (zeros come first)."""
        assert self.decoder is not None
        projected = None if source is None else self.decoder.project_source(source, padding=padding)
        shifted = pad(targets, (0, 0, 1, 0))[:, :-1]
        states, trace = self.decoder(shifted, side_context(self.decoder, shifted, source=projected))
        return states, trace


def side_context(
    side: OfficialRecurrence,
    states: States,
    *,
    padding: Padding | None = None,
    source: list[ProjectedSource] | None = None,
) -> Context:
    """The context in which the official code computes one side from ``states``: padding counts as positions."""
    positions = default_positions(states.shape[1], padding=None, device=states.device)
    return Context(
        depth=side.depth(),
        encoding=side.coordinates.position(positions),
        padding=padding,
        mask=None if padding is None else key_mask(padding),
        causal=side.decoder,
        source=source,
    )


def official_variables(
    model: OfficialEncoderDecoder | OfficialLanguageModel | Body | OfficialRecurrence,
    *,
    num_shards: int = 1,
    shared: bool = True,
) -> Iterator[Variable]:
    """Each official variable of ``model``: its name, and where its numbers (and gradients) are.

    ``num_shards`` and ``shared`` are ``symbol_modality_num_shards``, and whether source and target embed alike.
    """
    if isinstance(model, OfficialEncoderDecoder | OfficialLanguageModel):
        yield from model_variables(model, num_shards=num_shards, shared=shared)
        return
    if isinstance(model, Body) and model.space is not None:
        yield space_variable(model.space)
    for side in (model.encoder, model.decoder) if isinstance(model, Body) else (model,):
        if side is not None:
            yield from recurrence_variables(side)


def _strip(variables: Variables) -> dict[str, np.ndarray]:
    """Names without the scope of the model around them, and without training state."""
    stripped: dict[str, np.ndarray] = {}
    for name, value in variables.items():
        if TRAINING_STATE.fullmatch(name):
            continue
        inside = MODEL_SCOPE.fullmatch(name)
        short = name if inside is None else inside.group(1)
        if short in stripped:
            raise UserError(f"two official variables are called {short}, one of them {name}: give one model")
        stripped[short] = value
    return stripped


@torch.no_grad()
def _fill(wanted: Iterator[Variable], variables: dict[str, np.ndarray]) -> None:
    """Copy every variable to its place. UserError when one is missing, left over, wrongly shaped or not finite."""
    places = _compared(wanted, variables)
    for name, variable in places.items():
        value, place = np.asarray(variables[name]), variable.official(variable.parameter)
        if not np.issubdtype(value.dtype, np.floating):
            raise UserError(f"official variable {name} holds {value.dtype}, floating point is needed")
        with np.errstate(over="ignore"):  # a large number of float64 is infinite in float32
            value = value.astype(torch.empty(0, dtype=place.dtype).numpy().dtype)
        if not np.isfinite(value).all():
            raise UserError(f"official variable {name} holds values that are not finite")
        place.copy_(torch.from_numpy(np.ascontiguousarray(value)))


def _compared(wanted: Iterator[Variable], variables: dict[str, np.ndarray]) -> dict[str, Variable]:
    """Return the variables of a model by name. UserError when one is missing, left over or wrongly shaped."""
    places = {variable.name: variable for variable in wanted}
    message = "{} official variables for these hyper-parameters"
    check_tensors(set(variables), set(places), message=message)
    for name, variable in places.items():
        value, place = np.asarray(variables[name]), variable.official(variable.parameter)
        if value.shape != tuple(place.shape):
            raise UserError(
                f"official variable {name} has shape {list(value.shape)}, "
                f"the hyper-parameters ask for {list(place.shape)}"
            )
    return places


def _has(variables: dict[str, np.ndarray], scope: str) -> bool:
    return any(f"/{scope}/" in f"/{name}" for name in variables)


def _vocabularies(
    names: list[str], *, shared: bool, encoder: bool, source_vocabulary_size: int | None
) -> tuple[int, int]:
    """Sizes of the source and the target vocabulary, read from the names of the embeddings."""
    sizes: dict[str, set[int]] = {"shared": set(), "input_emb": set(), "target_emb": set(), "softmax": set()}
    for name in names:
        table = TABLE.fullmatch(name)
        if table is not None:
            sizes[table.group(2)].add(int(table.group(1)))
    source, target = (sizes["shared"],) * 2 if shared else (sizes["input_emb"], sizes["target_emb"])
    if sizes["softmax"]:
        target = target & sizes["softmax"]
    if not encoder:
        source = target
    elif source_vocabulary_size is not None:
        source = source & {source_vocabulary_size}
    if len(source) > 1 and len(target) == 1:
        source = source - target
    if len(target) > 1 and len(source) == 1:
        target = target - source
    if not source or not target:
        table_names = "shared" if shared else "input_emb, target_emb, softmax"
        raise UserError(
            f"no embedding among the official variables (symbol_modality_V_D/…, {table_names}): "
            "load_body, load_encoder and load_decoder take models without one"
        )
    if len(source) > 1 or len(target) > 1:
        raise UserError(
            f"embeddings of {' and '.join(map(str, sorted(source | target)))} words: "
            "source_vocabulary_size must say which is the source's"
        )
    return next(iter(source)), next(iter(target))


def _num_shards(names: list[str], full: Mapping[str, Any]) -> int:
    """Parts of each embedding: the hyper-parameter, or as many as there are."""
    tables = [table for name in names if (table := TABLE.fullmatch(name)) is not None]
    count: int = full.get("symbol_modality_num_shards") or 1 + max(int(table.group(3)) for table in tables)
    if not 1 <= count <= len(tables):
        raise UserError(f"symbol_modality_num_shards={count}: the embeddings have {len(tables)} variables in all")
    return count


def load(
    variables: Variables, hparams: Mapping[str, Any], *, source_vocabulary_size: int | None = None
) -> OfficialEncoderDecoder | OfficialLanguageModel:
    """The model whose weights are ``variables``, ready to be evaluated or trained on.

    ``variables``: arrays by official name, with or without the scope of the model in front. ``hparams``: the official
    hyper-parameters; those left out have the official defaults. ``source_vocabulary_size`` is needed only when source
    and target embed different vocabularies under names that do not say which is which.

    Raises Unsupported for an official model that this package does not have; UserError that names a variable which is
    missing, left over, wrongly shaped or not finite.
    """
    full, inside = complete(hparams), _strip(variables)
    encoder = _has(inside, "encoder")
    architecture = OfficialEncoderDecoder if encoder else OfficialLanguageModel
    config = config_from_hparams(hparams, architecture="encoder_decoder" if encoder else "language_model")
    shared = bool(full["shared_embedding_and_softmax_weights"] or full["shared_embedding"])
    source, target = _vocabularies(
        list(inside), shared=shared, encoder=encoder, source_vocabulary_size=source_vocabulary_size
    )
    own_table = encoder and (source != target or not shared)
    sizes = {"vocabulary.size": source, "vocabulary.target_size": target if own_table else 0}
    config = replaced(config, sizes)
    num_shards = _num_shards(list(inside), full)
    with torch.device("meta"):  # names and shapes are compared before memory is taken
        _compared(official_variables(architecture(config), num_shards=num_shards, shared=shared), inside)
    model = architecture(config)
    _fill(official_variables(model, num_shards=num_shards, shared=shared), inside)
    return model.eval()


def load_body(variables: Variables, hparams: Mapping[str, Any]) -> Body:
    """Encoder, decoder or both, whichever ``variables`` hold, between embeddings and logits."""
    inside = _strip(variables)
    encoder, decoder = _has(inside, "encoder"), _has(inside, "decoder")
    if not encoder and not decoder:
        raise UserError("no official variables of an encoder or a decoder: their names contain /encoder/ or /decoder/")
    one_side: Architecture = "classifier" if encoder else "language_model"
    config = config_from_hparams(hparams, architecture="encoder_decoder" if encoder and decoder else one_side)
    body = Body(config, encoder=encoder, decoder=decoder)
    _fill(official_variables(body), inside)
    return body.eval()


def _load_side(variables: Variables, hparams: Mapping[str, Any], *, decoder: bool) -> OfficialRecurrence:
    inside = _strip(variables)
    config = config_from_hparams(hparams, architecture="language_model" if decoder else "classifier")
    if config.coordinates.injection == "input":  # added where the input is prepared, which is not here
        config = replaced(config, {"coordinates.position": "none", "coordinates.injection": "every_step"})
    looks = decoder and _has(inside, "encdec_attention")
    side = OfficialBuilder(config, decoder=decoder, cross_attention=looks).build()
    _fill(official_variables(side), inside)
    return side.eval()


def load_encoder(variables: Variables, hparams: Mapping[str, Any]) -> OfficialRecurrence:
    """The encoder alone (the official ``universal_transformer_encoder``), from prepared inputs on.

    Call it with a :func:`side_context`.
    """
    return _load_side(variables, hparams, decoder=False)


def load_decoder(variables: Variables, hparams: Mapping[str, Any]) -> OfficialRecurrence:
    """The decoder alone (the official ``universal_transformer_decoder``), from prepared and shifted targets on."""
    return _load_side(variables, hparams, decoder=True)
