"""How sharp the attention of a question about facts is at each step, and how much of it its supporting facts have.

The paper (section 3.1) says that it begins uniform, and becomes sharper in later steps around the supporting facts.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import log

import torch

from universal_transformer.data.example import Example
from universal_transformer.decoding.generation import evaluating
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.measure import TESTS, Selection, batches, select_examples
from universal_transformer.evaluation.report import AttentionAtStep
from universal_transformer.evaluation.tensors import batch_of, inputs_of
from universal_transformer.models.model import Model
from universal_transformer.nn.context import Kept
from universal_transformer.tasks.task import Task

BATCH_TOKENS = 2048
"""Positions of a batch: the weights of all pairs of them are kept, for each block, head and step."""


def attention_by_supports(
    model: Model, task: Task, examples: Selection = TESTS, *, options: DecodingOptions | None = None
) -> tuple[AttentionAtStep, ...]:
    """The attention of the questions of a split by their number of supporting facts and by step.

    A question counts at the steps before it halts. UserError for a task whose examples have no supporting facts, and
    for a model without steps.
    """
    sets, _ = select_examples(task, examples)
    asked = [example for chosen in sets.values() for example in chosen if example.supports]
    if not asked or not task.codec.source.several_lines or not model.config.max_steps:
        raise UserError(
            f"attention of questions: task {task.name} has no supporting facts, or the model no steps; "
            "expected a model of bAbI or stories with a depth"
        )
    depth = vars((options or DecodingOptions()).depth)
    sums = defaultdict[tuple[int, int], list[tuple[float, float]]](list)
    with evaluating(model):
        for indices in batches(model, asked, batch_tokens=BATCH_TOKENS):
            chosen = [asked[index] for index in indices]
            output = model(*inputs_of(batch_of(model, chosen), model=model), keep=Kept(attention=True), **depth)
            for row, example in enumerate(chosen):
                question = len(example.source) - 1
                weights = output.encoder.self_attention[:, row, :, question, : question + 1].float()
                made = int(output.encoder.steps[row, question])
                for step, values in enumerate(_by_step(weights, example, blocks=model.config.step.blocks)[:made], 1):
                    sums[len(example.supports), step].append(values)
    return tuple(
        AttentionAtStep(
            supports, step, len(values), *(sum(column) / len(values) for column in zip(*values, strict=True))
        )
        for (supports, step), values in sorted(sums.items())
    )


def _by_step(weights: torch.Tensor, example: Example, *, blocks: int) -> Sequence[tuple[float, float]]:
    """Entropy and mass of weights [layer, head, key] of a question at each step, the mean over heads and blocks."""
    keys, supports = weights.shape[-1], sorted(set(example.supports))
    entropy = torch.special.entr(weights).sum(-1) / log(keys)
    mass = weights[..., supports].sum(-1) * keys / len(supports)
    steps = torch.stack((entropy, mass), -1).mean(1).reshape(-1, blocks, 2).mean(1)
    return [(entropy, mass) for entropy, mass in steps.tolist()]
