import dataclasses
import math
import sys

import numpy as np
import pytest
import torch

from configs import config_of, with_fields
from small_baselines import small_neural_gpu
from small_models import SIZES
from small_task_models import TINY, Letters, letters, model_for
from universal_transformer.data.example import NO_CLASS, Example
from universal_transformer.decoding import generate
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.measure import Selection, evaluate, natural_sort_key
from universal_transformer.evaluation.metrics import METRICS, Inference
from universal_transformer.evaluation.metrics.bleu import corpus_scores
from universal_transformer.evaluation.metrics.classes import macro_f1
from universal_transformer.evaluation.prediction import predict
from universal_transformer.evaluation.report import StepCounts
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.universal import Classifier, Tagger
from universal_transformer.nn.trace import Trace
from universal_transformer.registry import build
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Task
from universal_transformer.typed import replaced

# -- a classifier whose answers and steps are its input


class Scripted(Classifier):
    """Predicts the class of its first token, and takes as many steps at each position as the number of its token."""

    def forward(self, source, **_):
        padding = source == 0
        logits = torch.nn.functional.one_hot(source[:, 0], self.config.vocabulary.num_classes).float()
        return ModelOutput(
            logits, Trace(source.float(), torch.zeros_like(source).float(), padding, torch.tensor(0.0)), None
        )


def scripted():
    config = with_fields(TINY, architecture="classifier", vocabulary_size=10, num_classes=10)
    return Scripted(with_fields(config, max_steps=6))


def scripted_task(*examples, **sets):
    return Task("scripted", letters(), (), (), {"test": examples} if examples else sets, "error")


def test_classes_are_counted_by_truth_and_answer():
    """Accuracy 3/6; F1 is 2/3 of class 1 (2 right, 1 missed, 1 wrong), 1/2 of class 2, 0 of classes 3 and 4."""
    pairs = [(1, 1), (1, 1), (1, 2), (2, 2), (2, 3), (4, 1)]  # true class, first token: the class given
    task = dataclasses.replace(
        scripted_task(*(Example(source=(given,), target=truth) for truth, given in pairs)), metric="classes"
    )
    report = evaluate(scripted(), task, baseline=TrivialBaseline(counts=(0, 3, 2, 0, 1)))
    assert report.totals[0].metrics == {"error": 50.0, "accuracy": 0.5, "macro_f1": pytest.approx((2 / 3 + 1 / 2) / 4)}
    assert report.totals[0].baseline == {"error": 50.0, "accuracy": 0.5, "macro_f1": pytest.approx((2 * 3 / 9) / 3)}
    assert [(one.truth, one.given, one.count) for one in report.confusion] == [
        ("b", "b", 2), ("b", "c", 1), ("c", "c", 1), ("c", "d", 1), ("e", "b", 1),
    ]  # fmt: skip


def test_all_right_is_a_macro_f1_of_one_and_its_classes_weigh_the_same():
    assert macro_f1({(0, 0): 90, (1, 1): 10}) == 1.0
    assert macro_f1({(0, 0): 90, (1, 0): 10}) == pytest.approx((180 / 190 + 0) / 2)
    assert macro_f1({}) == 0.0


class ScriptedTagger(Tagger):
    """Gives each position the class of its token, and as many steps as the number of its token."""

    def forward(self, source, **_):
        logits = torch.nn.functional.one_hot(source, self.config.vocabulary.num_classes).float()
        return ModelOutput(
            logits, Trace(source.float(), torch.zeros_like(source).float(), source == 0, torch.tensor(0.0)), None
        )


TAGGED = (
    Example(source=(1, 2, 3), target=(1, 2, 0), group="a"),  # all that have a class are right
    Example(source=(1, 1), target=(1, 2), group="a"),
    Example(source=(4,), target=(4,), group="b"),
)


def scripted_tagger():
    fields = {"architecture": "tagger", "vocabulary_size": 10, "num_classes": 10, "max_steps": 6}
    return ScriptedTagger(with_fields(TINY, **fields))


