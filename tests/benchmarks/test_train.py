"""The operations of a benchmark against the formula for matrix products and attention."""

from benchmarks.random_models import BenchmarkSizes
from benchmarks.train import flops


def test_operations_are_six_for_each_weight_and_position_and_those_of_attention():
    shape = BenchmarkSizes(width=16, heads=2, filter_width=32, batch=2, length=8, max_steps=3)
    weights = 4 * shape.width**2 + 2 * shape.width * shape.filter_width
    attention = 2 * shape.length * shape.width
    assert flops(shape) == 6 * shape.max_steps * shape.positions * (weights + attention)
