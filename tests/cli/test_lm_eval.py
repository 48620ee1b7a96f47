"""`ut lm-eval`: the figures of lm-evaluation-harness are those of our own measures; mistakes in one line."""

import json
import math
import sys
from types import SimpleNamespace

import pytest
import torch

from universal_transformer import load
from universal_transformer.cli import main
from universal_transformer.data.example import Example
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.tasks.task import Task

pytestmark = pytest.mark.filterwarnings("default")
SMALL = ["--width", "16", "--num-heads", "2", "--filter-width", "32", "--depth.max-steps", "3", "--minutes", "None"]
SHORT = ["--batch-tokens", "512", "--learning-rate", "0.02", "--quiet"]
KINDS = ("character", "word", "bpe")
NAMES = ("cat", "dog", "bird", "fish", "horse")
PLACES = ("mat", "roof", "pond", "hill")
LIMIT = 16
"""Tokens of a block: shorter than a text of characters."""

BLIMP = """
task: blimp_local
dataset_path: json
dataset_kwargs: {{data_files: {{train: {file}}}}}
output_type: multiple_choice
validation_split: train
doc_to_text: ""
doc_to_target: 0
doc_to_choice: "{{{{[sentence_good, sentence_bad]}}}}"
metric_list: [{{metric: acc}}]
"""
LAMBADA = """
task: lambada_local
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
output_type: loglikelihood
test_split: test
doc_to_text: "{{{{text.split(' ')[:-1]|join(' ')}}}}"
doc_to_target: "{{{{' '+text.split(' ')[-1]}}}}"
metric_list:
- {{metric: perplexity, aggregation: perplexity, higher_is_better: false}}
- {{metric: acc, aggregation: mean, higher_is_better: true}}
"""
PAGES = """
task: pages_local
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: word_perplexity}}]
"""
ANSWERS = """
task: answers_local
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
output_type: generate_until
test_split: test
doc_to_text: "{{{{text}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: [t], max_gen_toks: 6, do_sample: {sampled}}}
metric_list: [{{metric: exact_match}}]
"""


def sentence(number):
    return f"the {NAMES[number % 5]} sat on the {PLACES[number % 5 % 4]}"