@pytest.mark.parametrize("metric", ["positions", "tags"])
def test_positions_without_a_class_are_not_scored(metric):
    """4 of 5 classes right; F1 is 4/5 of class 1 (2 right, 1 wrong), 2/3 of class 2, 1 of class 4."""
    task = dataclasses.replace(scripted_task(*TAGGED), metric=metric)
    report = evaluate(scripted_tagger(), task, batch_tokens=6, baseline=TrivialBaseline(counts=(0, 2, 2, 0, 1)))
    expected = {"sequence_accuracy": pytest.approx(2 / 3), "position_accuracy": pytest.approx(4 / 5)}
    trivial = {"sequence_accuracy": 0.0, "position_accuracy": pytest.approx(2 / 5)}
    if metric == "tags":
        expected["macro_f1"] = pytest.approx((4 / 5 + 2 / 3 + 1) / 3)
        trivial["macro_f1"] = pytest.approx((4 / 7 + 0 + 0) / 3)
    assert report.totals[0].metrics == expected
    assert report.totals[0].baseline == trivial
    assert [(row.group, row.metrics["sequence_accuracy"]) for row in report.rows] == [("a", 0.5), ("b", 1.0)]
    assert report.steps("encoder") == StepCounts("encoder", (3, 1, 1, 1, 0, 0))
    confusion = [("b", "b", 2), ("c", "b", 1), ("c", "c", 1), ("e", "e", 1)]
    assert [(one.truth, one.given, one.count) for one in report.confusion] == confusion * (metric == "tags")
    with pytest.raises(UserError, match='needs architecture "tagger"; this model has "classifier"'):
        evaluate(scripted(), task)


class LettersInARow(Letters):
    """Classes of positions that are named by letters."""

    def render(self, target):
        return "".join(".bcdefghij"[index] for index in target)


def test_a_class_that_was_given_is_kept_in_a_prediction():
    examples = [Example(source=(1, 2, 3), target=(0, 5, 0)), Example(source=(4,), target=())]
    first, second = predict(scripted_tagger(), Codec.shared(LettersInARow()), examples)
    assert [first.text, second.text] == ["bfd", "e"]
    certain = math.log(math.e / (math.e + 9))
    assert [token.score for token in first.output] == pytest.approx([certain, 0.0, certain])
    assert [token.text for token in first.output] == list("bfd")
    assert [token.steps for token in first.output] == first.steps == [1.0, 2.0, 3.0]
    assert first.score == pytest.approx(2 * certain)
    assert first.choices == [(first.text, first.score)]
    with pytest.raises(UserError, match="this model writes classes, which are not searched or sampled"):
        predict(scripted_tagger(), Codec.shared(LettersInARow()), examples, options=DecodingOptions(beams=2))
    with pytest.raises(UserError, match="max_new_tokens=3: a tagger writes no text; leave it out"):
        predict(scripted_tagger(), Codec.shared(LettersInARow()), examples, options=DecodingOptions(max_new_tokens=3))


EXAMPLES = (
    Example(source=(1, 2), target=1, group="task 10", supports=(0,)),
    Example(source=(2, 3, 3), target=9, group="task 2", supports=(0, 1)),
    Example(source=(3,), target=NO_CLASS, group="task 2", supports=(0,)),
    Example(source=(4, 6, 1, 1), target=4, group="task 10"),
)


def test_error_and_steps_of_hand_made_examples():
    report = evaluate(scripted(), scripted_task(*EXAMPLES))
    assert [(row.set, row.group, row.count, row.metrics["error"]) for row in report.rows] == [
        ("test", "task 2", 2, 100.0),  # an answer that is no class counts as wrong
        ("test", "task 10", 2, 0.0),
    ]
    assert report.totals[0].metrics == {"error": 50.0}
    assert report.steps("encoder") == StepCounts("encoder", (3, 2, 3, 1, 0, 1))
    assert report.steps("decoder") is None
    assert report.mean_steps == pytest.approx((1 + 2 + 2 + 3 + 3 + 3 + 4 + 6 + 1 + 1) / 10)
    assert [(found.num_supports, found.steps.mean) for found in report.steps_by_supports] == [
        (1, 2.0),
        (2, pytest.approx(8 / 3)),
    ]
    assert [row.name for row in report.failed] == ["task 2"]
    assert report.mean_over_groups("error") == 50.0


