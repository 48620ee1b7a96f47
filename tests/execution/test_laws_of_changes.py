"""A user's change of a module means what it says: the plain loop runs, and every number and every call is its own."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from small_models import small
from universal_transformer.decoding import DecodingOptions, generate
from universal_transformer.execution import policy
from universal_transformer.execution.compaction import CompactLoop
from universal_transformer.execution.policy import changed_module
from universal_transformer.models.components import NORMS
from universal_transformer.nn.recurrence import Recurrence

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")  # the compiler's
ROWS = torch.randint(3, 9, (6, 7), generator=torch.Generator().manual_seed(0))
CLASSES = {"num_classes": 4}
KINDS = {
    "encoder_decoder": {"halting.side": "both"},
    "language_model": {},
    "classifier": CLASSES,
    "tagger": CLASSES,
}


@pytest.fixture
def ran(monkeypatch):
    """One entry for each call that left out halted positions."""
    made, run = [], CompactLoop.run
    monkeypatch.setattr(policy, "COMPACT_BELOW", 1.0)
    monkeypatch.setattr(policy, "INFER_BELOW", 1.0)
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (made.append(1), run(self, *a, **k))[1])
    return made


def model_of(architecture, **fields):
    """A halting model whose positions stop early and late."""
    torch.manual_seed(0)
    chosen = {"halting": True, "max_steps": 5, "dropout": 0.0, **KINDS[architecture], **fields}
    model = small(architecture=architecture, **chosen)
    for part in model.modules():
        if isinstance(part, Recurrence):
            nn.init.normal_(part.halting.weight, std=0.7)
            nn.init.constant_(part.halting.bias, -0.5)
    return model


def call(model):
    rows = (ROWS, ROWS[:, :4]) if model.config.architecture == "encoder_decoder" else (ROWS,)
    return model(*rows)


def everything(model):
    """Logits, gradients, and what the model generates."""
    model.zero_grad()
    output = call(model)
    (output.logits.sin().sum() + output.ponder_cost).backward()
    found = [output.logits.detach(), *(each.grad.clone() for each in model.parameters() if each.grad is not None)]
    return [*found, *generated(model)]


def generated(model):
    """Tokens, their scores and steps, of a model that generates."""
    if model.config.architecture not in ("encoder_decoder", "language_model"):
        return []
    source = ROWS[:2] if model.config.architecture == "encoder_decoder" else ROWS[:2].tolist()
    found = generate(model, source, DecodingOptions(max_new_tokens=2))
    return [torch.tensor([*one.tokens, *one.token_scores, *one.token_steps]) for one in found]


def parts(model):
    """The path, the recurrence and the name in it of every module that a recurrence has."""
    for path, side in model.named_modules():
        if isinstance(side, Recurrence):
            for name, module in side.named_modules():
                if name and not isinstance(module, nn.ModuleList):
                    yield f"{path}.{name}", side, name


def same(model, values=everything):
    """The result is that of the plain loop; and what is generated in 32 bits, where matrices are packed."""
    for each, near in ((values, 1e-9), (generated, 1e-4)):
        found = []
        for form in ("auto", "masked"):
            model.use_halting_execution(form)
            found.append(each(model))
        torch.testing.assert_close(*found, rtol=near, atol=near)
        if values is logits:
            break
        model.float()
    model.double()


@torch.no_grad()
def logits(model):
    return call(model).logits


@pytest.mark.parametrize("architecture", KINDS)
def test_unchanged_models_leave_out_halted_positions(architecture, ran):
    model = model_of(architecture)
    same(model)
    assert ran


HOOKS = {
    "forward": lambda module, seen: module.register_forward_hook(lambda *_: seen.append(1)),
    "forward pre": lambda module, seen: module.register_forward_pre_hook(lambda *_: seen.append(1)),
    "backward": lambda module, seen: module.register_full_backward_hook(lambda *_: seen.append(1)),
    "backward pre": lambda module, seen: module.register_full_backward_pre_hook(lambda *_: seen.append(1)),
}


@pytest.mark.cover(1)
@pytest.mark.parametrize("kind", HOOKS)
@pytest.mark.parametrize("architecture", KINDS)
def test_hooks_are_called_as_often_as_in_the_plain_loop(architecture, kind, ran):
    model, found, seen = model_of(architecture), [], {}
    for _, side, name in parts(model):  # each is noticed by itself
        module = side.get_submodule(name)
        handle = HOOKS[kind](module, [])
        assert changed_module(side).startswith(f"{name} ")
        handle.remove()
        assert changed_module(side) is None
    for path, side, name in parts(model):
        seen[path] = []
        HOOKS[kind](side.get_submodule(name), seen[path])
    for form in ("auto", "masked"):
        model.use_halting_execution(form)
        found.append((everything(model), {path: len(calls) for path, calls in seen.items()}))
        for calls in seen.values():
            calls.clear()
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-9, atol=1e-9)
    assert found[0][1] == found[1][1]
    assert sum(found[0][1].values()) > 0
    assert not ran


@pytest.mark.parametrize("architecture", ["classifier", "language_model"])
def test_hooks_of_all_modules_are_called_as_often_as_in_the_plain_loop(architecture):
    model, counts = model_of(architecture), []
    for form in ("auto", "masked"):
        seen = []
        model.use_halting_execution(form)
        handle = nn.modules.module.register_module_forward_hook(lambda *_, seen=seen: seen.append(1))
        call(model)
        handle.remove()
        counts.append(len(seen))
    assert counts[0] == counts[1] > 0


def larger(module):
    """The same module, of a class whose ``forward`` returns more than that of its class."""

    def forward(self, *args, **more):
        return super(changed, self).forward(*args, **more) * 1.25

    changed = type("Changed", (type(module),), {"forward": forward})
    module.__class__ = changed


def patched(module):
    """An instance with a ``forward`` of its own, as adapters have it."""
    plain = module.forward
    module.forward = lambda *args, **more: plain(*args, **more) * 1.25


@pytest.mark.cover(1)
@pytest.mark.parametrize("change", [larger, patched])
@pytest.mark.parametrize("architecture", KINDS)
def test_replaced_modules_are_called(architecture, change):
    usual = logits(model_of(architecture))
    for path, _, name in list(parts(model_of(architecture))):
        if name in ("coordinates.position", "halting"):  # one returns no tensor, the other is no map
            continue
        model = model_of(architecture)
        module = model.get_submodule(path)
        change(module)
        same(model, logits)
        assert (logits(model) - usual).abs().max() > 1e-9, path
    for path, *_ in list(parts(model := model_of(architecture))):
        if path.endswith((".norm", ".output", ".inner", ".key_value", "closing_norm")):
            change(model.get_submodule(path))
    same(model)


class Doubled(nn.LayerNorm):
    """A norm that no part of the package knows."""

    def forward(self, states):
        return 2.0 * super().forward(states)


@pytest.mark.cover(1)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("architecture", KINDS)
def test_another_norm_is_the_one_that_counts(architecture, norm, ran):
    names = [path for path, *_ in parts(model_of(architecture, norm=norm)) if path.endswith("norm")]
    for chosen in (*([name] for name in names), names):
        model = model_of(architecture, norm=norm)
        for name in chosen:
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, Doubled(8).double())
        same(model, logits)
    ran.clear()
    same(model)
    assert not ran


@pytest.mark.compiled
@pytest.mark.sample(2)
@pytest.mark.parametrize("architecture", KINDS)
def test_compiled_blocks_are_called(architecture, ran):
    torch._dynamo.reset()
    model = model_of(architecture)
    for side in model.modules():
        if isinstance(side, Recurrence):
            side.blocks[0] = torch.compile(side.blocks[0], backend="eager")
    same(model)
    assert not ran


class Double(nn.Module):
    def forward(self, weight):
        return 2.0 * weight


PARAMETRIZATIONS = {
    "weight norm": weight_norm,
    "own": lambda module: parametrize.register_parametrization(module, "weight", Double()),
}


@pytest.mark.parametrize("kind", PARAMETRIZATIONS)
@pytest.mark.parametrize("architecture", KINDS)
def test_parametrized_maps_are_those_that_count(architecture, kind):
    maps = [path for path, side, name in parts(model_of(architecture)) if type(side.get_submodule(name)) is nn.Linear]
    for names in (*([name] for name in maps), maps):
        model = model_of(architecture)
        for name in names:
            PARAMETRIZATIONS[kind](model.get_submodule(name))
        same(model, logits if len(names) == 1 else everything)


@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
def test_a_parametrized_table_generates_too(architecture):
    model = model_of(architecture)
    parametrize.register_parametrization(model.target.embedding, "weight", Double())
    same(model, generated)
