import itertools
import math

import pytest
import torch

from universal_transformer.nn.halting import ACT
from universal_transformer.registry import build
from universal_transformer.training import halting_schedule
from universal_transformer.training import optimizer as optimizers
from universal_transformer.training.run_config import TrainingConfig

from . import tiny

SCHEDULES = ("inverse_sqrt", "cosine", "linear", "constant")


def small_model(**fields):
    torch.manual_seed(0)
    return build(tiny.task("classifier").configure(tiny.model_config(**fields)))


def with_gradients(model):
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    return model


def rates(schedule, *, updates=100, warmup=10, **fields):
    config = TrainingConfig(
        **{"max_updates": updates, **fields}, schedule=schedule, warmup_updates=warmup, learning_rate=0.5
    )
    return [optimizers.learning_rate(config, update=update, seconds=0.0) for update in range(1, updates + 1)]


@pytest.mark.parametrize("warmup", [0, 1, 10])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_rises_to_the_peak_then_never_rises_again(schedule, warmup):
    values = rates(schedule, warmup=warmup)
    top = max(warmup, 1) - 1
    assert values[top] == pytest.approx(0.5)
    assert all(a < b for a, b in itertools.pairwise(values[: top + 1]))
    assert all(a >= b for a, b in itertools.pairwise(values[top:]))
    assert all(value > 0 for value in values)


def test_schedules_are_their_formulas():
    assert rates("inverse_sqrt")[39] == pytest.approx(0.5 * math.sqrt(10 / 40))
    assert rates("linear")[55] == pytest.approx(0.5 * (1 - 45 / 90))
    assert rates("cosine")[55] == pytest.approx(0.25)
    assert set(rates("constant")[9:]) == {0.5}


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_with_minutes_alone_the_clock_decides(schedule):
    config = TrainingConfig(minutes=2.0, schedule=schedule, warmup_updates=0, learning_rate=1.0)
    assert optimizers.learning_rate(config, update=7, seconds=60.0) == pytest.approx(0.5)
    assert optimizers.learning_rate(config, update=7, seconds=500.0) == 0


def test_the_ponder_weight_rises_over_its_warm_up():
    config = TrainingConfig(max_updates=9, ponder_weight=0.4, ponder_warmup_updates=4)
    weights = [halting_schedule.ponder_weight(config, update=update, seconds=0.0) for update in (1, 2, 4, 8)]
    assert weights == pytest.approx([0.1, 0.2, 0.4, 0.4])


def test_thinking_is_free_while_halting_is_delayed():
    config = TrainingConfig(max_updates=8, ponder_weight=0.4, ponder_warmup_updates=8, halting_delay=0.5)
    weights = [halting_schedule.ponder_weight(config, update=update, seconds=0.0) for update in (1, 4, 5, 8)]
    assert weights == pytest.approx([0, 0, 0.25, 0.4])
    timed = TrainingConfig(minutes=1.0, halting_delay=0.5)
    assert halting_schedule.ponder_weight(timed, update=500, seconds=29.0) == 0
    assert halting_schedule.ponder_weight(timed, update=2, seconds=30.0) == timed.ponder_weight


def test_a_unit_that_is_trained_later_begins_at_the_bias_of_the_configuration():
    """So it is where the weights of another run were taken over."""
    model = small_model(halting=True, halting_bias=-3.0)
    units = [module for module in model.modules() if isinstance(module, ACT)]
    for unit in units:
        torch.nn.init.ones_(unit.weight)
        torch.nn.init.ones_(unit.bias)
    halting_schedule.prepare_units(model, TrainingConfig(max_updates=8))
    assert all(unit.bias == 1 for unit in units), "nothing is delayed"
    halting_schedule.prepare_units(model, TrainingConfig(max_updates=8, halting_delay=0.5))
    assert units
    assert all(unit.bias == -3 and not unit.weight.any() for unit in units)


