"""Pictures to actions: the last pictures of a physical system are read, and the next actions are written.

The system is an environment of classic control, drawn in white lines on black (`Film.drawn`). A model carries out all
actions of its answer before it looks again. Examples are from episodes with a share of actions at random, as those of
`tasks.control`; an example begins at each step from which on all actions of a plan are those of the expert, because no
picture shows an action at random that is still to come.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.control import ExpertData
from universal_transformer.tasks.environments import Episode
from universal_transformer.tasks.sides.film import MOST_PICTURES, Film
from universal_transformer.tasks.sides.listed import Names
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import Range


@dataclass(frozen=True, kw_only=True)
class PlansData(ExpertData):
    """Drawn episodes of classic control, and what a scripted expert does next."""

    sides: ClassVar[Sides] = (Film, Names)
    history: Annotated[int, Range(1, MOST_PICTURES)] = 4
    """Pictures that the model sees, the present one included; the first steps of an episode have fewer."""
    side: Annotated[int, Range(8, 64)] = 24
    """Pixels of a side of a picture."""
    plan: Annotated[int, Range(1, 16)] = 4
    """Actions of an answer."""

    def load(self, saved: Saved | None = None) -> Task:
        del saved  # the codec follows from the fields
        seen = Film(environment=self.environment, history=self.history, side=self.side)
        note = (
            f"{self.environment}: the model sees up to {self.history} pictures and chooses {self.plan} actions, the "
            "expert sees positions and velocities and chooses one"
        )
        return self.task(Codec(seen, Names((self.world.actions,))), name="plans", metric="plans", note=note)

    def examples(self, codec: Codec[Any, Any], played: Episode) -> Iterator[Example]:
        film, expert = codec.source.drawn(played.observations), self.world.expert_actions(played.observations)
        for time in range(len(film) - self.plan + 1):
            planned = expert[time : time + self.plan]
            if planned == played.actions[time : time + self.plan].tolist():
                target = codec.target.encode(*(self.world.actions[action] for action in planned))
                yield Example(source=film[max(0, time + 1 - self.history) : time + 1], target=target)
