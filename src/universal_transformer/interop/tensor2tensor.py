"""Official Universal Transformer weights in our models.

The authors' code (tensor2tensor, Apache-2.0) stores a model as variables with names and a set of hyper-parameters:

>>> reader = tf.train.load_checkpoint("model.ckpt-250000")
>>> variables = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
>>> model = load(variables, json.load(open("hparams.json")))

:func:`load` gives an encoder-decoder, or a language model when there is no encoder. :func:`filled` fills a part of a
model.

Every variable must belong to a parameter and every parameter to a variable. The error names what is missing or left
over. Training state (``global_step``, slots of optimisers) is ignored. The results equal those of the last official
version; before September 2018 basic and global halting mixed states differently.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from universal_transformer.axes import Float, Tensor
from universal_transformer.errors import UserError
from universal_transformer.interop.tensor2tensor_config import complete, config_from_hparams
from universal_transformer.interop.tensor2tensor_parts import OfficialRecurrence
from universal_transformer.models.pretrained import check_shapes, fill
from universal_transformer.models.universal import EncoderDecoder, LanguageModel
from universal_transformer.typed import replaced

Variables = Mapping[str, np.ndarray]
AnyModule = TypeVar("AnyModule", bound=nn.Module)
MODEL_SCOPE = re.compile(
    r"(?:[^/]+/)?(?:body/)?((?:encoder|decoder|target_space_embedding|symbol_modality_\d+_\d+)/.+)"
)
TRAINING_STATE = re.compile(
    r"(?:.*/)?(?:global_step|beta[12]_power(?:_\d+)?)"
    r"|(?:training|losses_avg|train_stats)/.*"
    r"|.*/(?:(?:Lazy|Multistep)?Adam(?:Optimizer)?|Adafactor|Momentum|Adagrad|RMSProp|ExponentialMovingAverage)(?:_\d+)?"
)
TABLE = re.compile(r"symbol_modality_(\d+)_\d+/(shared|input_emb|target_emb|softmax)/weights_\d+")

LAYER = re.compile(r"(blocks|before|after)\.(\d+)\.")
LAYERS = {"blocks": "rec_layer", "before": "before_ut_layer", "after": "after_ut_layer"}
"""List of blocks of a side -> official name of one of them."""
NAMES = {
    "coordinates.step": "{scope}/layer_embedding",
    "coordinates.join": "{scope}/dense/kernel",
    "coordinates.sru.layers.0": "{scope}/sru/kernel_0/kernel",
    "coordinates.sru.layers.1": "{scope}/sru/kernel_1/kernel",
    "halting": "{scope}/sigmoid_activation_for_pondering/dense/kernel",
    "closing_norm": "{side}/{norm}/layer_norm/layer_norm_scale",
    "attention.query_key_value": "{scope}/self_attention/multihead_attention/qkv/kernel",
    "attention.output": "{scope}/self_attention/multihead_attention/output_transform/kernel",
    "after_attention.norm": "{scope}/self_attention/{norm}/layer_norm/layer_norm_scale",
    "cross_attention.query": "{scope}/encdec_attention/multihead_attention/q/kernel",
    "cross_attention.key_value": "{scope}/encdec_attention/multihead_attention/kv/kernel",
    "cross_attention.output": "{scope}/encdec_attention/multihead_attention/output_transform/kernel",
    "after_cross_attention.norm": "{scope}/encdec_attention/{norm}/layer_norm/layer_norm_scale",
    "transition.inner": "{scope}/ffn/conv1/kernel",
    "transition.outer": "{scope}/ffn/conv2/kernel",
    "transition.first.depthwise": "{scope}/ffn/sepconv_relu_sepconv/conv1_single/depthwise_kernel",
    "transition.first.pointwise": "{scope}/ffn/sepconv_relu_sepconv/conv1_single/pointwise_kernel",
    "transition.second.depthwise": "{scope}/ffn/sepconv_relu_sepconv/conv2_single/depthwise_kernel",
    "transition.second.pointwise": "{scope}/ffn/sepconv_relu_sepconv/conv2_single/pointwise_kernel",
    "after_transition.norm": "{scope}/ffn/{norm}/layer_norm/layer_norm_scale",
}
"""Module of a side, or of a block of it -> official name of its weight; ``qkv`` and ``kv`` stand for one variable a
letter."""
WEIGHT = re.compile(r"\w*kernel$|scale$")
"""The end of an official name of a weight, in place of which that of the bias has "bias"."""
FUSED = re.compile(r"(?<=/)(qkv|kv)(?=/)")
TABLES = {"source.input": "input_emb", "target.embedding": "target_emb", "target.output": "softmax"}
"""Table of a model -> official name, where source and target do not share one scope."""
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "target_space_embedding/kernel": lambda part: part,
    "depthwise_kernel": lambda part: part.permute(2, 1, 0).unsqueeze(-1),
    "pointwise_kernel": lambda part: part.t()[None, None],
    "kernel": lambda part: part.t(),
    "layer_embedding": lambda part: part[:, None, None],
    "depth_embedding": lambda part: part[:, None, None],
}
"""End of an official name -> our axes in the official order, for instance ``[out, in]`` as ``[in, out]``."""


@dataclass(frozen=True, eq=False)
class Variable:
    """One official variable: one of equal parts of the rows of a parameter of ours, with the axes in another order."""

    name: str
    parameter: Tensor
    part: int = 0
    parts: int = 1

    def official(self, tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The part of ``tensor`` (the parameter's value or gradient) that is this variable, in the official layout.

        It is a view: what is written into it is written into ``tensor``.
        """
        rows = tensor.tensor_split(self.parts)[self.part]
        return next((layout(rows) for end, layout in LAYOUTS.items() if self.name.endswith(end)), rows)


