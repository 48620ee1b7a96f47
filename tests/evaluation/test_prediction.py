import pytest
import torch

from small_baselines import small_lstm
from small_task_models import model_for
from universal_transformer.decoding import Generated, Sampling, generate
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.prediction import TokenAnswers, predict
from universal_transformer.rules import Exit


def test_predictions_keep_their_order_whatever_the_batches(stories):
    model, examples = model_for(stories), stories.test["test"]
    whole = list(predict(model, stories.codec, examples))
    with torch.no_grad():
        for example, prediction in zip(examples, whole, strict=True):
            alone = model(torch.tensor([[fact + (0,) * (7 - len(fact)) for fact in example.source]]))
            assert prediction.text == stories.codec.render(int(alone.logits.argmax()))
            assert prediction.score == pytest.approx(float(alone.logits.log_softmax(-1).max()), abs=1e-5)
            assert prediction.steps == alone.encoder.steps[0].tolist()
            assert len(prediction.steps) == len(stories.codec.words(example))
    for changes in ({"batch_tokens": 30}, {"window": 7}):
        other = list(predict(model, stories.codec, iter(examples), **changes))
        assert [(each.text, each.steps) for each in other] == [(each.text, each.steps) for each in whole]


def test_choices_are_the_best_answers_best_first(stories):
    for prediction in predict(model_for(stories), stories.codec, stories.test["test"][:5], num_choices=4):
        scores = [score for _, score in prediction.choices]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)
        assert prediction.choices[0] == (prediction.text, prediction.score)


def test_predictions_come_as_soon_as_a_window_is_full(stories):
    taken = []

    def examples():
        for example in stories.test["test"]:
            taken.append(example)
            yield example

    predictions = predict(model_for(stories), stories.codec, examples(), window=1)
    next(predictions)
    assert len(taken) == 1


def test_an_answer_waits_for_no_line_after_it(copying, monkeypatch):
    computed = []
    answers = TokenAnswers.answers

    def recording(asked, examples, numbers):
        computed.extend(numbers)
        return answers(asked, examples, numbers)

    monkeypatch.setattr(TokenAnswers, "answers", recording)
    lines = ["123", "4", "5678901" * 5, "22"]
    examples = copying.codec.read(enumerate(lines, start=1), name="input")
    predictions = predict(model_for(copying), copying.codec, examples, batch_tokens=1)
    next(predictions)
    assert sorted(computed) == [0, 1, 3], "shorter lines first"
    assert not torch.is_inference_mode_enabled(), "whoever asked computes in modes of its own"
    assert len(list(predictions)) == 3


@pytest.mark.parametrize("halting", [False, True])
@pytest.mark.parametrize("changes", [{}, {"beams": 3}, {"sampling": Sampling(temperature=1.0, seed=3)}])
def test_sequences_are_predicted_the_same_in_any_batch(copying, changes, halting):
    model = model_for(copying, halting=halting)
    examples = list(copying.codec.read(enumerate(["123", "4", "5678901", "22"], start=1), name="input"))
    options = DecodingOptions(max_new_tokens=8, **changes)
    whole = list(predict(model, copying.codec, examples, options=options))
    alone = list(predict(model, copying.codec, examples, options=options, batch_tokens=1))
    assert [each.text for each in whole] == [each.text for each in alone]
    assert [each.score for each in whole] == pytest.approx([each.score for each in alone], abs=1e-4)
    assert [len(each.steps) for each in whole] == [3, 1, 7, 2]
    assert all(len(each.choices) == changes.get("beams", 1) for each in whole)


@pytest.mark.parametrize("changes", [{}, {"sampling": Sampling(temperature=1.0, seed=3)}])
@pytest.mark.parametrize("halting", [False, True])
def test_an_answer_is_cut_at_the_limit_of_its_model_alone_and_then_says_so(copying, halting, changes):
    """A target of 40 is longer than 2 · source + 10."""
    model = model_for(copying, halting=halting, **{"generation.max_new_tokens": 40})
    with torch.no_grad():
        model.target.bias[2] = -1e4  # no answer ends
    examples = list(copying.codec.read(enumerate(["123", "4"], start=1), name="input"))
    options = DecodingOptions(**changes)
    found = list(predict(model, copying.codec, examples, options=options))
    assert [(len(each.text), each.finished) for each in found] == [(40, False)] * 2
    with torch.no_grad():
        model.target.bias[2] = 1e4  # every answer ends at once
    assert all(each.finished for each in predict(model, copying.codec, examples, options=options))


def test_a_language_model_continues_prompts(text_task):
    task = text_task("character")
    model = model_for(task)
    lines = ["line", "", "a short"]
    examples = list(task.codec.read(enumerate(lines, start=1), name="input"))
    found = list(predict(model, task.codec, examples, options=DecodingOptions(max_new_tokens=5)))
    assert [len(each.steps) for each in found] == [4, 0, 7]
    for example, prediction in zip(examples, found, strict=True):
        tokens = generate(model, [[1, *example.target]], DecodingOptions(max_new_tokens=5))[0].tokens
        assert prediction.text == task.codec.render(tokens)
    assert next(predict(model, task.codec, [examples[1]], options=DecodingOptions(max_new_tokens=3))).steps == []


