"""Pictures to actions: what a model sees of an episode, what it is trained to do, and the episodes in which it acts."""

import math
import re

import numpy as np
import pytest

from small_task_models import model_for
from universal_transformer.cli import main
from universal_transformer.data.picture_files import encode_png
from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics import metric_of
from universal_transformer.evaluation.scores import ScoreSums
from universal_transformer.explore.episode_figures import watch, watched_episode
from universal_transformer.tasks import Codec, PlansData
from universal_transformer.tasks.environments import ENVIRONMENTS
from universal_transformer.tasks.sides.film import Film
from universal_transformer.tasks.sides.listed import Names

FEW = {"train_episodes": 2, "validation_episodes": 1, "test_episodes": 2}
FILM = Film(environment="CartPole-v1", history=3, side=12)
CODEC = Codec(FILM, Names((FILM.world.actions,)))


@pytest.mark.claim("US actions")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_source_is_the_last_pictures_and_its_target_what_the_expert_did_next(name):
    data = PlansData(environment=name, history=3, plan=2, side=8, **FEW)
    task, episodes = data.load(), data.episodes("test")
    examples, world = iter(task.test["test"]), episodes.environment
    for played in episodes.play(episodes.mixed(share=data.random_actions, seed=episodes.seeds[0])):
        expert = world.expert_actions(played.observations)
        for time in range(len(expert) - 1):
            if [*played.actions[time : time + 2]] == expert[time : time + 2]:
                example = next(examples)
                np.testing.assert_array_equal(
                    example.source, task.codec.source.observed(played.observations[: time + 1]).source
                )
                assert example.source.shape == (min(3, time + 1), 64)
                assert task.codec.target.actions(example.target) == expert[time : time + 2]
                assert task.codec.render(example.target) == " ".join(world.actions[one] for one in expert[time:][:2])
    assert next(examples, None) is None


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_picture_is_drawn_pixel_by_pixel_and_shows_no_velocity(name):
    film = Film(environment=name, history=1, side=8)
    draw = np.random.default_rng(0)
    seen = draw.uniform(-0.8, 0.8, size=(3, len(film.world.features))).astype(np.float32)
    still = seen.copy()
    still[:, [film.world.features.index(velocity) for velocity in film.world.velocities]] = 0
    pictures = film.drawn(seen)
    np.testing.assert_array_equal(film.drawn(still), pictures)
    for picture, lines in zip(pictures, film.world.lines(seen).tolist(), strict=True):
        assert picture.max() > 0.5
        for place, intensity in enumerate(picture):
            point = (place % 8 + 0.5) / 8, 1 - (place // 8 + 0.5) / 8
            nearest = min(
                math.dist(point, (x + share * (x2 - x), y + share * (y2 - y)))
                for x, y, x2, y2 in lines
                for share in np.linspace(0, 1, 401)
            )
            assert intensity == pytest.approx(min(1, max(0, 1.5 - 8 * nearest)), abs=0.01)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_position_that_is_seen_changes_the_picture(name):
    film = Film(environment=name, history=1, side=24)
    seen = np.full((1, len(film.world.features)), 0.3, dtype=np.float32)
    for feature in film.features:
        moved = seen.copy()
        moved[0, film.world.features.index(feature)] += 0.05
        assert np.abs(film.drawn(moved) - film.drawn(seen)).max() > 0.02


def test_pictures_side_by_side_in_a_file_are_read_as_they_were_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    observations = np.random.default_rng(0).normal(scale=0.2, size=(4, 4)).astype(np.float32)
    seen = FILM.observed(observations).source
    strip = np.rint(255 * seen).astype(np.uint8).reshape(3, 12, 12).swapaxes(0, 1).reshape(12, 36)
    (tmp_path / "film.png").write_bytes(encode_png(strip))
    (read,) = CODEC.read([(1, "film.png")], name="lines")
    np.testing.assert_array_equal(read.source, seen)
    assert CODEC.words(read) == ["-2", "-1", "0"]
    CODEC.save(tmp_path)
    assert Codec.load(tmp_path) == CODEC
    for columns, message in ((30, "film.png: 30 × 12 pixels; expected square pictures"), (48, "at most 36 × 12 are")):
        (tmp_path / "film.png").write_bytes(encode_png(np.zeros((12, columns), dtype=np.uint8)))
        with pytest.raises(UserError, match=re.escape(message)):
            list(CODEC.read([(1, "film.png")], name="lines"))


def test_an_answer_that_names_no_action_is_the_first_one():
    assert CODEC.target.actions((4, 3, 4)) == [1, 0, 1]
    assert CODEC.target.actions((0, 1, 4, 9)) == [1]
    assert CODEC.target.actions(()) == [0]


def test_a_model_carries_out_all_actions_of_an_answer_before_it_sees_again():
    task = PlansData(history=3, plan=2, side=8, **FEW).load()
    asked = []

    def answer(examples):
        asked.append([len(example.source) for example in examples])
        return [ScoreSums(sums={}, answer=(4, 3, 3)) for _ in examples]

    found = metric_of(task).of_set("test", limit=None, answer=answer)
    alone = task.episodes["test"].play(lambda frames: [[1, 0, 0][(len(frames[0]) - 1) % 3 :][:1]] * len(frames))
    assert found == {"mean_return": np.mean([one.total for one in alone]), "expert_return": 500}
    assert asked[0] == [1, 1]
    assert len(asked) == -(-max(len(one.actions) for one in alone) // 3)


@pytest.mark.claim("US actions")
def test_a_run_reads_pictures_writes_actions_and_is_scored_by_its_returns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = [part for name, count in FEW.items() for part in (f"--data.{name.replace('_', '-')}", str(count))]
    small = ["--model.sizes.width", "16", "--model.sizes.filter-width", "16", "--training.max-updates", "2"]
    assert main(["train", "plans-cartpole", "--run", "run", "--data.side", "12", *small, *few, "--quiet"]) == 0
    (tmp_path / "film.png").write_bytes(encode_png(np.zeros((12, 24), dtype=np.uint8)))
    capsys.readouterr()
    assert main(["predict", "run", "film.png", "--max-new-tokens", "4"]) == 0
    assert set(capsys.readouterr().out.split()) <= {"left", "right"}
    assert main(["evaluate", "run", "--limit", "2", "--max-new-tokens", "4"]) == 0
    table = capsys.readouterr().out
    assert all(words in table for words in ("mean return", "return of the expert", "actions drawn at random"))


def test_an_episode_that_a_model_acts_in_has_the_steps_of_the_pictures_before_each_action():
    task = PlansData(history=3, plan=2, side=8, **FEW).load()
    watched = watch(model_for(task, **{"generation.max_new_tokens": 3}), task)
    length = len(watched.actions)
    assert length == len(watched.expert) == len(watched.steps) == watched.total
    assert list(watched.features) == ["cart_position", "pole_angle"]
    assert len(watched_episode(watched).axes) == 2 + 1 + 2
