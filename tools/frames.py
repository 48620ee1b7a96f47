"""Print how many calls of this package stand between two of its functions: ``python tools/frames.py``.

Two ways are measured, each with a small halting encoder-decoder:

==================== ==================== ====================================================================
way                  from                 to
==================== ==================== ====================================================================
objective_to_attention `objective` of the training `SelfAttention.forward`, called for the states of a side
predict_to_token     `run` of ``ut predict`` the call of ``argmax`` in `decoding` that chooses the next token
==================== ==================== ====================================================================

A way is counted when its last function is called. Its frames are the Python frames on the stack whose code is in a file
of this package, from the first function to the last one, both included; a lambda and a generator are frames too, and
the frames of torch, which calls a module by two functions, are counted separately. Its files are the different files
of these frames. Where the last function is called several times by different ways, the one with most frames counts.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

import universal_transformer
from universal_transformer.cli.predict import Predict
from universal_transformer.data.batch import Batch
from universal_transformer.models.components import DepthConfig, VocabularyConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.pretrained import CONFIG
from universal_transformer.nn.attention import SelfAttention
from universal_transformer.nn.step_config import HaltingConfig, Sizes
from universal_transformer.pretrained_models import find
from universal_transformer.registry import build, load_pretrained
from universal_transformer.training.objective import objective
from universal_transformer.typed import replaced

PACKAGE = Path(universal_transformer.__file__).parent
TORCH_CALLS = ("_wrapped_call_impl", "_call_impl")
"""The two functions by which torch calls a module."""
REQUESTS = 40
"""Lines that ``ut predict`` reads."""


@dataclass(frozen=True)
class Way:
    """Frames of this package between two functions, the first one first, as (file, function)."""

    calls: tuple[tuple[str, str], ...]
    torch_frames: int
    """Frames of torch that call a module, between them."""

    @property
    def frames(self) -> int:
        return len(self.calls)

    @property
    def files(self) -> int:
        return len({file for file, _ in self.calls})

    def __str__(self) -> str:
        counts = (
            f"{self.frames} frames in {self.files} files, and {self.torch_frames} frames of torch that call modules"
        )
        return "\n".join((counts, *(f"  {file:<34}{function}" for file, function in self.calls)))


def objective_to_attention() -> Way:
    """The way from `objective` to `SelfAttention.forward`."""
    model = _halting_model()
    source, target = torch.tensor([[4, 5, 6, 2], [7, 8, 2, 0]]), torch.tensor([[4, 5, 2], [7, 2, 0]])
    batch = Batch(source=source, target=target, indices=torch.arange(2))
    ways: list[Way] = []
    forward = SelfAttention.forward

    def spy(*inputs: Any, **options: Any) -> Any:
        ways.append(_way(sys._getframe(1), first=objective, last=_place(forward)))
        return forward(*inputs, **options)

    with mock.patch.object(SelfAttention, "forward", spy):
        objective(model, batch, label_smoothing=0.0, ponder_weight=0.01)
    return _longest(ways)


def predict_to_token() -> Way:
    """The way from `run` of ``ut predict`` to the choice of a token."""
    with tempfile.TemporaryDirectory() as folder, _streams("12\n" * REQUESTS):
        run = _halting_run(Path(folder) / "run")
        with _Choices(first=Predict.__call__) as choices:
            Predict(run=str(run), max_new_tokens=4)()
    return _longest(choices.ways)


class _Choices(TorchFunctionMode):
    """Records the way from `first` at each ``argmax`` that is called in `decoding`."""

    def __init__(self, *, first: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.ways = first, list[Way]()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") == "argmax":
            way = _way(sys._getframe(1), first=self.first)
            if way.calls[-1][0].startswith("decoding/"):
                self.ways.append(way)
        return function(*args, **(kwargs or {}))


def _way(frame: FrameType | None, *, first: Callable[..., Any], last: tuple[str, str] | None = None) -> Way:
    """The way from `first` to `frame`, and on to `last`, if it is given."""
    calls, torch_frames = [] if last is None else [last], 0
    while frame is not None:
        code = frame.f_code
        if Path(code.co_filename).is_relative_to(PACKAGE):
            calls.append((_file(code.co_filename), code.co_name))
        torch_frames += code.co_name in TORCH_CALLS
        if calls and calls[-1] == _place(first):
            return Way(tuple(reversed(calls)), torch_frames)
        frame = frame.f_back
    raise RuntimeError(f"{first.__name__} is not on the stack")


def _longest(ways: list[Way]) -> Way:
    if not ways:
        raise RuntimeError("the last function of the way was not called: tools/frames.py has to be changed")
    return max(ways, key=lambda way: (way.frames, way.files))


def _place(function: Callable[..., Any]) -> tuple[str, str]:
    """The file and the name of a function of this package, also where a check of its shapes is wrapped around it."""
    return _file(str(sys.modules[function.__module__].__file__)), function.__name__


def _file(name: str) -> str:
    return Path(name).relative_to(PACKAGE).as_posix()


def _halting_model() -> Any:
    """A small encoder-decoder whose positions halt on both sides, in training."""
    return build(
        ModelConfig(
            architecture="encoder_decoder",
            vocabulary=VocabularyConfig(size=12),
            sizes=Sizes(width=8, filter_width=16, num_heads=2),
            depth=DepthConfig(max_steps=3),
            halting=HaltingConfig(side="both"),
        )
    ).train()


def _halting_run(run: Path) -> Path:
    """The folder of the pretrained copy, with a model that halts after few of many steps."""
    shutil.copytree(find("copy"), run, ignore=shutil.ignore_patterns("manifest.json"))
    config = load_pretrained(run).config
    halting = {"halting.side": "both", "halting.bias": 4.0, "depth.max_steps": 8}
    model = build(replaced(config, halting))
    assert (run / "model" / CONFIG).is_file()
    model.save_pretrained(run / "model")
    return run


@contextlib.contextmanager
def _streams(text: str) -> Iterator[None]:
    """Make `text` the standard input, and show nothing of what is printed."""
    given, shown = io.TextIOWrapper(io.BytesIO(text.encode())), io.StringIO()
    with (
        mock.patch.object(sys, "stdin", given),
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(shown),
    ):
        yield


def main() -> None:
    """Print both ways."""
    torch.manual_seed(0)
    for measure in (objective_to_attention, predict_to_token):
        print(f"{measure.__name__.replace('_', ' ')}: {measure()}\n")


if __name__ == "__main__":
    main()
