"""The wheel holds what the package reads at run time."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from setuptools import find_namespace_packages

from universal_transformer import members
from universal_transformer.cli import clone, main

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools.build_meta import build_sdist, build_wheel; build_sdist('.'); build_wheel('.')"


def test_a_wheel_and_a_source_archive_have_every_file_of_the_package(tmp_path):
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignored)
    for beside in ("paper", "benchmarks"):
        (tmp_path / beside).mkdir()
        shutil.copy(ROOT / beside / "__init__.py", tmp_path / beside)
    files = {path.relative_to(tmp_path / "src").as_posix() for path in tmp_path.glob("src/**/*") if path.is_file()}
    subprocess.run([sys.executable, "-c", BUILD], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == files
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames() if not archive.getmember(name).isdir()}
    assert {f"src/{name}" for name in files} <= inside
    assert not any(name.startswith(("paper", "benchmarks")) for name in inside)
    assert "universal_transformer/pretrained_models/copy/model/model.safetensors" in held


def test_the_wheel_has_the_library_alone():
    """The tables of the paper, the benchmarks, the studies and the tools stand beside it."""
    chosen = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    assert chosen == {"find": {"where": ["src"]}}
    packages = find_namespace_packages(str(ROOT / "src"), exclude=["*.egg-info", "*.egg-info.*"])
    assert {name.partition(".")[0] for name in packages} == {"universal_transformer"}
    assert all((ROOT / beside).is_dir() for beside in ("paper", "benchmarks", "experiments", "tools"))


@pytest.mark.parametrize("command", ["reproduce", "bench"])
def test_an_installed_package_says_where_its_clone_is(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(clone, "CLONE", tmp_path)
    monkeypatch.setattr(members, "OTHERS", [])  # those of an earlier command in this process
    assert main([command, "--help"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ut: ut {command}: not part of the installed package; run it in a clone of ")
    assert said.count("\n") == 1
    assert main(["recipes"]) == 0
    assert "table1" not in capsys.readouterr().out