def test_failed_means_above_five_per_cent_and_needs_groups():
    def examples(group, wrong):
        return [Example(source=(1,), target=2 if n < wrong else 1, group=group) for n in range(100)]

    report = evaluate(scripted(), scripted_task(*examples("a", 5), *examples("b", 6)))
    assert [row.group for row in report.failed] == ["b"]
    assert "failed (error above 5 %): 1 of 2: b" in report.lines()
    assert evaluate(scripted(), scripted_task(*examples("", 50))).failed is None


def test_several_test_sets_have_rows_of_their_own():
    task = scripted_task(easy=EXAMPLES[:1], hard=EXAMPLES[1:3])
    report = evaluate(scripted(), task)
    assert [(row.set, row.metrics["error"]) for row in report.totals] == [("easy", 0.0), ("hard", 100.0)]
    assert evaluate(scripted(), task, Selection(split="hard")).totals == report.totals[1:]


def test_a_group_of_the_test_sets_is_scored_alone():
    report = evaluate(scripted(), scripted_task(*EXAMPLES), Selection(split="task 10"))
    assert [(row.set, row.group, row.count) for row in report.rows] == [("test", "task 10", 2)]
    assert evaluate(scripted(), scripted_task(*EXAMPLES), Selection(split="task 2")).totals[0].count == 2


def test_batches_and_progress_change_nothing(stories):
    model = model_for(stories)
    seen = []
    whole = evaluate(model, stories, watch=lambda scored: seen.append((scored.done, scored.whole)))
    assert evaluate(model, stories, batch_tokens=40) == whole
    assert seen[-1] == (60, 60)
    assert seen == sorted(seen)
    with torch.inference_mode():
        assert evaluate(model, stories) == whole


def test_evaluation_leaves_the_model_as_it_was(stories):
    model = model_for(stories).train()
    model.head.eval()
    evaluate(model, stories, Selection(limit=3))
    assert model.training
    assert model.source.training
    assert not model.head.training
    source = torch.ones(1, 2, 3, dtype=torch.long)
    model(source).logits.sum().backward()


def test_limit_spreads_evenly_and_is_noted(stories):
    report = evaluate(model_for(stories), stories, Selection(limit=7))
    assert report.totals[0].count == 7
    assert report.notes == ("test: 7 of 60 examples, evenly spread",)
    assert evaluate(model_for(stories), stories, Selection(limit=60)).notes == ()


def test_depth_at_run_time_is_noted_and_its_cap_is_no_collapse(stories):
    model = model_for(stories)
    report = evaluate(model, stories, options=DecodingOptions(max_steps=1, halting_threshold=0.5))
    assert report.mean_steps == report.max_steps == 1
    assert report.warnings == ()
    assert report.notes == (
        "evaluated with max_steps=1 instead of the model's 4",
        "evaluated with halting_threshold=0.5 instead of the model's 0.99",
    )


@pytest.mark.parametrize(
    ("max_steps", "notes"),
    [
        (None, []),
        (2, ["evaluated with max_steps=2 instead of the model's 2 (encoder) and 4 (decoder)"]),
        (4, ["evaluated with max_steps=4 instead of the model's 2 (encoder) and 4 (decoder)"]),
    ],
)
def test_another_depth_of_either_side_is_noted(max_steps, notes):
    model = build(config_of(**SIZES | {"max_steps": 2}, **{"depth.decoder_max_steps": 4}))
    assert DecodingOptions(max_steps=max_steps).notes(model) == notes


@pytest.mark.parametrize(("bias", "reason"), [(30.0, "stop after the first step"), (-30.0, "go on to the cap")])
def test_collapsed_halting_is_warned_about(stories, bias, reason):
    model = model_for(stories)
    for name, parameter in model.named_parameters():
        if "halting" in name:
            torch.nn.init.constant_(parameter, bias if "bias" in name else 0.0)
    (warning,) = evaluate(model, stories).warnings
    assert reason in warning
    assert f"warning: {warning}" in evaluate(model, stories).lines()


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"halting.side": "encoder"}, ["encoder"]),
        ({"halting.side": "decoder"}, ["decoder"]),
        ({"halting.side": "both", "depth.decoder_max_steps": 1}, ["encoder"]),
        ({"halting.side": "both", "depth.decoder_max_steps": 3}, ["encoder", "decoder"]),
    ],
)
def test_only_a_side_that_halts_and_has_several_steps_can_collapse(copying, fields, warned):
    config = replaced(model_for(copying).config, fields)
    torch.manual_seed(0)
    model = build(config).eval()
    for name, parameter in model.named_parameters():
        if "halting" in name:
            torch.nn.init.constant_(parameter, -30.0 if "bias" in name else 0.0)
    warnings = [text for text in evaluate(model, copying, Selection(limit=20)).warnings if "collapsed" in text]
    assert [text.split("all ")[1].split()[0] for text in warnings] == warned
    assert all("go on to the cap" in text for text in warnings)


