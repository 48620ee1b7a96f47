"""Compare models whose positions are spread over 4 and 2 processes with one process.

python context_parallel.py FILE    writes the largest differences, and the bytes that were exchanged
"""

import json
import sys
from pathlib import Path

import torch
import torch._dynamo  # checkpoints import it: once, before there are several processes
from torch import distributed, multiprocessing

from small_models import SIZES as SMALL
from small_models import small
from universal_transformer.execution.context_parallel import make_context_parallel
from universal_transformer.nn.context import Kept
from universal_transformer.rules import Exit

HALTING = {"halting": True, "max_steps": 5, "halting.side": "both"}
PONDER = {**HALTING, "halting.rule": "ponder"}
TAGGER = {"architecture": "tagger", "num_classes": 5}
CLASSIFIER = {"architecture": "classifier", "num_classes": 5}
LANGUAGE_MODEL = {"architecture": "language_model"}
PADDED = {"ends": (11, 7, 3)}
CASES = {
    "fixed": TAGGER,
    "halting": {**TAGGER, **HALTING, **PADDED, "seed": 27},
    "untied, with sinks and a bias": {**TAGGER, "tied": False, "attention_bias": True, **PADDED},
    "two blocks a step": {**TAGGER, **HALTING, "layers_per_step": 2, "norm": "pre"},
    "plain layers": {**TAGGER, "plain_layers_before": 1, "plain_layers_after": 1},
    "recomputed steps": {**TAGGER, **HALTING, "execution.activation_checkpointing": True},
    "one position": {**TAGGER, **HALTING, "length": 1},
    "fewer positions than processes": {**TAGGER, **HALTING, "length": 5, "ends": (5, 2, 1)},
    "as many positions a process": {**TAGGER, **HALTING, "length": 8},
    "rotary": {**TAGGER, **HALTING, "position_coordinates": "rotary"},
    "steps by length": {**TAGGER, "depth.max_steps": "length", **PADDED},
    "length with halting": {**TAGGER, **HALTING, "depth.max_steps": "length", **PADDED},
    "an exit": {**TAGGER, "max_steps": 5, "exit": "state_change:0.5"},
    "mean of states": {**CLASSIFIER, **HALTING, **PADDED},
    "last state": {**CLASSIFIER, "pooling": "last", **PADDED},
    "sequences halt": {**CLASSIFIER, **HALTING, "halting.scope": "sequence", **PADDED},
    "a distribution of sequences": {**CLASSIFIER, **PONDER, **PADDED},
    "sequences exit": {**CLASSIFIER, "max_steps": 5, "exit": "output_change:0.02", **PADDED},
    "language model": {**LANGUAGE_MODEL, **HALTING, "seed": 7},
    "language model, fixed": {**LANGUAGE_MODEL, **PADDED},
    "padded on the left": {**LANGUAGE_MODEL, **HALTING, "begins": (0, 4, 9)},
    "a distribution of positions": {**LANGUAGE_MODEL, **PONDER},
    "pairs": {**PADDED},
    "pairs, halting": {**HALTING, **PADDED, "source_sink": True, "position_coordinates": "distance"},
}  # fmt: skip
"""Fields of a model; the seed of its weights, the length of its rows, where they begin and end, and an exit."""
FOUR = (
    "halting", "one position", "fewer positions than processes", "as many positions a process", "length with halting",
    "sequences halt", "language model", "padded on the left", "pairs, halting",
)  # fmt: skip
RUNS = {4: FOUR, 2: tuple(name for name in CASES if "process" not in name)}
"""Number of processes -> cases: all of them, and those in which processes have unlike or no positions in four."""


def ids(length, begins, ends):
    """Three rows of token ids with padding before and after."""
    rows = torch.randint(3, 9, (3, length))
    place = torch.arange(length)
    for row, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        rows[row] = rows[row].where((place >= begin) & (place < end), 0)
    return rows


