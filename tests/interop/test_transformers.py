"""A model of transformers is our model: the same weights, numbers and tokens, both ways and from a folder."""

import pytest
import torch

pytest.importorskip("transformers")

import transformers

from small_models import COORDINATES, DEPTHS, HALTING, SOURCES, small
from universal_transformer.errors import UserError
from universal_transformer.interop.transformers import (
    DepthCache,
    UniversalTransformerConfig,
    UniversalTransformerForConditionalGeneration,
    UniversalTransformerModel,
)
from universal_transformer.interop.transformers.conversion import COUNTERPARTS, from_transformers, to_transformers
from universal_transformer.rules import HALTING_RULES

pytestmark = pytest.mark.filterwarnings("default")

LM = {"architecture": "language_model"}
CLASSES = {"num_classes": 5}
MATRIX = {
    **{f"language model, {name}": {**LM, **fields} for name, fields in {**DEPTHS, **HALTING}.items()},
    **{f"language model, {name}": {**LM, **fields} for name, fields in COORDINATES.items()},
    **{f"rule {name}": {**LM, "halting": True, "halting.rule": name} for name in HALTING_RULES},
    **{f"pair, {name}": fields for name, fields in SOURCES.items()},
    "two vocabularies": {"target_vocabulary_size": 7, "halting": True},
    "no ties": {"tie_output": False, "output_bias": False},
    "shared heads": {**LM, "halting": True, "attention.key_value_heads": 1},
    "convolution": {**LM, "transition": "separable_convolution"},
    "classifier": {"architecture": "classifier", "halting": True, **CLASSES},
    "labels": {"architecture": "classifier", "outputs.kind": "labels", **CLASSES},
    "last": {"architecture": "classifier", "pooling": "last", **CLASSES},
    "pointer": {"architecture": "classifier", "pooling": "pointer", "num_classes": 9},
    "two texts": {"architecture": "classifier", "inputs.segments": 2, **CLASSES},
    "tagger": {"architecture": "tagger", "halting": True, **CLASSES},
    "as many steps as positions": {"architecture": "classifier", "max_steps": "length", **CLASSES},
}
OFFICIAL = {"plain_layers_before", "combine_coordinates"}
"""What exists for tensor2tensor alone: no models of transformers."""
MATRIX = {name: fields for name, fields in MATRIX.items() if not OFFICIAL & fields.keys()}
AUTO = {
    "language_model": transformers.AutoModelForCausalLM,
    "encoder_decoder": transformers.AutoModelForSeq2SeqLM,
    "classifier": transformers.AutoModelForSequenceClassification,
    "tagger": transformers.AutoModelForTokenClassification,
}


def rows(model, *, padding):
    """Ids of a source and of a target with real tokens alone, some rows padded on a side."""
    start, size = model.config.vocabulary.end_id + 1, model.config.vocabulary.size
    ids = torch.randint(start, size, (3, 6))
    ids[:, 0] = model.config.start_id if model.source is None else ids[:, 0]
    short = slice(4, None) if padding == "right" else slice(None, 2)
    if padding != "none":
        ids[1:, short] = model.config.vocabulary.padding_id
    return ids


def target_of(model):
    return torch.randint(model.config.vocabulary.end_id + 1, model.config.vocabulary.written, (3, 5))


def logits_of_ours(model, ids, target):
    """Those of our model for the inputs of a model of transformers: it shifts targets itself."""
    if model.source is None:
        labels = torch.cat((ids[:, 1:], torch.full_like(ids[:, :1], model.config.vocabulary.end_id)), dim=1)
        return model(labels).logits
    return model(ids).logits if model.target is None else model(ids, target).logits


def outputs_of_theirs(theirs, ids, target, **asked):
    mask = (ids != theirs.config.pad_token_id).long()
    more = {}
    if theirs.config.is_encoder_decoder:
        more["decoder_input_ids"] = theirs.prepare_decoder_input_ids_from_labels(target)
    return theirs(input_ids=ids, attention_mask=mask, **more, **asked)


def logits_of_theirs(theirs, ids, target):
    return outputs_of_theirs(theirs, ids, target).logits


