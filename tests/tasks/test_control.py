"""Observations to actions: what a model sees of an episode, what it is scored by, and files of observations."""

import json
import re

import numpy as np
import pytest
import torch

from small_task_models import TINY, model_for
from universal_transformer.cli import main
from universal_transformer.data.example import Example
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.measure import Selection, evaluate
from universal_transformer.evaluation.metrics import metric_of
from universal_transformer.evaluation.prediction import predict
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.explore.episode_figures import watch, watched_episode
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.universal import Classifier
from universal_transformer.nn.trace import Trace
from universal_transformer.tasks import Codec
from universal_transformer.tasks.control import ControlData
from universal_transformer.tasks.environments import ENVIRONMENTS
from universal_transformer.tasks.sides.listed import Classes
from universal_transformer.tasks.sides.observations import MOST_FRAMES, Observations
from universal_transformer.training.run_config import TrainingConfig
from universal_transformer.training.task_metric import TaskMetric

FEW = {"train_episodes": 2, "validation_episodes": 1, "test_episodes": 3}
POLE = ControlData(history=3, **FEW)  # a model that was not trained ends its episodes soon


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_a_source_is_the_last_observations_and_the_class_is_what_the_expert_does_in_the_last(name, hidden):
    data = ControlData(environment=name, history=3, hide_velocities=hidden, **FEW)
    task, episodes = data.load(), data.episodes("test")
    played = episodes.play(episodes.mixed(share=data.random_actions, seed=episodes.seeds[0]))
    world = episodes.environment
    seen = world.visible(hide_velocities=hidden)
    spread = np.array(world.spread, dtype=np.float32)[seen]
    examples = iter(task.test["test"])
    for one in played:
        for time, action in enumerate(world.expert_actions(one.observations)):
            example = next(examples)
            wanted = one.observations[max(0, time - 2) : time + 1, seen]
            np.testing.assert_allclose(example.source * spread, wanted, rtol=1e-6, atol=1e-7)
            assert example.target == action
    assert next(examples, None) is None


def test_parts_and_seeds_have_first_states_of_their_own():
    seeds = [
        seed
        for data in (ControlData(seed=0), ControlData(seed=1))
        for part in ("train", "validation", "test")
        for seed in data.episodes(part).seeds
    ]
    assert len(seeds) == len(set(seeds)) == 2 * (100 + 10 + 100)
    first, again, other = (ControlData(environment="MountainCar-v0", seed=seed, **FEW).load() for seed in (0, 0, 1))
    same = zip(first.train, again.train, strict=True)
    assert all(np.array_equal(one.source, two.source) and one.target == two.target for one, two in same)
    assert not np.array_equal(first.train[0].source, other.train[0].source)


class Scripted(Classifier):
    """The expert of CartPole, with velocities that it sees, or from the last two observations; of one, none."""

    asked: list[int]

    def forward(self, source, **_):
        blank, rows = source.isnan().all(-1), torch.arange(len(source))
        last = (~blank).sum(1) - 1
        now, before = source[rows, last], source[rows, (last - 1).clamp(min=0)]
        spread = torch.tensor(ENVIRONMENTS["CartPole-v1"].spread)
        if source.shape[2] == 4:
            position, speed, angle, turn = (now * spread).T
        else:
            position, angle = (now * spread[[0, 2]]).T
            speed, turn = ((now - before) * spread[[0, 2]] / 0.02).T
        push = angle + 0.25 * turn + 0.02 * position + 0.06 * speed
        self.asked.append(len(source))
        steps = torch.ones(blank.shape)
        return ModelOutput(
            torch.stack([-push, push], dim=1), Trace(steps, torch.zeros_like(steps), blank, torch.tensor(0.0)), None
        )


def scripted(task):
    model = Scripted(model_for(task, **{"outputs.pooling": "last"}).config)
    model.asked = []
    return model


@pytest.mark.parametrize(("history", "least", "most"), [(2, 500, 500), (1, 25, 100)])
def test_the_return_of_a_pole_needs_a_history_where_velocities_are_hidden(history, least, most):
    task = ControlData(history=history, **FEW).load()
    report = evaluate(scripted(task), task)
    assert least <= report.totals[0].metrics["mean_return"] <= most
    assert report.totals[0].metrics["expert_return"] == 500
    assert report.headline == "mean_return"
    assert not report.totals[0].baseline


def test_a_model_that_acts_as_the_expert_has_its_return():
    task = ControlData(history=1, hide_velocities=False, **FEW).load()
    (total,) = evaluate(scripted(task), task).totals
    assert total.metrics == {"mean_return": 500, "expert_return": 500, "accuracy": pytest.approx(1, abs=1e-3)}


