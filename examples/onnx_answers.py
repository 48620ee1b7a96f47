"""Answer texts with an exported model, without this package: python examples/onnx_answers.py RUN/export/onnx TEXT ...

`ut export RUN` writes the folder, of a run on texts (pairs or labelled). Needs onnxruntime and tokenizers.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder, texts = Path(sys.argv[1]), sys.argv[2:]
about, codec = (json.loads((folder / name).read_text("utf-8")) for name in ("model.json", "codec.json"))
reading, written = Tokenizer.from_file(str(folder / "tokenizer.json")), folder / "target_tokenizer.json"
writing = Tokenizer.from_file(str(written)) if written.exists() else reading
session = onnxruntime.InferenceSession(folder / about["file"])
padding, start, end = (about["ids"][name] for name in ("padding", "start", "end"))

for text in texts:  # two texts have a tab between them; each ends with the id of the end
    parts = [reading.encode(part, add_special_tokens=False).ids for part in text.split("\t")]
    source = np.array([[index for part in parts for index in (*part, end)]])
    if "target" not in about["inputs"]:
        logits = session.run(None, {"source": source})[0]
        labels, separator = codec["target"]["labels"], codec["target"].get("separator")
        if separator is None:
            print(labels[logits[0].argmax()])
        else:  # several labels, those with positive logits; none is written as the separator
            print(
                separator.join(label for label, logit in zip(labels, logits[0], strict=True) if logit > 0) or separator
            )
        continue
    answer: list[int] = []
    while len(answer) < max(about["max_new_tokens"] or 0, 2 * source.size + 10):
        # the model puts the start before the target, so that its last id is not read: logits n follow the first n ids
        logits = session.run(None, {"source": source, "target": np.array([[*answer, end]])})[0]
        logits[0, -1, [padding, start]] = -np.inf  # are never written
        if (token := int(logits[0, -1].argmax())) == end:
            break
        answer.append(token)
    print(writing.decode(answer))
