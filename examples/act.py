"""Train a model to balance a pole without seeing velocities, and let it act in gymnasium.

The example needs the extra `control`. A few episodes and updates take seconds; `ut train control-cartpole` trains to
the end.
"""

import json
import tempfile
from pathlib import Path

import gymnasium

import universal_transformer as ut
from universal_transformer.cli import main

HISTORY = 4

with tempfile.TemporaryDirectory() as folder:
    run = str(Path(folder, "run"))
    few = ["--train-episodes", "4", "--validation-episodes", "1", "--test-episodes", "2", "--history", str(HISTORY)]
    small = ["--width", "32", "--filter-width", "64", "--max-steps", "2", "--max-updates", "20"]
    assert main(["train", "control-cartpole", "--run", run, "--quiet", *few, *small]) == 0
    assert main(["evaluate", run]) == 0
    model = ut.load(run)

    world = gymnasium.make("CartPole-v1")
    observation, _ = world.reset(seed=0)
    seen, total, ended = [], 0.0, False
    while not ended:
        seen.append([float(observation[0]), float(observation[2])])  # the two positions, no velocity
        answer = model(json.dumps(seen[-HISTORY:]))
        observation, reward, terminated, truncated, _ = world.step(("left", "right").index(answer.text))
        total, ended = total + float(reward), terminated or truncated
    print(f"return of one episode: {total:g}")
