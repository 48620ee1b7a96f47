"""Memory that a process keeps: freed memory where the C library supports it, and a limited number of kernels."""

import os
import subprocess
import sys

import pytest

import forked
from universal_transformer.cli import keep_few_kernels, keep_freed_memory

FAULTS = """
import resource, torch
from universal_transformer.cli import keep_freed_memory
if {keep}:
    assert keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(16 * 2**20)  # 64 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
for _ in range(3):  # the first blocks may lie at places that later ones cannot use
    faults()
print(faults())
"""


def faults(script, *, keep):
    script.write_text(FAULTS.format(keep=keep))
    return int(forked.run(script).stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="not glibc on Linux")
def test_repeated_large_tensors_cost_no_page_faults(tmp_path):
    assert faults(tmp_path / "kept.py", keep=True) < faults(tmp_path / "freed.py", keep=False) / 10


def test_other_systems_are_not_changed(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False


def test_few_kernels_are_kept_unless_the_user_asks_for_another_number(monkeypatch):
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    keep_few_kernels()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "128"
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"


def test_the_number_of_kernels_is_limited_before_torch_is_imported():
    program = """
import os, sys
from universal_transformer import cli
limit = cli.keep_few_kernels
cli.keep_few_kernels = lambda: (limit(), print("torch" in sys.modules))
cli.main(["recipes"])
print(os.environ["LRU_CACHE_CAPACITY"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "LRU_CACHE_CAPACITY"}
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    first, *_, last = made.stdout.split("\n")[:-1]
    assert (first, last) == ("False", "128")
