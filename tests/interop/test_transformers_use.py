"""What people do with a model of transformers: train it, search with it, put it into a pipeline, export it."""

import json

import pytest
import torch

pytest.importorskip("transformers")

import transformers

import universal_transformer.interop.transformers  # noqa: F401 - registers
from configs import config_of
from small_models import small
from universal_transformer import load
from universal_transformer.cli import main
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.interop.transformers.conversion import to_transformers
from universal_transformer.interop.transformers.model_folder import fast_tokenizer
from universal_transformer.registry import build

pytestmark = pytest.mark.filterwarnings("default")
LM = {"architecture": "language_model"}
CLASSES = {"num_classes": 5}
KINDS = {
    "pair": {},
    "language model": LM,
    "tagger": {"architecture": "tagger", **CLASSES},
    "classifier": {"architecture": "classifier", **CLASSES},
}


def trainable(name):
    model = to_transformers(small(halting=True, dropout=0.0, **KINDS[name]), ponder_weight=0.3)
    return model.train()


@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model", "classifier"])
def test_a_fresh_model_starts_as_ours(architecture):
    """The spread of each matrix; a halting unit starts with its bias and without weights."""
    ours = build(config_of(architecture=architecture, width=32, vocabulary_size=50, halting=True, num_classes=4))
    theirs = to_transformers(ours)
    fresh = type(theirs)(theirs.config)
    for (name, value), other in zip(theirs.named_parameters(), fresh.parameters(), strict=True):
        torch.testing.assert_close(other.std(correction=0), value.std(correction=0), rtol=0.25, atol=1e-9, msg=name)
        torch.testing.assert_close(other.mean(), value.mean(), rtol=0.0, atol=0.05, msg=name)


def batch_of(name, count=4):
    """Rows of different lengths, padded on the right."""
    lengths, ids = torch.tensor([6, 3, 5, 2][:count]), torch.randint(3, 9, (count, 6))
    mask = (torch.arange(6) < lengths.unsqueeze(1)).long()
    labels = torch.randint(3, 5, (count, 6)).masked_fill(mask.flip(0) == 0, -100)
    if name == "language model":
        labels = ids.masked_fill(mask == 0, -100)
    if name == "tagger":
        labels = torch.randint(0, 5, (count, 6)).masked_fill(mask == 0, -100)
    if name == "classifier":
        labels = torch.tensor([0, 3, 1, 4][:count])
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": labels}


@pytest.mark.parametrize("name", KINDS)
def test_gradients_that_are_accumulated_are_those_of_the_whole_batch(name):
    """As the Trainer accumulates: with the number of labels of the whole batch, or the mean over its parts."""
    model, batch = trainable(name), batch_of(name)
    model(**batch).loss.backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    counted = batch["labels"][:, 1:] if name == "language model" else batch["labels"]
    items = (counted != -100).sum()
    for row in range(4):
        part = {key: value[row : row + 1] for key, value in batch.items()}
        if model.accepts_loss_kwargs:
            model(**part, num_items_in_batch=items).loss.backward()
        else:
            (model(**part).loss / 4).backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


ARGUMENTS = {
    transformers.Trainer: transformers.TrainingArguments,
    transformers.Seq2SeqTrainer: transformers.Seq2SeqTrainingArguments,
}


