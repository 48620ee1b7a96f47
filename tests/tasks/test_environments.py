"""Classic control: facts of the environments, experts, and episodes that are stepped together."""

import sys

import gymnasium
import numpy as np
import pytest

from universal_transformer.errors import UserError
from universal_transformer.tasks.environments import ENVIRONMENTS, Episodes

NAMES = list(ENVIRONMENTS)


@pytest.mark.parametrize("name", NAMES)
def test_features_and_actions_are_those_of_gymnasium(name):
    environment, world = ENVIRONMENTS[name], gymnasium.make(name)
    assert environment.name == name
    assert world.observation_space.shape == (len(environment.features),) == (len(environment.spread),)
    assert world.action_space.n == len(environment.actions)
    assert set(environment.velocities) < set(environment.features)
    hidden = [environment.features[place] for place in environment.visible(hide_velocities=True)]
    assert not any("velocity" in feature for feature in hidden)
    assert environment.visible(hide_velocities=False) == list(range(len(environment.features)))


@pytest.mark.parametrize(
    ("name", "least", "most"), [("CartPole-v1", 500, 50), ("Acrobot-v1", -110, -400), ("MountainCar-v0", -140, -190)]
)
def test_an_expert_reaches_what_random_actions_do_not(name, least, most):
    episodes = Episodes(ENVIRONMENTS[name], tuple(range(8)))
    assert episodes.mean_return(episodes.expert) >= least
    assert episodes.mean_return(episodes.mixed(seed=0)) <= most


@pytest.mark.parametrize("name", NAMES)
def test_episodes_stepped_together_are_those_of_a_loop(name):
    """Also of different lengths: a policy of the history alone, some of whose episodes end early."""

    def act(frames):
        return [[int(1000 * abs(float(one.sum()))) % len(ENVIRONMENTS[name].actions)] for one in frames]

    seeds = (3, 14, 15)
    together = Episodes(ENVIRONMENTS[name], seeds).play(act)
    for seed, found in zip(seeds, together, strict=True):
        world = gymnasium.make(name)
        observation, _ = world.reset(seed=seed)
        seen, done, total, ended = [observation], [], 0.0, False
        while not ended:
            done += act([np.stack(seen)])[0]
            observation, reward, terminated, truncated, _ = world.step(done[-1])
            seen.append(observation)
            total, ended = total + reward, terminated or truncated
        np.testing.assert_array_equal(found.observations, np.stack(seen[:-1]))
        assert found.actions.tolist() == done
        assert found.total == total


def test_a_policy_is_asked_again_when_its_actions_are_carried_out():
    asked, episodes = [], Episodes(ENVIRONMENTS["CartPole-v1"], (0, 1))

    def act(frames):
        asked.append([len(one) for one in frames])
        return [[0, 1, 1], [1, 0]][: len(frames)] if len(asked) == 1 else [[1, 0, 0, 1] for _ in frames]

    first, second = (episode.actions.tolist() for episode in episodes.play(act))
    assert asked[:3] == [[1, 1], [3], [4]]
    assert first[:7] == [0, 1, 1, 1, 0, 0, 1]
    assert second[:6] == [1, 0, 1, 0, 0, 1]


def test_actions_at_random_are_a_share_of_those_of_the_expert():
    episodes = Episodes(ENVIRONMENTS["CartPole-v1"], tuple(range(8)))
    for share in (0.0, 0.3, 1.0):
        played = episodes.play(episodes.mixed(share=share, seed=1))
        wanted = np.concatenate([episodes.environment.expert_actions(one.observations) for one in played])
        other = np.mean(wanted != np.concatenate([one.actions for one in played]))
        assert other == pytest.approx(share / 2, abs=0.0 if share == 0 else 0.1), (
            "half of them are the expert's by chance"
        )


def test_without_gymnasium_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    episodes = Episodes(ENVIRONMENTS["CartPole-v1"], (0,))
    with pytest.raises(UserError, match=r"pip install 'universal-transformer\[control\]'"):
        episodes.play(episodes.expert)
