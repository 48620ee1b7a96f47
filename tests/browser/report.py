"""Write the report of a run of the model of `ut demo` into a folder: a test example, and a text from standard input."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from small_reports import METRICS, report
from universal_transformer import load
from universal_transformer.explore.input_trace import trace_input
from universal_transformer.explore.report_page import write_report
from universal_transformer.explore.story import Examined, choose_examples, examine
from universal_transformer.pretrained_models import find
from universal_transformer.runs.opened import open_with_task


def main():
    run, task = open_with_task(find("demo"))
    text, (example,) = sys.stdin.read(), choose_examples(run.model, task)
    typed = trace_input(run.model, run.codec, load("demo").example(text, 1), name="typed")
    shown = [
        examine(run.model, run.codec, example, name="demo"),
        Examined(title=text, text=text, trace=typed, figures={}, pictured=False),
    ]
    write_report(Path(sys.argv[1]), report=report(), examples=shown, metrics=METRICS)
    json.dump([each.trace.answer for each in shown], sys.stdout)


main()
