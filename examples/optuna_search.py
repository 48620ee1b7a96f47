"""Search the learning rate, the width and the dropout of a recipe with Optuna.

    pip install 'optuna>=5'
    python examples/optuna_search.py --recipe copy --trials 20 --updates 500

Each trial is a run in runs/search/STUDY, which `ut evaluate` and `ut plot` read. The search minimises the loss on
validation data.
"""

import argparse
from datetime import datetime
from pathlib import Path

try:
    import optuna
except ImportError as error:
    raise SystemExit(f"{error}: this example needs Optuna: pip install 'optuna>=5'") from error

from universal_transformer.recipes import RECIPES
from universal_transformer.runs.trainer import train
from universal_transformer.typed import replaced

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--recipe", default="stories")
parser.add_argument("--trials", type=int, default=2)
parser.add_argument("--updates", type=int, default=30)
options = parser.parse_args()


def objective(trial):
    changes = {
        "training.learning_rate": trial.suggest_float("learning_rate", 3e-4, 3e-3, log=True),
        "model.sizes.width": trial.suggest_categorical("width", [64, 128]),
        "model.step.dropout": trial.suggest_float("dropout", 0.0, 0.3),
        "training.max_updates": options.updates,
        "training.minutes": None,
    }
    config = replaced(RECIPES[options.recipe](), changes)
    folder = Path("runs/search", trial.study.study_name, f"{trial.number:03d}")
    return train(config, folder, quiet=True).score.cross_entropy


study = optuna.create_study(study_name=f"{datetime.now():%Y-%m-%d-%H%M%S}")
study.optimize(objective, n_trials=options.trials)
print(f"best: {study.best_params}, cross-entropy {study.best_value:.4f}")
