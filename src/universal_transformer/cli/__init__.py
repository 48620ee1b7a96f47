"""The command line ``ut``: parses, calls, prints. A command is imported when it is used."""

import ctypes
import io
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module

from universal_transformer import __version__
from universal_transformer.cli.clone import NOT_INSTALLED, from_clone, in_clone
from universal_transformer.cli.output import BROKEN_PIPE, INTERRUPTED, USAGE_ERROR, data_dir, error_line
from universal_transformer.errors import UserError, suggestion
from universal_transformer.members import OTHERS

COMMANDS: dict[str, tuple[str, str]] = {
    "train": (".train:Train", "train a recipe, or continue a run"),
    "evaluate": (".evaluate:Evaluate", "score a run on its test sets"),
    "calibrate": (".calibrate:Calibrate", "find fewer steps for a trained model, within a loss that you allow"),
    "predict": (".predict:Predict", "predict an output for each line of a file or of standard input"),
    "explore": (".explore:Explore", "open a page that shows what a model does with an input, step by step"),
    "serve": (".serve:Serve", "answer requests over HTTP, as OpenAI's clients make them"),
    "export": (".export:Export", "write a trained model as an ONNX file or a torch.export program"),
    "push": (".push:Push", "upload a trained model to the hub of Hugging Face, with a card of its figures"),
    "lm-eval": (".lm_eval:LmEval", "score a language model on tasks of lm-evaluation-harness"),
    "plot": (".plot:Plot", "write the report of a run: one HTML file with its plots"),
    "models": (".models:Models", "list the pretrained models, show the card of one, or score a sample again"),
    "recipes": (".recipes:Recipes", "list the recipes"),
    "data": (".data:Data", "list, fetch or check data sets"),
    "bench": (
        "benchmarks.command:Bench",
        "measure this machine: what halting saves, and the speed compared with other libraries",
    ),
    "reproduce": ("paper.command:Reproduce", "measure a table of the paper, and write it with the paper's figures"),
    "demo": (".demo:Demo", "train a small model on generated stories in a few minutes, and show its predictions"),
}
"""Command -> (module:class, a dataclass of options with a call; summary). Modules of this package begin with a dot."""
SHARED = ("train", "evaluate")
"""Commands whose work the processes of torchrun share."""

_NO_MEMORY = (
    "allocate memory",
    "out of memory",
    "not enough memory",
    "could not create a primitive",  # oneDNN, whose buffers are allocated when an operation is prepared
    "could not create a memory object",
    "bad_alloc",
    "alloc_failed",  # cuBLAS and cuDNN
)
"""What messages of torch and its libraries say, in lower case, when memory is short."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 2 for a user's mistake, 130 when interrupted."""
    _ready_output()
    try:
        code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except UserError as error:
        return fail(str(error))
    except BrokenPipeError:
        # the reader of the output has closed it; Python must not try to flush the rest at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("ut: interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        return fail(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    except (MemoryError, RuntimeError) as error:
        # torch raises a RuntimeError when memory is short, on a CPU and on a GPU
        if isinstance(error, RuntimeError) and not any(text in str(error).lower() for text in _NO_MEMORY):
            raise
        return fail("not enough memory: try a smaller --batch-tokens, or a smaller model")
    finally:
        if arguments is None:  # the process ends: another Ctrl-C would interrupt what libraries do at its exit
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _ready_output() -> None:
    """Discard output if it is closed, and escape characters that the terminal's encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # otherwise a file opened later would get the number of the closed one, and receive the output
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open until the end
        elif isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def fail(message: str) -> int:
    """Print one line to standard error; return the exit code of a user's mistake."""
    print(error_line(message), file=sys.stderr)
    return USAGE_ERROR


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if arguments else USAGE_ERROR
    name, *rest = arguments
    if name in ("-V", "--version"):
        print(f"ut {__version__}")
        return 0
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        raise UserError(f"no {kind} {name!r}{suggestion(name, COMMANDS)}; commands: {', '.join(COMMANDS)}")
    if name not in SHARED and os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError(f"ut {name} runs in one process: start it without torchrun (for {' and '.join(SHARED)})")
    keep_freed_memory()
    keep_few_kernels()
    from universal_transformer.cli.parser import parse

    if in_clone("paper"):
        OTHERS.append(partial(from_clone, "paper", command=name))
    module, _, kind = COMMANDS[name][0].partition(":")
    home = from_clone(module, command=name) if module.startswith(NOT_INSTALLED) else import_module(module, __name__)
    command = parse(getattr(home, kind), rest, name=name)
    with data_dir(getattr(command, "data_dir", "")):
        return 0 if command is None else command()


def keep_freed_memory() -> bool:
    """Let glibc keep up to 2 GiB of freed memory for this process; return whether it does (only on Linux).

    By default glibc returns large blocks to the system at once. The next update gets them back page by page, with a
    page fault for each: 12 to 17 % of the processor time of a language model of 20,000 words, at most 2 % of that of
    small models (`docs/performance.md`).
    """
    if sys.platform != "linux":
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3  # names of malloc.h
    settings = {mmap_threshold: 1 << 30, trim_threshold: (1 << 31) - 1, top_pad: 1 << 26}
    return all(set_option(name, value) == 1 for name, value in settings.items())


def keep_few_kernels() -> None:
    """Let oneDNN keep 128 compiled kernels, and torch as many plans for them, unless the user has set other numbers.

    Both keep 1,024 by default, of which each serves one shape. With halting nearly every update has new shapes: the
    memory of a small classifier grew by 1.7 MB an update, and was 1.35 GB after 415 updates (`notebook/README.md`).
    torch reads the two variables when it is imported.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "128")


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        (
            "usage: ut COMMAND [...]",
            "",
            "Universal Transformer: train, evaluate and inspect models that choose their depth for each position.",
            "",
            *lines,
            "",
            "ut COMMAND --help shows the options of a command; ut --version prints the version.",
            "First steps: ut demo, or ut train stories; models that are trained already: ut models",
        )
    )
