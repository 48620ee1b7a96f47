"""Models on disk: ``config.json`` and ``model.safetensors``, no pickle, nothing but what the configuration names."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError, refusal
from universal_transformer.execution.compaction import HaltingExecution, install
from universal_transformer.files import read_json, refuse_special, show, show_path, write_bytes, write_json
from universal_transformer.manifest import MANIFEST, MODEL, check_content
from universal_transformer.models.components import Writes
from universal_transformer.models.model_config import BaseConfig, config_from_dict
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.pretrained_models import find, known
from universal_transformer.typed import listed, replaced

CONFIG, WEIGHTS = "config.json", "model.safetensors"
HOLDS = f"a model folder holds {CONFIG} and {WEIGHTS}"
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types of numbers that a file of weights may hold."""
KEPT = {"BF16": torch.bfloat16, "F64": torch.float64}
"""Types that a loaded model has where all its weights have it, by their names in such a file."""
MAX_HEADER = 16 * 2**20  # bytes
Shape = tuple[int, ...]
AnyModel = TypeVar("AnyModel", bound="Pretrained")  # typing.Self is more than the shape checks can read


class Pretrained(nn.Module):
    """A model with a configuration that can be saved and loaded.

    A configuration whose ``architecture`` was left at its default gets that of the class.
    """

    architecture: ClassVar[str]
    writes: ClassVar[Writes] = "tokens"
    pipeline: ClassVar[str] = ""
    """What a hub of models calls a model of texts of this class; empty: nothing."""

    def __init__(self, config: BaseConfig) -> None:
        super().__init__()
        if not isinstance(config, BaseConfig):
            raise UserError(f"{type(self).__name__}: found {show(config)}; expected a configuration of a model")
        if config.architecture == BaseConfig.architecture != self.architecture:
            config = replaced(config, {"architecture": self.architecture})
        self.check_config(config)
        self.config: BaseConfig = config

    @classmethod
    def check_config(cls, config: BaseConfig, *, where: str = "") -> None:
        if config.architecture != cls.architecture:
            raise UserError(f'{where}architecture="{config.architecture}": {cls.__name__} needs "{cls.architecture}"')
        if config.writes != cls.writes:
            raise UserError(
                f"{where}{cls.__name__} writes {cls.writes}; this configuration is of one that writes {config.writes}"
            )

    def tensors(self) -> dict[str, Tensor]:
        """Every parameter and saved buffer by name, shared ones once."""
        persistent = self.state_dict(keep_vars=True)
        buffers = {name: value for name, value in self.named_buffers() if name in persistent}
        return dict(self.named_parameters()) | buffers

    def num_parameters(self) -> int:
        """Trainable numbers, shared ones once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def compile_blocks(self) -> None:
        """Compile the shared block (and every other), the part that runs ``max_steps`` times.

        torch makes a program for each way of calling a block: with and without padding and gradients, and at each
        layer of untied weights. Beyond its limit, which is 8, calls would not be compiled.
        """
        torch.compiler.config.recompile_limit = max(64, torch.compiler.config.recompile_limit)
        for module in self.modules():
            if getattr(module, "repeats", False):
                module.compile(dynamic=True)

    def use_halting_execution(self, choice: str) -> None:
        """Leave out halted positions where the result is the same and that saves time ("auto"), or never ("masked")."""
        if choice not in get_args(HaltingExecution):
            raise refusal("halting_execution", choice, f"allowed: {listed(get_args(HaltingExecution))}")
        if not any(isinstance(module, Recurrence) for module in self.modules()):
            raise refusal("halting_execution", choice, f"{type(self).__name__} has no recurrence over depth")
        install(self, cast("HaltingExecution", choice))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` into ``folder``, each whole or not at all.

        UserError for a model that would not come back: with other tensors than those of its configuration, because it
        was quantised, parametrised, adapted or untied, or with numbers that are not finite.
        """
        folder = Path(folder)
        self._check_complete(show_path(folder))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{show_path(folder)}: {error.strerror}; expected the name of a folder") from error
        (folder / MANIFEST).unlink(missing_ok=True)  # of the files that are replaced
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.tensors().items()}
        write_bytes(folder / WEIGHTS, save(tensors))
        write_json(folder / CONFIG, self.config.to_dict())

    def _check_complete(self, where: str) -> None:
        tensors, not_saved = self.tensors(), f"{where}: the model is not saved"
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        remedy = "; take quantisation, parametrisations and adapters away first, or save state_dict() yourself"
        try:
            check_shapes(found, _shapes(type(self), self.config, where=where), name=not_saved)
        except UserError as error:
            raise UserError(f"{error}{remedy}") from None
        for name, tensor in tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                raise UserError(f"{not_saved}: tensor {name} holds values that are not finite")

    @classmethod
    def from_pretrained(cls: type[AnyModel], folder: str | Path) -> AnyModel:
        """The model that :meth:`save_pretrained` wrote into ``folder``, or that of the training run in ``folder``.

        ``folder`` can be the name of a pretrained model. Weights of 64 bits or of bfloat16 stay so; those of 16 bits
        (float16), a form of storage, become float32.

        Strict: a missing, unexpected or wrongly shaped tensor is a UserError that names it. Memory is allocated only
        after the names and shapes in the file have been compared with the configuration. If there is a manifest.json,
        as in a run, the files are compared with it first.
        """
        folder = find_model(folder)
        check_files(folder)
        where, path = show_path(folder / CONFIG), folder / WEIGHTS
        config = config_from_dict(read_config(folder), where=where)
        cls.check_config(config, where=f"{where}: ")
        with _readable(path) as file:  # only its header is read
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no dict
            found = {name: tuple(part.get_shape()) for name, part in slices.items()}
            stored = {part.get_dtype() for part in slices.values()}
        check_shapes(found, _shapes(cls, config, where=where), name=show_path(path))
        model = cls(config)
        for dtype in [KEPT[name] for name in stored if name in KEPT and len(stored) == 1]:
            model = model.to(dtype)
        with _readable(path) as file:
            for name, tensor in model.tensors().items():
                fill(tensor, file.get_tensor(name), name=f"{path}: tensor {name}")
        return model.eval()