@pytest.mark.parametrize(
    ("name", "padding"),
    [
        (name, padding)
        for name, fields in MATRIX.items()
        for padding in ("none", "right", "left")
        if padding != "left" or fields.get("architecture") != "language_model"  # targets of ours are padded right
    ],
)
@torch.no_grad()
def test_logits_are_those_of_our_model(name, padding):
    model = small(**MATRIX[name])
    ids, target = rows(model, padding=padding), None if model.target is None else target_of(model)
    found = logits_of_theirs(to_transformers(model), ids, target)
    expected = logits_of_ours(model, ids, target)
    if model.config.architecture == "tagger":
        found, expected = found[ids != 0], expected[ids != 0]
    if model.source is None:  # to ours, a position before padding is padding
        found, expected = (logits[:, :-1][ids[:, 1:] != 0] for logits in (found, expected))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MATRIX)
@torch.no_grad()
def test_hidden_states_are_the_inputs_and_those_of_each_step(name):
    model = small(**MATRIX[name])
    ids, target = rows(model, padding="none"), None if model.target is None else target_of(model)
    found = outputs_of_theirs(to_transformers(model), ids, target, output_hidden_states=True)
    sides = {"encoder_hidden_states": model.source, "decoder_hidden_states": model.target}
    if model.source is None or model.target is None:
        sides = {"hidden_states": model.source or model.target}
    for key, side in sides.items():
        by_length = side is model.source and model.config.depth.max_steps == "length"
        assert len(found[key]) == 1 + (ids.shape[1] if by_length else side.recurrence.trained_depth.max_steps)


@pytest.mark.parametrize("name", MATRIX)
def test_weights_and_configuration_come_back_bit_for_bit(name, tmp_path):
    model = small(**MATRIX[name])
    to_transformers(model).save_pretrained(tmp_path)
    loaded = AUTO[model.config.architecture].from_pretrained(tmp_path, dtype=torch.float64)
    back = from_transformers(loaded)
    assert back.config == model.config
    assert loaded.config.is_encoder_decoder == (model.config.architecture == "encoder_decoder")
    tensors = back.tensors()
    assert tensors.keys() == model.tensors().keys()
    for tensor, value in model.tensors().items():
        assert torch.equal(tensors[tensor], value), tensor


@pytest.mark.parametrize("architecture", COUNTERPARTS)
def test_the_sides_alone_can_be_loaded(architecture, tmp_path):
    fields = CLASSES if architecture in ("classifier", "tagger") else {}
    model = to_transformers(small(architecture=architecture, **fields))
    model.save_pretrained(tmp_path)
    sides = transformers.AutoModel.from_pretrained(tmp_path, dtype=torch.float64)
    assert isinstance(sides, UniversalTransformerModel)
    for name, value in model.model.state_dict().items():
        assert torch.equal(sides.state_dict()[name], value)


GENERATING = [
    name for name, fields in MATRIX.items() if fields.get("architecture", "language_model") == "language_model"
]


@pytest.mark.parametrize("caching", ["ours", "theirs", "none"])
@pytest.mark.parametrize("name", GENERATING)
@torch.no_grad()
def test_tokens_are_those_of_our_generate(name, caching):
    model = small(**MATRIX[name])
    theirs, vocabulary = to_transformers(model), model.config.vocabulary
    ids = rows(model, padding="none" if model.source is None else "right")
    if model.source is None:  # prompts of two lengths
        ids[1:] = torch.where(torch.arange(6) < 2, 0, ids[1:].roll(2, dims=1))
    expected = model.generate(ids, max_new_tokens=7)
    more = {"use_cache": caching != "none"}
    if caching == "theirs":
        cache = transformers.DynamicCache(config=theirs.config)
        whole = transformers.EncoderDecoderCache(cache, transformers.DynamicCache(config=theirs.config))
        more["cache"] = cache if model.source is None else whole
        if "convolution" in name:
            with pytest.raises(UserError, match="needs a DepthCache"):
                theirs.generate(ids, attention_mask=(ids != 0).long(), max_new_tokens=7, **more)
            return
    found = theirs.generate(
        ids,
        attention_mask=(ids != 0).long(),
        max_new_tokens=7,
        **more,
    )
    given = ids.shape[1] if model.source is None else 1
    for row, answer in zip(found[:, given:].tolist(), expected, strict=True):
        whole = [*answer.tokens, vocabulary.end_id] if answer.finished else answer.tokens
        assert row == whole + [vocabulary.padding_id] * (len(row) - len(whole))