def test_fixed_depth_counts_its_steps_and_warns_of_nothing(stories):
    report = evaluate(model_for(stories, halting=False), stories)
    assert report.mean_steps == 4
    assert report.warnings == ()
    assert not any("share" in line for line in report.lines())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "tset"}, "split 'tset': allowed for task scripted are test, validation, train, task 10, task 2"),
        ({"limit": 0}, "limit: expected .*, found 0"),
        ({"split": "train"}, "no examples in train"),
        ({"options": DecodingOptions(beams=2)}, "beams=2: task scripted is scored without writing text"),
        (
            {"options": DecodingOptions(max_new_tokens=9)},
            "max_new_tokens=9: task scripted is scored without writing text",
        ),
    ],
)
def test_wrong_arguments_get_one_line(changes, message):
    def wrong():
        chosen = {name: value for name, value in changes.items() if name != "options"}
        evaluate(scripted(), scripted_task(*EXAMPLES), Selection(**chosen), options=changes.get("options"))

    with pytest.raises(UserError, match=message) as found:
        wrong()
    assert "\n" not in str(found.value)


def test_a_model_that_the_task_does_not_fit_is_refused(copying, stories):
    with pytest.raises(UserError, match='needs architecture "encoder_decoder"; this model has "classifier"'):
        evaluate(model_for(stories), copying)


def test_a_threshold_needs_a_model_that_halts(stories):
    with pytest.raises(UserError, match=r"^halting_threshold=0.5: this model was trained without halting"):
        evaluate(model_for(stories, halting=False), stories, options=DecodingOptions(halting_threshold=0.5))


def test_weights_that_are_not_numbers_are_refused(stories):
    model = model_for(stories)
    torch.nn.init.constant_(model.head.weight, math.nan)
    with pytest.raises(UserError, match="not finite"):
        evaluate(model, stories)


# -- sequences


@pytest.mark.parametrize("halting", [True, False])
def test_sequence_scores_are_those_of_one_example_at_a_time(copying, halting):
    model = model_for(copying, halting=halting)
    report = evaluate(model, copying)
    for row in report.rows:
        hits, places, sequences, positions = 0, 0, [], 0
        for example in copying.test["test"]:
            if example.group != row.group:
                continue
            found = generate(model, torch.tensor([example.source]))[0]
            target = list(example.target[:-1])
            hits += sum(left == right for left, right in zip(found.tokens, target, strict=False))
            places += max(len(found.tokens), len(target))
            sequences.append(found.tokens == target)
            positions += len(example.source)
        assert row.metrics["character_accuracy"] == pytest.approx(hits / places)
        assert row.metrics["sequence_accuracy"] == pytest.approx(np.mean(sequences))
        assert row.steps[0].num_positions == positions
    assert [row.group for row in report.rows] == ["length 5", "length 12"]
    assert "free-running output, greedy" in report.notes


def limited(task, *, limit, metric="sequence", targets=(5, 20)):
    """A model whose answers have at most `limit` tokens, and targets around that."""
    lengths = [target for target in targets for _ in range(4)]
    rows = [
        Example(source=(5 + n % 3, 6), target=(*(4 + place % 5 for place in range(length)), 2))
        for n, length in enumerate(lengths)
    ]
    task = dataclasses.replace(task, test={"test": rows}, metric=metric)
    config = replaced(model_for(task, halting=False).config, {"generation.max_new_tokens": limit})
    torch.manual_seed(3)
    return build(config).eval(), task


@pytest.mark.parametrize("limit", [16, 24])
def test_exact_matches_have_the_limit_of_prediction(copying, limit):
    model, task = limited(copying, limit=limit)
    written = [generate(model, torch.tensor([example.source]))[0] for example in task.test["test"]]
    report = evaluate(model, task)
    steps, tokens = report.steps("decoder"), sum(len(found.tokens) + found.finished for found in written)
    assert steps.num_positions == tokens
    assert report.totals[0].unfinished == sum(not found.finished for found in written) > 0
    assert max(len(found.tokens) for found in written) == limit