def test_one_pass_chooses_the_actions_of_all_episodes_that_go_on():
    task = ControlData(history=1, **FEW).load()
    model = scripted(task)
    found = evaluate(model, task).totals[0]
    acting = [rows for rows in model.asked if rows <= 3]
    assert acting[0] == 3
    assert acting == sorted(acting, reverse=True)
    assert sum(acting) == pytest.approx(3 * found.metrics["mean_return"])  # each step of a pole is worth 1


def acts_as(model, codec):
    """The policy of a model, one episode after the other."""
    return lambda frames: [
        [codec.source.world.actions.index(next(iter(predict(model, codec, [codec.source.observed(one)]))).text)]
        for one in frames
    ]


@torch.no_grad()
def test_scores_stand_beside_random_actions_and_do_not_depend_on_batches():
    task = POLE.load()
    model = model_for(task, **{"outputs.pooling": "last"})
    baseline = TrivialBaseline.learn(task.train, model.config)
    report = evaluate(model, task, baseline=baseline)
    (total,) = report.totals
    assert set(total.metrics) == {"mean_return", "expert_return", "accuracy"}
    assert set(total.baseline) == {"mean_return", "accuracy"}
    assert total.baseline["mean_return"] < 60
    assert report.baseline == "actions drawn at random"
    assert "3 test episodes" in report.notes[0]
    small = evaluate(model, task, baseline=baseline, batch_tokens=600)
    assert small.totals == report.totals
    returns = [evaluate(model, task, Selection(limit=limit)).totals[0].metrics["mean_return"] for limit in (1, 2)]
    alone = [episode.total for episode in task.episodes["test"].play(acts_as(model, task.codec))]
    assert returns == [alone[0], sum(alone[:2]) / 2]
    few = task.test["test"][:5]
    together = [found.text for found in predict(model, task.codec, few)]
    assert together == [next(iter(predict(model, task.codec, [example]))).text for example in few]
    if total.metrics["mean_return"] <= total.baseline["mean_return"]:
        assert "not better than the baseline" in report.warnings[-1]


def test_an_example_is_right_or_wrong_and_weights_are_chosen_without_acting():
    metric = metric_of(POLE.load())
    answers = [metric.sums(Example(source=(), target=1), given) for given in (1, 0)]
    assert [metric.example_score(one) for one in answers] == [1.0, 0.0]
    assert TaskMetric.of(POLE.load(), TrainingConfig(max_updates=1, select_by="metric")) is None


def test_the_depth_of_a_call_is_that_of_its_episodes():
    task = POLE.load()
    model = model_for(task, **{"outputs.pooling": "last"})
    report = evaluate(model, task, options=DecodingOptions(max_steps=1))
    assert report.max_steps == 1
    assert set(report.totals[0].metrics) == {"mean_return", "expert_return", "accuracy"}


def test_a_codec_reads_lists_and_tables_and_names_actions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Codec(Observations(environment="CartPole-v1", history=3, hide_velocities=True), Classes(("left", "right")))
    made.save(tmp_path)
    codec = Codec.load(tmp_path)
    assert codec == made
    assert [codec.render(action) for action in (0, 1)] == ["left", "right"]
    (tmp_path / "a.csv").write_text("cart_position,pole_angle\n0.3,0.02\n\n0.6, 0.04\n")
    (tmp_path / "b.CSV").write_text("0.3,0.02\n0.6,0.04\n")
    lines = ["[[0.3, 0.02], [0.6, 0.04]]", "a.csv", " ", "b.CSV", "[0.3, 0.02]"]
    found = list(codec.read(enumerate(lines, start=1), name="lines"))
    for one in found[:3]:
        np.testing.assert_allclose(one.source, [[1, 1], [2, 2]], rtol=1e-6)
        assert codec.words(one) == ["-1", "0"]
    assert found[3].source.shape == (1, 2)


