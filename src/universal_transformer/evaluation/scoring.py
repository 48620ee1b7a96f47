"""Batches of examples to what they add to the scores: classes, free-running sequences, or tokens."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from universal_transformer.axes import Bool, Float, Int, Tensor
from universal_transformer.data.batch import collate
from universal_transformer.data.example import PADDING, Example
from universal_transformer.data.tokenizer import UNKNOWN
from universal_transformer.decoding import Generated, beam_search, generate
from universal_transformer.decoding.session import check_model
from universal_transformer.errors import UserError
from universal_transformer.evaluation.report import Side, StepCounts
from universal_transformer.models.build import Model
from universal_transformer.models.roles import AllAtOnce, AnyClassifier, AnyEncoderDecoder, AnyLanguageModel
from universal_transformer.nn.halting import check_threshold
from universal_transformer.nn.trace import Trace
from universal_transformer.tasks.scoring import character_accuracy, sequence_accuracy, until_end
from universal_transformer.tasks.task import Codec, Measure
from universal_transformer.tasks.text import TextCodec


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How free-running output is made: greedily, or as the best of several beams."""

    beams: int = 1
    alpha: float = 0.6
    """Exponent of the length penalty of a beam search."""

    def __call__(
        self,
        model: AnyEncoderDecoder | AllAtOnce,
        source: Tensor,
        *,
        max_new_tokens: int | None,
        depth: Depth,
    ) -> list[Generated]:
        """Return one sequence a row of `source`."""
        if self.beams == 1:
            return generate(
                model,
                source,
                max_new_tokens=max_new_tokens,
                max_steps=depth.max_steps,
                halting_threshold=depth.halting_threshold,
            )
        check_model(model)
        assert isinstance(model, AnyEncoderDecoder)
        found = beam_search(
            model,
            source,
            beams=self.beams,
            alpha=self.alpha,
            max_new_tokens=max_new_tokens,
            max_steps=depth.max_steps,
            halting_threshold=depth.halting_threshold,
        )
        return [best[0] for best in found]

    @property
    def name(self) -> str:
        """What a figure says about it."""
        return "greedy" if self.beams == 1 else f"{self.beams} beams, length penalty {self.alpha:g}"


@dataclass(frozen=True, kw_only=True)
class Depth:
    """Depth at run time; None is as the model was configured."""

    max_steps: int | None = None
    halting_threshold: float | None = None

    def __post_init__(self) -> None:
        if self.max_steps is not None and (type(self.max_steps) is not int or self.max_steps < 1):
            raise UserError(f"max_steps={self.max_steps}: a whole number of at least 1 step")
        if self.halting_threshold is not None:
            check_threshold(self.halting_threshold)

    def cap(self, model: Model) -> int:
        """Return the most steps a position can take."""
        return model.config.max_steps if self.max_steps is None else self.max_steps

    def check(self, model: Model) -> None:
        """Refuse a threshold for a model that does not halt: it would change nothing."""
        if self.halting_threshold is not None and not model.config.halting:
            raise UserError(
                f"halting_threshold={self.halting_threshold:g}: this model was trained without halting and has no "
                "threshold; leave it out"
            )

    def notes(self, model: Model) -> list[str]:
        """Say where it differs from the model's own."""
        own = {"max_steps": self.max_steps, "halting_threshold": self.halting_threshold}
        return [
            f"evaluated with {name}={value:g} instead of the model's {getattr(model.config, name):g}"
            for name, value in own.items()
            if value is not None and value != getattr(model.config, name)
        ]


@dataclass
class Outcome:
    """What one example, or a group of them, adds to the scores."""

    count: int = 1
    sums: dict[str, float] = field(default_factory=dict)
    steps: dict[Side, Counter[int]] = field(default_factory=dict)
    texts: list[tuple[str, str]] = field(default_factory=list)
    """Hypothesis and reference, for scores of a whole corpus."""

    def add(self, other: Outcome) -> None:
        """Take in another one."""
        self.count += other.count
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for side, counts in other.steps.items():
            self.steps.setdefault(side, Counter()).update(counts)
        self.texts += other.texts

    def step_counts(self, *, cap: int) -> tuple[StepCounts, ...]:
        """Return its steps as the report has them; none of a model without depth."""
        return tuple(
            StepCounts(side, tuple(counts[n] for n in range(1, cap + 1)))
            for side, counts in self.steps.items()
            if counts
        )


