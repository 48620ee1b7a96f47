"""A record names the commit of its code, and says whether the code was changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = "from universal_transformer.training.provenance import code_in_use; print(code_in_use().clean)"


@pytest.mark.parametrize(
    ("file", "clean"),
    [
        ("results/paper/table1.jsonl", True),
        ("paper/fixed_length.py", False),
        ("src/universal_transformer/errors.py", False),
    ],
)
def test_code_is_clean_only_where_the_library_and_the_tables_are_as_committed(tmp_path, file, clean):
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(tmp_path / "clone")], check=True)
    with (tmp_path / "clone" / file).open("a") as changed:
        changed.write("\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "clone" / "src")}
    command = [sys.executable, "-c", SHOWN]
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert found.stdout.strip() == str(clean)
