"""``ut predict``: one result for each line of input (for stories: for each question), in the order of the input."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from universal_transformer.cli.output import USAGE_ERROR, error_line, note, say
from universal_transformer.cli.parser import OptionForm, Place
from universal_transformer.cli.shared_options import Answering, Folder, InBatches, OfRun
from universal_transformer.errors import UserError, refuse
from universal_transformer.files import Line, one_line, quoted, show, show_path
from universal_transformer.manifest import MODEL
from universal_transformer.models.call import Sampling
from universal_transformer.pretrained_models import is_pretrained
from universal_transformer.typed import NonNegative, Positive, Range

if TYPE_CHECKING:
    from universal_transformer.data.example import Example
    from universal_transformer.runs.opened import Run
    from universal_transformer.tasks.codec import Codec
    from universal_transformer.tasks.task import Prediction

LINES_AT_ONCE = 512
PREDICTIONS = "predictions"
MOST_UNKNOWN = 10
"""Unknown words of a line that are named."""
LONGEST = 2048
"""Tokens of the longest line that is answered by default: its time and memory may grow with their square."""
LONG = 1024
"""Tokens of a line from which on a note says that the lines after it wait."""
OneOf = Annotated[Positive, OptionForm("K")]


class Input(NamedTuple):
    """A line with its example, or what is wrong with it; an empty one has neither."""

    line: str = ""
    example: Example | None = None
    fault: UserError | None = None


@dataclass(frozen=True, kw_only=True)
class Predict(Answering, InBatches, OfRun):
    """Predict from a file or from standard input: one result for each line."""

    files: Annotated[tuple[str, ...], OptionForm("FILE", place=Place.WORD)] = ()
    """UTF-8 text, plain or .gz (default: standard input), or a file that training reads, whose answers are not read. A
    model that reads files takes one path a line, or the files."""
    text: Annotated[tuple[str, ...], OptionForm("TEXT")] = ()
    """Texts to predict from, in place of a file."""
    output: Folder = ""
    """Where answers that are files are written, such as pictures (default: predictions)."""
    format: Literal["text", "jsonl", "conll", "tsv"] = "text"
    """text: the answers. jsonl: one JSON object a line, with scores and steps. tsv: each input with its answer. conll:
    each token with its tag."""
    choices: OneOf | None = None
    """Number of best predictions in each JSON object (default: 3). Of an answer that is written, as many as beams."""
    lines: Annotated[Positive, OptionForm("N")] = 1
    """Lines that a language model writes for each prompt."""
    longest: Positive = LONGEST
    """Tokens of the longest line that is answered; a longer line is an error, and the others are answered."""
    temperature: Annotated[NonNegative, OptionForm("T")] | None = None
    """Temperature of sampling (default: 0, which takes the most probable token; 1 for pictures)."""
    top_k: OneOf | None = None
    """Sample from the K likeliest tokens (by default all)."""
    top_p: Annotated[float, Range(0, 1, above=True), OptionForm("P")] = 1.0
    """Sample from the likeliest tokens that together have this probability."""
    seed: Annotated[int, Range(0)] | None = None
    """Seed of sampling (default: 0)."""

    def __call__(self) -> int:
        """Predict; return 2 if a line is invalid (its result is an empty line, with a message on standard error)."""
        stdin, sampled = not self.text and self.files in ((), ("-",)), bool(self.temperature)
        closed = "standard input is closed; give lines to predict from on standard input, or name a file"
        give = "give --temperature too (1: the model's own distribution)"
        refuse(
            (self.beams > 1 and sampled, "--beams and --temperature: search or sample, not both"),
            (not sampled and (self.top_k or self.top_p < 1), f"--top-k and --top-p are for sampling: {give}"),
            (self.choices and self.format != "jsonl", "--choices is for --format jsonl: give it too"),
            (self.text and self.files, "--text and a file: name one of them"),
            (stdin and sys.stdin is None, closed),
        )
        from universal_transformer.evaluation.calibration import calibrated, written_freely
        from universal_transformer.evaluation.pipeline import sampling_of
        from universal_transformer.evaluation.prediction import predict
        from universal_transformer.runs.opened import open_run

        sampling = Sampling(temperature=self.temperature or 0, top_k=self.top_k, top_p=self.top_p, seed=self.seed or 0)
        inference = replace(self.decoding(sampling), lines=self.lines)
        run = open_run(Path(self.run), device=self.device, halting_execution=self.halting_execution)
        unused = self.seed is not None and not (sampled or run.codec.target.draws)
        few = self.choices and self.choices > self.beams and run.model.config.decodes
        refuse(
            (unused, f"--seed is for sampling: {give}"),
            (few, f"--choices {self.choices}: an answer of this model has as many as --beams, here {self.beams}"),
        )
        if self.temperature is None and self.beams == 1:
            temperature = sampling_of(run.codec).temperature
            inference = replace(inference, sampling=replace(inference.sampling, temperature=temperature))
        if self.calibration:
            unlike = written_freely(run.model.config)
            inference, found = calibrated(run.folder, inference, model=run.folder / MODEL, unlike=unlike)
            if found:
                note(f"ut: {found}")
        writer, remedy = FORMATS[self.format](run.codec), inference.longer_answers(run.model)
        results = _Results(run.codec, writer, output=self.output, longest=self.longest, remedy=remedy)
        given = _texts(run, self.text) if self.text else _inputs(run, [None] if stdin else self.files)
        answers = predict(
            run.model,
            run.codec,
            results.examples(given),
            options=inference,
            num_choices=self.choices or 3,
            batch_tokens=self.batch_tokens,
            window=1 if stdin and sys.stdin.isatty() else LINES_AT_ONCE,
        )
        for answer in answers:
            results.show(answer)
        return results.end()


class _Results:
    """Prints one result for each line in the order of the lines, each as soon as all earlier ones are printed."""

    def __init__(self, codec: Codec[Any, Any], writer: Format, *, output: str, longest: int, remedy: str) -> None:
        if output and not codec.target.suffix:
            raise UserError(f"--output {output}: the answers of this model are lines of text; leave it out")
        self._codec, self._writer, self._longest, self._remedy = codec, writer, longest, remedy
        self._folder = Path(output or PREDICTIONS)
        self._pending: deque[Input] = deque()
        self._failures = self._shown = self._with_unknown = 0
        self._waits = False  # whether a line was long
        self._cut: list[int] = []
        self._empty: list[int] = []
        self._unknown: dict[str, None] = {}
        self._stopped: UserError | None = None
        self._there: int | None = None  # the highest number of a file that was there before

    def examples(self, inputs: Iterator[Input]) -> Iterator[Example]:
        try:
            for number, given in enumerate(inputs, start=1):
                checked = self._checked(given, number=number)
                self._pending.append(checked)
                if checked.example is not None:
                    yield checked.example
                elif len(self._pending) == 1:
                    self._show_others()
                    sys.stdout.flush()
        except UserError as error:
            self._stopped = error  # the lines before it get their results first

    def _checked(self, given: Input, *, number: int) -> Input:
        """Refuse a line that is too long; say which is the first one that is long."""
        from universal_transformer.data.example import size

        if given.example is None or self._codec.source.suffixes:
            return given
        tokens = size(given.example)
        if tokens > self._longest:
            limit = f"expected at most --longest {self._longest}"
            return Input(fault=UserError(f"output line {number}: {tokens:,} tokens; {limit}"))
        if tokens > LONG and not self._waits:
            self._waits = True
            note(error_line(f"note: output line {number} has {tokens:,} tokens; answers to lines after it wait for it"))
        return given

    def show(self, answer: Prediction) -> None:
        """Print the prediction for the next example, after the results of the lines without one before it."""
        from universal_transformer.evaluation.prediction import with_words

        self._show_others()
        line, example, _ = self._pending.popleft()
        assert example is not None
        self._shown += 1
        if not answer.finished:
            self._cut.append(self._shown)
        answer = with_words(answer, codec=self._codec, line=line, example=example)
        self._with_unknown += bool(answer.unknown)
        self._unknown |= dict.fromkeys(answer.unknown)
        if fault := self._codec.target.fault(answer.text):
            note(error_line(f"warning: output line {self._shown}: {fault}"))
        for text in example.notes:
            note(error_line(text))
        say(self._writer.of(answer, line, file=self._write(answer.content) if answer.content else ""))
        if not self._pending:
            sys.stdout.flush()

    def _write(self, content: bytes) -> str:
        """Write an answer that is a file, numbered by its line, after those that are there; return its path."""
        from universal_transformer.files import write_bytes

        path, suffix = self._folder, self._codec.target.suffix
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._there is None:
                there = (file.stem for file in self._folder.glob(f"*{suffix}"))
                self._there = max((int(stem) for stem in there if stem.isdecimal()), default=0)
            path = self._folder / f"{self._there + self._shown:04d}{suffix}"
            write_bytes(path, content)
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror or error})") from error
        return str(path)

    def end(self) -> int:
        """Print the remaining results and return the exit code; raise the error that stopped the input, if any."""
        self._show_others()
        if self._empty:
            note(f"ut: warning: empty answers to empty lines: {len(self._empty):,}, first output line {self._empty[0]}")
        if self._unknown:
            words = ", ".join(map(show, list(self._unknown)[:MOST_UNKNOWN])) + ", …" * (
                len(self._unknown) > MOST_UNKNOWN
            )
            where = f"{len(self._unknown):,} different in {self._with_unknown:,} of {self._shown:,} lines"
            note(error_line(f"warning: unknown words, {where}: {words}; --format jsonl names those of each line"))
        if self._cut:
            note(
                f"ut: warning: {len(self._cut):,} of {self._shown:,} answers reached the limit of their length and may "
                f"be cut, first that of output line {self._cut[0]}; {self._remedy}"
            )
        if self._stopped is not None:
            raise self._stopped
        if not self._shown:
            raise UserError("standard input is empty; expected at least one line of text")
        return USAGE_ERROR if self._failures else 0

    def _show_others(self) -> None:
        from universal_transformer.tasks.task import Prediction

        while self._pending and self._pending[0].example is None:
            fault = self._pending.popleft().fault
            self._shown += 1
            if fault is None:
                self._empty.append(self._shown)
                say(self._writer.of(Prediction(text="", score=0.0), "", file=""))
                continue
            self._failures += 1
            note(error_line(str(fault)))
            say(self._writer.failure(str(fault)))


class Format:
    """How results are written: an answer on one line, or a prompt with what continues it."""

    def __init__(self, codec: Codec[Any, Any]) -> None:
        self.codec = codec

    def of(self, answer: Prediction, line: str, *, file: str) -> str:
        """Return what is written of an answer to an input line; `file` holds it if it is no text."""
        return one_line(file) or self.codec.target.shown(answer.text, answer.written, line)

    def failure(self, reason: str) -> str:
        """Return what is written for a line without an answer."""
        del reason
        return ""


class JsonLines(Format):
    """One object a line, with scores and steps."""

    def of(self, answer: Prediction, line: str, *, file: str) -> str:
        del line
        return json.dumps(answer.to_dict() | ({"file": file} if file else {}), ensure_ascii=False)

    def failure(self, reason: str) -> str:
        return json.dumps({"error": reason}, ensure_ascii=False)


class Tsv(Format):
    """Each input with its answer, as training reads them."""

    def of(self, answer: Prediction, line: str, *, file: str) -> str:
        return f"{line}\t{one_line(file or answer.text)}"


class Conll(Format):
    """Each token with its tag, an empty line after each sentence."""

    def __init__(self, codec: Codec[Any, Any]) -> None:
        super().__init__(codec)
        architecture = codec.model_fields.get("architecture")
        if architecture != "tagger":
            raise UserError(
                f"--format conll: this is a model of architecture {architecture}; a tagger has such answers"
            )

    def of(self, answer: Prediction, line: str, *, file: str) -> str:
        del file
        tokens = zip(line.split(), answer.text.split(), strict=True)
        return "".join(f"{token}\t{tag}\n" for token, tag in tokens)


FORMATS: dict[str, type[Format]] = {"text": Format, "jsonl": JsonLines, "tsv": Tsv, "conll": Conll}


def _inputs(run: Run, files: Sequence[str | None]) -> Iterator[Input]:
    """Yield the input of each line of the file (None: standard input).

    There are several files only if the codec reads files, each of which is an input itself.
    """
    codec = run.codec
    suffixes = codec.source.suffixes
    if len(files) > 1 and not suffixes:
        raise UserError(f"{len(files)} files: this model reads lines of text; name one file of them")
    for file in files:
        if file is not None and not suffixes and not Path(file).exists():
            command = f"ut predict {quoted(run.folder.name if is_pretrained(run.folder) else run.folder)}"
            raise UserError(f"{show_path(file)}: no such file; a text is given so: {command} --text {quoted(file)}")
        if file is None or not suffixes or not file.lower().endswith(suffixes):
            yield from _lines(run, file)
            continue
        yield _input(codec, Line(1, file), name=file)


def _lines(run: Run, file: str | None) -> Iterator[Input]:
    """Yield the input of each line of `file` (None: standard input), or of each row of one that training reads.

    A line of a codec that reads files is the path of one; what is no text is refused once.
    """
    from universal_transformer.data.text_sources import is_table
    from universal_transformer.files import read_lines, read_stream, try_lines, try_stream

    codec, name, suffixes = run.codec, "standard input" if file is None else file, run.codec.source.suffixes
    if codec.source.several_lines:  # a story has many lines: they cannot be read one at a time
        whole = read_stream(sys.stdin.buffer, name) if file is None else read_lines(file)
        yield from [_of_example(codec, example) for example in codec.read(whole, name=name)]
        return
    lines = try_stream(sys.stdin.buffer, name) if file is None else try_lines(file)
    inputs, layout = (getattr(run.config.data, field, None) for field in ("inputs", "layout"))  # of files of users
    is_cell = layout is not None and is_table(name, layout)  # no answer is in it
    for line in lines if inputs is None else inputs(lines, name=name, codec=codec):
        if line.fault and suffixes:
            wanted = f"expected a file of {', '.join(suffixes)}, or a text file with the path of one a line"
            yield Input(fault=UserError(f"{line.fault}; {wanted}"))
            return
        given = _input(codec, line, name=name)
        yield given._replace(example=replace(given.example, notes=())) if is_cell and given.example else given


def _texts(run: Run, texts: Sequence[str]) -> Iterator[Input]:
    """Yield the input of each text of the command line, which may have several lines where an input has."""
    for number, text in enumerate(texts, start=1):
        if run.codec.source.several_lines:
            lines = enumerate(text.split("\n"), start=1)
            yield from [_of_example(run.codec, example) for example in run.codec.read(lines, name=f"text {number}")]
        else:
            yield _input(run.codec, Line(number, one_line(text)), name="text")


def _of_example(codec: Codec[Any, Any], example: Example) -> Input:
    """Return an input of several lines, written as one."""
    return Input(one_line(codec.source.input_text(example.source)), example)


def _input(codec: Codec[Any, Any], line: Line, *, name: str) -> Input:
    if line.fault:
        return Input(fault=line.fault)
    try:
        return Input(line.text, next(codec.read([(line.number, line.text)], name=name), None))
    except UserError as error:
        return Input(fault=error)
