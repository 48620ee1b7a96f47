"""``ut bench startup``: how long until the command line answers and the package is imported."""

import subprocess
import sys

from universal_transformer.bench.result import Measurement, Settings
from universal_transformer.bench.timing import Side, alternate, median_ratio, medians

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
    middle, torch_times = medians(times), times["import torch"]
    answer = Measurement(
        case="startup",
        name=f"ut --help in {LIMIT} s",
        seconds={"ut --help": middle["ut --help"]},
        turns=len(torch_times),
        ours="ut --help",
        over=f"{LIMIT} s",
        ratio=LIMIT / middle["ut --help"],
        least=1.0,
    )
    imports = [
        Measurement(
            case="startup",
            name=f"{name}, beside import torch",
            seconds={name: middle[name], "import torch": middle["import torch"]},
            turns=len(torch_times),
            ours=name,
            over="import torch",
            ratio=median_ratio(torch_times, times[name]),
            least=1 / 1.1,
        )
        for name in ("import universal_transformer", "its models")
    ]
    return [answer, *imports]
