"""A model acts in an environment: the return of its episodes, and that of the expert and of actions at random."""

import dataclasses
from collections.abc import Sequence

from universal_transformer.data.example import Frames
from universal_transformer.evaluation.metrics.classes import Accuracy
from universal_transformer.evaluation.metrics.metric import Answer, Metric
from universal_transformer.evaluation.metrics.sequence import SequenceAccuracy
from universal_transformer.evaluation.scores import ACCURACY, SEQUENCE_ACCURACY, Score, ScoreSums

RETURNS = (
    Score("mean_return", "mean return", 1, "high"),
    Score("expert_return", "return of the expert", 1, "high"),
)


class Returns(Metric):
    """Mean return of episodes in which the model acts, and that of the expert in the same episodes. The baseline draws
    actions at random; of single examples it answers the most frequent. Weights are chosen without acting.
    """

    decisive = "mean_return"
    chosen_by_loss = True
    right_or_wrong = False
    trivial_answer = "actions drawn at random"

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        returns = {score.name: sums.sums[score.name] for score in RETURNS if score.name in sums.sums}
        return returns | super().scores(sums)  # type: ignore[safe-super]  # of the other base of a metric

    def uncalibrated(self, loss: str) -> str:
        del loss
        return (
            f"{self.task.name}: the time steps of an episode depend on each other, so that their errors give no "
            "confidence; compare depths yourself: ut evaluate RUN --exit confidence:0.9"
        )

    def of_set(self, name: str, *, limit: int | None, answer: Answer | None) -> dict[str, float]:
        """The returns of the first `limit` episodes of a test set; one call chooses for all that need actions."""
        if name not in self.task.episodes:
            return {}
        source, target, given = self.codec.source, self.codec.target, self.task.episodes[name]
        episodes = dataclasses.replace(given, seeds=given.seeds[:limit])
        if answer is None:
            return {"mean_return": episodes.mean_return(episodes.mixed(seed=episodes.seeds[0]))}

        def act(frames: Sequence[Frames]) -> list[list[int]]:
            return [target.actions(sums.answer) for sums in answer([source.observed(one) for one in frames])]

        return {
            "mean_return": episodes.mean_return(act),
            "expert_return": episodes.mean_return(episodes.expert),
        }


class Actions(Returns, Accuracy):
    """One action for each answer, and the share of examples with the expert's."""

    shown = (*RETURNS, ACCURACY)


class Plans(Returns, SequenceAccuracy):
    """Several actions for each answer, which are carried out before the model is asked again, and the share of examples
    with all those of the expert.
    """

    shown = (*RETURNS, SEQUENCE_ACCURACY)
