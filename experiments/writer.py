"""Train the pretrained language model `writer` on novels, and an equal Transformer to compare it with.

    python experiments/writer.py FOLDER [files] [model] [halting] [transformer] [record]

`files` reads the novels of the data folder that appeared before 1926 (`ut data fetch novels`) and writes
FOLDER/train.txt, validation.txt and test.txt with one paragraph a line; the two latter are novels of authors who wrote
nothing of the first. `model` trains every depth up to the greatest one, and `halting` fits a halting unit to its
weights. `transformer` has as many parameters in as many layers of its own, and as many updates. `record` scores all
three on the test and writes the files of `RECORDS` into results/runs. Without names, all of these are done; what was
interrupted continues.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from study import PROJECT, arguments, train_run, ut

from universal_transformer.data.archive import members
from universal_transformer.data.download import data_folder

LAST_YEAR = 1925
HELD_OUT = {"Ford": "validation", "Hardy": "test"}
"""Author -> the file that has all of his novels."""
SHORT = 60
"""Characters: in novels without blank lines, a shorter line that ends a sentence ends a paragraph."""
STEPS = 6
BLOCK = ["--model.step.norm", "rms", "--model.transition.kind", "swiglu", "--model.coordinates.position", "rotary"]
MODEL = {
    "model": ["--model.sizes.width", "192", "--model.sizes.filter-width", "512", "--training.depth", "random"],
    "transformer": ["--model.sizes.width", "96", "--model.sizes.filter-width", "242", "--model.step.no-tied"],
}
TRAINING = [
    "--data.tokenizer=bpe",
    "--data.vocabulary-size=2048",
    "--model.step.dropout=0",  # no paragraph is seen twice
    "--training.minutes=none",
    "--training.max-updates=5000",
    "--training.batch-tokens=2048",
    "--training.validate-every=500",
]
RECORDS = {"halting": "writer.json", "model": "writer_fixed.json", "transformer": "writer_transformer.json"}
HALTING = ["--stage", "halting", "--training.minutes=none", "--training.max-updates=300"]


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a novel, each on one line: they end at a blank line, or at a short line's full stop."""
    words: list[str] = []
    for line in map(str.strip, text.splitlines()):
        words += line.split()
        if words and (not line or (len(line) < SHORT and re.search(r"[.!?][\"']?$", line))):
            yield " ".join(words)
            words = []
    if words:
        yield " ".join(words)


def write_files(folder: Path) -> None:
    """Write the three files from the archive of the novels, or from the folder of single files."""
    place = data_folder(None) / "novels"
    archive = place / "corpus.tar.xz"
    texts = (
        members(archive, lambda name: name.endswith(".txt"))
        if archive.is_file()
        else ((path.name, path.read_bytes()) for path in sorted((place / "corpus").glob("*.txt")))
    )
    files = defaultdict[str, list[str]](list)
    for name, content in texts:
        author, _, year = Path(name).stem.split("_")
        if int(year) <= LAST_YEAR:
            files[HELD_OUT.get(author, "train")] += paragraphs(content.decode("utf-8-sig"))
    folder.mkdir(parents=True, exist_ok=True)
    for part, lines in files.items():
        (folder / f"{part}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    folder, *names = arguments(__doc__ or "", known=("files", "model", "halting", "transformer", "record"))
    runs = Path(folder)
    files = [f"--data.{part}={runs / f'{part}.txt'}" for part in ("train", "validation", "test")]
    for name in names or ("files", "model", "halting", "transformer", "record"):
        if name == "files":
            write_files(runs)
        elif name == "halting":
            train_run(runs / name, str(runs / "model"), *HALTING)
        elif name == "record":
            for run, file in RECORDS.items():
                print(ut("evaluate", str(runs / run), "--record", str(PROJECT / "results" / "runs" / file)), end="")
        else:
            steps = ["--model.depth.max-steps", f"{STEPS}"]
            train_run(runs / name, "text", *files, *BLOCK, *steps, *MODEL[name], *TRAINING)


if __name__ == "__main__":
    main()