def trained(name, kind, folder, *, parts, **options):
    """The trainer after two updates with 4 rows each, in so many parts."""
    torch.manual_seed(0)
    batch = batch_of(name)
    rows = [{key: value[row] for key, value in batch.items()} for row in range(4)]
    arguments = ARGUMENTS[kind](
        output_dir=str(folder),
        max_steps=2,
        per_device_train_batch_size=4 // parts,
        gradient_accumulation_steps=parts,
        optim="sgd",
        learning_rate=0.1,
        lr_scheduler_type="constant",
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **options,
    )
    trainer = kind(model=trainable(name), args=arguments, train_dataset=rows)
    assert trainer.model_accepts_loss_kwargs == trainer.model.accepts_loss_kwargs
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, transformers.Trainer) for name in KINDS), ("pair", transformers.Seq2SeqTrainer)]
)
def test_the_trainer_accumulates_them_too(name, kind, tmp_path):
    """4 rows at once and in 4 parts give the same weights after two updates."""
    weights = [list(trained(name, kind, tmp_path, parts=parts).model.parameters()) for parts in (1, 4)]
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("beams", [1, 3])
def test_the_trainer_of_pairs_scores_what_the_model_generates(beams, tmp_path):
    trainer = trained(
        "pair",
        transformers.Seq2SeqTrainer,
        tmp_path,
        parts=2,
        predict_with_generate=True,
        generation_max_length=8,
        generation_num_beams=beams,
        per_device_eval_batch_size=2,
    )
    given = trainer.train_dataset
    trainer.compute_metrics = lambda found: {"rows": len(found.predictions)}
    found = trainer.predict(given)
    assert found.metrics["test_rows"] == len(given) == 4
    batch = {name: torch.stack([row[name] for row in given]) for name in given[0]}
    with torch.no_grad():
        parts = [{name: rows[part] for name, rows in batch.items()} for part in (slice(2), slice(2, 4))]
        losses = [float(trainer.model.eval()(**part).loss) for part in parts]
    assert found.metrics["test_loss"] == pytest.approx(sum(losses) / 2)
    del batch["labels"]
    expected = trainer.model.generate(**batch, max_length=8, num_beams=beams)
    assert found.predictions[:, : expected.shape[1]].tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["pair", "language model", "tagger"])
def test_the_ponder_cost_is_the_mean_over_positions_whose_labels_count(name):
    model, batch = trainable(name), batch_of(name, count=1)
    output = model(**batch, output_steps=True)
    counted = batch["labels"] != -100
    if name == "language model":
        counted = torch.nn.functional.pad(counted[:, 1:], (0, 1))
    expected = output.ponder[counted].mean()
    if name == "pair":
        expected = expected + output.encoder_ponder[batch["attention_mask"] == 1].mean()
    model.config.ponder_weight = 0.0
    torch.testing.assert_close(output.loss - model(**batch).loss, 0.3 * expected)


def test_a_rule_with_another_loss_is_not_trained_here():
    model = to_transformers(small(**LM, halting=True, **{"halting.rule": "ponder"})).train()
    batch = batch_of("language model")
    for labels in (batch.pop("labels"), None):  # the trainer computes a smoothed loss itself
        with pytest.raises(UserError, match=r"halting\.rule=ponder: its loss is another one"):
            model(**batch, labels=labels)


def test_the_trainer_smooths_the_labels_of_the_token_after_each():
    batch = batch_of("language model")
    model = trainable("language model")
    arguments = {"report_to": "none", "use_cpu": True, "label_smoothing_factor": 0.1}
    trainer = transformers.Trainer(model=model, args=transformers.TrainingArguments(**arguments))
    with pytest.raises(UserError, match=r"ponder_weight=0\.3: a loss without labels"):
        trainer.compute_loss(model, dict(batch))
    model.config.ponder_weight = 0.0
    loss = trainer.compute_loss(model, dict(batch))
    logits, labels = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits, batch["labels"]
    terms = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), label_smoothing=0.1, ignore_index=-100
    )
    torch.testing.assert_close(loss, terms)


def test_a_fixed_depth_has_no_ponder_cost_to_leave_out():
    batch = batch_of("language model")
    del batch["labels"]
    assert to_transformers(small(**LM), ponder_weight=0.3).train()(**batch).loss is None


def test_a_loss_needs_all_logits():
    model, batch = trainable("language model"), batch_of("language model")
    with pytest.raises(UserError, match="logits_to_keep=2: a loss needs all logits"):
        model(**batch, logits_to_keep=2)


