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

Every row of a batch has its own n, ``symbols + output_extra``: it takes n steps, and everything after its last place is
zero at every step, as the border of the image is. So a row's output depends on no other row.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional, init

from universal_transformer.axes import Bool, Float, Int, Tensor
from universal_transformer.baselines.baseline_config import NeuralGpuConfig
from universal_transformer.errors import UserError
from universal_transformer.models.model import Call, Parts
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.source import InputSide
from universal_transformer.models.target import OutputSide
from universal_transformer.nn.trace import Trace

Image = Float[Tensor, "batch width column place"]


def gate(logits: Float[Tensor, "..."], *, cutoff: float) -> Float[Tensor, "..."]:
    """``clamp(c · sigmoid(x) - (c - 1) / 2, 0, 1)``; ``c = 1`` is the plain sigmoid."""
    return (cutoff * logits.sigmoid() - (cutoff - 1.0) / 2).clamp(0.0, 1.0)


class GatedUnit(nn.Module):
    """``CGRU(s) = u ⊙ s + (1 - u) ⊙ tanh(U * (r ⊙ s) + B)``; one convolution computes both gates.

    Dropout falls on the candidate (the tanh), not on the previous state (Semeniuta, Severyn and Barth 2016).
    """

    repeats = True

    def __init__(self, config: NeuralGpuConfig) -> None:
        super().__init__()
        width, self.cutoff = config.width, config.cutoff
        size = min(config.kernel_size, 2 * config.image_width - 1), config.kernel_size  # no column outside the image
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

    initialise_parts = initialise  # of the two draws the second one counts

    def forward(self, image: Image) -> Image:
        update, reset = gate(self.gates(image), cutoff=self.cutoff).chunk(2, dim=1)
        candidate = self.dropout(torch.tanh(self.candidate(reset * image)))
        return update * image + (1.0 - update) * candidate


@dataclass
class Places:
    """What a source becomes: the logits of every place of the output, and how many places each row has.

    ``written`` places have been read in generation.
    """

    logits: Float[Tensor, "batch place classes"]
    places: Int[Tensor, " batch"]
    written: int = 0
    trace: Trace | None = None

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Replace the rows by the rows ``index``."""
        self.logits, self.places = self.logits[index], self.places[index]


class NeuralGpuSource(InputSide):
    """Source tokens to the logits of all places of the output."""

    config: NeuralGpuConfig

    def __init__(self, config: NeuralGpuConfig) -> None:
        super().__init__(config, config.width)
        self.units = nn.ModuleList(GatedUnit(config) for _ in range(config.num_layers))
        self.output = nn.Linear(config.width, config.vocabulary.written)

    def forward(self, source: Int[Tensor, "batch source"], call: Call) -> Places:
        del call
        config, padding = self.config, source == self.config.vocabulary.padding_id
        places = (~padding).sum(dim=1) + config.output_extra
        # a tensor without values (`ut train --dry-run`) has no padding
        most = source.shape[1] + config.output_extra if source.is_meta else int(places.max())
        ordered = source.gather(1, padding.long().argsort(dim=1, stable=True))  # padding to the right
        column = functional.pad(ordered, (0, max(0, most - source.shape[1])), value=config.vocabulary.padding_id)
        first = self.input(column[:, :most]).transpose(1, 2).unsqueeze(2)
        image = functional.pad(first, (0, 0, 0, config.image_width - 1))
        inside = torch.arange(most, device=source.device) < places.unsqueeze(1)
        alike, shown = bool(inside.all()), inside[:, None, None, :].to(image.dtype)
        for step in range(most):
            new = image
            for unit in self.units:
                new = unit(new) if alike else unit(new) * shown
            image = new if alike else torch.where((step < places).view(-1, 1, 1, 1), new, image)
        return Places(self.output(image[:, :, 0].transpose(1, 2)), places)


class NeuralGpuTarget(OutputSide):
    """Logits for every label of the target. They depend on the length of the target and not on its tokens."""

    config: NeuralGpuConfig

    def __init__(self, config: NeuralGpuConfig, source: nn.Module) -> None:
        super().__init__(config)
        del source

    def limit(self, length: int, *, fed: int = 1, most: int | None = None) -> int:
        """New tokens of an answer to ``length`` symbols: the places of its output, or ``most`` if these are fewer."""
        del fed
        places = self.config.answer_limit(length)
        return places if most is None else min(most, places)

    def start(self, encoded: Places, call: Call, *, batch: int, capacity: int) -> Places:
        """The logits of all places, of which none has been read."""
        del call, batch, capacity
        return encoded

    def advance(
        self, tokens: Int[Tensor, "batch new"], state: Places, *, padding: Bool[Tensor, "batch new"] | None = None
    ) -> Float[Tensor, "batch new classes"]:
        """The logits of the next places, whatever the tokens are."""
        del padding
        state.written, before = state.written + tokens.shape[1], state.written
        return state.logits[:, before : state.written]

    def forward(self, labels: Int[Tensor, "batch target"], encoded: Places, call: Call) -> ModelOutput:
        """UserError when a target is longer than the output of its source."""
        del call
        config, length = self.config, labels.shape[1]
        real = labels != config.vocabulary.padding_id
        written = torch.where(real, torch.arange(1, length + 1, device=labels.device), 0).amax(dim=1)
        if bool((written > encoded.places).any()):
            row = int((written - encoded.places).argmax())
            needed, places = int(written[row]), int(encoded.places[row])
            raise UserError(
                f"a target of {needed} symbols, with its end, but a source of {places - config.output_extra} symbols "
                f"allows {places}: raise output_extra={config.output_extra} by {needed - places} at least"
            )
        missing = max(0, length - encoded.logits.shape[1])
        return ModelOutput(functional.pad(encoded.logits, (0, 0, 0, missing))[:, :length])


PARTS = Parts(NeuralGpuSource, NeuralGpuTarget)
