"""What is timed is what it is said to be: both sides make the same updates of the same members."""

from universal_transformer.bench import ensemble
from universal_transformer.bench.result import Settings


def test_both_sides_update_every_member():
    with ensemble._members(ensemble.QUICK) as members:
        program = ensemble.Program(members)
        before = [member.model.head.weight.clone() for member in members]
        assert not program.update()
        for member in members:
            member.update_alone()
        assert [member.standing.update for member in members] == [2] * ensemble.QUICK.members
        assert all(
            (member.model.head.weight != old).any() for member, old in zip(members, before, strict=True)
        )
        # the weights that one side changed are those that the other side goes on from
        assert (program.stacked["head.weight"][1] == members[1].model.head.weight).all()


def test_runs_per_hour_are_those_of_the_medians():
    (found,) = ensemble.run(Settings(seconds=0.05, quick=True))
    for side, seconds in found.seconds.items():
        assert found.details["runs_per_hour"][side] == 3600 * 2 / (ensemble.UPDATES * seconds)
    assert found.ratio > 0
