"""The fields of the configuration of a run as options: ``--group.field value``, read by the one parser."""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from universal_transformer.cli.parser import Option, options_of, page, read, refuse_rest, resolve
from universal_transformer.errors import UserError
from universal_transformer.models.components import NORMS, POSITIONS, TRANSITIONS, VocabularyConfig
from universal_transformer.rules import HALTING_RULES
from universal_transformer.runs.trackers import TRACKERS
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import listed, replaced

GROUPS = ("data", "model", "training")
NAMED: Mapping[str, Mapping[str, object]] = {
    "POSITIONS": POSITIONS,
    "TRANSITIONS": TRANSITIONS,
    "NORMS": NORMS,
    "HALTING_RULES": HALTING_RULES,
    "TRACKERS": TRACKERS,
}
"""Registries whose names a page of help has in place of their own."""
FROM_DATA = "model.vocabulary."
"""Fields that the data determine: they have no option."""
ALIASES = {
    "model.depth.max_steps": ("layers", "num_layers"),
    "model.sizes.width": ("hidden", "hidden_size", "d_model", "embedding_dim"),
    "model.sizes.filter_width": ("ffn", "d_ff"),
    "model.sizes.num_heads": ("heads",),
    "model.step.tied": ("tie_weights",),
    "training.learning_rate": ("lr",),
    "training.max_updates": ("updates",),
    "training.warmup_updates": ("warmup", "warmup_steps"),
    "training.clip_norm": ("grad_clip", "max_grad_norm"),
    "training.patience": ("early_stopping",),
    "training.seed": ("seed",),
    "data.columns": ("columns",),
}
"""Names that the same quantity has in other programs, or that it alone has without a group."""
OTHER_UNITS = {
    "epochs": "the length of a run is --training.max-updates N or --training.minutes M; --dry-run says how many "
    "updates an epoch has",
    "batch_size": "the size of a batch is --training.batch-tokens N, positions with padding: rows times the longest "
    "row",
}
"""Names of quantities that have another unit here, and the fields to use."""
USUAL = (
    *("data.train", "data.validation", "data.test", "data.columns", "data.tokenizer", "data.metric"),
    *("model.sizes.width", "model.sizes.num_heads", "model.depth.max_steps", "model.halting.side"),
    *("model.coordinates.position", "training.minutes", "training.max_updates", "training.batch_tokens"),
    *("training.learning_rate", "training.seed", "training.device"),
)
"""Fields that a page of help shows at first."""


def override(config: RunConfig, arguments: Sequence[str], *, prog: str, also: Sequence[Option] = ()) -> RunConfig:
    """Return `config` with the fields that `arguments` name changed; `also` are options for near matches."""
    values = given(config, arguments, prog=prog, also=also)
    return replaced(config, values) if values else config


def given(config: RunConfig, arguments: Sequence[str], *, prog: str, also: Sequence[Option] = ()) -> dict[str, Any]:
    """Return the path of each field that `arguments` name -> its new value."""
    options = field_options(config)
    values, rest = read(arguments, options, prog=prog)
    for argument in rest[:1]:
        name = argument.partition("=")[0]
        if meant := OTHER_UNITS.get(name.lstrip("-").rpartition(".")[2].replace("-", "_")):
            raise UserError(f"{name}: {meant}")
        vocabulary = options_of(VocabularyConfig, prefix=FROM_DATA)
        if name.startswith("-") and resolve(name, list(vocabulary))[0]:
            raise UserError(f"{name}: the tokenizer and the data determine it; there is no such option")
    refuse_rest(rest, [*options, *also], prog=prog)
    return values


def field_options(config: RunConfig) -> list[Option]:
    """Return every field that has an option, with its value in `config`."""
    options = [
        dataclasses.replace(option, text=_text(option.text), aliases=ALIASES.get(option.field, ()))
        for group in GROUPS
        for option in options_of(type(getattr(config, group)), values=getattr(config, group), prefix=f"{group}.")
    ]
    return [option for option in options if not option.field.startswith(FROM_DATA)]


def _text(text: str) -> str:
    """Return what a field says of itself as a user of the command line needs it."""
    named = re.sub(r"an entry of ``(\w+)``", lambda found: f"one of {listed(NAMED[found[1]])}", text)
    return re.sub(r"^D\d+: (.)", lambda found: found[1].upper(), named).replace("None means", "none means")


def without_effect(config: RunConfig, paths: Collection[str]) -> Iterator[str]:
    """Yield a note for those of the fields that change nothing in a run, for each reason."""
    reasons: dict[str, list[str]] = {}
    for path, why in config.unread():
        if path in paths:
            reasons.setdefault(why, []).append(path)
    for why, unread in reasons.items():
        yield f"note: {listed(unread)}: without effect: {why}"


def fields_page(
    config: RunConfig, *, prog: str, usage: str, description: str, options: Sequence[Option], everything: bool
) -> str:
    """Return the help of a command on the fields of `config`: those used most, or all, after its own options."""
    groups: dict[str, list[Option]] = {"options": list(options)}
    fields = field_options(config)
    of_data = [option for option in fields if option.field.startswith("data.")]
    shown = [option for option in fields if everything or option.field in USUAL]
    if not any(option in shown for option in of_data):
        shown = [*of_data[:4], *shown]  # generated data: what is generated
    for option in shown:
        group = option.field.rpartition(".")[0] if everything else option.field.partition(".")[0]
        groups.setdefault(group, []).append(option)
    names = [
        f"--{aliases[0].replace('_', '-')} is --{path.rpartition('.')[2].replace('_', '-')}"
        for path, aliases in ALIASES.items()
        if not path.endswith(f".{aliases[0]}")
    ]
    epilog = (
        "Groups may be left out of a name that is not ambiguous: --max-steps. none is the value for no limit, such as "
        f"--minutes none. Other names: {', '.join(names)}."
    )
    if not everything:
        epilog = f"{prog} --help-all shows all {len(fields)} fields, with all that is said of them. {epilog}"
    return page(prog, description, groups, usage=usage, epilog=epilog, short=not everything)
