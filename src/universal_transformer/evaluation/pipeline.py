"""A trained model with its codec: text to answers in one call."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from universal_transformer.axes import Tensor
from universal_transformer.data.example import Example
from universal_transformer.decoding import GREEDY, Sampling
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError, refuse
from universal_transformer.evaluation.calibration import calibrated, written_freely
from universal_transformer.evaluation.prediction import predict, with_words
from universal_transformer.files import show
from universal_transformer.models.call import Generated
from universal_transformer.models.model import Model
from universal_transformer.models.pretrained import find_model
from universal_transformer.pretrained_models import find
from universal_transformer.registry import load_pretrained
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Prediction

AS_TRAINED = DecodingOptions()
Text = str | tuple[str, ...]
"""One input as a line of a file has it, or its columns. Of stories: the lines of a story that ends with a question."""


@dataclass(frozen=True)
class Pipeline:
    """A model and the codec that turns texts into its ids and back. The answers are those of ``ut predict``.

    >>> add = load("addition")
    >>> add("123+456").text
    '579'
    >>> [answer.text for answer in add(["95+17", "1+2"], options=DecodingOptions(beams=4))]
    ['112', '3']
    """

    model: Model
    codec: Codec[Any, Any]
    options: DecodingOptions = AS_TRAINED
    """Of calls that name no others: the depth that the run was calibrated to, or else that of training."""
    note: str = ""
    """Why the depth is that of a calibration, or why it is not although there is one."""

    @overload
    def __call__(self, texts: Text, *, options: DecodingOptions | None = ..., num_choices: int = ...) -> Prediction: ...
    @overload
    def __call__(
        self, texts: list[Text] | list[str], *, options: DecodingOptions | None = ..., num_choices: int = ...
    ) -> list[Prediction]: ...
    def __call__(
        self,
        texts: Text | list[Text] | list[str],
        *,
        options: DecodingOptions | None = None,
        num_choices: int = 3,
    ) -> Prediction | list[Prediction]:
        """Return the prediction for a text, or a list of predictions for a list of texts.

        `num_choices` of the best answers are kept. Without `options` those of the pipeline hold. UserError for texts
        that the codec refuses, and for options that do not fit the model.
        """
        several = isinstance(texts, list)
        given, segments = texts if isinstance(texts, list) else [texts], self.codec.source.segments
        lines = [line_of(text, number, segments=segments) for number, text in enumerate(given)]
        examples = [self.example(line, number) for number, line in enumerate(lines)]
        options = self.options if options is None else options
        asked = [example for example in examples if example is not None]
        answers = predict(self.model, self.codec, asked, options=options, num_choices=num_choices)
        found = [
            Prediction(text="", score=0.0)
            if example is None
            else with_words(next(answers), codec=self.codec, line=line, example=example)
            for line, example in zip(lines, examples, strict=True)
        ]
        return found if several else found[0]

    def generate(self, source: Tensor | Sequence[Any], **options: Any) -> list[Generated]:
        """Return what `generate` of the model does, for ids or texts, at the depth of the pipeline unless one is given.

        A calibration covers greedy answers alone, so that beams and sampling have the depth of training where the depth
        of the pipeline is that of one.

        UserError for a classifier, and for what the model refuses.
        """
        if self.model.writes != "tokens":
            raise UserError(f"{type(self.model).__name__} writes no sequences: call the pipeline itself for a class")
        depth = {name: getattr(self.options.depth, name) for name in ("max_steps", "halting_threshold", "exit")}
        greedy = DecodingOptions(beams=options.get("beams", 1), sampling=options.get("sampling", GREEDY)).is_greedy
        if (greedy or not self.note) and all(options.get(name) is None for name in depth):
            options |= depth
        return self.model.generate(source, **options)

    def example(self, line: str, number: int) -> Example | None:
        """Return the example of one text; None for a blank one, whose answer is empty."""
        several = self.codec.source.several_lines
        # as in a file: only a line feed ends a line, with one carriage return before it
        lines = [part.removesuffix("\r") for part in line.removesuffix("\n").split("\n")]
        place, what = f"text {number}", "questions" if several else "inputs"
        if not several and len(lines) > 1:
            raise UserError(f"{place}: {show(line)} has a line break; expected one line, or a list of texts")
        found = list(self.codec.read(enumerate(lines, start=1), name=place))
        if not found and not several and not line.strip():
            return None
        if len(found) != 1:
            raise UserError(f"{place}: found {len(found)} {what} in {show(line)}; expected one")
        return found[0]


def load(run: str | Path, *, device: str = "cpu", calibration: bool = True) -> Pipeline:
    """Open the model of a run, or a pretrained model by its name, for texts. ``ut models`` lists the names.

    `run` is a run folder, a model folder with a codec, or a name. A folder with this name that holds a run or a model
    comes first. A run that ``ut calibrate`` gave fewer steps makes these, unless `calibration` is off; `Pipeline.note`
    says so.

    Raises UserError for a folder without a model or a codec, an unknown name, damaged files, and a device that is not
    there.
    """
    folder = find_model(run)
    model, codec = load_pretrained(folder), Codec.load(folder)
    try:
        model = model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={device!r}: {str(error).splitlines()[0]}") from None
    model.codec = codec
    options, note = DecodingOptions(sampling=sampling_of(codec)), ""
    if calibration:
        options, note = calibrated(find(run), options, model=folder, unlike=written_freely(model.config))
    return Pipeline(model=model, codec=codec, options=options, note=note)


def sampling_of(codec: Codec[Any, Any]) -> Sampling:
    """How answers are chosen unless a caller says otherwise: greedily, but pictures are sampled at temperature 1, as
    the likeliest pixels one after the other are no likely picture.
    """
    return Sampling(temperature=1.0) if codec.target.draws else GREEDY


def line_of(text: object, number: int, *, segments: int) -> str:
    """Return a text, or the columns of one, as a line of a file has them; a model reads so many of them."""
    columns = text if isinstance(text, tuple) else (text,)
    texts = [column for column in columns if isinstance(column, str)]
    tab = isinstance(text, tuple) and any("\t" in column for column in texts)
    many = isinstance(text, tuple) and len(texts) > 1 == segments
    refuse(
        (not texts or len(texts) < len(columns), f"found {show(text)}; expected text, or a tuple of texts for columns"),
        (many, f"found {show(text)}; this model reads one text; several inputs are a list"),
        (tab, f"a tab in {show(text)}; it separates columns"),
        at=f"text {number}",
    )
    return "\t".join(texts)
