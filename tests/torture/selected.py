"""F4, N6: figures that tests of the suite show, run more often."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as Xml
from pathlib import Path

from torture.outcome import Outcome

TESTS = Path(__file__).parents[1]
EXAMPLES = 200
ARCHIVES = ("data/test_download.py", "hostile or altered")
LAWS: dict[str, tuple[str, str, int]] = {
    "causality": ("nn/test_causality.py", "the_future_changes_nothing", 14),
    "padding": ("models/test_encoder_decoder.py", "source_padding_on_either_side", 61),
    "order of a batch": ("models/test_encoder_decoder.py", "rows_do_not_know_of_each_other", 31),
    "cached is uncached": ("nn/test_cache.py", "piece_by_piece or ragged", 16),
    "compacted is masked": ("execution/test_compaction.py", "test_compact_is_masked", 248),
    "tied is untied with copies": ("nn/test_recurrence.py", "tied_is_untied", 2),
    "n updates and n more are 2n": ("runs/test_trainer.py", "n_updates_and_n_more", 9),
    "beam is brute force": ("decoding/test_beam.py", "as_wide_as_the_space", 12),
    "gradients are finite differences": ("nn/test_gradients.py", "finite_differences", 13),
}
"""Law of docs/architecture.md -> file, tests in it, and how many of them there are at least."""


def archives(share: float, folder: Path) -> Outcome:
    """F4: the hostile archives and the altered downloads of the suite, whatever the share is."""
    del share
    return selected(folder, ARCHIVES, times=1)


def laws(share: float, folder: Path) -> Outcome:
    """N6: at least 200 examples of each law, each from a seed of its own."""
    outcome = Outcome()
    for law, (file, names, number) in LAWS.items():
        found = selected(folder, (file, names), times=-(-round(EXAMPLES * share) // number))
        outcome.tried += found.tried
        outcome.failures += [f"{law}: {failure}" for failure in found.failures]
        if found.tried < EXAMPLES * share:
            outcome.failures.append(f"{law}: {found.tried} examples only")
        outcome.notes.append(f"{law}: {found.tried - len(found.failures)} of {found.tried}")
    return outcome


def selected(folder: Path, chosen: tuple[str, str], *, times: int) -> Outcome:
    """Run tests so often, each time from another seed."""
    file, names = chosen
    report, outcome = folder / "report.xml", Outcome()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "torture.repeat",
        f"--junitxml={report}",
    ]
    done = subprocess.run(
        [*command, "-m", "not slow and not compiled", "-k", names, str(TESTS / file)],
        cwd=TESTS.parent,
        env=os.environ | {"TIMES": str(times)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        outcome.failures.append(f"pytest: {done.stdout[-300:]!r}")
        return outcome
    for case in Xml.parse(report).iter("testcase"):  # noqa: S314 - our own file
        problems = [str(one.get("message"))[:100] for one in case if one.tag in ("failure", "error")]
        if not any(one.tag == "skipped" for one in case):
            outcome.add(case.get("name"), problems)
    return outcome
