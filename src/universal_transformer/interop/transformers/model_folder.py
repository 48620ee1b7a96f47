"""A folder that ``from_pretrained`` of transformers opens: configuration, weights, generation, tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers
import torch
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.errors import UserError
from universal_transformer.interop.transformers.conversion import COUNTERPARTS, from_transformers, to_transformers
from universal_transformer.interop.transformers.pair_pipeline import TARGET
from universal_transformer.models.model import Model


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """What a folder holds besides the model.

    ``source`` and ``target``: a tokenizer and what a text has around it (`tasks.sides.side.Side.exchanged`); None for a
    side without one, and for a target that has the tokenizer of the source. ``labels``: the names of the classes.
    """

    source: tuple[Tokenizer, str] | None
    target: tuple[Tokenizer, str] | None
    labels: Sequence[str]
    ponder_weight: float


def write_folder(folder: Path, model: Model, what: Exchanged) -> str:
    """Write ``model`` into ``folder`` and compare what the folder holds with it; a line that says so.

    UserError for a model that transformers cannot hold.
    """
    names = dict(enumerate(what.labels)) or None
    made = to_transformers(model, ponder_weight=what.ponder_weight, id2label=names)
    made.save_pretrained(folder)
    for place, side in ((folder, what.source), (folder / TARGET, what.target)):
        if side is not None:
            fast_tokenizer(*side, padding_side="left" if model.source is None else "right").save_pretrained(place)
    read = from_transformers(COUNTERPARTS[model.config.architecture].from_pretrained(folder, dtype=made.dtype))
    equal = all(torch.equal(value, read.tensors()[name]) for name, value in model.tensors().items())
    assert equal, "the weights in the folder are those of the model"
    assert read.config == model.config, "the configuration in the folder is that of the model"
    return "read again: the configuration is equal, and the weights are equal bit for bit"


def fast_tokenizer(tokenizer: Tokenizer, around: str, *, padding_side: str) -> PreTrainedTokenizerFast:
    """The same tokenizer for transformers, which puts tokens ``around`` a text by itself.

    Text is never read as special tokens. UserError for the tokenizer of another library than `tokenizers`.
    """
    if tokenizer.suffix != ".json":
        raise UserError(f"a tokenizer of the kind {tokenizer.suffix}: expected one of the library tokenizers (.json)")
    tokens = tokenizer.tokens()
    roles = {
        "pad_token": tokenizer.padding_id,
        "bos_token": tokenizer.start_id,
        "eos_token": tokenizer.end_id,
        "unk_token": tokenizer.unknown_id,
    }
    named = {role: tokens[index] for role, index in roles.items()}
    library = tokenizers.Tokenizer.from_str(tokenizer.content)
    template = around.replace("<start>", named["bos_token"]).replace("<end>", named["eos_token"])
    special = [(named[role], roles[role]) for role in ("bos_token", "eos_token")]
    library.post_processor = TemplateProcessing(single=template, special_tokens=special)
    return PreTrainedTokenizerFast(
        tokenizer_object=library,
        padding_side=padding_side,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        **named,
    )
