"""Whether the modules of a recurrence are what fast execution assumes: those that this project built, unchanged.

Fast execution does not call every module, and calls others with rows in place of a batch. A user who hooks, replaces,
wraps or parametrizes a module wants each call of it to mean what it says, so that the plain loop runs then.

Every module inside a recurrence must be of a class of ``KNOWN``, or of one that says so itself: ``by_rows`` (fast
execution knows it), or ``pointwise`` and the protocols of rules, positions and steps (it is called as a whole, and its
parts may be of any class). A subclass inherits none of this.
"""

from torch import nn

from universal_transformer.nn.coordinates import PositionEncoder, StepEncoder
from universal_transformer.nn.halting import Rule
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.torch_private import has_global_hooks, is_unchanged

KNOWN = frozenset({nn.Linear, nn.LayerNorm, nn.Dropout, nn.ModuleList})


def changed_module(recurrence: Recurrence) -> str | None:
    """What a user has changed of a recurrence that is being computed, as a reason; None if all is as it was built."""
    if has_global_hooks():
        return "hooks are called for all modules"
    if (found := _changed(recurrence, whole=False)) is None:
        return None
    name, kind = found
    return f"{name} ({kind}) is not as it was built: replaced, wrapped, hooked or parametrized"


def _changed(module: nn.Module, *, whole: bool) -> tuple[str, str] | None:
    """Name and class of the first module inside ``module`` that is not as built. ``whole``: inside one that is called
    as a whole.
    """
    for name, part in module._modules.items():
        if part is None:
            continue
        kind, inside = type(part), whole
        if not whole and kind not in KNOWN and not kind.__dict__.get("by_rows"):
            inside = "pointwise" in kind.__dict__ or issubclass(kind, Rule | PositionEncoder | StepEncoder)
            if not inside:
                return name, kind.__name__
        if not is_unchanged(part):
            return name, kind.__name__
        if part._modules and (found := _changed(part, whole=inside)) is not None:
            return f"{name}.{found[0]}", found[1]
    return None
