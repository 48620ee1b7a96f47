"""A run that is opened for texts answers as `ut predict` does."""

import dataclasses
import json

import pytest
import torch

from small_task_models import model_for
from universal_transformer import DecodingOptions, Sampling, load
from universal_transformer.cli import main
from universal_transformer.errors import UserError
from universal_transformer.evaluation.prediction import predict
from universal_transformer.registry import load_pretrained


@pytest.fixture
def saved(tmp_path):
    """Save a model for a task, and return the folder of its run."""

    def save(task, **changes):
        model = model_for(task, **changes)
        model.save_pretrained(tmp_path / "run" / "model")
        task.codec.save(tmp_path / "run" / "model")
        return tmp_path / "run"

    return save


def test_one_text_gives_one_prediction_and_a_list_a_list(pairs, saved):
    answers = load(saved(pairs))
    one = answers("a b 7 c")
    assert [answer.text for answer in answers(["a b 7 c", "b"])] == [one.text, answers("b").text]
    assert [word.text for word in one.words] == ["a", "b", "7", "c"]
    assert answers([]) == []
    example = next(pairs.codec.read([(1, "a b 7 c")], name="x"))
    (plain,) = predict(answers.model, pairs.codec, [example])
    assert (one.text, one.score, one.tokens, one.output) == (plain.text, plain.score, plain.tokens, plain.output)
    assert one.score == pytest.approx(sum(token.score for token in one.output))
    assert all(1 <= token.steps <= 4 for token in (*one.tokens, *one.output, *one.words))


def test_the_model_of_a_pipeline_generates_from_texts_and_from_ids(pairs, saved):
    answers = load(saved(pairs))
    example = next(pairs.codec.read([(1, "a b 7 c")], name="x"))
    for options in ({}, {"beams": 3}, {"sampling": Sampling(temperature=1.0, seed=2)}):
        options = {"max_new_tokens": 8, **options}
        (from_text,) = answers.generate(["a b 7 c"], **options)
        (from_ids,) = answers.model.generate([list(example.source)], **options)
        assert from_text.text == pairs.codec.render(from_ids.tokens)
        assert (from_text.tokens, from_text.token_scores) == (from_ids.tokens, from_ids.token_scores)
        assert from_text.text == answers("a b 7 c", options=DecodingOptions(**options)).text
    plain = load_pretrained(saved(pairs) / "model")
    assert plain.generate(torch.tensor([example.source]))[0].tokens == answers.generate(["a b 7 c"])[0].tokens
    with pytest.raises(UserError, match=r"no tokenizer: .*load\(RUN\)"):
        plain.generate(["a b 7 c"])


def test_generate_has_the_depth_of_the_pipeline_unless_one_is_given(pairs, saved):
    trained = load(saved(pairs))
    one = dataclasses.replace(trained, options=DecodingOptions(max_steps=1))
    texts, few = ["a b 7 c", "b"], {"max_new_tokens": 8}
    ours, theirs = one.generate(texts, **few), trained.model.generate(texts, max_steps=1, **few)
    assert [found.token_scores for found in ours] == [found.token_scores for found in theirs]
    again = one.generate(texts, max_steps=3, **few)
    assert [found.token_scores for found in again] == [
        found.token_scores for found in trained.generate(texts, max_steps=3, **few)
    ]


@pytest.mark.parametrize("options", [{"beams": 2}, {"sampling": Sampling(temperature=0.5, seed=3)}])
def test_beams_and_samples_have_the_depth_of_training_where_the_other_is_calibrated(pairs, saved, options):
    trained = load(saved(pairs))
    one = dataclasses.replace(trained, options=DecodingOptions(max_steps=1), note="by calibration.json")
    scores = [
        [found.token_scores for found in pipeline.generate(["a b 7 c"], max_new_tokens=8, **options)]
        for pipeline in (one, trained, dataclasses.replace(one, note=""))
    ]
    assert scores[0] == scores[1] != scores[2]


def test_only_a_line_feed_ends_a_line(pairs, saved):
    answers = load(saved(pairs))
    for text in ("a\u2028b", "a\x0cb", "a\x85b"):
        (found,) = answers.generate([text])
        assert answers(text).text == found.text
    assert answers("a b\r\n").text == answers("a b").text
    with pytest.raises(UserError, match="has a line break"):
        answers("a\nb")


def test_a_blank_text_has_an_empty_answer(pairs, saved):
    answers = load(saved(pairs))
    assert [found.text for found in answers(["", "a b", " "])] == ["", answers("a b").text, ""]
    assert answers("").text == ""


def test_a_language_model_continues_texts(text_task, saved):
    task = text_task("character")
    answers = load(saved(task))
    found = answers("line", options=DecodingOptions(max_new_tokens=5))
    assert found.text == answers.generate(["line"], max_new_tokens=5)[0].text
    assert [word.text for word in found.words] == ["line"]


def test_a_classifier_of_stories_takes_a_story_with_one_question(stories, saved):
    answers = load(saved(stories))
    found = answers("1 Clara went to the attic.\n2 Where is Clara?")
    assert found.output == []
    assert [word.text for word in found.words] == ["clara went to the attic", "where is clara"]
    assert sum(torch.tensor([score for _, score in found.choices]).exp()) <= 1.0
    with pytest.raises(UserError, match="writes no sequences"):
        answers.generate(["1 Where is Clara?"])
    with pytest.raises(UserError, match="text 0: no question"):
        answers("1 Clara went to the attic.")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("two\nlines", "has a line break"),
        (("a\tb",), "a tab in"),
        (("a", "b"), "this model reads one text; several inputs are a list"),
        ((), r"text 0: found \(\)"),
    ],
)
def test_what_is_no_line_of_input_is_refused(pairs, saved, texts, message):
    with pytest.raises(UserError, match=message):
        load(saved(pairs))(texts)


def test_a_folder_without_a_run_and_an_unknown_device_are_refused(pairs, saved, tmp_path):
    with pytest.raises(UserError, match="no such file"):
        load(tmp_path / "none")
    with pytest.raises(UserError, match="device='abacus'"):
        load(saved(pairs), device="abacus")


def test_the_command_line_prints_the_same(tmp_path, capsys, monkeypatch):
    (tmp_path / "own.tsv").write_text("".join(f"a b {n} c\tc {n} b a\n" for n in range(60)))
    small = ["--width", "16", "--filter-width", "16", "--num-heads", "2", "--max-steps", "2", "--max-updates", "2"]
    run = str(tmp_path / "run")
    given = ["--data.train", str(tmp_path / "own.tsv"), "--vocabulary-size", "270", "--run", run]
    assert main(["train", "pairs", *small, "--minutes", "None", *given]) == 0
    limit = json.loads((tmp_path / "run" / "model" / "config.json").read_text())["generation"]["max_new_tokens"]
    shown = capsys.readouterr()
    assert (
        f"an answer may have {limit} tokens, or twice its input plus 10 if that is more; model.gen"
        in shown.out + shown.err
    )
    (tmp_path / "lines.txt").write_text("a b 7 c\nc\n")
    assert main(["predict", run, str(tmp_path / "lines.txt"), "--format=jsonl"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [json.loads(json.dumps(answer.to_dict())) for answer in load(run)(["a b 7 c", "c"])]
    assert found[0].keys() == {"text", "score", "finished", "choices", "words", "tokens", "output", "unknown"}
    assert all(token.keys() == {"text", "score", "steps"} for token in found[0]["output"])
