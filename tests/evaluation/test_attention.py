"""The attention of questions by step and number of supporting facts, against a naive loop over one story at a time."""

from collections import defaultdict
from dataclasses import replace
from math import log

import pytest
import torch

from small_task_models import model_for
from universal_transformer.errors import UserError
from universal_transformer.evaluation.attention_mass import attention_by_supports
from universal_transformer.evaluation.measure import Selection, evaluate
from universal_transformer.evaluation.report import Report, StepCounts
from universal_transformer.evaluation.tensors import batch_of
from universal_transformer.explore.figures import attention_by_step
from universal_transformer.nn.context import Kept


def naive(model, examples):
    """Entropy and mass for each number of supporting facts and step, one weight at a time."""
    values = defaultdict(list)
    for example in examples:
        with torch.no_grad():
            trace = model(batch_of(model, [example]).source, keep=Kept(attention=True)).encoder
        count, blocks = len(example.source), model.config.step.blocks
        for step in range(int(trace.steps[0, count - 1])):
            rows = [
                trace.self_attention[step * blocks + block, 0, head, count - 1].tolist()
                for block in range(blocks)
                for head in range(trace.self_attention.shape[2])
            ]
            entropy = [-sum(a * log(a) for a in row if a > 0) / log(count) for row in rows]
            mass = [sum(row[fact] for fact in example.supports) / (len(example.supports) / count) for row in rows]
            values[len(example.supports), step + 1].append((sum(entropy) / len(rows), sum(mass) / len(rows)))
    return {
        place: (len(some), sum(entropy for entropy, _ in some) / len(some), sum(mass for _, mass in some) / len(some))
        for place, some in sorted(values.items())
    }


@pytest.mark.claim("section 3.1")
@pytest.mark.parametrize("changes", [{"step.blocks": 2}, {"halting": True}], ids=["two blocks", "halting"])
def test_attention_of_questions_is_that_of_a_naive_loop(stories, changes):
    model = model_for(stories, **changes)
    measured = attention_by_supports(model, stories)
    expected = naive(model, stories.test["test"])
    assert {(at.num_supports, at.step): at.count for at in measured} == {at: row[0] for at, row in expected.items()}
    for at in measured:
        _, entropy, mass = expected[at.num_supports, at.step]
        assert (at.entropy, at.mass) == pytest.approx((entropy, mass), rel=1e-4)
        assert 0 <= at.entropy <= 1
    assert any(at.mass > 0.1 for at in measured)


def test_the_report_keeps_prints_and_draws_it(stories):
    model = model_for(stories)
    asked = attention_by_supports(model, stories, Selection(limit=5))
    report = replace(evaluate(model, stories, Selection(limit=5)), attention=asked)
    assert Report.from_dict(report.to_dict()) == report
    text = "\n".join(report.lines())
    assert "attention of questions to supporting facts, relative to uniform attention" in text
    assert f"{asked[0].entropy:.2f}" in text
    supports = {at.num_supports for at in asked}
    assert [len(ax.lines) for ax in attention_by_step(report).axes] == [len(supports) + 1] * 2


def test_what_has_no_supporting_facts_is_refused(copying):
    with pytest.raises(UserError, match="no supporting facts"):
        attention_by_supports(model_for(copying), copying)


@pytest.mark.claim("section 3.1")
def test_a_uniform_histogram_of_steps_has_uniformity_one():
    assert StepCounts("encoder", (5, 5, 5, 5)).uniformity == pytest.approx(1)
    assert StepCounts("encoder", (7, 0, 0, 0)).uniformity == 0
    assert StepCounts("encoder", (1, 1, 0, 0)).uniformity == pytest.approx(1 / 2)
    assert StepCounts("encoder", ()).uniformity == 0
