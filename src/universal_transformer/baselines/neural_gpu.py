"""The Neural GPU (Kaiser and Sutskever 2016, "Neural GPUs Learn Algorithms", sections 2 and 3).

The sequence is placed in an image ``s`` of w columns (``image_width``), n rows (one a place) and m channels
(``width``), which l gated units refine n times; the first column is what goes in and what comes out:

============================================= ================================================================
``s_0[0, i] = E[x_i]``, else 0                the input in the first column
``CGRU(s) = u ⊙ s + (1 - u) ⊙ tanh(U * (r ⊙ s) + B)``
``u = gate(U' * s + B')``, ``r = gate(U'' * s + B'')``    ``*`` is a convolution over columns and rows
``s_{t+1} = CGRU_l(… CGRU_1(s_t))``           for ``t < n``: as many steps as the sequence has places
``logits_i = O s_n[0, i]``                    all symbols of the output together
============================================= ================================================================

``gate`` is the sigmoid with a cutoff, ``clamp(c · sigmoid(x) - (c - 1) / 2, 0, 1)`` (section 3.1: c = 1.2).

Every row of a batch has its own n, ``ceil(output_ratio · symbols) + output_extra``: it takes n steps, and everything
after its last place is zero at every step, as the border of the image is. So a row's output depends on no other row.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional, init

from universal_transformer.axes import Bool, Float, Int, Tensor
from universal_transformer.baselines.config import NeuralGpuConfig
from universal_transformer.errors import UserError
from universal_transformer.models.call import DepthOptions
from universal_transformer.models.initialise import initialise
from universal_transformer.models.inputs import TokenInput, check_pairs
from universal_transformer.models.model import Model
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.nn.context import NOTHING, Kept
from universal_transformer.rules import Exit

Image = Float[Tensor, "batch width column place"]


def gate(logits: Float[Tensor, ...], *, cutoff: float) -> Float[Tensor, ...]:
    """``clamp(c · sigmoid(x) - (c - 1) / 2, 0, 1)``; ``c = 1`` is the plain sigmoid."""
    if cutoff == 1.0:
        return logits.sigmoid()
    return (cutoff * logits.sigmoid() - (cutoff - 1.0) / 2).clamp(0.0, 1.0)


class GatedUnit(nn.Module):
    """``CGRU(s) = u ⊙ s + (1 - u) ⊙ tanh(U * (r ⊙ s) + B)``; one convolution computes both gates.

    Dropout falls on the candidate (the tanh), not on the previous state (Semeniuta, Severyn and Barth 2016).
    """

    def __init__(self, config: NeuralGpuConfig) -> None:
        super().__init__()
        width, size = config.width, config.kernel_size
        self.cutoff = config.cutoff
        self.gates = nn.Conv2d(width, 2 * width, size, padding="same")
        self.candidate = nn.Conv2d(width, width, size, padding="same")
        self.dropout = nn.Dropout(config.dropout)

    @torch.no_grad()
    def initialise(self) -> None:
        """Kernels Glorot uniform; gates start at 1: the image is kept, and the candidate depends on all of it."""
        for part in (*self.gates.weight.chunk(2), self.candidate.weight):
            init.xavier_uniform_(part)
        init.ones_(self.gates.bias)  # type: ignore[arg-type]
        init.zeros_(self.candidate.bias)  # type: ignore[arg-type]

    def forward(self, image: Image) -> Image:
        update, reset = gate(self.gates(image), cutoff=self.cutoff).chunk(2, dim=1)
        candidate = self.dropout(torch.tanh(self.candidate(reset * image)))
        return update * image + (1.0 - update) * candidate


class NeuralGpu(Model):
    """Source tokens to target tokens, all at once.

    >>> model = NeuralGpu(NeuralGpuConfig(vocabulary=VocabularyConfig(size=14)))
    >>> logits, inside = model.output_logits(source)  # [batch, place, vocabulary], and the places of each row
    """

    architecture, config_kind = "encoder_decoder", NeuralGpuConfig
    at_once = True
    config: NeuralGpuConfig

    def __init__(self, config: NeuralGpuConfig) -> None:
        super().__init__(config)
        self.input = TokenInput(config, config.width)
        self.units = nn.ModuleList(GatedUnit(config) for _ in range(config.num_layers))
        self.output = nn.Linear(config.width, config.vocabulary.target_size or config.vocabulary.size)
        initialise(self)
        for unit in self.units:
            assert isinstance(unit, GatedUnit)
            unit.initialise()

    def num_places(self, source: Int[Tensor, "batch source"]) -> Int[Tensor, " batch"]:
        """N of each row: ``ceil(output_ratio · symbols) + output_extra``."""
        symbols = (source != self.config.vocabulary.padding_id).sum(dim=1)
        # rounded first: 1.1 · 10 is a little more than 11
        places = (symbols.double() * self.config.output_ratio * 1e6).round().div(1e6).ceil().long()
        return places + self.config.output_extra

    def output_logits(
        self, source: Int[Tensor, "batch source"]
    ) -> tuple[Float[Tensor, "batch place classes"], Bool[Tensor, "batch place"]]:
        """Logits of every place of the output, and which places belong to a row."""
        places = self.num_places(source)
        # a tensor without values (`ut train --dry-run`) has no padding
        most = self.config.num_places(source.shape[1]) if source.is_meta else int(places.max())
        inside = torch.arange(most, device=source.device) < places.unsqueeze(1)
        missing = max(0, most - source.shape[1])
        padding = source == self.config.vocabulary.padding_id
        symbols = source.gather(1, padding.long().argsort(dim=1, stable=True))  # padding to the right
        column = functional.pad(symbols, (0, missing), value=self.config.vocabulary.padding_id)
        first = self.input(column[:, :most]).transpose(1, 2)
        image = functional.pad(first.unsqueeze(2), (0, 0, 0, self.config.image_width - 1))
        alike = bool(inside.all())
        shown = inside[:, None, None, :].to(image.dtype)
        for step in range(most):
            new = image
            for unit in self.units:
                new = unit(new) if alike else unit(new) * shown
            image = new if alike else torch.where((step < places).view(-1, 1, 1, 1), new, image)
        return self.output(image[:, :, 0].transpose(1, 2)), inside

    def check_inputs(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        if len(inputs) != 2:
            raise UserError(f"{len(inputs)} inputs: {type(self).__name__} takes source and target")
        check_pairs(*inputs, config=self.config)
        return inputs

    def forward(
        self,
        *inputs: Tensor,
        positions: tuple[Tensor | None, Tensor | None] = (None, None),
        max_steps: int | None = None,
        min_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
        keep: Kept = NOTHING,
    ) -> ModelOutput:
        """Logits for every label of the target. They depend on the length of the target and not on its tokens.

        UserError when a target is longer than the output of its source.
        """
        del keep
        chosen = {"max_steps": max_steps, "min_steps": min_steps, "halting_threshold": halting_threshold, "exit": exit}
        DepthOptions(**chosen).check(self.config, name=type(self).__name__)  # type: ignore[arg-type]
        self.positions(None, None, positions)
        source, target = self.check_inputs(*inputs)
        real = target != self.config.vocabulary.padding_id
        written = torch.where(real, torch.arange(1, target.shape[1] + 1, device=target.device), 0).amax(dim=1)
        logits, _ = self.output_logits(source)
        places = self.num_places(source)
        if bool((written > places).any()):
            self._refuse(int((written - places).argmax()), written=written, places=places, source=source)
        missing = max(0, target.shape[1] - logits.shape[1])
        return ModelOutput(functional.pad(logits, (0, 0, 0, missing))[:, : target.shape[1]])

    def _refuse(self, row: int, *, written: Tensor, places: Tensor, source: Tensor) -> None:
        """Raise a UserError that names the fields which allow a longer target."""
        config, needed = self.config, int(written[row])
        symbols = int((source[row] != config.vocabulary.padding_id).sum())
        ratio = math.ceil((needed - config.output_extra) / max(1, symbols))
        raise UserError(
            f"a target of {needed} symbols, with its end, but a source of {symbols} symbols allows "
            f"{int(places[row])}: raise output_ratio={config.output_ratio:g} (to {ratio}, say) or "
            f"output_extra={config.output_extra}"
        )

    def compile_blocks(self) -> None:
        """Compile the gated units, which run n times."""
        for unit in self.units:
            unit.compile(dynamic=True)
