"""Replay cases computed by the official implementation and compare: ``python tests/golden/check.py DIR``.

Each case is ``NAME.json`` (kind and hyper-parameters), ``NAME.npz`` (variables, inputs, outputs) and sometimes
``NAME.grads.npz``; README.md beside this file says what they hold. Prints one line a case and exits with 1 when a
supported case differs, cannot be read, or when nothing was checked.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, pad

from universal_transformer.axes import Bool, Float, Padding, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.interop import tensor2tensor as t2t
from universal_transformer.interop.tensor2tensor_config import (
    OfficialConfig,
    Unsupported,
    complete,
    config_from_hparams,
)
from universal_transformer.interop.tensor2tensor_parts import (
    OfficialBuilder,
    OfficialRecurrence,
)
from universal_transformer.models.components import Architecture
from universal_transformer.models.positions.numbering import default_positions, without_padding
from universal_transformer.nn.context import Context, ProjectedSource, key_mask
from universal_transformer.nn.recurrence import Recurrence, Trace
from universal_transformer.typed import replaced

TOLERANCE = 3e-6  # absolute for outputs; for gradients relative to the largest of the case
KNOWN = re.compile(
    r"(encoder|decoder)_(input|output|ponder_times|remainders|extra_lstm_memory)|body_output|logits|loss_training|act_loss"
)  # outputs that must be compared where they are given


class Body(nn.Module):
    """Embedded inputs and targets to last states: what the official code calls the body.

    A position whose embedding is all zeros is padding. Either side may be absent.
    """

    def __init__(self, config: OfficialConfig, *, encoder: bool, decoder: bool) -> None:
        super().__init__()
        self.config = config
        self.encoder = OfficialBuilder(config, decoder=False).build() if encoder else None
        self.decoder = OfficialBuilder(config, decoder=True, cross_attention=encoder).build() if decoder else None
        spaces = config.tensor2tensor.num_target_spaces if encoder else 0
        self.space = nn.Parameter(torch.zeros(spaces, config.sizes.width)) if spaces else None

    def encode(self, inputs: States, *, target_space: int = 0) -> tuple[States, Padding | None, Trace]:
        """The encoder's last states, the padding of the inputs, and the trace."""
        assert self.encoder is not None
        padding = without_padding((inputs == 0).all(dim=-1))
        if self.space is not None:
            inputs = inputs + self.space[target_space]
        states, trace = self.encoder(inputs, side_context(self.encoder, inputs, padding=padding))
        return states, padding, trace

    def decode(
        self,
        targets: States,
        *,
        source: Float[Tensor, "batch source width"] | None = None,
        padding: Bool[Tensor, "batch source"] | None = None,
    ) -> tuple[States, Trace]:
        """The decoder's last states: position ``i`` sees the targets to its left (zeros come first)."""
        assert self.decoder is not None
        projected = None if source is None else self.decoder.project_source(source, padding=padding)
        shifted = pad(targets, (0, 0, 1, 0))[:, :-1]
        states, trace = self.decoder(shifted, side_context(self.decoder, shifted, source=projected))
        return states, trace


def side_context(
    side: OfficialRecurrence,
    states: States,
    *,
    padding: Padding | None = None,
    source: list[ProjectedSource] | None = None,
) -> Context:
    """The context in which the official code computes one side from ``states``: padding counts as positions."""
    positions = default_positions(states.shape[1], padding=None, device=states.device)
    return Context(
        depth=side.depth(),
        encoding=side.coordinates.position(positions),
        padding=padding,
        mask=None if padding is None else key_mask(padding),
        causal=side.decoder,
        source=source,
    )


def has_scope(variables: dict[str, np.ndarray], scope: str) -> bool:
    return any(f"/{scope}/" in f"/{name}" for name in variables)


def load_body(variables: t2t.Variables, hparams: Mapping[str, Any]) -> Body:
    """Encoder, decoder or both, whichever ``variables`` hold, between embeddings and logits."""
    inside = t2t.stripped(variables)
    encoder, decoder = has_scope(inside, "encoder"), has_scope(inside, "decoder")
    if not encoder and not decoder:
        raise UserError("no official variables of an encoder or a decoder: their names contain /encoder/ or /decoder/")
    one_side: Architecture = "classifier" if encoder else "language_model"
    config = config_from_hparams(hparams, architecture="encoder_decoder" if encoder and decoder else one_side)
    return t2t.filled(lambda: Body(config, encoder=encoder, decoder=decoder), inside)


