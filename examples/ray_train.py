"""One training run with several processes that Ray Train starts, on this machine or on a cluster.

    pip install 'ray[train]>=2.50'
    python examples/ray_train.py --processes 2 --run runs/ray
    python examples/ray_train.py --processes 8 --gpu --run /shared/runs/ray --address auto

All machines must see the folder of the run. If a process fails, Ray starts all of them again, and the run continues
from its last checkpoint; so does a second call of the command.
"""

import argparse
from pathlib import Path

try:
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
except ImportError as error:
    raise SystemExit(f"{error}: this example needs Ray Train: pip install 'ray[train]>=2.50'") from error

from universal_transformer.recipes import RECIPES
from universal_transformer.runs.trainer import train
from universal_transformer.training.processes import TIMEOUT
from universal_transformer.typed import replaced


def worker(options):
    """Train in one of the processes; Ray has set the environment variables that torchrun sets."""
    config = replaced(RECIPES[options["recipe"]](), {"training.max_updates": options["updates"]})
    folder = Path(options["run"])
    train(config, folder, resume=(folder / "config.json").exists())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="stories")
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--gpu", action="store_true", help="one GPU for each process, with NCCL instead of gloo")
    parser.add_argument("--run", type=Path, default=Path("runs/ray"), help="folder of the run")
    parser.add_argument("--address", default="local", help="a cluster of Ray; local: this machine")
    options = parser.parse_args()
    folder = options.run.absolute()
    ray.init(address=options.address, include_dashboard=False)
    trainer = TorchTrainer(
        worker,
        train_loop_config={"recipe": options.recipe, "updates": options.updates, "run": str(folder)},
        torch_config=TorchConfig(backend="nccl" if options.gpu else "gloo", timeout_s=int(TIMEOUT)),
        scaling_config=ScalingConfig(num_workers=options.processes, use_gpu=options.gpu),
        run_config=RunConfig(
            name=f"{folder.name}-ray", storage_path=str(folder.parent), failure_config=FailureConfig(max_failures=3)
        ),
    )
    trainer.fit()
    print(f"next: ut evaluate {folder}")


if __name__ == "__main__":
    main()
