"""The traces and the answers of a model, as JSON, for questions that standard input has as a JSON list: each a text, or
an object of a text with max_steps or exit."""

import json
import sys

from universal_transformer import load
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.explore.input_trace import trace_input
from universal_transformer.rules import Exit


def main():
    name, traces, answers = sys.argv[1], [], []
    pipeline = load(name, calibration=False)
    for number, asked in enumerate(json.load(sys.stdin)):
        depth = dict(asked) if isinstance(asked, dict) else {"text": asked}
        text = depth.pop("text")
        options = DecodingOptions(**depth | ({"exit": Exit.parse(depth["exit"])} if "exit" in depth else {}))
        example = pipeline.example(text, number)
        traces.append(trace_input(pipeline.model, pipeline.codec, example, options=options, name=name).to_dict())
        answers += [answer.text for answer in pipeline([text], options=options)]
    json.dump({"traces": traces, "answers": answers}, sys.stdout)


main()
