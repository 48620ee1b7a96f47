"""Compare the blocks that a language model on one's own text may have, with as many parameters and equal updates.

    python experiments/text_blocks.py FOLDER TEXT

Trains `text` on the file TEXT in FOLDER: two seeds of each of seven models. Adds lines to
results/studies/text_blocks.jsonl, and makes results/studies/text_blocks.md. Seconds are of processor time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from study import Line, Study, arguments, trained

from universal_transformer.recipes import RECIPES
from universal_transformer.runs.folder import METRICS
from universal_transformer.runs.journal import read_metrics
from universal_transformer.typed import replaced

Changes = dict[str, object]

UPDATES, SEEDS = 400, (0, 1)
FIRST: Changes = {
    "model.step.norm": "pre",
    "model.transition.kind": "feed_forward",
    "model.sizes.filter_width": 512,
    "model.coordinates.position": "sinusoidal",
}
RMS: Changes = {"model.step.norm": "rms"}
SWIGLU: Changes = {"model.transition.kind": "swiglu", "model.sizes.filter_width": 341}  # three matrices, not two
ROTARY: Changes = {"model.coordinates.position": "rotary"}
GROUPS: Changes = {"model.attention.key_value_heads": 2}
MODELS: dict[str, Changes] = {
    "LayerNorm, ReLU, sinusoids": {},
    "RMSNorm": RMS,
    "SwiGLU": SWIGLU,
    "RMSNorm, SwiGLU": RMS | SWIGLU,
    "RMSNorm, SwiGLU, rotary positions": RMS | SWIGLU | ROTARY,
    "RMSNorm, SwiGLU, rotary positions, 2 heads of keys": RMS | SWIGLU | ROTARY | GROUPS,
    "rotary positions": ROTARY,
}


def page(lines: Sequence[Line]) -> Iterator[str]:
    yield "# Blocks of a language model\n"
    yield f"`python experiments/text_blocks.py FOLDER TEXT`: `text`, {UPDATES} updates of 2,048 characters, the plays"
    yield "of Shakespeare (1.1 MB). Means of the seeds; perplexity of the validation, a character. The name of a model"
    yield "says in what it differs from the first one.\n"
    yield "| model | parameters | seeds | perplexity | of each seed | seconds a run |"
    yield "|---|---|---|---|---|---|"
    for name in MODELS:
        runs = [line for line in lines if line["model"] == name]
        if runs:
            each = ", ".join(f"{line['perplexity']:.3f}" for line in runs)
            mean, seconds = (statistics.mean(line[field] for line in runs) for field in ("perplexity", "seconds"))
            parameters = f"{runs[0]['parameters']:,}"
            yield f"| {name} | {parameters} | {len(runs)} | {mean:.3f} | {each} | {seconds:.0f} |"


def main() -> None:
    folder, text = map(Path, arguments(__doc__ or "", least=2, most=2))
    study = Study(__file__, key=("model", "seed"), page=page)
    for name, seed in study.missing((name, seed) for seed in SEEDS for name in MODELS):
        fields = {"data.train": str(text), "training.seed": seed, "training.max_updates": UPDATES}
        config = replaced(RECIPES["text"](), FIRST | MODELS[name] | fields | {"training.minutes": None})
        start = time.process_time()
        run = folder / f"{list(MODELS).index(name)}-{seed}"
        result = trained(config, run, task=config.data.load())
        assert result.score is not None
        (parameters,) = {line["parameters"] for line in read_metrics(run / METRICS) if line["event"] == "start"}
        case = {"model": name, "seed": seed, "updates": UPDATES, "parameters": parameters}
        study.add({**case, "seconds": time.process_time() - start, **result.score.values()})
    study.render()


if __name__ == "__main__":
    main()
