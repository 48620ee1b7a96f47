"""Measure the defaults of the recipes for own files: nine data sets, five minutes of one core for each run.

A minute is one of processor time, so that other work on the machine does not change a figure.

    python experiments/own_file_defaults.py FOLDER [NAME ...]

Reads public data below UT_DATA and generates the rest, writes everything to FOLDER, trains each variant of each recipe
that has no line in results/studies/own_file_defaults.jsonl, adds its line, and writes
results/studies/own_file_defaults.md. A NAME selects data sets:

| recipe   | data set  | kind     | from                                                                        |
| -------- | --------- | -------- | --------------------------------------------------------------------------- |
| pairs    | multi30k  | public   | English to German, 29,000 descriptions; BLEU on test 2016                   |
| pairs    | commands  | made up  | commands to actions; the test combines what training shows apart            |
| pairs    | numbers   | made up  | numbers in words to digits                                                  |
| text     | plays     | public   | tinyshakespeare, characters                                                 |
| text     | wiki      | public   | WikiText-2, its validation part to train, its test part halved; byte pairs  |
| text     | sums      | made up  | lines such as 417+86=503, characters                                        |
| labelled | agreement | public   | prefixes of sentences, singular or plural verb (Linzen et al. 2016)         |
| labelled | authors   | public   | one line of a novel, one of five authors                                    |
| labelled | lists     | made up  | nested minima, maxima and sums modulo 10                                    |
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from study import Study, arguments, read_lines, write_page

MINUTES = 5
DATA = Path(os.environ.get("UT_DATA", "data"))

PRE, POST = "--model.step.norm pre", "--model.step.norm post"
FIXED = "--model.halting.side none"
HALTING = "--model.halting.side both --model.halting.bias"
POSITION = "--model.coordinates.position"
COSINE = "--training.schedule cosine"
INVERSE = "--training.schedule inverse_sqrt"
RATE = "--training.learning-rate"

VARIANTS = {
    "pairs": {
        "fixed, pre-norm, sinusoids": f"{FIXED} {PRE} {POSITION} sinusoidal",
        "fixed, pre-norm, distances": f"{FIXED} {PRE} {POSITION} distance",
        "halting, pre-norm, distances": f"{HALTING} -2 {PRE} {POSITION} distance",
    },
    "text": {
        "fixed, post-norm, inverse square root 1e-3": f"{FIXED} {POST} {INVERSE} {RATE} 1e-3",
        "fixed, pre-norm, cosine 2e-3": f"{FIXED} {PRE} {COSINE} {RATE} 2e-3",
        "halting, pre-norm, cosine 2e-3": f"{HALTING} -2 {PRE} {COSINE} {RATE} 2e-3",
    },
    "labelled": {
        "halting, post-norm, inverse square root 5e-4": f"{HALTING} -1 {POST} {INVERSE} {RATE} 5e-4",
        "fixed, pre-norm, cosine 1e-3": f"{FIXED} {PRE} {COSINE} {RATE} 1e-3",
        "halting, pre-norm, cosine 1e-3": f"{HALTING} -2 {PRE} {COSINE} {RATE} 1e-3",
    },
}
"""Recipe -> its variants, and their options of `ut train`."""
DEFAULTS = {
    "pairs": "fixed, pre-norm, distances",
    "text": "fixed, pre-norm, cosine 2e-3",
    "labelled": "fixed, pre-norm, cosine 1e-3",
}
SCORES = {"error": "error %", "bleu": "BLEU", "sequence_accuracy": "exact match", "perplexity": "perplexity"}


def write(path: Path, lines: Iterable[str]) -> str:
    write_page(path, lines)
    return str(path)


def split(folder: Path, name: str, lines: list[str], *, held: int) -> list[str]:
    """Write all but the last 2 × `held` lines to train on, `held` to validate and `held` to test; return options."""
    parts = {"train": lines[: -2 * held], "validation": lines[-2 * held : -held], "test": lines[-held:]}
    return [word for part, own in parts.items() for word in (f"--data.{part}", write(folder / f"{name}.{part}", own))]


def multi30k(folder: Path) -> list[str]:
    options = []
    for part, name in (("train", "train"), ("validation", "val"), ("test", "test_2016_flickr")):
        for language, side in (("en", ""), ("de", "-target")):
            with gzip.open(DATA / "multi30k" / f"{name}.{language}.gz", "rt", encoding="utf-8") as file:
                lines = [line.strip() for line in file]
            options += [f"--data.{part}{side}", write(folder / f"multi30k.{part}.{language}", lines)]
    return [*options, "--data.metric", "bleu"]


def commands(folder: Path) -> list[str]:
    """Commands as in SCAN (Lake and Baroni 2018): in training, "jump" stands alone or with "twice" only."""
    verbs = {"walk": "WALK", "run": "RUN", "look": "LOOK", "jump": "JUMP"}
    turns = {"": "", " left": "LEFT ", " right": "RIGHT "}
    times = {"": 1, " twice": 2, " thrice": 3, " four times": 4}
    phrases: list[tuple[str, str]] = []
    for verb, action in verbs.items():
        for side, turn in turns.items():
            units = {"": turn + action}
            if side:
                units |= {" opposite": turn + turn + action, " around": " ".join([turn + action] * 4)}
            for way, unit in units.items():
                phrases += [(verb + way + side + repeat, " ".join([unit] * count)) for repeat, count in times.items()]
    rows = list(phrases)
    for first, done in phrases:
        for second, then in phrases:
            rows.append((f"{first} and {second}", f"{done} {then}"))
            rows.append((f"{first} after {second}", f"{then} {done}"))
    known = {"jump", "jump twice"}

    def held_out(source: str) -> bool:
        parts = re.split(" and | after ", source)
        return any(part.startswith("jump") and part not in known for part in parts)

    draw = random.Random(0)
    draw.shuffle(rows)
    seen = [f"{source}\t{target}" for source, target in rows if not held_out(source)]
    new = [f"{source}\t{target}" for source, target in rows if held_out(source)]
    options = ["--data.train", write(folder / "commands.train", seen[500:])]
    options += ["--data.validation", write(folder / "commands.validation", seen[:500])]
    options += ["--data.test", write(folder / "commands.test", new[:1000])]
    return [*options, "--data.metric", "sequence", "--data.tokenizer", "word"]


SMALL = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen"""
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"


