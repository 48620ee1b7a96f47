"""Write a model of twice the width, heads and filters that computes nearly what a trained one computes.

    python experiments/wider.py RUN NEW [--noise NOISE]
    ut train RECIPE --from NEW --model.width 128 ...

After Net2Net (Chen et al. 2016, arXiv:1511.05641). The frequencies ``10000^(-2j/d)`` of interleaved sinusoids are every
second one of width 2d. So pair j of the old channels becomes pair 2j, and pair 2j + 1 is a second copy of it, but for
its coordinates: normalisation divides by nearly the same deviation. What reads states reads the first copies alone. New
heads and filters have initial weights, and are not read. What writes states writes ``cos(a) W + sin(a) R`` to the
second copies, where R are random numbers of the deviation of W and ``a`` is NOISE: with 0 both copies would be alike.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from universal_transformer.errors import UserError, refuse
from universal_transformer.files import read_json, write_json
from universal_transformer.manifest import MODEL
from universal_transformer.models.model import Model
from universal_transformer.registry import build, load_pretrained
from universal_transformer.runs.folder import CONFIG


class Widening:
    """How the tensors of a model of ``width`` channels become those of one of twice as many."""

    def __init__(self, width: int, *, noise: float) -> None:
        channel = torch.arange(width)
        self.first = channel // 2 * 4 + channel % 2
        self.second = self.first + 2
        self.width, self.noise = width, noise

    def writes(self, new: Tensor, old: Tensor) -> None:
        """Rows are channels of states; further columns are those of filters or heads that are not read yet."""
        new.zero_()
        new[self.first, : old.shape[1]] = old
        new[self.second, : old.shape[1]] = self._disturbed(old)

    def reads(self, new: Tensor, old: Tensor) -> None:
        """Columns are channels of states; further rows are new filters."""
        rows = torch.arange(len(old)).unsqueeze(1)
        new[rows, self.first], new[rows, self.second] = old, 0.0

    def projects(self, new: Tensor, old: Tensor) -> None:
        """Queries, keys and values, each of which :meth:`reads`: further rows are new heads."""
        parts = len(old) // self.width
        for ours, theirs in zip(new.chunk(parts), old.chunk(parts), strict=True):
            self.reads(ours, theirs)

    def each(self, new: Tensor, old: Tensor) -> None:
        """A value for each channel of states."""
        new[self.first] = new[self.second] = old

    def filters(self, new: Tensor, old: Tensor) -> None:
        """A value for each filter."""
        new[: len(old)] = old

    def same(self, new: Tensor, old: Tensor) -> None:
        new.copy_(old)

    def embeds(self, new: Tensor, old: Tensor) -> None:
        """Embeddings, which are multiplied by ``sqrt(width)``; the table of the logits too."""
        new[:, self.first], new[:, self.second] = old / 2**0.5, self._disturbed(old.T).T / 2**0.5

    def closes(self, new: Tensor, old: Tensor) -> None:
        """The normalisation before the logits, which read the first copies alone."""
        new[self.first], new[self.second] = old * 2**0.5, 0.0

    def _disturbed(self, old: Tensor) -> Tensor:
        random = torch.randn_like(old)
        random -= random.mean(0, keepdim=True)
        random = random * (old - old.mean(0, keepdim=True)).std() / random.std()
        return old * math.cos(self.noise) + random * math.sin(self.noise)


RULES: dict[str, Callable[[Widening, Tensor, Tensor], None]] = {
    r"source\.input\.weight": Widening.embeds,
    r"target\.bias": Widening.same,
    r"target\.recurrence\.closing_norm\..*": Widening.closes,
    r".*(query|key_value)\.weight": Widening.projects,
    r".*first\.pointwise\.weight": Widening.reads,
    r".*(attention\.output|second\.pointwise)\.weight": Widening.writes,
    r".*(first\.pointwise\.bias|second\.depthwise\.weight)": Widening.filters,
    r"source\.part|.*(norm\..*|first\.depthwise\.weight|second\.pointwise\.bias)": Widening.each,
}
"""Names of tensors -> their rule: the first that fits."""


def wider(old: Model, *, noise: float) -> Model:
    """Return the model of twice the size. UserError for choices of `old`, or a tensor of it, that have no rule."""
    config, sizes = old.config, old.config.sizes
    refuse(
        (config.step.norm != "pre", f"norm {config.step.norm!r}: only models that normalise first can be widened"),
        (config.coordinates.layout != "interleaved", "sinusoids of the layout 'split' have other frequencies in 2d"),
        (not config.inputs.scale_embeddings, "embeddings that are not multiplied by sqrt(width) have no rule"),
        (not config.outputs.tie_output, "logits with a table of their own have no rule"),
    )
    doubled = {field.name: 2 * getattr(sizes, field.name) for field in dataclasses.fields(sizes)}
    torch.manual_seed(0)
    new = build(dataclasses.replace(old.config, sizes=dataclasses.replace(sizes, **doubled)))
    widening, theirs = Widening(sizes.width, noise=noise), old.tensors()
    with torch.no_grad():
        for name, tensor in new.tensors().items():
            rule = next((rule for pattern, rule in RULES.items() if re.fullmatch(pattern, name)), None)
            if rule is None:
                raise UserError(f"{name}: no rule for it; models with the transition separable_convolution have rules")
            rule(widening, tensor, theirs[name])
    return new


def main(run: Path, folder: Path, noise: float) -> None:
    new = wider(load_pretrained(run / MODEL), noise=noise)
    shutil.copytree(run / MODEL, folder / MODEL)
    new.save_pretrained(folder / MODEL)
    fields = read_json(run / CONFIG)
    fields["model"]["sizes"] = dataclasses.asdict(new.config.sizes)
    write_json(folder / CONFIG, fields)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path, metavar="new")
    parser.add_argument("--noise", type=float, default=0.1)
    try:
        main(**vars(parser.parse_args()))
    except (UserError, FileExistsError) as error:
        parser.error(str(error))
