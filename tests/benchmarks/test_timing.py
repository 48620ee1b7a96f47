"""The order of the turns, and the ratio of the times."""

import torch

from benchmarks.timing import alternate, median_ratio


def test_every_turn_runs_every_side_and_odd_turns_run_them_in_reverse():
    calls = []
    sides = {name: lambda name=name: calls.append(name) for name in "abc"}
    times = alternate(sides, seconds=0.0, least=3, warm_up=1)
    assert "".join(calls) == "abc" + "abc" + "cba" + "abc"
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3, "c": 3}


def test_turns_end_at_the_most():
    assert len(alternate({"a": lambda: None}, seconds=60.0, most=7)["a"]) == 7


def test_a_ratio_is_the_median_over_turns():
    assert median_ratio([2.0, 30.0, 8.0], [1.0, 1.0, 2.0]) == 4.0


def test_the_number_of_threads_is_left_alone():
    threads = torch.get_num_threads()
    alternate({"a": lambda: None}, seconds=0.0)
    assert torch.get_num_threads() == threads