def in_words(number: int) -> str:
    if number < 20:
        return SMALL.split()[number]
    if number < 100:
        return TENS.split()[number // 10 - 2] + (f" {in_words(number % 10)}" if number % 10 else "")
    for size, name in ((1_000_000, "million"), (1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = number % size
            return f"{in_words(number // size)} {name}" + (f" {in_words(rest)}" if rest else "")
    raise AssertionError(number)


def numbers(folder: Path) -> list[str]:
    draw = random.Random(0)
    chosen = sorted({int(10 ** draw.uniform(0, 8)) for _ in range(14_000)})
    draw.shuffle(chosen)
    lines = [f"{in_words(number)}\t{number}" for number in chosen[:11_000]]
    options = split(folder, "numbers", lines, held=500)
    return [*options, "--data.metric", "sequence", "--data.tokenizer", "character"]


def plays(folder: Path) -> list[str]:
    lines = (DATA / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8").splitlines()
    return split(folder, "plays", lines, held=len(lines) // 20)


def wiki(folder: Path) -> list[str]:
    def lines(name: str) -> list[str]:
        text = (DATA / "wikitext2_heldout" / name).read_text(encoding="utf-8")
        return [line.strip() for line in text.split("\n") if line.strip()]

    test = lines("test.txt")
    options = ["--data.train", write(folder / "wiki.train", lines("valid.txt"))]
    options += ["--data.validation", write(folder / "wiki.validation", test[: len(test) // 2])]
    options += ["--data.test", write(folder / "wiki.test", test[len(test) // 2 :])]
    return [*options, "--data.tokenizer", "bpe", "--data.vocabulary-size", "2000"]


def sums(folder: Path) -> list[str]:
    draw = random.Random(0)
    pairs = [(draw.randrange(1000), draw.randrange(1000)) for _ in range(30_000)]
    return split(folder, "sums", [f"{one}+{other}={one + other}" for one, other in pairs], held=1500)


def agreement(folder: Path) -> list[str]:
    names = {"VBZ": "singular", "VBP": "plural"}
    path = DATA / "sva" / "rnn_agr_simple" / "numpred.val"
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if "\t" in line]
    lines = sorted({f"{text.strip()}\t{names[label]}" for label, text in rows})
    random.Random(0).shuffle(lines)
    return split(folder, "agreement", lines, held=1000)


def authors(folder: Path) -> list[str]:
    wanted = ("Chesterton", "Kipling", "Woolf", "Doyle", "Dickens")
    draw = random.Random(0)
    with tarfile.open(DATA / "novels" / "corpus.tar.xz") as archive:
        texts: dict[str, list[str]] = {name: [] for name in wanted}
        for member in archive:
            author = Path(member.name).name.split("_")[0]
            file = archive.extractfile(member) if author in texts else None
            if file is not None:
                text = file.read().decode("utf-8-sig", "replace")
                lines = [" ".join(line.split()) for line in text.split("\n")]
                texts[author] += [line for line in lines if line.count(" ") > 6]
    rows = [f"{line}\t{author}" for author, own in texts.items() for line in draw.sample(own, 6000)]
    draw.shuffle(rows)
    return split(folder, "authors", rows, held=1000)


def lists(folder: Path) -> list[str]:
    """Nested lists as in ListOps (Nangia and Bowman 2018), at most three deep."""
    draw = random.Random(0)
    rules: dict[str, Callable[[list[int]], int]] = {"MIN": min, "MAX": max, "SUM": lambda values: sum(values) % 10}

    def make(depth: int) -> tuple[str, int]:
        if depth == 0 or draw.random() < 0.4:
            digit = draw.randrange(10)
            return str(digit), digit
        rule = draw.choice(sorted(rules))
        parts = [make(depth - 1) for _ in range(draw.randint(2, 4))]
        return f"( {rule} {' '.join(text for text, _ in parts)} )", rules[rule]([value for _, value in parts])

    found: dict[str, int] = {}
    while len(found) < 22_000:
        text, value = make(3)
        if text.startswith("("):
            found[text] = value
    return split(folder, "lists", [f"{text}\t{value}" for text, value in found.items()], held=1000)


DATA_SETS: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "agreement": ("labelled", agreement),
    "authors": ("labelled", authors),
    "lists": ("labelled", lists),
    "commands": ("pairs", commands),
    "numbers": ("pairs", numbers),
    "multi30k": ("pairs", multi30k),
    "plays": ("text", plays),
    "wiki": ("text", wiki),
    "sums": ("text", sums),
}


UT = """
import sys, time
time.monotonic = time.process_time  # training counts its minutes with it
from universal_transformer.cli import main
sys.exit(main())
"""


def ut(*arguments: str) -> None:
    subprocess.run([sys.executable, "-c", UT, *arguments], check=True)


def measure(folder: Path, *, data: str, recipe: str, variant: str, options: list[str]) -> dict[str, Any]:
    """Train and evaluate one variant on one data set; return its line."""
    run = folder / "runs" / f"{data}-{re.sub('[^a-z0-9]+', '-', variant)}"
    choices = VARIANTS[recipe][variant]
    begin = ["--resume", str(run)]
    if not (run / "config.json").exists():
        limits = ["--training.minutes", str(MINUTES), "--training.threads", "1"]
        begin = [recipe, *options, *choices.split(), *limits, "--run", str(run)]
    ut("train", *begin)
    ut("evaluate", str(run))
    settings = json.loads((run / "config.json").read_text(encoding="utf-8"))
    return {
        "recipe": recipe,
        "data": data,
        "variant": variant,
        "options": choices,
        "minutes": MINUTES,
        "end": read_lines(run / "metrics.jsonl")[-1],
        "settings": {"model": settings["model"], "training": settings["training"]},
        "report": json.loads((run / "report.json").read_text(encoding="utf-8")),
    }


INTRODUCTION = """\
# Defaults for own files

One seed, {minutes} minutes of one CPU core a run (`python experiments/own_file_defaults.py FOLDER`), scores of the
test set. The baseline needs no model: the most frequent class or target, the source as it is (BLEU), the frequency
of each token (perplexity). Steps are means of at most 4. The defaults of the recipes are marked *. Minutes are
of processor time; the runs on `agreement` were made first, with minutes of a shared core. All runs were made before
`word` tokens kept blanks.
"""


def page(lines: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of results/studies/own_file_defaults.md."""
    yield from INTRODUCTION.format(minutes=MINUTES).split("\n")
    yield "| recipe | data | variant | score | baseline | encoder, decoder steps |"
    yield "|---|---|---|---|---|---|"
    for line in sorted(
        lines, key=lambda one: [list(VARIANTS).index(one["recipe"]), list(DATA_SETS).index(one["data"])]
    ):
        row = line["report"]["totals"][0]
        name = next(name for name in SCORES if name in row["metrics"])
        scores = [f"{SCORES[name]} {row['metrics'][name]:.3f}", f"{row['baseline'][name]:.3f}"]
        means = [mean(side["counts"]) for side in row["steps"]]
        mark = " *" if line["variant"] == DEFAULTS[line["recipe"]] else ""
        cells = [line["recipe"], line["data"], line["variant"] + mark, *scores, ", ".join(means)]
        yield f"| {' | '.join(cells)} |"


def mean(counts: list[int]) -> str:
    return f"{sum(steps * count for steps, count in enumerate(counts, 1)) / sum(counts):.2f}"


STUDY = Study(__file__, key=("data", "variant"), page=page)


if __name__ == "__main__":
    folder, *names = arguments(__doc__, known=DATA_SETS)
    made = Path(folder).resolve()
    made.mkdir(parents=True, exist_ok=True)
    cases = ((data, variant) for data in names or DATA_SETS for variant in VARIANTS[DATA_SETS[data][0]])
    for data, variant in STUDY.missing(cases):
        recipe, make = DATA_SETS[data]
        STUDY.add(measure(made, data=data, recipe=recipe, variant=variant, options=make(made)))
    STUDY.render()
