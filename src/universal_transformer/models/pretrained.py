"""Models on disk: ``config.json`` and ``model.safetensors``, no pickle, nothing but what the configuration names."""

import json
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.kinds import AnyModelConfig, config_from_dict
from universal_transformer.nn.block import Block
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.execution.install import HaltingExecution, install

CONFIG, WEIGHTS = "config.json", "model.safetensors"
AnyModel = TypeVar("AnyModel", bound="Pretrained")  # typing.Self is more than the shape checks can read


class Pretrained(nn.Module):
    """A model with a configuration that can be saved and loaded."""

    architecture: ClassVar[str]
    config_kind: ClassVar[type[AnyModelConfig]] = ModelConfig

    def __init__(self, config: AnyModelConfig) -> None:
        super().__init__()
        if not isinstance(config, self.config_kind):
            raise UserError(
                f"{type(config).__name__}: {type(self).__name__} needs a {self.config_kind.__name__}"
            )
        if config.architecture != self.architecture:
            raise UserError(
                f'architecture="{config.architecture}": {type(self).__name__} needs "{self.architecture}"'
            )
        self.config: AnyModelConfig = config

    def tensors(self) -> dict[str, Tensor]:
        """Every parameter and saved buffer by name, shared ones once."""
        persistent = self.state_dict(keep_vars=True)
        buffers = {name: value for name, value in self.named_buffers() if name in persistent}
        return dict(self.named_parameters()) | buffers

    def num_parameters(self) -> int:
        """Trainable numbers, shared ones once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def compile_blocks(self) -> None:
        """Compile the shared block (and every other), the part that runs ``max_steps`` times."""
        for module in self.modules():
            if isinstance(module, Block):
                module.compile(dynamic=True)

    def use_halting_execution(self, choice: HaltingExecution) -> None:
        """Leave out halted positions where the result is the same and that saves time ("auto"), or never ("masked")."""
        if choice not in get_args(HaltingExecution):
            allowed = ", ".join(get_args(HaltingExecution))
            raise UserError(f"halting_execution={choice!r}: allowed: {allowed}")
        if not any(isinstance(module, Recurrence) for module in self.modules()):
            raise UserError(
                f"halting_execution={choice!r}: {type(self).__name__} has no recurrence over depth"
            )
        install(self, choice)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` into ``folder``."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.tensors().items()}
        save_file(tensors, folder / (WEIGHTS + ".part"))
        (folder / (CONFIG + ".part")).write_text(json.dumps(self.config.to_dict(), indent=2) + "\n")
        for name in (WEIGHTS, CONFIG):
            (folder / (name + ".part")).replace(folder / name)

    @classmethod
    def from_pretrained(cls: type[AnyModel], folder: str | Path) -> AnyModel:
        """The model that :meth:`save_pretrained` wrote.

        Strict: a missing, unexpected or wrongly shaped tensor is a UserError that names it.
        """
        folder = Path(folder)
        model = cls(read_config(folder))
        model.load_tensors(folder / WEIGHTS)
        return model.eval()

    @torch.no_grad()
    def load_tensors(self, path: Path) -> None:
        """Copy every tensor of a safetensors file into this model, after checking names, shapes and kinds."""
        wanted = self.tensors()
        try:
            with safe_open(path, framework="pt") as file:
                check_names(set(file.keys()), set(wanted), path=path)
                for name, tensor in wanted.items():
                    shape = tuple(file.get_slice(name).get_shape())
                    if shape != tuple(tensor.shape):
                        raise UserError(
                            f"{path}: tensor {name} has shape {list(shape)}, "
                            f"the configuration asks for {list(tensor.shape)}"
                        )
                for name, tensor in wanted.items():
                    value = file.get_tensor(name)
                    if not value.is_floating_point():
                        raise UserError(
                            f"{path}: tensor {name} holds {value.dtype}, floating point is needed"
                        )
                    if not bool(torch.isfinite(value).all()):
                        raise UserError(f"{path}: tensor {name} holds values that are not finite")
                    tensor.copy_(value)
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; a model folder holds {CONFIG} and {WEIGHTS}") from None
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: not a readable safetensors file ({error})") from None


def check_names(found: set[str], wanted: set[str], *, path: Path) -> None:
    """UserError naming the tensors that are missing or unexpected."""
    for what, names in (("missing", wanted - found), ("unexpected", found - wanted)):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise UserError(f"{path}: {what} tensors for this configuration: {shown}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def read_config(folder: Path) -> AnyModelConfig:
    """``config.json`` of a model folder, validated."""
    path = folder / CONFIG
    try:
        if path.stat().st_size > 1_000_000:
            raise UserError(f"{path}: larger than any configuration")
        fields = json.loads(path.read_text("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a model folder holds {CONFIG} and {WEIGHTS}") from None
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a readable configuration ({error})") from None
    if not isinstance(fields, dict):
        raise UserError(f"{path}: a JSON object is needed, not {type(fields).__name__}")
    try:
        return config_from_dict(fields)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
