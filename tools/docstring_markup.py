"""What the docstrings of the package mean by their markup, for the pages of the site: references and sessions."""

import re
from typing import Any

from griffe import Extension, Object

REFERENCE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")
SESSION = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)


class Markup(Extension):
    """``:func:`~package.name``` is a name, and lines that begin with ``>>>`` are Python."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            text = REFERENCE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = SESSION.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
