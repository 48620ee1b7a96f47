"""An exported model gives the logits and the steps of the model, for rows and positions of any number."""

import onnx
import pytest
import torch

from configs import config_of
from small_models import MODERN, SIZES, small
from universal_transformer.errors import UserError
from universal_transformer.interop.graph import (
    OPSET,
    Exportable,
    TracedExportable,
    compare,
    export_program,
    save_onnx,
    save_torch,
)
from universal_transformer.nn.context import Kept
from universal_transformer.nn.halting import ACT
from universal_transformer.registry import build
from universal_transformer.rules import HALTING_RULES

ARCHITECTURES = {
    "encoder_decoder": {},
    "language_model": {"architecture": "language_model"},
    "classifier": {"architecture": "classifier", "num_classes": 5},
    "tagger": {"architecture": "tagger", "num_classes": 5},
}
HALTING = {"halting": True, "max_steps": 8}
MATRIX = {
    f"{architecture} {norm} {depth}": {**fields, "norm": norm, **choices}
    for architecture, fields in ARCHITECTURES.items()
    for norm in ("post", "pre")
    for depth, choices in {"fixed": {}, "halting": HALTING}.items()
}
OTHERS = {
    "distance from both ends": {**HALTING, "position_coordinates": "distance", "end_coordinates": True},
    "sink": {**HALTING, "source_sink": True},
    "two vocabularies": {**HALTING, "target_vocabulary_size": 7, "tie_output": False},
    "convolution": {**HALTING, "transition": "separable_convolution"},
    "learned": {**HALTING, "position_coordinates": "learned", "step_coordinates": "learned"},
    "evolving": {**HALTING, "halting_state": "evolving", "halting_output": "interpolate"},
    "final": {**HALTING, "halting_output": "final", "remainder_at_cap": False},
    "two blocks a step": {**HALTING, **ARCHITECTURES["language_model"], "layers_per_step": 2},
    "untied": {"tied": False, "position_injection": "input"},
    "as printed": {**HALTING, "step.residual": "state", "attention.scale": "width"},
    "facts": {**HALTING, **ARCHITECTURES["classifier"], "inputs": "facts", "max_fact_words": 4},
    "modern": {**HALTING, **ARCHITECTURES["language_model"], **MODERN},
    "whole sequences": {**HALTING, **ARCHITECTURES["classifier"], "halting_scope": "sequence"},
    "last": {**HALTING, **ARCHITECTURES["classifier"], "pooling": "last"},
}
LENGTHS = [(3, 5, 4), (1, 1, 1), (2, 1, 3), (1, 7, 1), (4, 9, 6), (6, 2, 1)]


def batches(model):
    """Ids of several shapes, padded on the right, on the left, and not."""
    made = [model.examples(lengths={"source": one, "target": two}, rows=rows) for rows, one, two in LENGTHS]
    return [*made, tuple(given.flip(1) if given.dim() > 1 else given for given in made[-2])]


def check(folder, **fields):
    """Logits equal to 1e-5 and all steps equal, in every batch and in both formats."""
    model = small(**fields).float()
    traced = Exportable(model)
    program = export_program(traced)
    for forward in (
        save_torch(program, folder / "model.pt2"),
        save_onnx(program, folder / "model.onnx", model=traced),
    ):
        for ids in batches(traced):
            found = compare(forward, model, [ids])
            assert found.difference < 1e-5
            assert found.equal == found.positions


def loops(path):
    return [node for node in onnx.load(path).graph.node if node.op_type == "Loop"]


def counting(path):
    """How often each Loop of an ONNX file runs for ids: the first value that it carries counts its steps."""
    import onnxruntime

    file = onnx.load(path)
    counts = [node.output[0] for node in file.graph.node if node.op_type == "Loop"]
    file.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, []) for name in counts)
    session = onnxruntime.InferenceSession(file.SerializeToString())

    def iterations(ids):
        given = {one.name: value.numpy() for one, value in zip(file.graph.input, ids, strict=True)}
        return [int(count) for count in session.run(counts, given)]

    return iterations


@pytest.mark.compiled
def test_both_sides_halt_in_loops_that_end_with_their_last_position(tmp_path):
    torch.manual_seed(0)
    model = small(**HALTING, norm="pre", position_coordinates="distance").float()
    traced = Exportable(model)
    forward = save_onnx(export_program(traced), tmp_path / "model.onnx", model=traced)
    made, iterations = set(), counting(tmp_path / "model.onnx")
    for ids in batches(traced):
        found = compare(forward, model, [ids])
        assert found.difference < 1e-5
        assert found.equal == found.positions
        with torch.no_grad():
            output = model(*ids)
        expected = [int(trace.steps.max()) for trace in (output.encoder, output.decoder)]
        assert iterations(ids) == expected
        made |= {*expected}
    assert min(made) < HALTING["max_steps"]
    assert len(loops(tmp_path / "model.onnx")) == 2
    assert onnx.load(tmp_path / "model.onnx").opset_import[0].version == OPSET
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)