@dataclass(frozen=True)
class Scorer:
    """Turns batches of examples into outcomes."""

    model: Model
    codec: Codec
    metric: Measure
    depth: Depth
    decoding: Decoding

    def __call__(self, examples: Sequence[Example]) -> list[Outcome]:
        """Return the outcome of each example."""
        match self.model:
            case AnyClassifier() as model:
                return self._classes(model, examples)
            case AnyLanguageModel() as model if self.metric == "ranking":
                return self._ranks(model, examples)
            case AnyLanguageModel() as model:
                return self._tokens(model, examples)
            case model:
                return self._sequences(model, examples)

    def _classes(self, model: AnyClassifier, examples: Sequence[Example]) -> list[Outcome]:
        batch = collate(examples, indices=range(len(examples))).to(device_of(model))
        assert batch.source is not None
        output = model(
            batch.source,
            max_steps=self.depth.max_steps,
            halting_threshold=self.depth.halting_threshold,
        )
        wrong = (finite(output.logits).argmax(-1) != batch.target).tolist()
        steps = steps_of(output.encoder, real=real_positions(model, batch.source))
        return [
            Outcome(sums={"wrong": float(miss)}, steps={"encoder": Counter(map(int, taken))})
            for miss, taken in zip(wrong, steps, strict=True)
        ]

    def _sequences(self, model: AnyEncoderDecoder | AllAtOnce, examples: Sequence[Example]) -> list[Outcome]:
        batch = collate(examples, indices=range(len(examples))).to(device_of(model))
        assert batch.source is not None
        # what is longer than its target is wrong already, whatever would follow
        limit = batch.target.shape[1] if self.metric == "sequence" else None
        found = self.decoding(model, batch.source, max_new_tokens=limit, depth=self.depth)
        if self.metric == "sequence":
            pairs = zip(found, examples, strict=True)
            found = [cut(output, length=len(ids_of(example))) for output, example in pairs]
        outcomes = []
        written = decoder_steps(model, batch.source, found, depth=self.depth)
        for example, output, steps in zip(examples, found, written, strict=True):
            outcome = Outcome(steps={"encoder": Counter(map(int, output.source_steps)), "decoder": steps})
            target = ids_of(example)
            if self.metric == "sequence":
                end = model.config.end_id
                outcome.sums["characters"] = character_accuracy(output.tokens, target, end_id=end)
                outcome.sums["sequences"] = sequence_accuracy(output.tokens, target, end_id=end)
            else:
                reference = self.codec.render(until_end(target, end_id=model.config.end_id))
                outcome.texts.append((self.codec.render(output.tokens), reference))
            outcomes.append(outcome)
        return outcomes

    def _tokens(self, model: AnyLanguageModel, examples: Sequence[Example]) -> list[Outcome]:
        batch = collate(examples, indices=range(len(examples))).to(device_of(model))
        output = model(
            batch.target,
            max_steps=self.depth.max_steps,
            halting_threshold=self.depth.halting_threshold,
        )
        real = batch.target != PADDING
        scored = real
        if self.metric == "last_word":
            scored = real & (real.long().cumsum(1) == real.sum(1, keepdim=True))
        logits, targets = finite(output.logits[scored]).float(), batch.target[scored]
        right = logits.argmax(-1) == targets
        if self.metric == "last_word":
            right &= targets != UNKNOWN
        nats = cross_entropy(logits, targets, reduction="none").double()
        sums = nats.new_zeros(len(examples), 3).index_add_(
            0, scored.nonzero()[:, 0], torch.stack((nats, right.double(), torch.ones_like(nats)), dim=1)
        )
        outcomes = [
            Outcome(
                sums=dict(zip(("nats", "right", "tokens"), of_row, strict=True)),
                steps={"decoder": Counter(map(int, taken))},
            )
            for of_row, taken in zip(sums.tolist(), steps_of(output.decoder, real=real), strict=True)
        ]
        if self.metric == "last_word":
            for example, outcome in zip(examples, outcomes, strict=True):
                known = float(ids_of(example)[-1] != UNKNOWN)
                outcome.sums |= {"known": known, "known_nats": known * outcome.sums["nats"]}
        return outcomes

    def _ranks(self, model: AnyLanguageModel, examples: Sequence[Example]) -> list[Outcome]:
        """Whether the text with the right form (the target) is likelier than the one with a wrong form (the source)."""
        right = [ids_of(example) for example in examples]
        wrong = [tuple(id_ for id_ in example.source if isinstance(id_, int)) for example in examples]
        if not all(wrong):
            raise UserError("these are single texts: ranking needs texts with a right and a wrong form each")
        if all(good[:-1] == bad[:-1] for good, bad in zip(right, wrong, strict=True)):
            # one pass: of two texts that differ in their last word, the likelier one has the larger logit there
            logits, steps = self._logits(model, right)
            ends = [logits[row, len(ids) - 1] for row, ids in enumerate(right)]
            pairs = zip(ends, right, wrong, strict=True)
            above = [bool(end[good[-1]] > end[bad[-1]]) for end, good, bad in pairs]
        else:
            logits, steps = self._logits(model, right)
            others, _ = self._logits(model, wrong)
            sums = zip(log_probabilities(logits, right), log_probabilities(others, wrong), strict=True)
            above = [good > bad for good, bad in sums]
        return [
            Outcome(sums={"right": float(hit)}, steps={"decoder": Counter(map(int, taken))})
            for hit, taken in zip(above, steps, strict=True)
        ]

    def _logits(
        self, model: AnyLanguageModel, texts: Sequence[tuple[int, ...]]
    ) -> tuple[Float[Tensor, "batch target classes"], list[list[float]]]:
        examples = [Example(source=(), target=text) for text in texts]
        batch = collate(examples, indices=range(len(texts))).to(device_of(model))
        output = model(
            batch.target,
            max_steps=self.depth.max_steps,
            halting_threshold=self.depth.halting_threshold,
        )
        return finite(output.logits), steps_of(output.decoder, real=batch.target != PADDING)

    def metrics(self, outcome: Outcome) -> tuple[dict[str, float], dict[str, str]]:
        """Return the scores of a group, and the signatures of how they were computed."""
        sums = outcome.sums
        if self.metric == "error":
            return {"error": 100 * sums["wrong"] / outcome.count}, {}
        if self.metric == "accuracy":
            return {"accuracy": 1 - sums["wrong"] / outcome.count}, {}
        if self.metric == "ranking":
            return {"accuracy": sums["right"] / outcome.count}, {}
        if self.metric == "sequence":
            return {
                "character_accuracy": sums["characters"] / outcome.count,
                "sequence_accuracy": sums["sequences"] / outcome.count,
            }, {}
        if self.metric == "bleu":
            return corpus_scores(outcome.texts)
        tokens = max(1.0, sums["tokens"])
        scores = {
            "perplexity": math.exp(min(700.0, sums["nats"] / tokens)),
            "accuracy": sums["right"] / tokens,
        }
        if self.metric == "last_word":
            known = sums["known_nats"] / max(1.0, sums["known"])
            scores["known_perplexity"] = math.exp(min(700.0, known))
        if isinstance(self.codec, TextCodec) and self.codec.tokenizer.kind == "character":
            scores["bits_per_character"] = sums["nats"] / tokens / math.log(2)
        return scores, {}