@pytest.fixture(scope="module", params=KINDS)
def run(request, tmp_path_factory):
    """A model that has learned a little."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "a.txt").write_text("".join(f"{sentence(n)}\n" for n in range(400)))
    given = ["--data.train", str(folder / "a.txt"), "--data.block-length", str(LIMIT)]
    given += ["--data.tokenizer", request.param, "--data.vocabulary-size", "270", "--max-updates", "100"]
    assert main(["train", "text", "--run", str(folder / "run"), *given, *SMALL, *SHORT]) == 0
    return folder / "run"


@pytest.fixture
def harness(tmp_path, capsys, monkeypatch):
    """A function that writes local tasks and returns the figures of the harness and the written lines."""
    pytest.importorskip("lm_eval")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("lm_eval.tasks.TaskManager", local_tasks())

    def of(run, task, rows, *options, **fields):
        (tmp_path / "tasks").mkdir(exist_ok=True)
        file = tmp_path / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "tasks" / "task.yaml").write_text(task.format(file=file, **fields))
        name = task.split()[1]
        given = ["--tasks", name, "--include-path", str(tmp_path / "tasks"), "--output", str(tmp_path / "out.json")]
        code = main(["lm-eval", str(run), *given, *options])
        said = capsys.readouterr()
        if code:
            return said.err
        written = json.loads((tmp_path / "out.json").read_text())
        return SimpleNamespace(**written["results"][name], written=written, out=said.out, err=said.err)

    return of


def local_tasks():
    """The manager of tasks without the 14,000 of the harness, whose files take half a minute to read."""
    from functools import partial

    from lm_eval.tasks import TaskManager

    return partial(TaskManager, include_defaults=False)


def figures(found):
    return {name.partition(",")[0]: value for name, value in vars(found).items() if name.endswith(",none")}


def ours(run, metric, texts):
    """Our own figures, of texts, or of pairs of a right and a wrong one."""
    model = load(run)
    pairs = [text if isinstance(text, tuple) else (text, "") for text in texts]
    encode = model.codec.target.tokenizer.encode
    examples = [Example(source=tuple(encode(wrong)), target=tuple(encode(right))) for right, wrong in pairs]
    report = evaluate(model.model, Task("local", model.codec, (), (), {"test": examples}, metric))
    return report.totals[0].metrics


def test_minimal_pairs_are_ranked_as_here(run, harness):
    """The harness puts a blank before a choice."""
    good = [f"the {NAMES[number % 5]} sat" for number in range(20)]
    bad = [f"the sat {NAMES[number % 5]}" if number % 2 else f"sat {NAMES[number % 3]} the" for number in range(20)]
    bad[::3] = [f"the {NAMES[(number + 1) % 5]} sat" for number in range(0, 20, 3)]
    short = [(f" {right}", f" {wrong}") for right, wrong in zip(good, bad, strict=True)]
    rows = [{"sentence_good": right[1:], "sentence_bad": wrong[1:]} for right, wrong in short]
    found = figures(harness(run, BLIMP, rows))
    expected = ours(run, "ranking", short)["accuracy"]
    assert 0.0 < expected < 1.0
    assert found["acc"] == pytest.approx(expected)


@pytest.mark.parametrize("run", ["word"], indirect=True)
def test_last_words_are_predicted_as_here(run, harness):
    texts = [sentence(number * 7) for number in range(30)] + ["the cat sat on the zeppelin"]
    found = harness(run, LAMBADA, [{"text": text} for text in texts])
    expected = ours(run, "last_word", texts)
    assert 0.0 < expected["accuracy"] < 1.0
    assert figures(found)["acc"] == pytest.approx(expected["accuracy"])
    assert figures(found)["perplexity"] == pytest.approx(expected["perplexity"], rel=1e-5)
    assert "the tokenizer does not know 1 of 31 scored tokens" in found.err
    assert found.written["model"] == str(run)


def chain_rule(run, text):
    """``log p(text)``: each token from those before it in its window, one at a time; a line break ends a line."""
    model = load(run)
    tokenizer, total = model.codec.target.tokenizer, 0.0
    ids = tokenizer.encode_lines(text.split("\n"))[:-1].tolist()
    for place, token in enumerate(ids):
        end = min((place // LIMIT + 1) * LIMIT, len(ids))
        window = ids[max(0, end - LIMIT) : place + 1]
        with torch.no_grad():
            total += float(model.model(torch.tensor([window])).logits[0, -1].double().log_softmax(-1)[token])
    return total


def test_each_token_of_a_long_text_is_predicted_once_and_the_last_have_a_full_window(run, harness):
    texts = [f"{sentence(n)}\n{sentence(n + 1)}"[: 30 + n] for n in range(5)]
    found = figures(harness(run, PAGES, [{"text": text} for text in texts]))
    words = sum(len(text.split()) for text in texts)
    expected = math.exp(-sum(chain_rule(run, text) for text in texts) / words)
    assert found["word_perplexity"] == pytest.approx(expected, rel=1e-5)


def test_batches_change_nothing(run, harness):
    rows = [{"text": sentence(number)} for number in range(8)]
    whole, small = (figures(harness(run, PAGES, rows, "--batch-tokens", size)) for size in ("4096", "40"))
    assert small == {name: pytest.approx(value) for name, value in whole.items()}


def test_answers_are_those_of_predict_up_to_a_stop(run, harness, capsys):
    prompts = ["the dog", "the horse", "the"]
    capsys.readouterr()
    assert main(["predict", str(run), "--text", *prompts, "--max-new-tokens", "6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    answers = [line.removeprefix(prompt).partition("t")[0] for line, prompt in zip(lines, prompts, strict=True)]
    assert any(answers)
    rows = [{"text": prompt, "answer": answer} for prompt, answer in zip(prompts, answers, strict=True)]
    assert figures(harness(run, ANSWERS, rows, sampled="false"))["exact_match"] == 1.0
    assert "asks for samples" in harness(run, ANSWERS, rows, sampled="true, temperature: 1.0")


@pytest.mark.parametrize("run", ["word"], indirect=True)
def test_a_prompt_of_several_lines_is_one_text(run, harness):
    model = load(run)
    encode, end = model.codec.target.tokenizer.encode, model.model.config.vocabulary.end_id
    (expected,) = model.model.generate([[*encode("the dog"), end, *encode("the")]], max_new_tokens=6)
    rows = [{"text": "the dog\nthe", "answer": f" {model.codec.render(expected.tokens)}".partition("t")[0]}]
    assert figures(harness(run, ANSWERS, rows, sampled="false"))["exact_match"] == 1.0


@pytest.mark.parametrize("run", ["word"], indirect=True)
def test_the_depth_of_the_call_counts(run, harness):
    rows = [{"text": sentence(number)} for number in range(8)]
    deep, flat = (figures(harness(run, LAMBADA, rows, *options)) for options in ((), ("--max-steps", "1")))
    assert deep["perplexity"] != pytest.approx(flat["perplexity"], rel=1e-3)
    limited = harness(run, LAMBADA, rows, "--limit", "3")
    assert limited.written["n-samples"]["lambada_local"]["effective"] == 3


@pytest.mark.parametrize("run", ["word"], indirect=True)
def test_a_group_has_the_mean_of_its_tasks(run, harness, tmp_path, capsys):
    rows = [{"text": sentence(number)} for number in range(8)]
    alone = figures(harness(run, LAMBADA, rows))
    group = "group: both\ntask: [lambada_local]\naggregate_metric_list: [{metric: acc}]\n"
    (tmp_path / "tasks" / "both.yaml").write_text(group)
    out = str(tmp_path / "both.json")
    given = ["--tasks", "both", "--include-path", str(tmp_path / "tasks"), "--output", out]
    assert main(["lm-eval", str(run), *given]) == 0
    assert json.loads((tmp_path / "both.json").read_text())["groups"]["both"]["acc,none"] == alone["acc"]
    assert "|Groups|" in capsys.readouterr().out.replace(" ", "")


@pytest.mark.parametrize("run", ["word"], indirect=True)
def test_mistakes_are_one_line(run, harness, capsys, tmp_path):
    assert "--tasks 'lambada_locl': no such task of the harness" in wrong(capsys, run, "--tasks", "lambada_locl")
    folder = str(tmp_path / "none")
    assert "no such folder" in wrong(capsys, run, "--tasks", "a", "--include-path", folder)
    assert "--output" in wrong(capsys, run, "--tasks", "a", "--output", str(tmp_path))
    message = wrong(capsys, "addition", "--tasks", "a")
    assert "addition: a model of architecture encoder_decoder" in message
    assert "not loaded" in harness(run, LAMBADA.replace("{file}", "missing-{file}"), [])


def test_without_the_harness_the_extra_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert "pip install 'universal-transformer[lm-eval]'" in wrong(capsys, "addition", "--tasks", "a")


def wrong(capsys, run, *options):
    capsys.readouterr()
    assert main(["lm-eval", str(run), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line