@pytest.mark.slow
@pytest.mark.parametrize("fields", (MATRIX | OTHERS).values(), ids=(MATRIX | OTHERS).keys())
def test_an_exported_model_gives_the_logits_and_steps_of_the_model(fields, tmp_path):
    check(tmp_path, **fields)
    sides = 2 if "architecture" not in fields else 1
    assert len(loops(tmp_path / "model.onnx")) == (sides if "halting" in fields else 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"step.residual": "previous"}, r"^model\.step\.residual='previous': "),
        ({"halting": True, "tied": False}, r"^model\.step\.tied=False: "),
        ({"plain_layers_before": 1}, r"^model\.kind=tensor2tensor: "),
        ({"halting": True, "halting.rule": "stick_breaking"}, r"^model\.halting\.rule='stick_breaking': "),
        (
            {"architecture": "classifier", "num_classes": 9, "inputs.kind": "frames", "inputs.features": 3},
            r"^model\.inputs\.kind='frames': ",
        ),
        ({"separator_id": 4}, r"^model\.vocabulary\.separator_id=4: "),
        (
            {"architecture": "classifier", "num_classes": 9, "pooling": "pointer"},
            r"^model\.outputs\.pooling='pointer': ",
        ),
    ],
)
def test_what_has_no_export_is_refused_before_anything_is_traced(fields, message):
    with pytest.raises(UserError, match=message):
        Exportable(build(config_of(**SIZES, **fields)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [{"separator_id": 4}, {"architecture": "classifier", "num_classes": 9, "pooling": "pointer"}]
)
def test_torch_exports_what_onnx_cannot_compute(fields, tmp_path):
    model = small(**fields).float()
    with pytest.raises(UserError, match="--format torch"):
        Exportable(model)
    traced = Exportable(model, onnx=False)
    forward = save_torch(export_program(traced), tmp_path / "model.pt2")
    for ids in batches(traced):
        found = compare(forward, model, [ids])
        assert found.difference < 1e-5
        assert found.equal == found.positions


@pytest.mark.compiled
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({**OTHERS["facts"], "max_steps": 3}, id="facts that halt"),
        pytest.param({"halting": True, "max_steps": 3}, id="both sides halt", marks=pytest.mark.slow),
        pytest.param({**ARCHITECTURES["tagger"], "layers_per_step": 2}, id="two blocks a step", marks=pytest.mark.slow),
    ],
)
def test_a_traced_graph_gives_what_happens_at_each_step(fields, tmp_path):
    model = small(**fields).float()
    traced = TracedExportable(model)
    forward = save_onnx(export_program(traced), tmp_path / "model.onnx", model=traced)
    depths = [(None, None), (2, 0.3), (1, 1.0), (3, 0.6)]
    for given, (most, threshold) in zip(batches(traced) * 2, depths, strict=False):
        ids = given[: len(traced.sides)]
        depth = {"max_steps": most, "halting_threshold": threshold} if "halting" in fields else {}
        if depth and most is not None:
            given = (*ids, torch.full((len(ids[0]),), most), torch.tensor(threshold))
        found = dict(zip(traced.outputs, forward(*given), strict=True))
        sizes = {"batch": len(ids[0])} | {name: one.shape[1] for name, one in zip(traced.sides, ids, strict=True)}
        with torch.no_grad():
            output = model(*ids, keep=Kept(attention=True, states=True), **depth)
        compared = {"logits": output.logits, "step_logits": output.step_logits}
        for side, trace in (("encoder", output.encoder), ("decoder", output.decoder)):
            if trace is not None:
                assert torch.equal(found[f"{side}_steps"], trace.steps)
                compared |= {f"{side}_attention": trace.self_attention, "cross_attention": trace.cross_attention}
                if "halting" in fields:
                    compared |= {f"{side}_halting": trace.probability, f"{side}_remainder": trace.remainder}
        compared = {name: tensor for name, tensor in compared.items() if tensor is not None}
        assert {*found} == {*compared, "encoder_steps"} | {"decoder_steps"} & {*traced.outputs}
        for name, tensor in compared.items():  # the model stops when all positions have halted
            made = found[name][: len(tensor)]
            torch.testing.assert_close(made, tensor, rtol=0, atol=1e-5, msg=name)
            assert found[name].shape == tuple(sizes.get(axis, axis) for axis in traced.outputs[name])


class Slowing(ACT):
    """A rule with a memory: each step multiplies its probability by the one before."""

    def probability(self, was, step):
        p, _ = super().probability(was, step)
        return (p * was.memory[0] if was.memory else p), (p,)


@pytest.mark.compiled
def test_a_rule_with_a_memory_is_exported(tmp_path, monkeypatch):
    monkeypatch.setattr("universal_transformer.nn.halting.Slowing", Slowing, raising=False)
    monkeypatch.setitem(HALTING_RULES, "slowing", "universal_transformer.nn.halting:Slowing")
    check(tmp_path, **HALTING, **ARCHITECTURES["language_model"], **{"halting.rule": "slowing"})


@pytest.mark.compiled
def test_ponder_is_exported_after_training(tmp_path):
    model = build(config_of(**SIZES | HALTING | ARCHITECTURES["language_model"], **{"halting.rule": "ponder"}))
    traced = Exportable(model.train())
    forward = save_torch(export_program(traced), tmp_path / "model.pt2")
    assert compare(forward, model.eval(), batches(traced)).difference < 1e-5