def _load_side(variables: t2t.Variables, hparams: Mapping[str, Any], *, decoder: bool) -> OfficialRecurrence:
    inside = t2t.stripped(variables)
    config = config_from_hparams(hparams, architecture="language_model" if decoder else "classifier")
    if config.coordinates.injection == "input":  # added where the input is prepared, which is not here
        config = replaced(config, {"coordinates.position": "none", "coordinates.injection": "every_step"})
    looks = decoder and has_scope(inside, "encdec_attention")
    return t2t.filled(OfficialBuilder(config, decoder=decoder, cross_attention=looks).build, inside)


def load_encoder(variables: t2t.Variables, hparams: Mapping[str, Any]) -> OfficialRecurrence:
    """The encoder alone (the official ``universal_transformer_encoder``), from prepared inputs on.

    Call it with a :func:`side_context`.
    """
    return _load_side(variables, hparams, decoder=False)


def load_decoder(variables: t2t.Variables, hparams: Mapping[str, Any]) -> OfficialRecurrence:
    """The decoder alone (the official ``universal_transformer_decoder``), from prepared and shifted targets on."""
    return _load_side(variables, hparams, decoder=True)


@dataclass
class Case:
    """One file of numbers: ``variables`` without their ``var/``, the rest under its full name."""

    name: str
    kind: str
    hparams: dict
    variables: dict[str, np.ndarray]
    arrays: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray] | None

    @classmethod
    def read(cls, path: Path) -> "Case":
        about = json.loads(path.read_text("utf-8"))
        arrays = dict(np.load(path.with_suffix(".npz")))
        gradients = path.with_suffix(".grads.npz")
        return cls(
            name=path.stem,
            kind=about["kind"],
            hparams=about["hparams"],
            variables={name[4:]: value for name, value in arrays.items() if name.startswith("var/")},
            arrays=arrays,
            gradients=dict(np.load(gradients)) if gradients.exists() else None,
        )

    def states(self, name: str) -> torch.Tensor:
        """``[batch, position, width]`` of an input that may have an axis of length 1 between."""
        value = torch.from_numpy(self.arrays[name].astype(np.float64))
        return value.squeeze(2) if value.dim() == 4 else value

    def ids(self, name: str) -> torch.Tensor:
        return torch.from_numpy(self.arrays[name].astype(np.int64)).flatten(1)


@dataclass
class Ran:
    """Our model on a case: its sides, and under the official names what came out and what to differentiate."""

    model: torch.nn.Module
    outputs: dict[str, torch.Tensor]
    traces: dict[str, Trace]
    final: torch.Tensor
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)


@contextmanager
def captured(
    sides: dict[str, Recurrence | None],
) -> Iterator[tuple[dict[str, torch.Tensor], dict[str, Trace]]]:
    """While open, keeps what goes into and comes out of each side."""
    outputs: dict[str, torch.Tensor] = {}
    traces: dict[str, Trace] = {}

    def keep(name: str, side: Recurrence):
        def hook(_module, positional, result):
            states, context = positional
            outputs[f"{name}_input"] = side.coordinates.start(states, context.encoding)
            outputs[f"{name}_output"], traces[name] = result

        return side.register_forward_hook(hook)

    def keep_memory(name: str, carry: nn.Module):
        def hook(_module, _positional, result):
            _, (outputs[f"{name}_extra_lstm_memory"], *_) = result

        return carry.register_forward_hook(hook)

    given = {name: side for name, side in sides.items() if side is not None}
    carries = {name: side.carry for name, side in given.items() if getattr(side, "carry", None) is not None}
    hooks = [keep(name, side) for name, side in given.items()]
    hooks += [keep_memory(name, carry) for name, carry in carries.items()]
    try:
        yield outputs, traces
    finally:
        for hook in hooks:
            hook.remove()


def run_side(case: Case) -> Ran:
    """Kinds ``encoder`` and ``deconly``: one recurrence, prepared inputs."""
    name = "encoder" if case.kind == "encoder" else "decoder"
    load = load_encoder if name == "encoder" else load_decoder
    side = load(case.variables, case.hparams)
    states = case.states(f"in/{name}_input").requires_grad_()
    padding = torch.from_numpy(case.arrays["in/padding"] > 0.5) if name == "encoder" else None
    with captured({name: side}) as (outputs, traces):
        final, _ = side(states, side_context(side, states, padding=padding))
    return Ran(side, outputs, traces, final, {f"{name}_input": states})


