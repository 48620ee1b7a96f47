"""Models on disk: ``config.json`` and ``model.safetensors``, no pickle, nothing but what the configuration names."""

from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution.install import HaltingExecution, install
from universal_transformer.files import read_json, show, write_json
from universal_transformer.models.config import BaseConfig, ModelConfig, refusal
from universal_transformer.nn.block import Block
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.typed import listed

CONFIG, WEIGHTS = "config.json", "model.safetensors"
AnyModel = TypeVar("AnyModel", bound="Pretrained")  # typing.Self is more than the shape checks can read


class Pretrained(nn.Module):
    """A model with a configuration that can be saved and loaded."""

    architecture: ClassVar[str]
    config_kind: ClassVar[type[BaseConfig]] = ModelConfig

    def __init__(self, config: BaseConfig) -> None:
        super().__init__()
        if not isinstance(config, self.config_kind):
            raise UserError(f"{type(config).__name__}: {type(self).__name__} needs a {self.config_kind.__name__}")
        if config.architecture != self.architecture:
            raise UserError(f'architecture="{config.architecture}": {type(self).__name__} needs "{self.architecture}"')
        self.config: BaseConfig = config

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

    def use_halting_execution(self, choice: str) -> None:
        """Leave out halted positions where the result is the same and that saves time ("auto"), or never ("masked")."""
        if choice not in get_args(HaltingExecution):
            raise refusal("halting_execution", choice, f"allowed: {listed(get_args(HaltingExecution))}")
        if not any(isinstance(module, Recurrence) for module in self.modules()):
            raise refusal("halting_execution", choice, f"{type(self).__name__} has no recurrence over depth")
        install(self, cast("HaltingExecution", choice))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` into ``folder``."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.tensors().items()}
        staging = folder / f".{WEIGHTS}.partial"
        save_file(tensors, staging)
        staging.replace(folder / WEIGHTS)
        write_json(folder / CONFIG, self.config.to_dict())

    @classmethod
    def from_pretrained(cls: type[AnyModel], folder: str | Path) -> AnyModel:
        """The model that :meth:`save_pretrained` wrote.

        Strict: a missing, unexpected or wrongly shaped tensor is a UserError that names it.
        """
        folder = Path(folder)
        fields, where = read_config(folder), str(folder / CONFIG)
        if (kind := fields.get("kind", ModelConfig.kind)) != cls.config_kind.kind:
            raise UserError(f"{where}: kind: {cls.__name__} needs {cls.config_kind.kind}, found {show(kind)}")
        model = cls(cls.config_kind.from_dict(fields, where=where))
        model.load_tensors(folder / WEIGHTS)
        return model.eval()

    @torch.no_grad()
    def load_tensors(self, path: Path) -> None:
        """Copy every tensor of a safetensors file into this model, after checking names, shapes and kinds."""
        wanted = self.tensors()
        try:
            with safe_open(path, framework="pt") as file:
                message = f"{path}: {{}} tensors for this configuration"
                check_tensors(set(file.keys()), set(wanted), message=message)
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
                        raise UserError(f"{path}: tensor {name} holds {value.dtype}, floating point is needed")
                    if not bool(torch.isfinite(value).all()):
                        raise UserError(f"{path}: tensor {name} holds values that are not finite")
                    tensor.copy_(value)
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; a model folder holds {CONFIG} and {WEIGHTS}") from None
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: not a readable safetensors file ({error})") from None


def check_tensors(found: set[str], wanted: set[str], *, message: str) -> None:
    """UserError naming the tensors that are missing or unexpected; ``message`` has a place for this word."""
    for what, names in (("missing", wanted - found), ("unexpected", found - wanted)):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise UserError(f"{message.format(what)}: {shown}")


def read_config(folder: Path) -> dict[str, Any]:
    """Return the JSON object in ``config.json`` of a model folder."""
    path = folder / CONFIG
    if not path.exists():
        raise UserError(f"{path}: no such file; a model folder holds {CONFIG} and {WEIGHTS}")
    return read_json(path, max_bytes=1_000_000)
