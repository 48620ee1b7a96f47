"""Train on files of public data sets as their authors publish them, ten minutes of one core each.

    python experiments/public_data.py FOLDER [NAME ...]

Clones the repositories below into FOLDER, trains each recipe with the command that the page shows, scores it, adds its
line to results/studies/public_data.jsonl, and makes results/studies/public_data.md. A NAME selects cases. Minutes are
of processor time, so that other work on the machine changes no figure.

| name          | data                                              | score                                          |
| ------------- | ------------------------------------------------- | ---------------------------------------------- |
| entailment    | propositional logic (Bowman et al. 2015)          | error %, at most 4 operators; then 5, 8 and 12 |
| bilstm        | the same, by a BiLSTM that reads each text apart  | the same                                       |
| inflection    | Turkish (CoNLL-SIGMORPHON 2017, task 1, high)     | exact match on the development set             |
| pronunciation | Swedish, 800 words (SIGMORPHON 2022, grapheme to phoneme) | word error % on the development set    |
| scan          | SCAN, simple split (Lake and Baroni 2018)         | exact match                                    |
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from study import Line, Study, arguments, ut

from universal_transformer.training.provenance import code_in_use, hardware

MINUTES = 10
GIT = shutil.which("git") or sys.exit("git is needed, which is not found")
REPOSITORIES = {
    "vector-entailment": ("sleepinyourhat", "360abf10fcb09857948c9b33acf4bbaa8080ae32"),
    "conll2017": ("sigmorphon", "519bb1677a7c747b3863d37069ffd395062288d8"),
    "2022G2PST": ("sigmorphon", "eb5c6f4772950cf8adf9e803910ea01d9f97dd3f"),
    "SCAN": ("brendenlake", "c4b756cbc010d75c912f16c42c8f15dc6b7e6c8f"),
}
LONGER = ("5", "8", "12")
"""Numbers of operators beyond those of training."""
TRAIN = """
import sys, time
time.monotonic = time.process_time  # training counts its minutes with it
from universal_transformer.cli import main
sys.exit(main())
"""


def lines_of(folder: Path, repository: str, path: str) -> list[str]:
    """The lines of a published file, at the commit above. A clone that is there already is used."""
    owner, commit = REPOSITORIES[repository]
    clone = folder / repository
    if not clone.exists():
        address = f"https://github.com/{owner}/{repository}"
        subprocess.run([GIT, "clone", "--quiet", "--no-checkout", address, str(clone)], check=True)
    command = [GIT, "-C", str(clone), "show", f"{commit}:{path}"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def written(path: Path, lines: Sequence[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def logic(folder: Path) -> dict[str, str]:
    """Files of the relation and two formulas: at most 4 operators, shuffled; at most 1,000 of each longer kind."""

    def rows(name: str) -> list[str]:
        return [line for line in lines_of(folder, "vector-entailment", f"propositionallogic/{name}") if "\t" in line]

    draw, files = random.Random(0), dict[str, str]()
    shown = [line for operators in range(5) for line in rows(f"train{operators}")]
    tested = [line for operators in range(5) for line in rows(f"test{operators}")]
    draw.shuffle(shown)
    draw.shuffle(tested)
    parts = {"validation": shown[:1500], "train": shown[1500:], "test": tested[:3000]}
    for operators in LONGER:
        parts[operators] = draw.sample(found := rows(f"test{operators}"), min(1000, len(found)))
    for name, lines in parts.items():
        files[name] = written(folder / f"logic-{name}.tsv", lines)
    return files


def entailment(folder: Path) -> list[str]:
    files = logic(folder)
    columns = ["--data.columns", "label=1,text=2,text=3", "--data.tokenizer", "whitespace"]
    return ["labelled", "--data.train", files["train"], "--data.validation", files["validation"], *columns]


def inflection(folder: Path) -> list[str]:
    """Lemma and tags to the form; the files have lemma, form and tags."""
    options = []
    for part, name in (("train", "train-high"), ("validation", "dev")):
        rows = [line.split("\t") for line in lines_of(folder, "conll2017", f"all/task1/turkish-{name}") if line]
        file = written(folder / f"turkish-{part}.tsv", [f"{lemma} {tags}\t{form}" for lemma, form, tags in rows])
        options += [f"--data.{part}", file]
    return ["pairs", *options, "--data.tokenizer", "character", "--data.metric", "sequence"]


def pronunciation(folder: Path) -> list[str]:
    options = []
    for part, name in (("train", "train"), ("validation", "dev")):
        rows = lines_of(folder, "2022G2PST", f"data/target_languages/swe_{name}.tsv")
        options += [f"--data.{part}", written(folder / f"swedish-{part}.tsv", rows)]
    tokenizers = ["--data.tokenizer", "character", "--data.target-tokenizer", "whitespace"]
    # few examples: more dropout, and the best weights are those of the most exact answers, not of the smallest loss
    few = ["--model.step.dropout", "0.4", "--training.select-by", "metric"]
    return ["pairs", *options, *tokenizers, "--data.metric", "sequence", *few]


def scan(folder: Path) -> list[str]:
    rows = lines_of(folder, "SCAN", "simple_split/tasks_train_simple.txt")
    random.Random(0).shuffle(rows)
    files = {"validation": rows[:500], "train": rows[500:]}
    files["test"] = lines_of(folder, "SCAN", "simple_split/tasks_test_simple.txt")
    options = [
        word
        for part, lines in files.items()
        for word in (f"--data.{part}", written(folder / f"scan-{part}.txt", lines))
    ]
    form = ["--data.separator", "IN: {source} OUT: {target}", "--data.tokenizer", "whitespace"]
    # a small grammar: a smaller model without dropout, and more updates by smaller batches
    small = ["--model.sizes.width", "128", "--model.sizes.filter-width", "512", "--model.step.dropout", "0"]
    return ["pairs", *options, *form, "--data.metric", "sequence", *small, "--training.batch-tokens", "512"]


CASES = {"entailment": entailment, "inflection": inflection, "pronunciation": pronunciation, "scan": scan}
PEERS = {
    "entailment": "the BiLSTM below",
    "pronunciation": "52 %, published baseline of the shared task (CLUZH)",
}
"""What a score is compared with beside the baseline that needs no model."""


def scored(folder: Path, name: str) -> list[str]:
    """The options of the evaluation of a case."""
    if name == "entailment":
        return [word for part in ("test", *LONGER) for word in ("--data.test", f"{part}={folder}/logic-{part}.tsv")]
    return ["--split", "test" if name == "scan" else "validation"]


def measure(folder: Path, name: str) -> Line:
    """Train one case and score it."""
    options, run = CASES[name](folder), folder / "runs" / name
    command = ["train", *options, "--training.minutes", str(MINUTES), "--training.threads", "1"]
    begin = ["train", "--resume", str(run)] if (run / "config.json").exists() else [*command, "--run", str(run)]
    subprocess.run([sys.executable, "-c", TRAIN, *begin], check=True)
    report = json.loads(ut("evaluate", str(run), *scored(folder, name), "--json"))
    end = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    shown = shlex.join(["ut", "train", *options]).replace(f"{folder}/", "")
    totals = {row["set"]: {**row["metrics"], "baseline": row["baseline"]} for row in report["totals"]}
    return {"command": shown, "updates": end["update"], "totals": totals}


class BiLstm(nn.Module):
    """One bidirectional LSTM for both texts, the largest value of each channel, and ``[u; v; |u - v|; u * v]``."""

    def __init__(self, tokens: int, classes: int, *, width: int = 100) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.inner, self.outer = nn.Linear(8 * width, 64), nn.Linear(64, classes)

    def read(self, texts: list[torch.Tensor]) -> torch.Tensor:
        lengths = torch.tensor([len(text) for text in texts])
        packed = pack_padded_sequence(
            self.embedding(pad_sequence(texts, batch_first=True)), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, padding_value=-torch.inf)
        return states.amax(dim=1)

    def forward(self, first: list[torch.Tensor], second: list[torch.Tensor]) -> torch.Tensor:
        u, v = self.read(first), self.read(second)
        return self.outer(torch.tanh(self.inner(torch.cat([u, v, (u - v).abs(), u * v], dim=-1))))


def bilstm(folder: Path) -> Line:
    """Train the peer for the same minutes, at a rate that falls along a cosine; score it on the same files."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    files = logic(folder)
    rows = {
        name: [line.split("\t") for line in Path(file).read_text(encoding="utf-8").splitlines()]
        for name, file in files.items()
    }
    words = sorted({word for _, *texts in rows["train"] for text in texts for word in text.split()})
    labels = sorted({label for label, *_ in rows["train"]})
    ids = {word: number for number, word in enumerate(words, 1)}

    def encoded(row: list[str]) -> tuple[int, torch.Tensor, torch.Tensor]:
        first, second = (torch.tensor([ids[word] for word in text.split()]) for text in row[1:])
        return labels.index(row[0]), first, second

    data = {name: [encoded(row) for row in found] for name, found in rows.items()}
    model = BiLstm(len(ids) + 1, len(labels))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin, seconds, updates, draw = time.process_time(), 60 * MINUTES, 0, random.Random(0)
    while (spent := time.process_time() - begin) < seconds:
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 - spent / seconds)
        targets, *texts = zip(*draw.sample(data["train"], 64), strict=True)
        loss = cross_entropy(model(*map(list, texts)), torch.tensor(targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
    totals = {}
    with torch.no_grad():
        for name in ("test", *LONGER):
            wrong = 0
            for start in range(0, len(data[name]), 100):
                targets, *texts = zip(*data[name][start : start + 100], strict=True)
                wrong += int((model(*map(list, texts)).argmax(-1) != torch.tensor(targets)).sum())
            totals[name] = {"error": 100 * wrong / len(data[name]), "baseline": {}}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"command": f"BiLSTM of {parameters:,} parameters", "updates": updates, "totals": totals}


def score(name: str, figures: Line) -> str:
    """The figure that is compared, of one test set."""
    if name == "pronunciation":
        return f"{100 * (1 - figures['sequence_accuracy']):.1f} % of words wrong"
    if "error" in figures:
        return f"{figures['error']:.2f} % error"
    return f"{figures['sequence_accuracy']:.3f} exact"


def page(lines: Sequence[Line]) -> Iterator[str]:
    yield "# Public data sets, as published\n"
    yield f"`python experiments/public_data.py FOLDER`: one seed, {MINUTES} minutes of processor time of one core each,"
    yield "with the commands below. Other work slowed them, so that a quiet machine makes more updates."
    yield "The files come from the repositories and commits that the script names.\n"
    yield "| data | test set | score | baseline without a model | compared with | updates |"
    yield "|---|---|---|---|---|---|"
    for line in lines:
        for place, (name, figures) in enumerate(line["totals"].items()):
            peer = PEERS.get(line["name"], "") if place == 0 else ""
            baseline = score(line["name"], figures["baseline"]) if figures["baseline"] else ""
            cells = [line["name"], name, score(line["name"], figures), baseline, peer, f"{line['updates']:,}"]
            yield f"| {' | '.join(cells)} |"
    yield "\n| data | command |\n|---|---|"
    for line in lines:
        yield f"| {line['name']} | `{line['command']}` |"


def main() -> None:
    names = [*CASES, "bilstm"]
    folder, *chosen = arguments(__doc__ or "", known=names)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    study = Study(__file__, key=("name",), page=page)
    for (name,) in study.missing((name,) for name in chosen or names):
        line = bilstm(place) if name == "bilstm" else measure(place, name)
        made = {"minutes": MINUTES, "commit": code_in_use().commit, "hardware": hardware(threads=1, device="cpu")}
        study.add({"name": name, **line, **made})
    study.render()


if __name__ == "__main__":
    main()