WRONG = {
    "[[0.1, 0.2, 0.3]]": "lines:1: 3 numbers in an observation; expected 2 numbers (cart_position, pole_angle)",
    "[]": "lines:1: 0 numbers in an observation",
    "[[0.1, 0.2], 3]": "lines:1: found [0.1, 0.2] in an observation; expected a number",
    '[["0.1", 0.2]]': "lines:1: found '0.1' in an observation; expected a number",
    "[[true, 0.2]]": "lines:1: found True in an observation; expected a number",
    "[[NaN, 0.2]]": "lines:1: the number 'NaN' in JSON; expected a finite number",
    "[[3e38, 0.2]]": "lines:1: 3e+38 in an observation; expected a finite number",
    "[[1e39, 0.2]]": "lines:1: 1e+39 in an observation; expected a finite number",
    '{"position": 1}': "lines:1: found '{\"position\": 1}'; expected a list of observations, 2 numbers",
    "left": "lines:1: not valid JSON",
    "[[1,2],[1,2],[1,2],[1,2]]": "lines:1: more than 3 observations; this run takes at most 3 (--data.history",
    "none.csv": "none.csv: no such file",
    "empty.csv": "empty.csv:1: the file is empty",
    "head.csv": "head.csv:1: no observation; expected 2 numbers (cart_position, pole_angle) a line",
    "nan.csv": "nan.csv:2: nan in an observation; expected a finite number",
    "word.csv": "word.csv:1: found 'left' in an observation; expected a number",
    "order.csv": "order.csv:1: the columns pole_angle, cart_position; expected cart_position, pole_angle",
    "long.csv": "long.csv:4: more than 3 observations",
    "wide.csv": "wide.csv:1: 4 numbers in an observation; expected 2 numbers",
    "bytes.csv": "bytes.csv:1: byte 0xff",
}


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {
        "empty": "",
        "head": "cart_position,pole_angle\n",
        "nan": "0,0\nnan,0\n",
        "word": "left,right\n0,0\n",
        "order": "pole_angle,cart_position\n0,0\n",
        "long": "0,0\n" * 10_000,
        "wide": "0,0,0,0\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\n")


@pytest.mark.parametrize("line", WRONG)
def test_a_bad_observation_gives_one_line(line, tables):
    codec = Codec(Observations(environment="CartPole-v1", history=3, hide_velocities=True), Classes(("left", "right")))
    with pytest.raises(UserError, match="^" + re.escape(WRONG[line])) as caught:
        list(codec.read([(1, line)], name="lines"))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("halting", [True, False])
def test_an_episode_that_a_model_acts_in_is_drawn(halting):
    task = POLE.load()
    side = {} if halting else {"halting.side": "none"}
    model = model_for(task, **{"outputs.pooling": "last"}, **side)
    watched = watch(model, task)
    length = len(watched.actions)
    assert length == len(watched.expert) == watched.total
    figure = watched_episode(watched)
    assert len(figure.axes) == (2 + 1 + 2 if halting else 2 + 1)
    if halting:
        assert watched.steps.shape == (length, POLE.history)
        assert np.isnan(watched.steps[0, :-1]).all()
        assert set(watched.steps[2:].ravel().tolist()) <= set(range(1, TINY.depth.max_steps + 1))
    else:
        assert watched.steps is None


SMALL = ["--model.sizes.width", "16", "--model.sizes.filter-width", "16", "--training.max-updates", "2", "--quiet"]
SMALL += [part for name, count in FEW.items() for part in (f"--data.{name.replace('_', '-')}", str(count))]


def test_a_run_is_evaluated_predicts_actions_and_is_plotted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "control-cartpole", "--run", "run", *SMALL]) == 0
    (tmp_path / "seen.jsonl").write_text("[[0.1, 0.01], [0.1, 0.02]]\n[[0, 0]]\n[0.1]\n")
    (tmp_path / "seen.csv").write_text("cart_position,pole_angle\n0.1,0.01\n0.1,0.02\n")
    capsys.readouterr()
    assert main(["predict", "run", "seen.csv"]) == 0
    (action,) = capsys.readouterr().out.splitlines()
    assert action in ("left", "right")
    assert main(["predict", "run", "seen.jsonl", "--format=jsonl"]) == 2
    shown = capsys.readouterr()
    first, _, wrong = (json.loads(line) for line in shown.out.splitlines())
    assert first["text"] == action
    assert [token["text"] for token in first["tokens"]] == ["-1", "0"]
    assert len(first["choices"]) == 2
    assert wrong["error"].startswith(
        "seen.jsonl:3: 1 number in an observation; expected 2 numbers (cart_position, pole_angle)"
    )
    assert main(["evaluate", "run", "--record", "found.json"]) == 0
    table = capsys.readouterr().out
    assert "mean return" in table
    assert "return of the expert" in table
    assert "baseline: actions drawn at random" in table
    assert main(["plot", "run"]) == 0
    assert (tmp_path / "run" / "plots" / "episode.svg").stat().st_size > 10_000
    assert "<h2>Episode</h2>" in (tmp_path / "run" / "report.html").read_text()
    (scores,) = json.loads((tmp_path / "found.json").read_text())["report"]["totals"]
    assert {"mean_return", "expert_return", "accuracy"} <= scores["metrics"].keys()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["--data.environment", "Pong-v5"], "CartPole-v1, Acrobot-v1, MountainCar-v0"),
        (["--data.history", "0"], "at least 1 and at most 256"),
        (["--data.random-actions", "1.5"], "at least 0 and at most 1"),
        (["--data.test-episodes", "10001"], "at most 10,000"),
    ],
)
def test_bad_fields_give_one_line(fields, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "control-cartpole", *fields]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert message in shown
    assert not list(tmp_path.iterdir())
    assert MOST_FRAMES == 256