def case(fields):
    """A model, and a function that calls it."""
    fields = dict(fields)
    torch.manual_seed(fields.pop("seed", 0))
    length = fields.pop("length", 11)
    rows = ids(length, fields.pop("begins", (0, 0, 0)), fields.pop("ends", (length,) * 3))
    chosen = fields.pop("exit", None)
    model = small(**{"dropout": 0.0, **fields})
    for name, parameter in model.named_parameters():
        if name.endswith("halting.bias"):
            parameter.data.fill_(-1.0)
        if name.endswith("halting.weight"):
            parameter.data.mul_(3.0)  # some positions halt at once, and some never
    both = (rows, ids(6, (0, 0, 0), (6, 6, 2))) if model.config.architecture == "encoder_decoder" else (rows,)
    options = {"exit": Exit.parse(chosen)} if chosen else {}
    return model.train(chosen is None), lambda **keep: model(*both, **options, **keep)


def result(model, call):
    """Everything that a call computes, and the gradient of a functional of it, in the mean over processes."""
    output = call(keep=Kept(states=not model.config.unread_states))
    traces = [trace for trace in (output.encoder, output.decoder) if trace is not None]
    found = {"logits": output.logits, "ponder": output.ponder_cost}
    for side, trace in enumerate(traces):
        for name in ("steps", "remainder", "probability", "weight", "states"):
            if (value := getattr(trace, name)) is not None:
                found[f"{name} {side}"] = value
    loss = (output.logits * torch.linspace(-1, 1, output.logits.numel()).view_as(output.logits)).sum()
    if output.step_logits is not None:
        loss = loss + output.step_logits.square().mean()
    parameters = [each for each in model.parameters() if each.requires_grad]
    gradients = torch.autograd.grad(loss + 0.1 * output.ponder_cost, parameters, allow_unused=True)
    for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        if gradient is not None:
            if distributed.is_initialized():
                distributed.all_reduce(gradient)
                gradient = gradient / distributed.get_world_size()
            found[f"gradient of {name}"] = gradient
    return {name: value.detach() for name, value in found.items()}


def differences(expected, *, size):
    """The largest difference of each case, and what differs."""
    found = {}
    for name in RUNS[size]:
        model, call = case(CASES[name])
        make_context_parallel(model)
        made = result(model, call)
        if not expected:
            continue
        assert made.keys() == expected[name].keys(), name
        assert all(made[key].shape == value.shape for key, value in expected[name].items()), name
        found[name] = max((float((made[key] - value).abs().max()), key) for key, value in expected[name].items())
    return found


def lasted(expected):
    """How many steps the positions of each process make at most, in each case that halts."""
    steps = {name: found["steps 0"].amax(0) for name, found in expected.items() if "probability 0" in found}
    return {name: [int(each.max()) for each in found.split(-(-len(found) // distributed.get_world_size()))]
            for name, found in steps.items()}  # fmt: skip


def received(*, trains, fields=TAGGER):
    """How many bytes a process receives in a pass of a model of fixed depth, or in its forward and backward pass."""
    model, call = case(fields)
    make_context_parallel(model)
    counted, functions = [], {name: getattr(distributed, name) for name in ("all_gather", "reduce_scatter")}

    def counting(name):
        def call(output, given):
            each = output if name == "all_gather" else given
            counted.append(sum(tensor.nbytes for tensor in each[1:]))
            functions[name](output, given)

        return call

    for name in functions:
        setattr(distributed, name, counting(name))
    with torch.set_grad_enabled(trains):
        logits = call().logits
        if trains:
            logits.sum().backward()
    for name, function in functions.items():
        setattr(distributed, name, function)
    return sum(counted)


def work(rank, file):
    expected, found = {}, {}
    if rank == 0:
        for name, fields in CASES.items():
            expected[name] = result(*case(fields))
    for size in RUNS:
        if rank < size:
            distributed.init_process_group("gloo", init_method=f"file://{file}.{size}", rank=rank, world_size=size)
            found[size] = {
                "differences": differences(expected, size=size),
                "lasted": lasted(expected),
                "inference": received(trains=False),
                "training": received(trains=True),
                "checkpointed": received(trains=True, fields={**TAGGER, "execution.activation_checkpointing": True}),
                "sizes": {"rows": 3, "length": 11, "width": SMALL["width"], "steps": SMALL["max_steps"]},
            }
            distributed.destroy_process_group()
    if rank == 0:
        Path(file).write_text(json.dumps(found))


if __name__ == "__main__":
    multiprocessing.start_processes(work, (sys.argv[1],), nprocs=max(RUNS), start_method="fork")