def run_body(case: Case) -> Ran:
    """Kinds ``encmodel`` and ``encdec``: embedded inputs (zeros are padding) to last states."""
    body = load_body(case.variables, case.hparams)
    space = int(case.arrays.get("in/target_space_id", 0))
    with captured({"encoder": body.encoder, "decoder": body.decoder}) as (outputs, traces):
        inputs = {"inputs": case.states("in/inputs").requires_grad_()}
        final, padding, _ = body.encode(inputs["inputs"], target_space=space)
        if case.kind == "encdec":
            inputs["targets"] = case.states("in/targets").requires_grad_()
            final, _ = body.decode(inputs["targets"], source=final, padding=padding)
    outputs["body_output"] = final.unsqueeze(2)
    return Ran(body, outputs, traces, final.unsqueeze(2), inputs)


def run_model(case: Case) -> Ran:
    """Kind ``full``: token ids to logits and loss, with an encoder or without."""
    model = t2t.load(case.variables, case.hparams)
    targets = case.ids("in/targets")
    encoder = model.source is not None
    sides = {"encoder": model.source.recurrence if encoder else None, "decoder": model.target.recurrence}
    with captured(sides) as (outputs, traces):
        if encoder:
            spaces = model.config.tensor2tensor.num_target_spaces  # 0: the model has no embedding of them
            space = int(case.arrays.get("in/target_space_id", 0)) if spaces else 0
            with model.source.problem(space):
                logits = model(case.ids("in/inputs"), targets).logits
        else:
            logits = model(targets).logits
    outputs["logits"] = logits[:, :, None, None]
    outputs["loss_training"] = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0)
    outputs["body_output"] = outputs["decoder_output"].unsqueeze(2)
    return Ran(model, outputs, traces, outputs["body_output"])


RUNNERS = {
    "encoder": run_side,
    "deconly": run_side,
    "encmodel": run_body,
    "encdec": run_body,
    "full": run_model,
}


def pondered(ran: Ran) -> torch.Tensor:
    """Mean N + R of each side, summed; 0 at a fixed depth."""
    return sum((trace.ponder_cost for trace in ran.traces.values()), torch.zeros(()))


def add_halting(case: Case, ran: Ran) -> None:
    """Ponder times, remainders and losses, under the official names."""
    for side, trace in ran.traces.items():
        if trace.probability is None:
            continue
        for name, value in (("ponder_times", trace.steps), ("remainders", trace.remainder)):
            wanted = case.arrays.get(f"out/{side}_{name}")
            one_a_sequence = wanted is not None and wanted.ndim == 1
            if one_a_sequence and not torch.equal(value, value[:, :1].expand_as(value)):
                raise UserError(f"{side}_{name}: positions of one sequence differ")
            ran.outputs[f"{side}_{name}"] = value[:, 0] if one_a_sequence else value
    cost = complete(case.hparams)["act_loss_weight"] * pondered(ran)
    ran.outputs |= {"act_loss": cost, "loss_act_loss": cost}
    if not {"out/act_loss", "out/loss_act_loss"} & set(case.arrays):
        ran.outputs["loss_extra"] = cost


def difference(ours: torch.Tensor, theirs: np.ndarray) -> float:
    """The worst absolute difference; infinite when the shapes differ or a number is missing."""
    mine = ours.detach().numpy().astype(np.float64)
    if mine.shape != theirs.shape:
        return float("inf")
    worst = np.abs(mine - theirs.astype(np.float64)).max(initial=0.0)
    return float(worst) if np.isfinite(worst) else float("inf")


def gradients(case: Case, ran: Ran) -> tuple[float, str]:
    """The worst difference of a gradient, relative to the largest gradient, and whose it is."""
    assert case.gradients is not None
    projection = torch.from_numpy(case.gradients["grad_projection"])
    loss = (ran.final * projection.reshape(ran.final.shape)).sum() + pondered(ran)
    loss.backward()
    total, wanted_total = float(loss.detach()), float(case.gradients["grad_loss"])
    wanted = {name[5:]: value for name, value in case.gradients.items() if name.startswith("grad/")}
    full = complete(case.hparams)
    shards = int(full.get("symbol_modality_num_shards") or 1)
    shared = bool(full["shared_embedding_and_softmax_weights"] or full["shared_embedding"])
    ours = {f"INPUT:{name}": value.grad for name, value in ran.inputs.items()}
    for variable in t2t.official_variables(ran.model, num_shards=shards, shared=shared):
        grad = variable.parameter.grad
        ours[variable.name] = variable.official(torch.zeros_like(variable.parameter) if grad is None else grad)
    largest = max([1e-12, *(float(np.abs(value).max(initial=0.0)) for value in wanted.values())])
    worst = (abs(total - wanted_total) / max(1.0, abs(wanted_total)), "grad_loss")
    for name, value in wanted.items():
        inside = t2t.MODEL_SCOPE.fullmatch(name)
        short = name if inside is None or name.startswith("INPUT:") else inside.group(1)
        found = ours.get(short)
        error = float("inf") if found is None else difference(found, value) / largest
        worst = max(worst, (error, name))
    return worst