def log_probabilities(
    logits: Float[Tensor, "batch target classes"], texts: Sequence[tuple[int, ...]]
) -> list[float]:
    """``Σ_i log p(token_i | tokens before it)`` of each row, in double precision."""
    return [
        float(
            row[: len(ids)]
            .double()
            .log_softmax(-1)
            .gather(1, torch.tensor(ids, device=row.device).unsqueeze(1))
            .sum()
        )
        for row, ids in zip(logits, texts, strict=True)
    ]


def cut(output: Generated, *, length: int) -> Generated:
    """What is left of an output of at most `length` tokens, end token included: what a search for so many writes.

    A batch is written to the length of its longest target. Cut to its own, an output has the same tokens, and so the
    same scores and steps, in every batch. Where the target ends in an end token, no score changes by it: what has not
    ended there is longer than the target. Log-probability and mean steps stay those of the whole output.
    """
    finished = output.finished and len(output.tokens) < length
    return dataclasses.replace(output, tokens=output.tokens[:length], finished=finished)


def decoder_steps(
    model: AnyEncoderDecoder | AllAtOnce, source: Tensor, found: Sequence[Generated], *, depth: Depth
) -> list[Counter[int]]:
    """How many steps the decoder made for each token of `found` (and its end token); none without depth."""
    config = model.config
    written = [(*output.tokens, *([config.end_id] if output.finished else [])) for output in found]
    if not config.halting:
        return [Counter({depth.cap(model): len(ids)} if config.max_steps else {}) for ids in written]
    batch = collate(
        [Example(source=(), target=ids) for ids in written], indices=range(len(written))
    ).to(source.device)  # fmt: skip
    output = model(
        source,
        batch.target,
        max_steps=depth.max_steps,
        halting_threshold=depth.halting_threshold,
    )
    steps = steps_of(output.decoder, real=batch.target != config.padding_id)
    return [Counter(map(int, taken)) for taken in steps]


