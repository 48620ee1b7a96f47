"""Two texts, one with a wrong form: which of them is likelier?"""

import math
from collections.abc import Sequence
from dataclasses import replace

from universal_transformer.axes import Float, Tensor
from universal_transformer.data.example import Example, ids_of
from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics.metric import Inference, Metric
from universal_transformer.evaluation.scores import ACCURACY, ScoreSums
from universal_transformer.evaluation.tensors import Called
from universal_transformer.evaluation.trivial import TrivialBaseline

Logits = Float[Tensor, "batch target classes"]


class Ranking(Metric):
    """Share of examples whose text (the target) has a higher probability than the same with a wrong form (the source).

    The baseline prefers the text of the more frequent tokens; half of an example is right if they are equal.
    """

    architecture = "language_model"
    shown, decisive = (ACCURACY,), "accuracy"
    right_or_wrong = True
    trivial_answer = "the frequency of each token, whatever stands before it"

    def answers(self, inference: Inference, examples: Sequence[Example]) -> list[ScoreSums]:
        right = [ids_of(example.target) for example in examples]
        wrong = [ids_of(example.source) for example in examples]
        if not all(wrong):
            raise UserError("these are single texts: ranking needs texts with a right and a wrong form each")
        called = Called.with_examples(inference.model, examples, inference.options)
        logits = called.logits
        if all(good[:-1] == bad[:-1] for good, bad in zip(right, wrong, strict=True)):
            # of two texts that differ in their last word, the likelier one has the larger logit there
            ends = [logits[row, len(ids) - 1] for row, ids in enumerate(right)]
            pairs = zip(ends, right, wrong, strict=True)
            above = [bool(end[good[-1]] > end[bad[-1]]) for end, good, bad in pairs]
        else:
            others = [replace(example, target=text) for example, text in zip(examples, wrong, strict=True)]
            other = Called.with_examples(inference.model, others, inference.options).logits
            sums = zip(log_probabilities(logits, right), log_probabilities(other, wrong), strict=True)
            above = [good > bad for good, bad in sums]
        return [
            ScoreSums(sums={"right": float(hit)}, answer=(int(hit),)).after(decoder=made)
            for hit, made in zip(above, called.target_steps, strict=True)
        ]

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        return {"accuracy": sums.mean("right")}

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        right, wrong = ids_of(example.target), ids_of(example.source)
        gain = math.fsum(baseline.nats[list(wrong)]) - math.fsum(baseline.nats[list(right)])
        return ScoreSums(sums={"right": 0.5 if gain == 0 else float(gain > 0)})


def log_probabilities(logits: Logits, texts: Sequence[tuple[int, ...]]) -> list[float]:
    """``Σ_i log p(token_i | tokens before it)`` of each row, in double precision."""
    return [
        float(row[: len(ids)].double().log_softmax(-1)[range(len(ids)), ids].sum())
        for row, ids in zip(logits, texts, strict=True)
    ]