def test_a_learned_table_of_positions_limits_answers_and_cuts_them(copying):
    """Also where whole answers are asked for, and an answer that the table ends counts as cut."""
    model, task = limited(copying, limit=60, metric="bleu", targets=(40,))
    table = {"coordinates.position": "learned", "coordinates.step": "learned", "coordinates.max_positions": 12}
    torch.manual_seed(3)
    model = build(replaced(model.config, table)).eval()
    assert evaluate(model, task).totals[0].unfinished == 4
    answers = METRICS["sequence"](task).answers(Inference(model, DecodingOptions()), task.test["test"])
    assert [len(one.answer) for one in answers] == [12] * 4


def test_a_model_that_writes_all_tokens_at_once_has_its_limit_from_training():
    options, model = DecodingOptions(), small_neural_gpu()
    assert "model.output_extra" in options.longer_answers(model)
    assert "--max-new-tokens" in dataclasses.replace(options, max_new_tokens=3).longer_answers(model)


@pytest.mark.parametrize("metric", ["sequence", "bleu"])
def test_answers_that_reached_the_limit_are_counted_and_warned_about_once(copying, metric):
    model, task = limited(copying, limit=20, metric=metric, targets=(40,))
    report = evaluate(model, task)
    assert report.totals[0].unfinished == 4
    assert report.totals[0].unreachable == 4
    long, warning = report.warnings
    assert long.startswith("4 of 4 targets (100.0%) are longer than an answer may be and cannot be right: raise the")
    assert warning.startswith("4 of 4 answers (100.0%) reached the limit of their length without an end")
    assert "--max-new-tokens" in warning
    longer = evaluate(model, task, options=DecodingOptions(max_new_tokens=50))
    assert (longer.totals[0].unfinished, longer.totals[0].unreachable) == (4, 0)


def test_decoder_steps_are_those_generation_made(copying):
    model = model_for(copying, seed=1)
    examples = copying.test["test"][:4]
    source = torch.tensor([example.source for example in examples if len(example.source) == 5])
    limit = 6
    found = generate(model, source, DecodingOptions(max_new_tokens=limit))
    task = dataclasses.replace(copying, test={"test": examples[: len(source)]})
    report = evaluate(model, task, options=DecodingOptions(max_new_tokens=limit))
    total = sum(output.steps * (len(output.tokens) + output.finished) for output in found)
    steps = report.steps("decoder")
    assert steps.mean * steps.num_positions == pytest.approx(total)
    assert steps.num_positions == sum(len(output.tokens) + output.finished for output in found)


@pytest.mark.parametrize("halting", [True, False])
def test_sequences_and_their_steps_do_not_depend_on_their_batch(copying, halting):
    model = model_for(copying, halting=halting, seed=1)
    one_by_one = evaluate(model, copying, batch_tokens=1)
    assert evaluate(model, copying) == one_by_one
    writes = {example.group: 0 for example in copying.test["test"]}
    for example in copying.test["test"]:
        (found,) = generate(model, torch.tensor([example.source]))
        writes[example.group] += len(found.tokens) + found.finished
    assert {row.group: row.steps[1].num_positions for row in one_by_one.rows} == writes


def test_bleu_and_chrf_of_hand_made_texts():
    same = [("the cat sat on the mat", "the cat sat on the mat")]
    scores, signatures = corpus_scores(same)
    assert scores == {"bleu": pytest.approx(100.0), "chrf": pytest.approx(100.0)}
    assert "tok:13a" in signatures["bleu"]
    # 5 of 6 words, 3 of 5, 2 of 4, 1 of 3 runs of words are right: (5/6 · 3/5 · 2/4 · 1/3)^(1/4)
    scores, _ = corpus_scores([("the cat sat on a mat", "the cat sat on the mat")])
    assert scores["bleu"] == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    assert corpus_scores([("", "the mat")])[0]["bleu"] == 0.0