def real_positions(model: Model, source: Int[Tensor, "batch source *words"]) -> Bool[Tensor, "batch source"]:
    """Where there is a token, or a fact of at least one word."""
    real = source != model.config.padding_id
    return real.any(dim=-1) if real.ndim == 3 else real


def steps_of(trace: Trace | None, *, real: Bool[Tensor, "batch position"]) -> list[list[float]]:
    """N of the real positions of each row; none of a model without depth."""
    if trace is None:
        return [[] for _ in real]
    return [
        [steps for steps, kept in zip(row, mask, strict=True) if kept]
        for row, mask in zip(trace.steps.tolist(), real.tolist(), strict=True)
    ]


def finite(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch classes"]:
    """Return `logits`; UserError where they are not finite."""
    if not bool(torch.isfinite(logits).all()):
        raise UserError("the model's logits are not finite: its weights or its training went wrong")
    return logits


def load_sacrebleu() -> Any:
    """Import sacreBLEU; UserError if it is not installed."""
    try:
        import sacrebleu
    except ImportError as error:
        raise UserError(
            "scoring by BLEU needs sacreBLEU: run pip install 'universal-transformer[metrics]'"
        ) from error
    return sacrebleu


def corpus_scores(texts: Sequence[tuple[str, str]]) -> tuple[dict[str, float], dict[str, str]]:
    """BLEU and chrF of (hypothesis, reference) pairs, with sacreBLEU's signatures."""
    sacrebleu = load_sacrebleu()
    hypotheses, references = [pair[0] for pair in texts], [[pair[1] for pair in texts]]
    scores, signatures = {}, {}
    # force: without it sacreBLEU prints advice about an option of its own where texts end in " ."
    for name, scorer in (("bleu", sacrebleu.BLEU(force=True)), ("chrf", sacrebleu.CHRF())):
        scores[name] = float(scorer.corpus_score(hypotheses, references).score)
        signatures[name] = str(scorer.get_signature())
    return scores, signatures


def ids_of(example: Example) -> tuple[int, ...]:
    """Return the target ids of an example of a sequence task."""
    assert isinstance(example.target, tuple), "the target of a sequence task is a row of ids"
    return example.target


def device_of(model: Model) -> torch.device:
    """Where the model's weights are."""
    return next(model.parameters()).device