def probabilities(case: Case, ran: Ran) -> dict[str, float]:
    """The worst difference of the halting probability of a position that still runs, by side."""
    found = {}
    for side, trace in ran.traces.items():
        wanted = case.arrays.get(f"trace/{side}/halting_p")
        if wanted is None or trace.probability is None:
            continue
        theirs = wanted[..., 0]
        if complete(case.hparams)["act_type"] == "global":
            theirs = np.broadcast_to(theirs.mean(axis=2, keepdims=True), theirs.shape)
        step = torch.arange(len(trace.probability)).view(-1, 1, 1)
        runs = step < trace.steps  # of a position that has halted, nobody reads it
        if theirs.shape == tuple(runs.shape):
            theirs = theirs * runs.numpy()
        found[f"{side}/halting_p"] = difference(trace.probability * runs, theirs)
    return found


@dataclass
class Result:
    """One line of the report."""

    name: str
    kind: str
    status: str  # "ok", "DIFFERS", "unsupported"
    text: str


def check(path: Path) -> Result:
    """Replay one case, in float64: what differs is the rounding of the official numbers."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return _replayed(Case.read(path))
    finally:
        torch.set_default_dtype(usual)


def _replayed(case: Case) -> Result:
    runner = RUNNERS.get(case.kind)
    if runner is None:
        return Result(case.name, case.kind, "DIFFERS", f"unknown kind; known: {', '.join(RUNNERS)}")
    try:
        ran = runner(case)
        add_halting(case, ran)
    except Unsupported as error:
        return Result(case.name, case.kind, "unsupported", str(error))
    except UserError as error:
        return Result(case.name, case.kind, "DIFFERS", str(error))
    wanted = {name[4:]: value for name, value in case.arrays.items() if name.startswith("out/")}
    compared = {name: difference(ran.outputs[name], value) for name, value in wanted.items() if name in ran.outputs}
    left = sorted(name for name in wanted if name not in ran.outputs and not name.endswith("_bias"))
    unanswered = [name for name in left if KNOWN.fullmatch(name)]
    if not compared:
        return Result(case.name, case.kind, "DIFFERS", "nothing to compare in this case")
    compared |= probabilities(case, ran)
    worst = max(compared, key=lambda name: compared[name])
    good = compared[worst] <= TOLERANCE and not unanswered
    text = f"{len(compared)} arrays within {compared[worst]:.1e} ({worst})"
    if case.gradients is not None:
        error, name = gradients(case, ran)
        good = good and error <= TOLERANCE
        text += f", gradients within {error:.1e} of the largest ({name})"
    if left:
        text += f", not compared: {', '.join(left)}"
    return Result(case.name, case.kind, "ok" if good else "DIFFERS", text)


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 when every supported case agrees and there was at least one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with NAME.json and NAME.npz files")
    folder = parser.parse_args(arguments).folder
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    lonely = {path.stem.removesuffix(".grads") for path in folder.glob("*.npz")} - {path.stem for path in paths}
    if not paths:
        print(f"{folder}: no case files (NAME.json with NAME.npz) here", file=sys.stderr)
        return 1
    results = []
    for path in paths:
        try:
            result = check(path)
        except (OSError, KeyError, ValueError) as error:
            result = Result(path.stem, "?", "DIFFERS", f"cannot be replayed: {type(error).__name__}: {error}")
        results.append(result)
        print(f"{result.status:<11} {result.name:<24} {result.kind:<8} {result.text}", flush=True)
    for name in sorted(lonely):
        results.append(Result(name, "?", "DIFFERS", f"{name}.npz has no {name}.json"))
        print(f"DIFFERS     {name:<24} {'?':<8} {results[-1].text}")
    counts = {status: sum(result.status == status for result in results) for status in ("ok", "DIFFERS", "unsupported")}
    print(f"{counts['ok']} agree, {counts['DIFFERS']} differ, {counts['unsupported']} not supported")
    if not counts["ok"]:
        print(f"{folder}: nothing was checked", file=sys.stderr)
    return 0 if counts["ok"] and not counts["DIFFERS"] else 1


if __name__ == "__main__":
    sys.exit(main())
