"""What does not fit into memory is refused before it is taken."""

import pytest
import torch

from universal_transformer.errors import UserError
from universal_transformer.nn import memory
from universal_transformer.nn.memory import allocate, check_room, free_bytes, show_bytes

CPU = torch.device("cpu")


def test_free_memory_is_the_least_of_what_the_system_and_the_container_say(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    whole = free_bytes(CPU)
    assert whole is not None
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert free_bytes(CPU) == 2000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(CPU) > 2000
    assert free_bytes(torch.device("meta")) is None


def test_what_does_not_fit_says_how_much_it_is_and_what_to_do(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda _: 5000)
    found = allocate((3, 4), dtype=torch.float64, device=CPU, what="this", fix="ask for less")
    assert (found.shape, found.dtype, float(found.abs().sum())) == ((3, 4), torch.float64, 0.0)
    with pytest.raises(UserError, match=r"^this takes 5\.1 KiB, and 4\.9 KiB are free on cpu: ask for less$"):
        allocate((1300,), dtype=torch.float32, device=CPU, what="this", fix="ask for less")
    monkeypatch.setattr(memory, "free_bytes", lambda _: None)
    check_room(10**20, device=CPU, what="this", fix="nothing")
    with pytest.raises(UserError, match=r"^this does not fit into memory: ask for less$"):
        allocate((10**17,), dtype=torch.float32, device=CPU, what="this", fix="ask for less")


def test_sizes_read_well():
    assert [show_bytes(n) for n in (0, 1023, 1536, 3 * 2**30, 2**52)] == [
        "0 B", "1,023 B", "1.5 KiB", "3.0 GiB", "4,096.0 TiB"
    ]  # fmt: skip
