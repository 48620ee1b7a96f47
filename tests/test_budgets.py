"""How large the package may be, and how long its ways: figures that only a reason raises."""

import textwrap

import pytest

import frames
import size

BUDGETS = {
    "lines of nn": 1_221,
    "lines of rules": 460,
    "lines of execution": 1_550,
    "lines of models": 3_068,
    "lines of decoding": 1_098,
    "lines of interop": 2_815,
    "lines of baselines": 425,
    "lines of these packages": 10_636,
    "halting rules outside their homes": 0,
    "classes over 200 lines": 0,
    "signatures over 7 parameters": 0,
    "files with private interfaces of torch": 1,
    "frames from the objective to attention": 8,
    "files from the objective to attention": 7,
    "frames from ut predict to a token": 6,
    "files from ut predict to a token": 4,
}
"""The most that each figure of `tools/size.py` and `tools/frames.py` may be."""


@pytest.mark.default_policy
def test_no_figure_exceeds_its_budget():
    attention, token = frames.objective_to_attention(), frames.predict_to_token()
    measured = size.figures() | {
        "frames from the objective to attention": attention.frames,
        "files from the objective to attention": attention.files,
        "frames from ut predict to a token": token.frames,
        "files from ut predict to a token": token.files,
    }
    assert measured.keys() == BUDGETS.keys()
    exceeded = [
        f"{name}: {value:,}, of at most {BUDGETS[name]:,}" for name, value in measured.items() if value > BUDGETS[name]
    ]
    assert not exceeded, "\n".join(("raise a budget only with a reason in the commit", *exceeded))


def test_a_way_begins_and_ends_with_its_functions():
    attention, token = frames.objective_to_attention(), frames.predict_to_token()
    assert attention.calls[0] == ("training/objective.py", "objective")
    assert attention.calls[-1] == ("nn/attention.py", "forward")
    assert token.calls[0] == ("cli/predict.py", "__call__")
    assert token.calls[-1][0].startswith("decoding/")
    assert attention.torch_frames > 0


def test_figures_are_those_of_a_small_package(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))

    many = ", ".join("abcdefgh")
    write("nn/halting.py", 'RULES = {"act": 1}\n')
    write("recipes/own.py", 'chosen = name == "ponder"\n')
    write("models/whole.py", f"def seven({many[:-3]}): ...\n\n\ndef method(self, {many[:-3]}, *others, **more): ...\n")
    write("models/wide.py", f"async def eight(*, {many}): ...\n")
    write("models/long.py", "class Long:\n" + "    field = 0\n" * 200 + "\n\nclass Short:\n" + "    field = 0\n" * 199)
    write("execution/fast.py", "import torch\ntorch._dynamo.reset()\nversion = torch.ones(1)._version\n")
    write(
        "nn/chosen.py",
        """
        title = "act"
        table = {"confidence": 1, "other": "ponder"}
        match name:
            case "stick_breaking" | "else":
                found = name in ("act", "unknown")
        """,
    )
    assert sorted(size.halting_rules_outside(tmp_path)) == [
        "nn/chosen.py:2 confidence",
        "nn/chosen.py:4 stick_breaking",
        "nn/chosen.py:5 act",
    ]
    assert size.long_classes(tmp_path) == ["models/long.py:Long 201"]
    assert size.wide_signatures(tmp_path) == ["models/wide.py:eight 8"]
    assert size.private_torch(tmp_path) == ["execution/fast.py"]
    figures = size.figures(tmp_path)
    assert figures["lines of nn"] == 6
    assert figures["lines of rules"] == 0
    assert figures["lines of execution"] == 3
    assert figures["lines of these packages"] == 6 + 3 + 4 + 1 + 403