def test_predictions_refuse_what_excludes_each_other(copying):
    model = model_for(copying)
    with pytest.raises(UserError, match="choose beams or sampling"):
        DecodingOptions(beams=2, sampling=Sampling(temperature=1.0))
    both = DecodingOptions(exit=Exit("confidence", 0.5), halting_threshold=0.9)
    halting = model_for(copying, halting=True)
    with pytest.raises(UserError, match=r"halting_threshold=0.9: confidence:0.5 replaces .*; choose one"):
        predict(halting, copying.codec, [], options=both)
    with pytest.raises(UserError, match=r"exit=confidence:0.5: a model of kind lstm has no depth to choose"):
        predict(small_lstm(), copying.codec, [], options=DecodingOptions(exit=Exit("confidence", 0.5)))
    with pytest.raises(
        UserError, match=r"exit confidence:0.5: plain layers follow the recurrence .*; use state_change"
    ):
        predict(
            model_for(copying, plain_layers_after=1),
            copying.codec,
            [],
            options=DecodingOptions(exit=Exit("confidence", 0.5)),
        )
    with pytest.raises(UserError, match="num_choices: expected a whole number, at least 1, found 0"):
        predict(model, copying.codec, [], num_choices=0)
    with pytest.raises(UserError, match="this model was trained without halting"):
        predict(
            model_for(copying, halting=False),
            copying.codec,
            [],
            options=DecodingOptions(halting_threshold=0.5),
        )
    assert list(predict(model, copying.codec, [])) == []


@pytest.mark.parametrize("search", [{"beams": 2}, {"sampling": Sampling(temperature=1.0)}])
def test_a_classifier_neither_searches_nor_samples(stories, search):
    with pytest.raises(UserError, match="this model writes classes, which are not searched"):
        predict(model_for(stories), stories.codec, [], options=DecodingOptions(**search))


@pytest.mark.parametrize(
    ("kind", "fields", "options", "message"),
    [
        ("confidence", {"max_steps": 1}, {}, "step 1, .* at least 2 steps to stop a position early; there is 1"),
        ("state_change", {"max_steps": 2}, {}, "step 2, .* at least 3 steps .*; there are 2"),
        ("output_change", {"max_steps": 2}, {}, "step 2, .* at least 3 steps .*; there are 2"),
        ("state_change", {"max_steps": 6}, {"max_steps": 2}, "step 2, .* at least 3 steps .*; there are 2"),
        ("confidence", {"depth.min_steps": 4}, {}, r"step 4 \(min_steps\), .* at least 5 .*; there are 4"),
        ("confidence", {"depth.decoder_max_steps": 1}, {}, "step 1, .* at least 2 steps .*; there is 1"),
    ],
)
def test_an_exit_that_can_stop_no_position_early_is_refused(copying, kind, fields, options, message):
    options = DecodingOptions(exit=Exit(kind, 0.1), **options)
    with pytest.raises(UserError, match=rf"^exit {kind}:0\.1: it decides first after {message}$"):
        predict(model_for(copying, **fields), copying.codec, [], options=options)


@pytest.mark.parametrize(
    ("kind", "fields", "options"),
    [
        ("confidence", {"max_steps": 2}, {}),
        ("state_change", {"max_steps": 3}, {}),
        ("state_change", {"max_steps": 2}, {"max_steps": 3}),
        ("state_change", {"max_steps": 2, "depth.decoder_max_steps": 3}, {}),
        ("state_change", {"max_steps": "length", "depth.decoder_max_steps": 2}, {}),
    ],
)
def test_an_exit_that_can_stop_one_side_early_is_not_refused(copying, kind, fields, options):
    options = DecodingOptions(exit=Exit(kind, 0.1), **options)
    assert list(predict(model_for(copying, **fields), copying.codec, [], options=options)) == []


@pytest.mark.parametrize("kind", ["character", "word", "whitespace"])
def test_lines_are_written_until_there_are_enough(text_task, monkeypatch, kind):
    task = text_task(kind)
    model, codec = model_for(task), task.codec
    prompts = []

    def scripted(_, prompt, __, *, indices):
        prompts.extend(codec.render(ids) for ids in prompt)
        tokens = codec.source.tokenizer.encode(next(script))
        scores = [-1.0] * (len(tokens) + 1)
        return [
            Generated(source_steps=[], tokens=tokens, finished=True, token_scores=scores, token_steps=scores)
            for _ in indices
        ]

    monkeypatch.setattr("universal_transformer.evaluation.prediction.generate", scripted)
    (example,) = codec.read([(1, "line 1")], name="x")
    for lines in (1, 2):
        script, before = iter(["", "line 3", "a text"] if lines == 1 else ["", "", "line 3", "a text"]), len(prompts)
        options = DecodingOptions(lines=lines)
        (found,) = predict(model, codec, [example], options=options)
        expected = "\nline 3" if lines == 1 else "\n\nline 3\na text"
        assert found.text == expected
        assert codec.target.shown(found.text, found.written, "line 1") == f"line 1{expected}\n"
        assert len(prompts) - before == lines + lines
        assert found.finished
        assert len(found.output) == len(found.written) + 1
    script = iter([" of a" if kind == "character" else "of a"])
    (found,) = predict(model, codec, [example])
    assert codec.target.shown(found.text, found.written, "line 1") == "line 1 of a"


def test_lines_are_those_of_a_language_model(pairs):
    with pytest.raises(UserError, match="lines=2: this model writes one answer"):
        list(predict(model_for(pairs), pairs.codec, pairs.train[:1], options=DecodingOptions(lines=2)))


def test_lines_and_beams_exclude_each_other(pairs):
    options = DecodingOptions(lines=2, beams=3)
    with pytest.raises(UserError, match="lines=2 and beams=3: choose one"):
        list(predict(model_for(pairs), pairs.codec, pairs.train[:1], options=options))
