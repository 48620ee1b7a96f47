"""Importing the package is free: torch is loaded when a model is first asked for, never by the command line's help."""

import ast
import inspect
import subprocess
import sys

import pytest

import universal_transformer

HEAVY = ("torch", "numpy", "tokenizers", "safetensors", "matplotlib", "sacrebleu")


def loaded(statement):
    """Which heavy packages a fresh interpreter has loaded after ``statement``."""
    code = f"import sys; {statement}; print(*[name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return result.stdout.split()


@pytest.mark.parametrize("module", ["universal_transformer", "universal_transformer.cli"])
def test_imports_are_light(module):
    assert loaded(f"import {module}") == []


def test_a_model_does_load_torch():
    assert "torch" in loaded("from universal_transformer import ModelConfig, EncoderDecoder")


@pytest.mark.parametrize("name", universal_transformer.__all__)
def test_every_public_name_is_there(name):
    assert getattr(getattr(universal_transformer, name), "__name__", name) == name  # SIZES is a dictionary


def test_tools_that_read_types_see_every_public_name():
    (guarded,) = [node for node in ast.parse(inspect.getsource(universal_transformer)).body if isinstance(node, ast.If)]
    imported = {name.name for node in ast.walk(guarded) if isinstance(node, ast.ImportFrom) for name in node.names}
    assert imported == set(universal_transformer.__all__) == set(universal_transformer._HOME)


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'Transformer'"):
        universal_transformer.Transformer  # noqa: B018
