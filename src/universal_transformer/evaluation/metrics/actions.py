"""A model acts in an environment: the return of its episodes, and that of the expert and of actions at random."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from universal_transformer.data.example import Frames
from universal_transformer.evaluation.metrics.classes import Accuracy
from universal_transformer.evaluation.metrics.metric import Answer
from universal_transformer.evaluation.scores import ACCURACY, Score, ScoreSums

RETURNS = ("mean_return", "expert_return")


class Actions(Accuracy):
    """Mean return of episodes in which the model acts, that of the expert in the same episodes, and share of examples
    with the expert's action. The baseline draws actions at random; of single examples it answers the most frequent.
    """

    shown = (
        Score("mean_return", "mean return", 1, "high"),
        Score("expert_return", "return of the expert", 1, "high"),
        ACCURACY,
    )
    decisive = "mean_return"
    right_or_wrong = False
    trivial_answer = "actions drawn at random"

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        return {name: sums.sums[name] for name in RETURNS if name in sums.sums} | super().scores(sums)

    def uncalibrated(self, loss: str) -> str:
        del loss
        return (
            f"{self.task.name}: the time steps of an episode depend on each other, so that their errors give no "
            "confidence; compare depths yourself: ut evaluate RUN --exit confidence:0.9"
        )

    def of_set(self, name: str, *, limit: int | None, answer: Answer | None) -> dict[str, float]:
        """The returns of the first `limit` episodes of a test set; one forward pass chooses the actions of all."""
        if name not in self.task.episodes:
            return {}
        source, given = self.codec.source, self.task.episodes[name]
        episodes = dataclasses.replace(given, seeds=given.seeds[:limit])
        if answer is None:
            return {"mean_return": episodes.mean_return(episodes.mixed(seed=episodes.seeds[0]))}

        def act(frames: Sequence[Frames]) -> list[int]:
            return [sums.answer[0] for sums in answer([source.observed(one) for one in frames])]

        return {
            "mean_return": episodes.mean_return(act),
            "expert_return": episodes.mean_return(episodes.expert),
        }
