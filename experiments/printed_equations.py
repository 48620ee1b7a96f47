"""Compare the equations of a step as the paper's figure draws them with those that version 1 and the patent print.

    python experiments/printed_equations.py FOLDER

Trains `stories` in FOLDER at a fixed depth with LayerNorm after each sum, as all of them have it: three seeds of each
of four models. `step.residual="previous"` adds attention to `H^{t-1}` and the transition to `A^{t-1}`;
`attention.scale="width"` divides scores by `sqrt(d)`. Adds lines to results/studies/printed_equations.jsonl, and makes
results/studies/printed_equations.md.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from study import Line, Study, arguments, trained

from universal_transformer.recipes import RECIPES
from universal_transformer.training.provenance import code_in_use
from universal_transformer.typed import replaced

UPDATES, SEEDS = 1500, (0, 1, 2)
MODELS = {
    ("timed", "head"): 'as drawn: `preset("paper")`',
    ("previous", "head"): "the printed residual",
    ("timed", "width"): "the printed scale",
    ("previous", "width"): 'as printed: `preset("patent")`',
}
COMMON = {
    "model.halting.side": "none",
    "model.step.norm": "post",
    "training.ponder_weight": 0.0,
    "training.learning_rate": 5e-4,
    "training.warmup_updates": 400,
    "training.minutes": None,
    "training.max_updates": UPDATES,
}


def page(lines: Sequence[Line]) -> Iterator[str]:
    yield "# The equations of a step, as drawn and as printed\n"
    yield f"`python experiments/printed_equations.py FOLDER`: `stories`, {UPDATES:,} updates, fixed depth, post-norm.\n"
    yield "| equations | seeds | validation error, % | standard deviation | cross-entropy |"
    yield "|---|---|---|---|---|"
    for (residual, scale), name in MODELS.items():
        runs = [line for line in lines if (line["residual"], line["scale"]) == (residual, scale)]
        if not runs:
            continue
        errors = [100 * line["error"] for line in runs]
        spread = f"{statistics.stdev(errors):.1f}" if len(errors) > 1 else ""
        entropy = statistics.mean(line["cross_entropy"] for line in runs)
        yield f"| {name} | {len(runs)} | {statistics.mean(errors):.1f} | {spread} | {entropy:.3f} |"


def main() -> None:
    (folder,) = map(Path, arguments(__doc__ or "", most=1))
    study = Study(__file__, key=("residual", "scale", "seed"), page=page)
    cases = ((residual, scale, seed) for seed in SEEDS for residual, scale in MODELS)
    for residual, scale, seed in study.missing(cases):
        fields = {"model.step.residual": residual, "model.attention.scale": scale, "training.seed": seed}
        config = replaced(RECIPES["stories"](), COMMON | fields)
        run = folder / f"{residual}-{scale}-{seed}"
        score = trained(config, run, task=config.data.load()).score
        assert score is not None
        case = {"residual": residual, "scale": scale, "seed": seed}
        study.add({**case, "updates": UPDATES, **score.values(), "commit": code_in_use().commit})
    study.render()


if __name__ == "__main__":
    main()
