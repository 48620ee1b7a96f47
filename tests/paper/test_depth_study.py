"""The depth study: random depth is drawn, seeded and resumed; a model is measured at every number of steps."""

import dataclasses
import json
from collections import Counter

import pytest

from configs import with_fields
from paper.depth_study import MAX_STEPS, MODELS, curves, depth_figure, measure
from paper.rendering import render
from paper.tables import TABLES
from small_results import result
from universal_transformer.cli import main
from universal_transformer.errors import UserError
from universal_transformer.explore.canvas import svg
from universal_transformer.recipes import MAIN, RECIPES
from universal_transformer.registry import build
from universal_transformer.runs.trainer import train
from universal_transformer.tasks import StoriesData
from universal_transformer.training.randomness import depth_of
from universal_transformer.training.run import TrainingRun
from universal_transformer.training.run_config import TrainingConfig

FEW = StoriesData(train_stories=20, validation_stories=4, test_stories=4)


def small(name, **training):
    config = RECIPES[name]()
    return dataclasses.replace(
        config,
        data=FEW,
        model=with_fields(config.model, width=16, filter_width=16, num_heads=2),
        training=dataclasses.replace(config.training, minutes=None, **training),
    )


def test_depths_are_drawn_uniformly_by_seed_and_update():
    training = TrainingConfig(max_updates=1, depth="random", seed=3)
    drawn = [depth_of(training, update=update, most=6) for update in range(6000)]
    assert drawn == [depth_of(training, update=update, most=6) for update in range(6000)]
    assert all(count == pytest.approx(1000, rel=0.15) for count in Counter(drawn).values())
    assert set(drawn) == set(range(1, 7))
    other = dataclasses.replace(training, seed=4)
    assert drawn != [depth_of(other, update=update, most=6) for update in range(6000)]
    assert depth_of(dataclasses.replace(training, depth="fixed"), update=1, most=6) is None


def test_an_update_goes_as_deep_as_was_drawn_also_after_a_resume(tmp_path, monkeypatch):
    config = small("depth-random", max_updates=8, seed=1)
    steps, log = [], TrainingRun.log

    def keep(session, loss, values, **rest):
        steps.append(values["mean_steps"])
        log(session, loss, values, **rest)

    monkeypatch.setattr(TrainingRun, "log", keep)
    train(config, tmp_path / "run", quiet=True)
    longer = dataclasses.replace(config, training=dataclasses.replace(config.training, max_updates=16))
    train(longer, tmp_path / "run", resume=True, quiet=True)
    assert steps == [depth_of(config.training, update=update, most=6) for update in range(1, 17)]


def test_a_model_without_depth_cannot_be_trained_at_random_depth():
    config = RECIPES["copy-lstm"]()
    training = dataclasses.replace(config.training, depth="random")
    with pytest.raises(UserError, match=r"training\.depth='random': this model has no depth"):
        dataclasses.replace(config, training=training)


def test_a_model_is_measured_at_every_number_of_steps():
    config = small("depth-halting", max_updates=1)
    task = config.data.load()
    found = measure(build(task.configure(config.model)), task)
    assert len(found) == 4 * MAX_STEPS
    assert found["1 step"]["mean_steps"] == 1
    assert found["12 steps"]["mean_steps"] > 1
    for steps in ("1 step", "5 steps"):
        parts = [found[f"{steps}, {facts}"] for facts in ("1 fact", "2 facts", "3 facts")]
        total = sum(part["count"] * part["error"] for part in parts)
        assert found[steps]["error"] == pytest.approx(total / found[steps]["count"])
        assert found[steps]["count"] == sum(part["count"] for part in parts)


def figures(error):
    return {
        f"{n} step{'s' * (n > 1)}": {"error": error / n, "count": 10, "mean_steps": float(n)}
        for n in range(1, MAX_STEPS + 1)
    }


def test_curves_are_those_of_all_seeds_of_the_best_settings():
    rows = [result("stories/fixed", table="depth", seed=s, figures=figures(60.0 + s)) for s in (0, 1)]
    rows += [result("stories/fixed", table="depth", minutes=1.0, validation=9.0, figures=figures(1.0))]
    (curve,) = curves(rows).values()
    assert curve[1] == [60.0, 61.0]
    assert curve[12] == [5.0, 61.0 / 12]
    assert "| Fixed depth of 6 | ours | 60.00; 60.50 ± 0.71 over 2 seeds |" in render(TABLES["depth"], rows)


def test_the_command_measures_records_and_plots(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    for name in list(TABLES["depth"].rows):
        monkeypatch.setitem(
            TABLES["depth"].rows, name, lambda name=name: small(f"depth-{name.split('/')[1]}", max_updates=2)
        )
    assert main(["reproduce", "depth", "--rows", "stories/random", "--minutes", "0.002", "--quiet"]) == 0
    assert "plotted in results/paper/depth.svg" in capsys.readouterr().out
    assert (tmp_path / "results" / "paper" / "depth.svg").read_bytes().startswith(b"<?xml")
    (line,) = (tmp_path / "results" / "paper" / "depth.jsonl").read_text().splitlines()
    assert set(json.loads(line)["figures"]) > {"1 step", "6 steps", "12 steps"}
    assert "--training.depth" not in json.loads(line)["command"]


def test_a_figure_has_a_curve_for_each_way_of_training():
    pytest.importorskip("matplotlib")
    rows = [
        result(f"stories/{model}", table="depth", figures=figures(60.0)) for model in ("fixed", "random", "halting")
    ]
    figure = depth_figure(rows)
    assert [line.get_label() for line in figure.axes[0].lines] == [MODELS[row.row.split("/")[1]] for row in rows]
    assert svg(figure) == svg(depth_figure(rows))
    assert depth_figure([]) is None


def test_stories_are_what_the_study_begins_with():
    assert RECIPES["depth-fixed"]().data == MAIN["stories"]().data
