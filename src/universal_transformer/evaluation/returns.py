"""A model acts in an environment: the return of its episodes, and that of the expert and of actions at random."""

from __future__ import annotations

from collections.abc import Sequence

from universal_transformer.data.example import Frames
from universal_transformer.evaluation.scores import GroupSums, ScoreSums
from universal_transformer.evaluation.scoring import Scorer
from universal_transformer.tasks.control import ControlCodec
from universal_transformer.tasks.environments import Episodes


def add_returns(
    name: str, sums: GroupSums, trivial: GroupSums, *, scorer: Scorer, episodes: Episodes, limit: int | None
) -> None:
    """Add the returns of the first `limit` episodes to the sums of the test set `name`, and to those of a baseline.

    All episodes that go on are stepped together: one forward pass chooses their actions.
    """
    codec, few = scorer.codec, Episodes(episodes.environment, episodes.seeds[:limit])
    assert isinstance(codec, ControlCodec), "the metric actions is that of control"

    def act(frames: Sequence[Frames]) -> list[int]:
        return [found.answer[0] for found in scorer([codec.example(one) for one in frames])]

    returns = {"mean_return": few.mean_return(act), "expert_return": few.mean_return(few.expert)}
    sums.groups[name, ""].add(ScoreSums(count=0, sums=returns))
    if trivial.groups:
        random = few.mean_return(few.at_random(seed=few.seeds[0]))
        trivial.groups[name, ""].add(ScoreSums(count=0, sums={"mean_return": random}))