@pytest.mark.parametrize("form", ["tuple", "of transformers", "ours"])
def test_an_encoded_source_may_be_given_in_each_form(form):
    """Of positions that begin again after separators only ours has them; otherwise they follow from the tokens."""
    model = small(halting=True, position_coordinates="rotary", rotary_source=True, separator_id=(4, 5))
    theirs, ids, target = to_transformers(model), rows(model, padding="right"), target_of(model)
    ids[:, 1] = 4
    given = {"attention_mask": (ids != 0).long()}
    encoded = theirs.get_encoder()(ids, **given, return_dict=form != "tuple")
    if form == "of transformers":
        encoded = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=encoded.last_hidden_state)
    given |= {"encoder_outputs": encoded, "decoder_input_ids": theirs.prepare_decoder_input_ids_from_labels(target)}
    torch.testing.assert_close(theirs(input_ids=ids, **given).logits, logits_of_theirs(theirs, ids, target))
    if form == "ours":
        torch.testing.assert_close(theirs(**given).logits, logits_of_theirs(theirs, ids, target))
    else:
        with pytest.raises(UserError, match="encoder_outputs without positions"):
            theirs(**given)


def test_a_depth_that_is_asked_for_is_the_depth(tmp_path):
    model = small(**LM, max_steps=4)
    to_transformers(model).save_pretrained(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, num_hidden_layers=2, dtype=torch.float64)
    ids = rows(model, padding="none")
    labels = ids[:, 1:]
    torch.testing.assert_close(theirs(ids).logits[:, :-1], model(labels, max_steps=2).logits, rtol=0, atol=1e-12)


def test_steps_are_shown_on_request():
    model = small(halting=True)
    theirs, target = to_transformers(model), target_of(model)
    ids = rows(model, padding="right")
    mask, before = (ids != 0).long(), theirs.prepare_decoder_input_ids_from_labels(target)
    output = theirs(input_ids=ids, attention_mask=mask, decoder_input_ids=before, output_steps=True)
    ours = model(ids, target)
    assert torch.equal(output.steps, ours.decoder.steps)
    assert torch.equal(output.encoder_steps, ours.encoder.steps)
    torch.testing.assert_close(output.ponder, ours.decoder.steps + ours.decoder.remainder)
    assert theirs(input_ids=ids, decoder_input_ids=before).steps is None


@pytest.mark.parametrize(
    "fields", [{}, {"attention.key_value_heads": 1}, {"transition": "separable_convolution", "halting": False}]
)
def test_a_cache_grows_is_cropped_and_starts_again(fields):
    model = small(**{**LM, "halting": True, **fields})
    theirs = to_transformers(model)
    ids = rows(model, padding="none")
    with torch.no_grad():
        expected = theirs(ids).logits
        cache = DepthCache(theirs.model.decoder)
        for place in range(4):  # each needs more space than there is
            theirs(ids[:, place : place + 1], cache=cache)
        cache.crop(-2)
        with pytest.raises(UserError, match="tokens_to_remove=2"):
            cache.crop(2)
        assert cache.get_seq_length() == 2
        torch.testing.assert_close(theirs(ids[:, 2:], cache=cache).logits, expected[:, 2:])
        cache.reset()
        torch.testing.assert_close(theirs(ids, cache=cache).logits, expected)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "exactly one of input_ids and inputs_embeds"),
        ({"position_ids": [[0, 1]]}, "takes no such input"),
        ({"attention_mask": torch.ones(1, 1, 2, 2)}, r"expected \[batch, position\], here \[1, 2\]"),
        ({"cache": object()}, "cache=object: allowed are DepthCache"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, message):
    theirs = to_transformers(small(**LM))
    ids = {"input_ids": torch.tensor([[3, 4]])} if inputs else {}
    with pytest.raises(UserError, match=message):
        theirs(**ids, **inputs)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architecture": "classifier", "inputs": "facts", "max_fact_words": 3, **CLASSES}, "inputs.kind=facts"),
        ({"layers_per_step": 2, "plain_layers_before": 1}, "kind=tensor2tensor"),
    ],
)
def test_models_of_other_inputs_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        to_transformers(small(**fields))


def test_a_configuration_of_another_architecture_is_refused():
    config = UniversalTransformerConfig(architecture="language_model", vocab_size=9)
    with pytest.raises(UserError, match='architecture="language_model": this class of model needs "encoder_decoder"'):
        UniversalTransformerForConditionalGeneration(config)


def test_layers_that_are_no_whole_steps_are_refused():
    config = UniversalTransformerConfig(components={"step": {"blocks": 2}}, num_slots=5)
    with pytest.raises(UserError, match="num_hidden_layers=5: a multiple of the blocks of a step, 2"):
        config.model_config()


def test_gradients_are_not_checkpointed_where_a_step_reads_the_step_before():
    with pytest.raises(UserError, match="gradient checkpointing"):
        to_transformers(small(**{"step.residual": "previous"})).gradient_checkpointing_enable()
