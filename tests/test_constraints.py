"""What CI installs and runs is what was looked at: packages by the hashes of their files, actions by commit."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = ("constraints.txt", "constraints-cpu.txt", "constraints-cuda.txt", "constraints-lowest.txt")
TOOLS = ("constraints-release.txt", "constraints-site.txt")


def locked(name):
    """The packages of a file -> how many hashes each has."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {key(line.split("==")[0]): len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line)) for line in lines}


def key(name):
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def needed(*extras):
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = whole["project"]
    given = project["optional-dependencies"] | whole["dependency-groups"]
    texts = project["dependencies"] + [text for extra in extras for text in given[extra]]
    return {key(re.match(r"[\w.-]+", text)[0]) for text in texts} - {key(project["name"])}


@pytest.mark.parametrize("name", FILES + TOOLS)
def test_every_package_has_a_version_and_hashes(name):
    found = locked(name)
    assert found
    assert all(found.values()), [package for package, hashes in found.items() if not hashes]


def test_all_that_is_needed_is_locked():
    extras = ("dev", "onnx", "judge", "plot", "metrics", "rouge", "tensorboard", "fetch", "sentencepiece", "pictures")
    rest = needed(*extras, "sound", "control", "serve") - locked("constraints.txt").keys()
    assert rest == {"torch"}
    assert "torch" in locked("constraints-cpu.txt").keys() & locked("constraints-cuda.txt").keys()
    assert needed() <= locked("constraints-lowest.txt").keys()


def test_pip_takes_nothing_else():
    """But for the peers of the benchmarks and for transformers' own tests, which CI does not install."""
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    used = [line for line in lines if re.search(r"pip (install|wheel|download)|\$\(COLLECT\)", line)]
    assert len(used) > 5
    for line in used:
        if "peers" not in line and "$(PEER)" not in line:
            assert re.search(r"--require-hashes|\$\(COLLECT\)|\$\(VERIFIED\)", line), line
    assert "VERIFIED = $(QUIETLY) --no-index --find-links" in lines


def test_actions_are_named_by_commit():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        actions = re.findall(r"uses: *(\S+)", path.read_text(encoding="utf-8"))
        assert actions
        assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in actions), actions
