"""Freed memory stays with the process where the C library supports it, so that page faults are not repeated."""

import subprocess
import sys

import pytest

from universal_transformer.cli import keep_freed_memory

FAULTS = """
import resource, torch
from universal_transformer.cli import keep_freed_memory
if {keep}:
    assert keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(16 * 2**20)  # 64 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def faults(*, keep):
    program = [sys.executable, "-c", FAULTS.format(keep=keep)]
    return int(subprocess.run(program, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="not glibc on Linux")
def test_repeated_large_tensors_cost_no_page_faults():
    assert faults(keep=True) < faults(keep=False) / 10


def test_other_systems_are_not_changed(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False