@pytest.mark.parametrize("kind", ["adam", "adamw", "muon"])
def test_only_matrices_of_linear_maps_decay(kind):
    model = small_model(halting=True, transition="separable_convolution", step_coordinates="learned")
    config = TrainingConfig(max_updates=1, optimizer=kind, weight_decay=0.3)
    groups = [group for one in optimizers.build_optimizers(model, config) for group in one.param_groups]
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(decays)
    assert len(decays) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        free = parameter.ndim < 2 or "input" in name or "coordinates" in name
        if free:
            assert decays[id(parameter)] == 0, name
        elif "halting" not in name:
            assert decays[id(parameter)] == 0.3, name


def test_muon_makes_the_updates_of_the_blocks_matrices_orthogonal():
    """``U Vᵀ`` of the gradient, with singular values between 0.6 and 1.3, and of the size of an update of Adam."""
    model = with_gradients(small_model(halting=True, transition="separable_convolution"))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    adam, muon = optimizers.build_optimizers(model, TrainingConfig(max_updates=1, optimizer="muon", weight_decay=0.0))
    optimizers.set_rate([adam, muon], 0.01)
    optimizers.step([adam, muon])
    orthogonal = {id(parameter) for group in muon.param_groups for parameter in group["params"]}
    for name, parameter in model.named_parameters():
        assert (id(parameter) in orthogonal) == ("blocks" in name and parameter.ndim == 2), name
        change = before[name] - parameter.detach()
        if id(parameter) in orthogonal:
            left, _, right = torch.linalg.svd(parameter.grad, full_matrices=False)
            sizes = left.mT @ (change / (0.002 * math.sqrt(max(change.shape)))) @ right.mT
            assert 0.6 < sizes.diagonal().min() < sizes.diagonal().max() < 1.3, name
            assert (sizes - sizes.diagonal().diag()).abs().max() < 0.05, name
        else:
            torch.testing.assert_close(change, 0.01 * parameter.grad.sign(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("limit", [0.01, 1e6])
def test_clipping_is_torchs(limit):
    ours, theirs = (with_gradients(small_model()) for _ in range(2))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        b.grad = a.grad.clone()
    norm = float(optimizers.gradient_norm(ours))
    optimizers.clip(ours, norm=norm, limit=limit)
    reference = torch.nn.utils.clip_grad_norm_(theirs.parameters(), limit)
    assert norm == pytest.approx(float(reference), rel=1e-5)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_refused_by_name(bad):
    model = with_gradients(small_model())
    names = [name for name, _ in model.named_parameters()]
    parameters = dict(model.named_parameters())
    for name in (names[3], names[5]):
        parameters[name].grad.view(-1)[0] = bad
    norm = float(optimizers.gradient_norm(model))
    with pytest.raises(optimizers.NonFiniteError, match=f"update 12: .*first gradient that is not finite: {names[3]};"):
        optimizers.refuse_non_finite(model, update=12, loss=1.0, norm=norm)


def test_a_weight_that_is_not_finite_is_named():
    model = with_gradients(small_model())
    name, parameter = list(model.named_parameters())[2]
    parameter.data.view(-1)[0] = float("nan")
    with pytest.raises(optimizers.NonFiniteError, match=f"first weight that is not finite: {name}"):
        optimizers.refuse_non_finite(model, update=1, loss=float("nan"), norm=1.0)


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_state_goes_into_tensors_and_back_bit_for_bit(kind):
    config = TrainingConfig(max_updates=1, optimizer=kind)
    models = [with_gradients(small_model()) for _ in range(2)]
    kept = [optimizers.build_optimizers(model, config) for model in models]
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        b.grad = a.grad.clone()
    optimizers.step(kept[0])
    models[1].load_state_dict(models[0].state_dict())
    saved = {name: tensor.clone() for name, tensor in optimizers.optimizer_tensors(models[0], kept[0]).items()}
    optimizers.load_optimizers(models[1], kept[1], tensors=saved)
    for one in kept:
        optimizers.step(one)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)
