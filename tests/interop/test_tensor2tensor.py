"""Our models against a naive float64 re-implementation of the official computation, for any hyper-parameters."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golden.check import load_body, load_decoder, load_encoder, side_context
from interop import official
from interop.official import KINDS, SPACE, batch, run_official
from universal_transformer.errors import UserError
from universal_transformer.interop import tensor2tensor as t2t
from universal_transformer.interop.tensor2tensor_config import Unsupported, config_from_hparams
from universal_transformer.models.universal import EncoderDecoder, LanguageModel

TOLERANCE = 1e-5  # sinusoids are computed in float32
OTHERS = ("highway", "skip", "dwa", "gru", "lstm")


@st.composite
def hparams(draw):
    """Any combination that the official code can run."""
    positions, steps = draw(st.booleans()), draw(st.booleans())
    norms = draw(st.sampled_from([("n", "da"), ("n", "a"), ("none", "dan"), ("none", "an")]))
    recurrence = draw(st.sampled_from(["basic", "act", *OTHERS]))
    steps = steps and recurrence not in ("gru", "lstm")
    joins = ["add", "concat"] if (positions or not steps) and recurrence != "dwa" else ["add"]
    removes, coupled = draw(st.booleans()), draw(st.booleans())
    return official.HPARAMS | {
        "num_heads": draw(st.sampled_from([1, 2, 4])),
        "recurrence_type": recurrence,
        "gates_inputs": draw(st.sampled_from(["i", "s", "t", "st", "sti"])),
        "couple_carry_transform_gates": coupled or removes,
        "depth_embedding": draw(st.booleans()),
        "dwa_elements": draw(st.booleans()),
        "lstm_forget_bias": draw(st.sampled_from([1.0, 0.0])),
        "use_memory_as_final_state": draw(st.booleans()),
        "add_ffn_unit_to_the_transition_function": draw(st.booleans()),
        "add_sru": draw(st.booleans()),
        "num_rec_steps": draw(st.integers(1, 3)),
        "act_type": draw(st.sampled_from(["basic", "accumulated", "global"])),
        "act_epsilon": draw(st.sampled_from([0.01, 0.3, 0.6])),
        "act_max_steps": draw(st.integers(1, 4)),
        "layer_preprocess_sequence": norms[0],
        "layer_postprocess_sequence": norms[1],
        "norm_epsilon": draw(st.sampled_from([1e-6, 1e-2])),
        "transformer_ffn_type": draw(st.sampled_from(["fc", "sepconv"])),
        "use_pad_remover": removes,
        "num_inrecurrence_layers": draw(st.integers(1, 2)),
        "mix_with_transformer": draw(st.sampled_from([None, None, "before_ut", "after_ut", "before_ut,after_ut"])),
        "num_mixedin_layers": draw(st.integers(1, 2)),
        "add_position_timing_signal": positions,
        "add_step_timing_signal": steps,
        "step_timing_signal_type": draw(st.sampled_from(["learned", "sinusoid"])),
        "add_or_concat_timing_signal": draw(st.sampled_from(joins)),
        "position_start_index": draw(st.sampled_from([None, "step"])),
        "pos": None if positions else draw(st.sampled_from([None, "timing"])),
        "use_target_space_embedding": draw(st.booleans()),
        "shared_embedding_and_softmax_weights": draw(st.booleans()),
        "shared_embedding": draw(st.booleans()),
        "symbol_modality_num_shards": draw(st.integers(1, 3)),
        "multiply_embedding_mode": draw(st.sampled_from(["sqrt_depth", "none"])),
    }


def load(kind, variables, hp):
    variables = {name: value.astype(np.float32) for name, value in variables.items()}
    match kind:
        case "encoder":
            return load_encoder(variables, hp).double()
        case "decoder":
            return load_decoder(variables, hp).double()
        case "encoder_model" | "encoder_decoder":
            return load_body(variables, hp).double()
    return t2t.load(variables, hp).double()


def run_ours(kind, model, data):
    """Final outputs and the trace of each side."""
    inputs, targets = (torch.from_numpy(data[name]) for name in ("inputs", "targets"))
    if kind in ("encoder", "decoder"):
        states = inputs if kind == "encoder" else targets
        padding = torch.from_numpy(data["padding"]) if kind == "encoder" else None
        final, trace = model(states, side_context(model, states, padding=padding))
        return final, [trace]
    if kind in ("encoder_model", "encoder_decoder"):
        final, padding, encoder = model.encode(inputs, target_space=SPACE)
        if kind == "encoder_model":
            return final, [encoder]
        final, decoder = model.decode(targets, source=final, padding=padding)
        return final, [encoder, decoder]
    if kind == "language_model":
        output = model(targets)
    else:
        space = SPACE if model.config.tensor2tensor.num_target_spaces else 0
        with model.source.problem(space):
            output = model(inputs, targets)
    return output.logits, [trace for trace in (output.encoder, output.decoder) if trace is not None]


def clear(sides):
    """No halting decision is so near the threshold that rounding could turn it."""
    return min(ran.margin for side in sides for ran in side) > 1e-4


def assert_same(kind, hp, *, seed):
    data = batch(kind, hp["hidden_size"], seed=seed)
    store, wanted, sides = run_official(kind, hp, data, seed=seed)
    if not clear(sides):
        return assert_same(kind, hp, seed=seed + 100)
    with torch.no_grad():
        final, traces = run_ours(kind, load(kind, store.values, hp), data)
    np.testing.assert_allclose(final.numpy(), wanted, rtol=0, atol=TOLERANCE)
    if hp["recurrence_type"] != "act":
        assert all(trace.ponder_cost == 0 for trace in traces)
        return None
    for trace, side in zip(traces, sides, strict=True):
        for ours, theirs in ((trace.steps, "steps"), (trace.remainder, "remainders")):
            official_rows = np.array([getattr(ran, theirs) for ran in side], dtype=np.float64)
            shown = np.broadcast_to(official_rows, ours.shape)  # global: one number a sequence
            np.testing.assert_allclose(ours.numpy(), shown, rtol=0, atol=TOLERANCE)
        cost = np.mean([np.mean(np.add(ran.steps, ran.remainders)) for ran in side])
        assert abs(float(trace.ponder_cost) - cost) < TOLERANCE
    return None


@given(kind=st.sampled_from(KINDS), hp=hparams(), seed=st.integers(0, 99))
def test_any_hyper_parameters_compute_the_same(kind, hp, seed):
    assert_same(kind, hp, seed=seed)


ACT = {"recurrence_type": "act"}
POST = {"layer_preprocess_sequence": "none", "layer_postprocess_sequence": "dan"}
INPUT = {"add_position_timing_signal": False, "pos": "timing"}


@pytest.mark.cover(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "changes",
    [
        ACT | {"act_epsilon": 0.3},
        ACT | {"act_type": "global"},
        ACT | {"act_type": "accumulated", "num_inrecurrence_layers": 2},
        ACT | {"add_or_concat_timing_signal": "concat"},
        ACT | POST | {"transformer_ffn_type": "sepconv"},
        ACT | {"mix_with_transformer": "after_ut"},
        POST | {"mix_with_transformer": "before_ut,after_ut"},
        INPUT | {"mix_with_transformer": "before_ut"},
        INPUT | ACT,
        {"position_start_index": "step", "add_or_concat_timing_signal": "concat"},
        {"add_step_timing_signal": False, "add_or_concat_timing_signal": "concat"},
        {"shared_embedding_and_softmax_weights": False, "symbol_modality_num_shards": 3},
    ],
    ids=lambda changes: ",".join(f"{name}={value}" for name, value in changes.items()),
)
def test_variants_compute_the_same(kind, changes):
    assert_same(kind, official.HPARAMS | changes, seed=1)


@pytest.mark.parametrize("shared", [True, False])
def test_source_and_target_may_have_vocabularies_of_their_own(shared):
    hp = official.HPARAMS | {"shared_embedding_and_softmax_weights": shared, "symbol_modality_num_shards": 2}
    data = batch("full", 8, seed=0)
    store, wanted, _ = run_official("full", hp, data, sizes=(9, 7))
    if shared:  # both are called "shared", so the names do not tell
        with pytest.raises(UserError, match="source_vocabulary_size"):
            t2t.load(store.values, hp)
    model = t2t.load(store.values, hp, source_vocabulary_size=9 if shared else None).double()
    assert (model.config.vocabulary.size, model.config.vocabulary.target_size) == (9, 7)
    np.testing.assert_allclose(run_ours("full", model, data)[0].detach().numpy(), wanted, atol=TOLERANCE)


@pytest.mark.cover(1)
@pytest.mark.parametrize("changes", [ACT, ACT | POST | {"act_type": "global"}, {"transformer_ffn_type": "sepconv"}])
@pytest.mark.parametrize("kind", ["encoder", "decoder", "encoder_decoder", "full"])
def test_gradients_are_the_slopes_of_the_official_loss(kind, changes):
    """Along a random direction through all variables: central differences of the naive loss."""
    hp, data = official.HPARAMS | changes, batch(kind, 8, seed=2)
    store, wanted, sides = run_official(kind, hp, data, seed=2)
    assert clear(sides)
    random = np.random.default_rng(3)
    projection = random.standard_normal(wanted.shape)
    direction = {name: random.standard_normal(value.shape) for name, value in store.values.items()}

    def loss(step):
        values = {name: value + step * direction[name] for name, value in store.values.items()}
        _, final, sides = run_official(kind, hp, data, values=values)
        halting = hp["recurrence_type"] == "act"
        cost = sum(np.mean([np.mean(np.add(r.steps, r.remainders)) for r in side]) for side in sides if halting)
        return (final * projection).sum() + cost

    slope = (loss(1e-6) - loss(-1e-6)) / 2e-6
    model = load(kind, store.values, hp)
    final, traces = run_ours(kind, model, data)
    ((final * torch.from_numpy(projection)).sum() + sum(trace.ponder_cost for trace in traces)).backward()
    ours = sum(
        float((variable.official(variable.parameter.grad) * torch.from_numpy(direction[variable.name])).sum())
        for variable in t2t.official_variables(model)
    )
    assert abs(ours - slope) < 1e-4 * max(1.0, abs(slope))


def checkpoint(kind="full", changes=None):
    """Variables of a whole model, their hyper-parameters, and the names as a real checkpoint has them."""
    hp = official.HPARAMS | (changes or {})
    store, _, _ = run_official(kind, hp, batch(kind, 8, seed=0))
    named = {}
    for name, value in store.values.items():
        inside = "" if name.startswith("symbol_modality") else "body/"
        named[f"universal_transformer/{inside}{name}"] = value.astype(np.float32)
    return named, hp


def test_a_real_checkpoint_has_a_scope_and_training_state():
    variables, hp = checkpoint()
    kernel = next(name for name in variables if name.endswith("ffn/conv1/kernel"))
    extra = {
        "global_step": np.array(250_000),
        "training/beta1_power": np.array(0.1, dtype=np.float32),
        f"training/{kernel}/Adam": variables[kernel],
        f"{kernel}/Adam": variables[kernel],
        f"{kernel}/Adam_1": variables[kernel],
        f"{kernel}/Adafactor": variables[kernel],
        "losses_avg/problem_0/total_loss": np.array(1.0, dtype=np.float32),
    }
    model = t2t.load(variables | extra, hp)
    assert isinstance(model, EncoderDecoder)
    assert not model.training
    for variable in t2t.official_variables(model):
        [name] = [name for name in variables if name.endswith("/" + variable.name)]
        np.testing.assert_array_equal(variable.official(variable.parameter).detach().numpy(), variables[name])


def test_a_model_without_an_encoder_is_a_language_model():
    variables, hp = checkpoint("language_model")
    model = t2t.load(variables, hp)
    assert isinstance(model, LanguageModel)
    assert (model.config.vocabulary.padding_id, model.config.start_id, model.config.vocabulary.end_id) == (
        0,
        0,
        1,
    )


def test_every_variable_must_be_used_and_every_parameter_found():
    variables, hp = checkpoint()
    for name in variables:
        without = {other: value for other, value in variables.items() if other != name}
        with pytest.raises(UserError) as error:
            t2t.load(without, hp)
        inside = name.removeprefix("universal_transformer/").removeprefix("body/")
        assert inside in str(error.value) or (inside.startswith("symbol") and "symbol" in str(error.value))
    with pytest.raises(UserError, match=r"official variables: unexpected .*decoder/gate/kernel"):
        t2t.load(variables | {"universal_transformer/body/decoder/gate/kernel": np.ones((2, 2))}, hp)
    with pytest.raises(UserError, match=r"official variables: unexpected .*moving_average"):
        t2t.load(variables | {"moving_average": np.ones(2)}, hp)
    name = next(iter(variables))
    twice = variables | {name.replace("universal_transformer/", "other/", 1): variables[name]}
    with pytest.raises(UserError, match="two official variables are called"):
        t2t.load(twice, hp)


def test_a_variable_of_the_wrong_shape_kind_or_value_is_named():
    variables, hp = checkpoint()
    name = next(name for name in variables if name.endswith("encoder/layer_prepostprocess/layer_norm/layer_norm_bias"))
    for value, what in (
        (np.ones(9, dtype=np.float32), r"shape \[9\].*asks for \[8\]"),
        (np.ones(8, dtype=np.int64), "int64"),
        (np.full(8, np.nan, dtype=np.float32), "not finite"),
    ):
        with pytest.raises(UserError, match=f"layer_norm_bias.*{what}"):
            t2t.load(variables | {name: value}, hp)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recurrence_type", "rnn"),
        ("gate_ffn_layer", "dense_dropconnect"),
        ("self_attention_type", "dot_product_relative"),
        ("norm_type", "batch"),
        ("attention_key_channels", 4),
        ("attention_value_channels", 16),
        ("layer_postprocess_sequence", "dan"),
        ("layer_preprocess_sequence", "none"),
        ("transformer_ffn_type", "moe"),
        ("ffn_layer", "conv_relu_conv"),
        ("step_timing_signal_type", "spiral"),
        ("position_start_index", "random"),
        ("add_or_concat_timing_signal", "multiply"),
        ("causal_decoder_self_attention", False),
        ("proximity_bias", True),
        ("prepend_mode", "prepend_inputs_full_attention"),
        ("unidirectional_encoder", True),
        ("hard_attention_k", 2),
    ],
)
def test_what_ours_cannot_be_is_refused_by_name_and_value(name, value):
    variables, hp = checkpoint()
    with pytest.raises(Unsupported) as error:
        t2t.load(variables, hp | {name: value})
    assert f"{name}={value!r}" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        ACT | {"act_type": "random"},
        {"add_position_timing_signal": False, "pos": "emb"},
        {"add_position_timing_signal": False, "add_or_concat_timing_signal": "concat"},
        {"recurrence_type": "dwa", "add_or_concat_timing_signal": "concat"},
        {"mix_with_transformer": "before_ut", "num_mixedin_layers": 0},
    ],
)
def test_combinations_that_ours_cannot_be_are_refused(changes):
    with pytest.raises(Unsupported):
        config_from_hparams(official.HPARAMS | changes)


def test_what_is_not_read_is_not_refused():
    """The official code looks at these only together with other hyper-parameters."""
    unread = {"act_type": "random", "pos": "emb", "attention_key_channels": 8, "mix_with_transformer": "none"}
    config = config_from_hparams(official.HPARAMS | unread)
    assert not config.halts
    assert config.tensor2tensor.plain_layers_before == config.tensor2tensor.plain_layers_after == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("act_epsilon", None),
        ("norm_epsilon", None),
        ("attention_dropout", "a"),
        ("num_mixedin_layers", -1),
        ("num_mixedin_layers", "x"),
        ("mix_with_transformer", 5),
        ("layer_preprocess_sequence", ["n"]),
        ("use_pad_remover", "no"),
    ],
)
def test_hyper_parameters_of_other_types_are_named(name, value):
    variables, hp = checkpoint()
    with pytest.raises(UserError, match=f"^hyper-parameters: {name}: expected .*, found "):
        t2t.load(variables, hp | {name: value})


def test_sizes_in_names_claim_no_memory():
    variables, hp = checkpoint()
    (size,) = {re.search(r"symbol_modality_(\d+)_", name)[1] for name in variables if "symbol_modality" in name}
    huge = {name.replace(f"modality_{size}_", "modality_2000000000_"): value for name, value in variables.items()}
    with pytest.raises(UserError, match=r"the configuration asks for \[2000000000, 8\]"):
        t2t.load(huge, hp)
    many = {name.replace("/weights_0", "/weights_1000000000"): value for name, value in variables.items()}
    with pytest.raises(UserError, match=r"official variables: missing .*weights_0"):
        t2t.load(many, hp)


def test_a_large_number_of_float64_and_another_byte_order():
    variables, hp = checkpoint()
    name = next(name for name in variables if name.endswith("encoder/layer_prepostprocess/layer_norm/layer_norm_bias"))
    with pytest.raises(UserError, match="not finite"):
        t2t.load(variables | {name: np.full(8, 1e300)}, hp)
    swapped = {name: value.astype(">f4") for name, value in variables.items()}
    for ours, theirs in zip(t2t.load(swapped, hp).parameters(), t2t.load(variables, hp).parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_generation_embeds_the_problem():
    variables, hp = checkpoint()
    model, source = t2t.load(variables, hp), torch.tensor([[3, 4, 1]])
    with torch.no_grad():
        model.source.space[5] = 100 * torch.randn(model.source.space.shape[1])
    for options in ({}, {"beams": 2}):
        (plain,) = model.generate(source, max_new_tokens=3, **options)
        with model.source.problem(5):
            (found,) = model.generate(source, max_new_tokens=3, **options)
        assert found.score != plain.score
        labels = torch.tensor([[*found.tokens, *[1] * found.finished]])
        with model.source.problem(5):
            scores = model(source, labels).logits.log_softmax(-1)
        scores[..., 0] = float("-inf")
        expected = scores.gather(2, labels[..., None]).sum().item()
        assert found.score == pytest.approx(expected, abs=1e-4)
    with pytest.raises(UserError, match="target_space=32: allowed are 0 to 31"), model.source.problem(32):
        model.generate(source)


def test_sizes_must_be_given():
    with pytest.raises(UserError, match="lack hidden_size, num_rec_steps"):
        config_from_hparams({"filter_size": 4, "num_heads": 2})
    assert config_from_hparams({"hidden_size": 4, "filter_size": 4, "num_heads": 2, "num_hidden_layers": 6})


def test_parts_without_an_embedding_are_bodies():
    variables, hp = checkpoint("encoder_decoder")
    with pytest.raises(UserError, match="no embedding among the official variables"):
        t2t.load(variables, hp)
    body = load_body(variables, hp)
    assert body.encoder is not None
    assert body.decoder is not None
    with pytest.raises(UserError, match="/encoder/ or /decoder/"):
        load_body({}, hp)


def test_a_model_that_sees_the_future_scores_but_does_not_generate():
    variables, hp = checkpoint("full", ACT | {"act_type": "global"})
    model = t2t.load(variables, hp)
    assert model.config.looks_ahead
    with pytest.raises(UserError, match="not generate"):
        model.start(torch.ones(1, 3, dtype=torch.long), capacity=4)
