"""What does not fit into memory is refused before it is taken."""

import pytest
import torch

from universal_transformer import memory
from universal_transformer.errors import UserError
from universal_transformer.execution.cache import KeyValueCache
from universal_transformer.memory import check_memory, free_bytes, show_bytes

CPU = torch.device("cpu")


def test_free_memory_is_the_least_of_what_the_system_and_the_container_say(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    whole = free_bytes(CPU)
    assert whole is not None
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 200\ninactive_file 300\nactive_file 100\nfile 500\n")
    assert free_bytes(CPU) == 2400, "what is kept of files can be given back"
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(CPU) > 2400
    assert free_bytes(torch.device("meta")) is None


def cache(capacity):
    return KeyValueCache(2, batch=1, num_heads=2, capacity=capacity, width=4, like=torch.zeros(1))


def test_a_cache_that_does_not_fit_says_how_large_it_is_and_what_to_do(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda _: 5000)
    assert cache(3).entries.abs().sum() == 0
    message = r"^a cache of capacity 100 for 1 sequences takes 6\.2 KiB, and 4\.9 KiB are free on cpu: ask for fewer"
    with pytest.raises(UserError, match=message):
        cache(100)
    monkeypatch.setattr(memory, "free_bytes", lambda _: None)
    check_memory(10**20, device=CPU, what="this", fix="nothing")
    with pytest.raises(UserError, match=r"^a cache .* does not fit into memory: ask for fewer"):
        cache(10**16)


def test_sizes_read_well():
    assert [show_bytes(n) for n in (0, 1023, 1536, 3 * 2**30, 2**52)] == [
        "0 B", "1,023 B", "1.5 KiB", "3.0 GiB", "4,096.0 TiB"
    ]  # fmt: skip


def test_a_cache_that_grows_counts_the_inputs_of_a_convolution(monkeypatch):
    checked = []
    monkeypatch.setattr("universal_transformer.execution.cache.check_memory", lambda size, **_: checked.append(size))
    grown = KeyValueCache(2, batch=1, num_heads=2, capacity=3, width=4, convolution=4, like=torch.zeros(1))
    grown.reorder(torch.tensor([0, 0]))
    assert grown.inputs is not None
    assert checked[-1] == grown.entries.nbytes + grown.inputs.nbytes
