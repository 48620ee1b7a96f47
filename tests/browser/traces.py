"""The traces and the answers of a model, as JSON, for texts that standard input has as a JSON list."""

import json
import sys

from universal_transformer import load
from universal_transformer.explore.input_trace import trace_input


def main():
    name, texts = sys.argv[1], json.load(sys.stdin)
    pipeline = load(name, calibration=False)
    examples = [pipeline.example(text, number) for number, text in enumerate(texts)]
    traces = [trace_input(pipeline.model, pipeline.codec, one, name=name).to_dict() for one in examples]
    json.dump({"traces": traces, "answers": [answer.text for answer in pipeline(texts)]}, sys.stdout)


main()
