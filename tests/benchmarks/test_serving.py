"""The measurement of a server runs, and its two servers make the same number of tokens."""

import sys

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
from benchmarks import serving


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_quick_measurement_has_a_row_for_each_server_and_number_of_clients(monkeypatch, capsys):
    options = ("--quick", "--clients", "1", "2", "--turns", "1", "--seconds", "0.5")
    monkeypatch.setattr(sys, "argv", ["serving", *options])
    assert serving.main() == 0
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    expected = [(label, clients) for clients in (1, 2) for label in ("fixed depth", "halting")]
    expected.insert(1, ("generate, no server", 1))
    assert [(label.strip(), int(clients)) for label, clients in rows] == expected


def test_the_fixed_depth_has_the_weights_of_the_halting_model():
    model, _ = serving.random_language_model(serving.QUICK, share=0.5)
    other = serving.fixed(model)
    assert other.config.halting.side == "none"
    weights = model.state_dict()
    assert all(value.equal(weights[name]) for name, value in other.state_dict().items())
    assert weights.keys() - other.state_dict().keys() == {name for name in weights if ".halting." in name}


def test_a_load_counts_all_tokens_and_the_time_of_each_request(monkeypatch):
    monkeypatch.setattr(serving, "ask", lambda *_, tokens: tokens)
    found = serving.load(serving.Served(0, "", {}), [[1]], clients=3, seconds=0.05, tokens=4)
    assert len(found.seconds) >= 3
    assert found.tokens_per_second > 0
    assert serving.Load(1.0, tuple(map(float, range(100)))).slowest == 95.0