@pytest.mark.parametrize(
    ("tokenizer", "text", "other", "same"),
    [("char", "我是学生们的老师", "我是学生们的朋友", False), ("zh", "我是学生们的老师", "我是学生们的朋友", False),
     ("none", "a b c d", "a b c d", True), ("intl", "a b c d.", "a b c d .", True)],
)  # fmt: skip
def test_the_tokenizer_of_bleu_can_be_chosen(tokenizer, text, other, same):
    """Without it a Chinese sentence is one word, which is right as a whole or not at all."""
    scores, signatures = corpus_scores([(text, other)], tokenizer=tokenizer)
    assert f"tok:{tokenizer}" in signatures["bleu"]
    assert scores["bleu"] == pytest.approx(100.0) if same else 0 < scores["bleu"] < 100
    if not same:
        assert corpus_scores([(text, other)])[0]["bleu"] == 0.0


def test_the_tokenizer_of_the_data_is_that_of_the_report(pairs):
    report = evaluate(model_for(pairs), dataclasses.replace(pairs, bleu_tokenizer="char"), Selection(limit=3))
    assert "tok:char" in report.signatures["bleu"]


@pytest.mark.parametrize(
    ("tokenizer", "error", "message"),
    [
        ("ja-mecab", RuntimeError("\nJapanese tokenization requires"), r"run pip install 'sacrebleu\[ja\]'"),
        ("ko-mecab", RuntimeError("\nKorean tokenization requires"), r"run pip install 'sacrebleu\[ko\]'"),
        ("flores200", ImportError("no sentencepiece"), "run pip install 'sentencepiece'"),
        ("flores200", OSError("no network"), "could not download .* allowed without network: 13a"),
    ],
)
def test_a_tokenizer_of_bleu_that_is_missing_gets_one_line(pairs, monkeypatch, tokenizer, error, message):
    def missing(**_):
        raise error

    monkeypatch.setattr("sacrebleu.BLEU", missing)
    with pytest.raises(UserError, match=rf"^bleu_tokenizer={tokenizer}: .*{message}") as found:
        evaluate(model_for(pairs), dataclasses.replace(pairs, bleu_tokenizer=tokenizer))
    assert "\n" not in str(found.value)


def test_bleu_report_records_how_it_was_computed(pairs):
    model = model_for(pairs)
    report = evaluate(model, pairs, Selection(limit=3))
    assert list(report.totals[0].metrics) == ["bleu", "chrf", "exact_match"]
    assert "version:" in report.signatures["bleu"]
    assert any(line.startswith("bleu: nrefs:1") for line in report.lines())
    searched = evaluate(model, pairs, Selection(limit=3), options=DecodingOptions(beams=2))
    assert "free-running output, 2 beams, length penalty 0.6" in searched.notes


def test_bleu_without_sacrebleu_names_the_extra(pairs, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UserError, match=r"universal-transformer\[metrics\]"):
        evaluate(model_for(pairs), pairs)


@pytest.mark.parametrize("kind", ["character", "word"])
def test_perplexity_is_that_of_one_block_at_a_time(text_task, kind):
    task = text_task(kind)
    model = model_for(task)
    nats, hits, tokens = 0.0, 0, 0
    with torch.no_grad():
        for example in task.test["test"]:
            target = torch.tensor([example.target])
            log_probability = model(target).logits.double().log_softmax(-1)[0]
            nats -= float(log_probability.gather(1, target[0].unsqueeze(1)).sum())
            hits += int((log_probability.argmax(-1) == target[0]).sum())
            tokens += target.numel()
    report = evaluate(model, task, batch_tokens=64)
    metrics = report.totals[0].metrics
    assert metrics["perplexity"] == pytest.approx(math.exp(nats / tokens), rel=1e-5)
    assert metrics["accuracy"] == pytest.approx(hits / tokens)
    assert report.steps("decoder").num_positions == tokens
    assert report.steps("encoder") is None
    assert ("bits_per_character" in metrics) == (kind == "character")
    if kind == "character":
        assert metrics["bits_per_character"] == pytest.approx(nats / tokens / math.log(2), rel=1e-5)


def test_groups_sort_by_their_numbers():
    assert natural_sort_key("②10²") == [(1, "②"), (0, 10), (1, "²")]
    assert sorted(["task 10", "task 2", "", "length 3"], key=natural_sort_key) == ["", "length 3", "task 2", "task 10"]