def official_variables(model: nn.Module, *, num_shards: int = 1, shared: bool = True) -> Iterator[Variable]:
    """Each official variable of a model or of a part of one: its name and where its numbers (and gradients) are.

    ``num_shards``: parts of each table (``symbol_modality_num_shards``). ``shared``: source and target embed alike.
    """
    for path, parameter in model.named_parameters():
        module = path.rpartition(".")[0]
        if module in TABLES:
            scope = "shared" if shared and module != "target.output" else TABLES[module]
            size, width = parameter.shape
            for part in range(num_shards):
                name = f"symbol_modality_{size}_{width}/{scope}/weights_{part}"
                yield Variable(name, parameter, part, num_shards)
        elif path in ("space", "source.space"):
            yield Variable("target_space_embedding/kernel", parameter)
    for side in model.modules():
        if isinstance(side, OfficialRecurrence):
            yield from _side_variables(side)


def _side_variables(side: OfficialRecurrence) -> Iterator[Variable]:
    name = "decoder" if side.decoder else "encoder"
    norm = "layer_postprocess" if side.closing_norm is None else "layer_prepostprocess"
    carry = side.carry
    kind = "act" if side.halting.decides else "basic" if carry is None else carry.chosen.recurrence
    own = {} if carry is None else {f"carry.{path}".rstrip("."): found for path, found in carry.names.items()}
    names = NAMES | own
    for path, parameter in side.named_parameters():
        scope, inside = f"{name}/universal_transformer_{kind}", path
        if layer := LAYER.match(path):
            inside = path[layer.end() :]
            if side.carry is None or layer[1] != "blocks" or not side.carry.attention_alone:
                scope = f"{scope}/{LAYERS[layer[1]]}_{layer[2]}"
        module, _, parameter_name = inside.rpartition(".")
        official = names[module].format(side=name, scope=scope, norm=norm)
        official = WEIGHT.sub("bias", official) if parameter_name == "bias" else official
        fused = FUSED.search(official)
        parts = [official] if fused is None else [FUSED.sub(letter, official) for letter in fused[1]]
        for part, variable in enumerate(parts):
            yield Variable(variable, parameter, part, len(parts))


