"""``ut bench startup``: how long until the command line answers and the package is imported."""

import subprocess
import sys

from benchmarks.result import Measurement, Settings
from benchmarks.timing import Side, alternate, comparison, medians

HELP = "import sys; from universal_transformer.cli import main; sys.exit(main(['--help']))"
PROGRAMS = {
    "ut --help": HELP,
    "import universal_transformer": "import universal_transformer",
    "its models": "from universal_transformer import EncoderDecoder, ModelConfig",
    "import torch": "import torch",
}
LIMIT = 0.3
"""Required time of ``ut --help`` in seconds."""


def _python(code: str) -> Side:
    return lambda: subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)  # noqa: S603


def run(settings: Settings) -> list[Measurement]:
    """Start new interpreters in turns."""
    sides = {name: _python(code) for name, code in PROGRAMS.items()}
    times = alternate(sides, seconds=settings.seconds, least=1 if settings.quick else 5, most=15, warm_up=1)
    help_seconds = medians(times)["ut --help"]
    answer = Measurement(
        name=f"ut --help in {LIMIT} s",
        seconds={"ut --help": help_seconds},
        turns=len(times["ut --help"]),
        ours="ut --help",
        over=f"{LIMIT} s",
        ratio=LIMIT / help_seconds,
        least=1.0,
    )
    imports = [
        Measurement(
            name=f"{name}, over import torch",
            **comparison({name: times[name], "import torch": times["import torch"]}, ours=name, over="import torch"),
            least=1 / 1.1,
        )
        for name in ("import universal_transformer", "its models")
    ]
    return [answer, *imports]