@pytest.mark.parametrize("name", ["copy", "reverse"])
def test_long_answers_are_whole_in_a_pipeline_too(name, tmp_path):
    """The limit grows with the source, beyond that of the longest answer in training."""
    assert main(["export", name, "--format", "transformers", "--out", str(tmp_path / name)]) == 0
    answer = transformers.pipeline("text-to-text", str(tmp_path / name))
    text = "1234567890" * 10
    (found,) = answer([text])
    assert found["generated_text"] == load(name)(text).text == (text if name == "copy" else text[::-1])
    assert [len(row["generated_text"]) for row in answer([text], max_new_tokens=7)] == [7]


def test_a_tokenizer_without_padding_does_not_spoil_a_saved_model(tmp_path):
    model = to_transformers(small(**LM))
    model.config.pad_token_id = model.config.eos_token_id  # as `Trainer` does for such a tokenizer
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    ids = torch.tensor([[1, 5, 6, 7]])
    assert torch.equal(again(ids).logits, model.eval()(ids).logits)


@pytest.mark.parametrize("halting", [False, True])
@pytest.mark.parametrize(
    "search",
    [
        {"num_beams": 3},
        {"num_beams": 3, "num_return_sequences": 2, "early_stopping": True},
        {"do_sample": True, "top_k": 4, "temperature": 0.7},
        {"prompt_lookup_num_tokens": 2},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    ],
)
@pytest.mark.parametrize("kind", ["pair", "language model"])
def test_searches_of_transformers_give_the_same_with_our_cache_and_without(search, kind, halting):
    model = to_transformers(small(halting=halting, **KINDS[kind]))
    ids = torch.randint(3, 9, (1 if "prompt_lookup_num_tokens" in search else 3, 5))
    found = []
    for use_cache in (True, False) if "prompt_lookup_num_tokens" not in search else (True,):
        torch.manual_seed(1)
        found.append(model.generate(ids, max_new_tokens=8, use_cache=use_cache, **search))
    if len(found) == 1:  # assisted decoding is greedy search
        found.append(model.generate(ids, max_new_tokens=8))
    assert torch.equal(*found)


@pytest.mark.parametrize("halting", [False, True])
def test_a_smaller_model_assists(halting):
    model = to_transformers(small(**LM, halting=halting, max_steps=4))
    assistant = to_transformers(small(**LM, halting=halting, max_steps=1))
    ids = torch.randint(3, 9, (1, 5))
    assert torch.equal(
        model.generate(ids, max_new_tokens=8), model.generate(ids, max_new_tokens=8, assistant_model=assistant)
    )


SMALL = ["--width", "8", "--num-heads", "2", "--filter-width", "16", "--depth.max-steps", "2", "--minutes", "None"]
SHORT = ["--max-updates", "2", "--batch-tokens", "256", "--quiet"]


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    (folder / "a.txt").write_text("".join(f"one {n} two {n % 7}\n" for n in range(300)))
    given = ["--data.train", str(folder / "a.txt"), "--data.block-length", "16"]
    assert main(["train", "text", "--run", str(folder / "run"), *given, *SMALL, *SHORT]) == 0
    assert main(["export", str(folder / "run"), "--format", "transformers"]) == 0
    return folder / "run"


def test_a_language_model_writes_in_a_pipeline_what_it_writes_here(text_run):
    folder = text_run / "export" / "transformers"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("one 1 two")["input_ids"]
    ours = load(text_run)
    assert ids == [ours.model.config.start_id, *ours.codec.target.tokenizer.encode("one 1 two")]
    write = transformers.pipeline("text-generation", str(folder))
    (found,) = write("one 1 two", max_new_tokens=6, do_sample=False, return_full_text=False)
    (expected,) = ours.model.generate([ids], max_new_tokens=6)
    assert found["generated_text"] == tokenizer.decode(expected.tokens)


@pytest.mark.parametrize("search", [{}, {"num_beams": 2}, {"do_sample": True}])
@pytest.mark.parametrize("kind", ["pair", "language model"])
def test_a_tokenizer_for_strings_to_stop_at_is_no_input(kind, search):
    """`transformers serve` always gives one."""
    model, ids, found = to_transformers(small(halting=True, **KINDS[kind])), torch.randint(3, 9, (2, 5)), []
    for given in ({}, {"tokenizer": fast_tokenizer(Tokenizer.of_characters("abc"), "$A", padding_side="left")}):
        torch.manual_seed(1)
        found.append(model.generate(ids, max_new_tokens=6, **given, **search))
    assert torch.equal(*found)


