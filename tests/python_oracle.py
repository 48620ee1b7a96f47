"""What small programs compute, according to Python itself."""

import contextlib
import io
import re


def loop(start, rounds, operand):
    scope = {"x": start}
    exec(f"for _ in range({rounds}): x += {operand}", scope)  # noqa: S102
    return scope["x"]


def execute_expression(text):
    """Python's value of the expression form; its loops, which are no Python, become calls."""
    calls = text.replace("x=", "loop(").replace(" for[", ",")
    return eval(re.sub(r"\] x\+=(\d+)", r",\1)", calls), {"loop": loop})  # noqa: S307


def execute_lines(text):
    """What Python prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(text, {})  # noqa: S102
    return int(printed.getvalue())
