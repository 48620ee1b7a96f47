"""The wheel holds what the package reads at run time."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def test_a_wheel_has_every_file_of_the_package(tmp_path):
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignored)
    files = {path.relative_to(tmp_path / "src").as_posix() for path in tmp_path.glob("src/**/*") if path.is_file()}
    subprocess.run([sys.executable, "-c", BUILD, "."], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == files
    assert "universal_transformer/pretrained_models/copy/model/model.safetensors" in held