def stripped(variables: Variables) -> dict[str, np.ndarray]:
    """Names without the scope of the model around them, and without training state."""
    found: dict[str, np.ndarray] = {}
    for name, value in variables.items():
        if TRAINING_STATE.fullmatch(name):
            continue
        inside = MODEL_SCOPE.fullmatch(name)
        short = name if inside is None else inside.group(1)
        if short in found:
            raise UserError(f"two official variables are called {short}, one of them {name}: give one model")
        found[short] = value
    return found


def filled(build: Callable[[], AnyModule], variables: dict[str, np.ndarray], **naming: Any) -> AnyModule:
    """The module of ``build`` with all ``variables`` in their places, in evaluation mode.

    Memory is taken after names and shapes have been compared. UserError for a variable that is missing, left over,
    wrongly shaped or not finite.
    """
    with torch.device("meta"):
        places = list(official_variables(build(), **naming))
    wanted = {place.name: tuple(place.official(place.parameter).shape) for place in places}
    check_shapes({name: np.shape(value) for name, value in variables.items()}, wanted, name="official variables")
    module = build()
    for variable in official_variables(module, **naming):
        value = np.asarray(variables[variable.name])
        if not np.issubdtype(value.dtype, np.floating):
            raise UserError(f"official variable {variable.name} holds {value.dtype}, floating point is needed")
        exact = torch.from_numpy(np.ascontiguousarray(value, dtype=np.float64))
        fill(variable.official(variable.parameter), exact, name=f"official variable {variable.name}")
    return module.eval()


def _vocabularies(
    tables: list[re.Match[str]], *, shared: bool, encoder: bool, source_vocabulary_size: int | None
) -> tuple[int, int]:
    """Sizes of the source and the target vocabulary, read from the names of the embeddings."""
    sizes: dict[str, set[int]] = defaultdict(set)
    for table in tables:
        sizes[table[2]].add(int(table[1]))
    source, target = (sizes["shared"],) * 2 if shared else (sizes["input_emb"], sizes["target_emb"])
    target = target & (sizes["softmax"] or target)
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
            f"no embedding among the official variables (symbol_modality_V_D/…, {table_names}); expected a whole model"
        )
    if len(source) > 1 or len(target) > 1:
        raise UserError(
            f"embeddings of {' and '.join(map(str, sorted(source | target)))} words: "
            "source_vocabulary_size must say which is the source's"
        )
    return min(source), min(target)


def load(
    variables: Variables, hparams: Mapping[str, Any], *, source_vocabulary_size: int | None = None
) -> EncoderDecoder | LanguageModel:
    """The model whose weights are ``variables``, ready to be evaluated or trained on.

    ``variables``: arrays by official name, with or without the scope of the model in front. ``hparams``: the official
    hyper-parameters; those left out have the official defaults. ``source_vocabulary_size`` is needed only when source
    and target embed different vocabularies under names that do not say which is which.

    Raises Unsupported for an official model that this package does not have; UserError that names a variable which is
    missing, left over, wrongly shaped or not finite.
    """
    full, inside = complete(hparams), stripped(variables)
    encoder = any("/encoder/" in f"/{name}" for name in inside)
    config = config_from_hparams(hparams, architecture="encoder_decoder" if encoder else "language_model")
    tables = [table for name in inside if (table := TABLE.fullmatch(name)) is not None]
    shared = bool(full["shared_embedding_and_softmax_weights"] or full["shared_embedding"])
    source, target = _vocabularies(
        tables, shared=shared, encoder=encoder, source_vocabulary_size=source_vocabulary_size
    )
    own_table = encoder and (source != target or not shared)
    config = replaced(config, {"vocabulary.size": source, "vocabulary.target_size": target if own_table else None})
    num_shards = max(Counter(table[0].rpartition("_")[0] for table in tables).values())
    architecture = EncoderDecoder if encoder else LanguageModel
    return filled(lambda: architecture(config), inside, num_shards=num_shards, shared=shared)