def test_prompts_of_several_lengths_are_padded_on_the_left(text_run):
    folder = text_run / "export" / "transformers"
    write = transformers.pipeline("text-generation", str(folder), batch_size=2)
    texts = ["one 1 two", "o"]
    many = write(texts, max_new_tokens=5, do_sample=False)
    assert [row for (row,) in many] == [write(text, max_new_tokens=5, do_sample=False)[0] for text in texts]


def test_pairs_answer_in_a_pipeline_as_here(tmp_path):
    assert main(["export", "reverse", "--format", "transformers", "--out", str(tmp_path / "reverse")]) == 0
    answer = transformers.pipeline("text-to-text", str(tmp_path / "reverse"))
    ours = load("reverse")
    texts = ["1234", "90210", "7"]
    assert [found["generated_text"] for found in answer(texts)] == [row.text for row in ours(texts)]


def test_an_answer_is_read_with_the_tokenizer_of_targets(tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"a {n}\tgood day\n" for n in range(40)))
    run, data = tmp_path / "run", ["--data.tokenizer", "character", "--data.target-tokenizer", "word"]
    given = ["train", "pairs", "--run", str(run), "--data.train", str(tmp_path / "a.tsv"), *data, *SMALL, *SHORT]
    assert main(given) == 0
    assert main(["export", str(run), "--format", "transformers"]) == 0
    answer = transformers.pipeline("text-to-text", str(run / "export" / "transformers"))
    texts, options = ["a 1", "a 30"], DecodingOptions(max_new_tokens=5)
    ours = [row.text for row in load(str(run))(texts, options=options)]
    assert [found["generated_text"] for found in answer(texts, max_new_tokens=5)] == ours
    assert set(" ".join(ours).split()) <= {"good", "day"}


def test_labels_have_their_names(tmp_path, capsys):
    (tmp_path / "a.tsv").write_text("".join(f"a {n}\t{'good' if n % 2 else 'bad'}\n" for n in range(40)))
    run = tmp_path / "run"
    assert main(["train", "labelled", "--run", str(run), "--data.train", str(tmp_path / "a.tsv"), *SMALL, *SHORT]) == 0
    assert main(["export", str(run), "--format", "transformers"]) == 0
    assert "equal bit for bit" in capsys.readouterr().out
    config = json.loads((run / "export" / "transformers" / "config.json").read_text())
    assert sorted(config["id2label"].values()) == ["bad", "good"]


def test_ids_that_need_more_than_a_tokenizer_have_none(tmp_path, capsys):
    assert main(["export", "addition", "--format", "transformers", "--out", str(tmp_path / "addition")]) == 0
    assert "without a tokenizer of symbols" in capsys.readouterr().err
    assert not (tmp_path / "addition" / "tokenizer.json").exists()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "addition")
    ours = load("addition")
    ids = torch.tensor([ours.codec.source.encode("123+456")])
    (expected,) = ours.model.generate(ids)
    assert model.generate(ids)[0].tolist()[1:-1] == expected.tokens


def test_facts_are_not_exported_and_leave_no_folder(tmp_path, capsys):
    assert main(["export", "demo", "--format", "transformers", "--out", str(tmp_path / "demo")]) == 2
    assert "inputs.kind=facts: the models of transformers read and write tokens" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_a_tokenizer_does_not_read_special_tokens_in_text():
    tokenizer = Tokenizer.of_characters("abc<>/s")
    fast = fast_tokenizer(tokenizer, "<start> $A <end>", padding_side="right")
    text = "a</s>b"
    assert fast(text)["input_ids"] == [tokenizer.start_id, *tokenizer.encode(text), tokenizer.end_id]
    assert fast.decode(fast(text)["input_ids"], skip_special_tokens=True) == text
