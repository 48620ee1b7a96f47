"""What a user can get wrong."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A wrong argument, field or file.

    The message is one line that says what is wrong, where, and what is allowed; the command line prints it
    without a traceback.
    """


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean …?)``, or nothing if no known name is near."""
    found = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(found)}?)" if found else ""
