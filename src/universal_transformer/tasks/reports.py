"""Reports on stderr about data that take minutes to make."""

import sys
import time

REPORT_SECONDS = 10.0


class Reports:
    """A report is due ten seconds after the start, and after the one before."""

    def __init__(self) -> None:
        self._due = time.monotonic() + REPORT_SECONDS

    def due(self) -> bool:
        """Return whether a report is due; the next one then is so ten seconds later."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + REPORT_SECONDS
        return True

    def say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