@torch.no_grad()
def fill(place: Tensor, value: Tensor, *, name: str) -> None:
    """Copy the numbers of a file; UserError unless they are floating point and finite."""
    if value.dtype not in FLOATING:
        raise UserError(f"{name} holds {value.dtype}, floating point of 16 to 64 bits is needed")
    value = value.to(place.dtype)  # before the look: a large number of float64 is infinite in float32
    if not bool(torch.isfinite(value).all()):
        raise UserError(f"{name} holds values that are not finite")
    place.copy_(value)


def find_model(folder: str | Path) -> Path:
    """Return the folder with a model's weights: ``folder``, or ``folder/model`` if it is the folder of a run.

    The name of a pretrained model stands for its folder.
    """
    folder = find(folder)
    places = (folder, folder / MODEL)
    try:
        for place in places:
            if os.path.lexists(place / WEIGHTS):
                return place
        absent = WEIGHTS if (folder / CONFIG).exists() else CONFIG
    except OSError as error:  # a name that is too long, say
        raise UserError(f"{show(str(folder))}: {error.strerror}; {HOLDS}") from error
    looked = " and ".join(map(show_path, places))
    raise UserError(f"{show_path(folder / absent)}: no such file; {HOLDS}; looked in {looked}{known(folder)}")


def check_files(folder: Path) -> None:
    """UserError for a file that differs from the folder's manifest; one that was saved alone has none."""
    if not os.path.lexists(folder / MANIFEST):
        return
    try:
        check_content(folder)
    except UserError as error:
        raise UserError(f"{error}: damaged, or changed by hand (then delete {MANIFEST})") from error


def check_shapes(found: Mapping[str, Shape], wanted: Mapping[str, Shape], *, name: str) -> None:
    """UserError naming a tensor of the file ``name`` that is missing, unexpected or of another shape."""
    for problem, names in (("missing", wanted.keys() - found.keys()), ("unexpected", found.keys() - wanted.keys())):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise UserError(f"{name}: {problem} tensors for this configuration: {shown}")
    for tensor, shape in wanted.items():
        if found[tensor] != shape:
            raise UserError(
                f"{name}: tensor {tensor} has shape {list(found[tensor])}, the configuration asks for {list(shape)}"
            )


def _shapes(kind: type[Pretrained], config: BaseConfig, *, where: str) -> dict[str, Shape]:
    try:
        with torch.device("meta"):
            return {name: tuple(tensor.shape) for name, tensor in kind(config).tensors().items()}
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise UserError(f"{where}: a tensor of this configuration would have 2^63 bytes or more") from error


@contextmanager
def _readable(path: Path) -> Iterator[Any]:
    """Open a safetensors file; UserError for one that is missing, damaged, no file, or has a huge header."""
    refuse_special(path)
    try:
        with path.open("rb") as raw:
            if int.from_bytes(raw.read(8), "little") > MAX_HEADER:
                raise OSError(f"its header is longer than {MAX_HEADER:,} bytes")
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError:
        raise UserError(f"{show_path(path)}: no such file; {HOLDS}") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{show_path(path)}: not a readable safetensors file ({show(str(error))})") from None


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.exists():
        raise UserError(f"{show_path(path)}: no such file; {HOLDS}")
    return read_json(path, max_bytes=1_000_000)
