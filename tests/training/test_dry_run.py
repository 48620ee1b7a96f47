"""What a run would cost: counts without memory against counts on real tensors, and every recipe."""

import dataclasses
import json
import os
import random
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import forked
from configs import config_of, recipe_configs, with_fields
from paper.tasks import AgreementData, LambadaData, LearningToExecuteData, PiecesData, ReadingData, TranslationData
from universal_transformer.baselines.baseline_config import LstmConfig, NeuralGpuConfig
from universal_transformer.cli import main, train
from universal_transformer.data.batch import Batch
from universal_transformer.models.components import ENCODERS, VocabularyConfig
from universal_transformer.models.model import Call
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.recipes import RECIPES
from universal_transformer.registry import build
from universal_transformer.tasks import (
    AlgorithmicData,
    BabiData,
    CaptionsData,
    ControlData,
    ParsingData,
    PicturesData,
    PlansData,
    SpeechData,
    StoriesData,
    VoiceData,
)
from universal_transformer.training import dry_run
from universal_transformer.training.dry_run import (
    UpdateCost,
    build_on_meta,
    cache_bytes,
    estimate,
    forward_flops,
    halted_positions,
)
from universal_transformer.typed import replaced

SIZES = {"width": 32, "filter_width": 48, "num_heads": 4, "max_steps": 3, "vocabulary_size": 23}
VOCABULARY = VocabularyConfig(size=23, num_classes=7)
MODELS = {
    "encoder-decoder": config_of(**SIZES),
    "two vocabularies": config_of(**SIZES, target_vocabulary_size=31),
    "untied": config_of(**SIZES, tied=False, plain_layers_before=1, plain_layers_after=2),
    "learned positions": config_of(**SIZES, position_coordinates="learned"),
    "two layers a step": config_of(**SIZES, layers_per_step=2),
    "convolutions": config_of(**SIZES, transition="separable_convolution"),
    "language model": config_of(**SIZES, architecture="language_model"),
    "classifier": config_of(**SIZES, architecture="classifier", num_classes=7),
    "tagger": config_of(**SIZES, architecture="tagger", num_classes=7),
    "LSTM": LstmConfig(width=32, vocabulary=VOCABULARY),
    "LSTM language model": LstmConfig(width=32, vocabulary=VOCABULARY, architecture="language_model"),
    "LSTM classifier": LstmConfig(width=32, vocabulary=VOCABULARY, architecture="classifier"),
    "Neural GPU": NeuralGpuConfig(vocabulary=VOCABULARY, output_extra=2),
}
CACHED = [name for name, config in MODELS.items() if isinstance(config, ModelConfig) and name not in ENCODERS]
SOURCES = {
    BabiData: "babi",
    TranslationData: "multi30k",
    AgreementData: "sva",
    LambadaData: "lambada",
    ReadingData: "lambada",
    PiecesData: "lambada",
    PicturesData: "mnist10k",
    CaptionsData: "mnist10k",
    VoiceData: "fsdd",
    SpeechData: "fsdd",
}
EXTERNAL = {
    name: SOURCES[type(config.data)]
    for name, config in recipe_configs().items()
    if type(config.data) in SOURCES and not name.startswith("wmt")
}
OWN_FILES = ("pairs", "text", "labelled", "tagged")
FIRST_FILES = {"wmt14": "wmt14/train.en", "wmt-news": "wmt_news_ende/news-test2008.eng"}
NOT_FETCHED = {name: file for name in RECIPES for corpus, file in FIRST_FILES.items() if name.startswith(corpus)}


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # from turning oneDNN off
@pytest.mark.parametrize("name", MODELS)
def test_operations_and_parameters_without_memory_are_those_of_real_tensors(name):
    config = MODELS[name]
    model = build(config).eval()
    source, target = torch.randint(4, 23, (5, 14)), torch.randint(4, 23, (5, 13))
    inputs = {"encoder_decoder": (source, target), "language_model": (target,)}
    # torch counts nothing inside of oneDNN's LSTM, and the attention only that forms its scores
    one_dnn = torch.backends.mkldnn.flags(enabled=not isinstance(config, LstmConfig))
    math = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), math, one_dnn:
        model(*inputs.get(config.architecture, (source,)))
    meta = build_on_meta(config)
    assert meta.num_parameters() == model.num_parameters()
    assert forward_flops(meta, Batch(source, target, torch.arange(5))) == counter.get_total_flops() > 0


def test_a_halting_model_is_counted_at_its_cap():
    fixed, halting = (build_on_meta(config_of(**SIZES, halting=halts)) for halts in (False, True))
    batch = Batch(torch.full((2, 5), 4), torch.full((2, 4), 4), torch.arange(2))
    assert forward_flops(fixed, batch) == forward_flops(halting, batch)


LEFT_OUT = "halted positions are left out where this saves time"


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({}, []),
        ({"halting": True}, [f"encoder: {LEFT_OUT}", f"decoder: {LEFT_OUT}"]),
        ({"halting": "encoder"}, [f"encoder: {LEFT_OUT}"]),
        (
            {"halting": "decoder", "halting_state": "evolving"},
            ['decoder: halted positions are computed: halted positions go on changing (state="evolving")'],
        ),
        (
            {"halting": "encoder", "recurrence": "masked"},
            ['encoder: halted positions are computed: execution.halting_execution="masked"'],
        ),
    ],
)
def test_it_says_whether_halted_positions_are_left_out_or_why_not(fields, lines):
    assert halted_positions(build_on_meta(config_of(**SIZES, **fields)), RECIPES["copy"]().training) == lines


@pytest.fixture
def unmeasured(monkeypatch):
    """No update is made to measure it."""
    monkeypatch.setattr(dry_run, "measured_updates", lambda *_, **__: (COST, COST))


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (["--halting.state", "evolving"], "halted"),
        (["--halting.rule", "ponder"], "in training with the rule ponder all positions make all steps"),
        (["--halting.side", "encoder", "--training.step-loss", "mean"], "the loss reads the states"),
    ],
)
def test_a_dry_run_prints_what_happens_to_halted_positions(fields, reason, capsys):
    assert main(["train", "stories", "--dry-run", "--train-stories", "200", *fields]) == 0
    assert f"halting     encoder: halted positions are computed: {reason}" in capsys.readouterr().out


@pytest.mark.usefixtures("unmeasured")
def test_a_random_depth_is_estimated_at_most(capsys):
    assert main(["train", "copy", "--dry-run", "--train-examples", "500", "--training.depth", "random"]) == 0
    shown = capsys.readouterr().out
    assert "FLOPs       at most" in shown
    assert "ms an update of all 4 steps, the most that are drawn" in shown


@pytest.mark.usefixtures("unmeasured")
def test_the_passes_of_an_update_are_measured_and_its_running_mean_is_counted(monkeypatch):
    sizes, collate = [], dry_run.collate
    monkeypatch.setattr(dry_run, "collate", lambda rows, **given: (sizes.append(len(rows)), collate(rows, **given))[1])
    config = replaced(RECIPES["stories"](), {"data.train_stories": 100, "training.accumulate": 4})
    task = config.data.load()
    config = dataclasses.replace(config, model=task.configure(config.model))
    model = build(config.model)
    updates = dry_run.MeasuredUpdates(model, task.train, training=config.training, device=torch.device("cpu"))
    updates._backward(list(range(10)))
    assert sizes == [3, 3, 2, 2]
    mean = estimate(config, task)
    none = dataclasses.replace(mean, config=replaced(config, {"training.ema_decay": None}))
    assert mean._bytes(COST) >= none._bytes(COST) + 4 * mean.parameters


@pytest.mark.parametrize("fields", [["--training.step-loss", "mean"], ["--training.depth", "random"]])
def test_a_dry_run_refuses_a_choice_of_depth_for_a_model_without_depth(fields, capsys):
    assert main(["train", "copy-lstm", *fields, "--dry-run"]) == 2
    assert "this model has no depth to choose; allowed here: " in capsys.readouterr().err


@pytest.mark.parametrize("recipe", ["copy-lstm", "copy-neural-gpu"])
def test_a_dry_run_refuses_muon_for_a_model_without_a_block(recipe, capsys):
    assert main(["train", recipe, "--training.optimizer", "muon", "--dry-run"]) == 2
    assert "this model has no block with matrices; allowed here: adam, adamw" in capsys.readouterr().err


@pytest.mark.parametrize("name", CACHED)
def test_the_cache_is_as_large_as_the_one_that_is_allocated(name):
    cache = build(MODELS[name]).target.start(None, Call(), batch=1, capacity=11).cache
    held = [cache.entries, *([] if cache.inputs is None else [cache.inputs])]
    assert cache_bytes(build_on_meta(MODELS[name]), length=11) == sum(tensor.nbytes for tensor in held)
    assert cache_bytes(build_on_meta(MODELS["classifier"]), length=11) == 0


COST = UpdateCost(seconds=0.5, memory=4e8, activations=1e8, steps=2.5)


@cache
def loaded(data):
    """Load data once: the rows of a table share theirs."""
    return data.load()


DRY_RUN = [name for name in RECIPES if name not in {*OWN_FILES, *NOT_FETCHED}]
FIRST = {recipe_configs()[name].model.architecture: name for name in reversed(DRY_RUN) if name not in EXTERNAL}
"""The first recipe of each architecture whose data are made up; own files have a test below."""


@pytest.mark.parametrize(
    "name", [name if name in FIRST.values() else pytest.param(name, marks=pytest.mark.slow) for name in DRY_RUN]
)
@pytest.mark.usefixtures("unmeasured")
def test_every_recipe_dry_runs_where_its_data_are(name, capsys, tmp_path, monkeypatch):
    real = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("UT_DATA") or real)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UT_DATA", str(folder))
    monkeypatch.setattr(dry_run, "EXAMPLES", 256)
    monkeypatch.setattr(train, "load_data", lambda config: loaded(config.data))
    data = RECIPES[name]().data
    many = isinstance(data, AlgorithmicData | LearningToExecuteData | SpeechData)
    small = ["--train-examples", "500"] if many else []
    small += ["--data.limit", "40"] if isinstance(data, VoiceData) else []
    small += ["--train-stories", "200"] if isinstance(data, StoriesData) else []
    few = ["--train-boards", "5", "--train-examples", "200", "--validation-boards", "2", "--test-boards", "2"]
    small += few if name.startswith("sudoku") else []
    small += ["--train-sentences", "300", "--longer", "10", "12"] if isinstance(data, ParsingData) else []
    small += ["--train-pairs", "300", "--test-pairs", "10"] if name in ("summaries", "records", "treatments") else []
    small += ["--data.limit", "100"] if EXTERNAL.get(name) == "mnist10k" else []
    rows = "0" if name == "captions-digits" else "10"
    small += ["--data.train-examples", "200", "--data.rows", rows] if name.startswith("captions") else []
    small += ["--train-episodes", "2", "--test-episodes", "1"] if isinstance(data, ControlData | PlansData) else []
    small += ["--task", "1,4"] if name.endswith("-joint") else []
    code = main(["train", name, "--dry-run", *small])
    shown = capsys.readouterr()
    if code == 2 and name in EXTERNAL:
        assert f"ut data fetch {EXTERNAL[name]}" in shown.err
        pytest.skip(f"no data set {EXTERNAL[name]} here: set UT_DATA to a folder that has it")
    assert code == 0
    for word in ("parameters", "GFLOP an update", "memory", "ms an update", "train", "updates of the initial model"):
        assert word in shown.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", {source: name for name, source in EXTERNAL.items()}.values())
def test_missing_data_are_named_with_the_way_to_get_them(name, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("UT_DATA", raising=False)
    assert main(["train", name, "--dry-run", "--data-dir", str(tmp_path / "nowhere")]) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert f"ut data fetch {EXTERNAL[name]}" in found
    assert "nowhere" in found
    assert "UT_DATA" not in os.environ


@pytest.mark.parametrize("name", NOT_FETCHED)
def test_missing_files_that_only_a_user_can_bring_are_named(name, capsys, tmp_path):
    assert main(["train", name, "--dry-run", "--data-dir", str(tmp_path)]) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert NOT_FETCHED[name] in found
    assert "--data-dir" in found


@pytest.mark.parametrize("name", OWN_FILES)
@pytest.mark.usefixtures("unmeasured")
def test_your_own_files_dry_run(name, capsys, tmp_path):
    file = tmp_path / "own.tsv"
    lines = (f"the number {number}\t{'odd' if number % 2 else 'even'}\n\n" for number in range(40))
    file.write_text("".join(lines))
    assert main(["train", name, "--dry-run", "--data.train", str(file)]) == 0
    assert "parameters" in capsys.readouterr().out


@pytest.mark.usefixtures("unmeasured")
def test_twice_the_steps_cost_about_twice_as_much():
    config = RECIPES["stories"]()
    data = dataclasses.replace(config.data, train_stories=100, validation_stories=5, test_stories=5)
    deep = with_fields(config.model, max_steps=2 * config.model.max_steps)
    task = data.load()
    base = estimate(dataclasses.replace(config, data=data), task)
    more = estimate(dataclasses.replace(config, data=data, model=deep), task)
    assert more.flops / base.flops == pytest.approx(2, rel=0.01)
    assert more.parameters == base.parameters


def test_a_halting_model_is_measured_as_it_halts_and_with_all_steps(capsys):
    assert main(["train", "stories", "--dry-run", "--train-stories", "100", "--halting.bias", "2"]) == 0
    shown = capsys.readouterr().out
    found = re.search(r"ms an update of ([\d.]+) steps, as at the start \([\d,]+ ms of (\d)\)", shown)
    assert found
    assert 1 <= float(found[1]) < int(found[2]) == RECIPES["stories"]().model.max_steps
    assert "with all steps (from updates of the initial model)" in shown


def in_a_process(*arguments):
    """The output of a command in a process of its own, and its largest memory."""
    script = Path(__file__).with_name("measured_command.py")
    done = forked.run(script, *arguments, "--training.threads", "1")
    assert done.returncode == 0, done.stderr
    return done.stdout, int(re.search(r"^peak (\d+)$", done.stdout, re.MULTILINE)[1])


def expected(*arguments):
    """Bytes and milliseconds that a dry run states."""
    shown, _ = in_a_process(*arguments, "--dry-run")
    size, unit = re.search(r"memory +about ([\d.]+) (MiB|GiB)", shown).groups()
    return float(size) * {"MiB": 2**20, "GiB": 2**30}[unit], float(re.search(r"([\d,]+) ms an update", shown)[1])


def test_memory_to_expect_is_that_of_a_short_run(tmp_path):
    run = ["train", "stories", "--train-stories", "300"]
    memory, _ = expected(*run)
    _, peak = in_a_process(*run, "--max-updates", "6", "--validate-every", "5", "--run", str(tmp_path / "run"))
    assert memory == pytest.approx(peak, rel=0.35)  # six updates do not have the largest batch


def own_file(path, *, recipe):
    """Made-up lines of 3 to 30 words of a vocabulary of 3,000."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 9))) for _ in range(3000)]
    with path.open("w") as file:
        for _ in range(4000):
            line = draw.choices(words, k=draw.randint(3, 30))
            answer = {"pairs": " ".join(reversed(line)), "labelled": "long" if len(line) > 16 else "short"}.get(recipe)
            print(" ".join(line), *([] if answer is None else [answer]), sep="\t", file=file)
    return ["--data.train", str(path)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "fields"),
    [
        ("stories", []),
        ("pairs", []),
        ("labelled", ["--halting.side", "both"]),
        ("labelled", ["--halting.side", "none", "--step.norm", "pre", "--model.sizes.width", "256"]),
        ("text", []),
        ("text", ["--step.dropout", "0", "--data.block-length", "256"]),
    ],
)
def test_memory_and_time_to_expect_are_those_of_a_run(recipe, fields, tmp_path):
    run = ["train", recipe, *fields]
    run += [] if recipe == "stories" else own_file(tmp_path / "own", recipe=recipe)
    memory, milliseconds = expected(*run)
    limits = ["--max-updates", "60", "--validate-every", "50", "--log-every", "1"]
    _, peak = in_a_process(*run, *limits, "--run", str(tmp_path / "run"), "--quiet")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    seconds = {line["update"]: line["seconds"] for line in lines if line["event"] == "update"}
    assert memory == pytest.approx(peak, rel=0.25)
    assert milliseconds == pytest.approx(1000 * (seconds[45] - seconds[5]) / 40, rel=0.3)


@pytest.mark.parametrize("changes", [{}, {"model.step.tied": False}, {"model.depth.decoder_max_steps": 96}])
def test_figures_of_a_deep_model_follow_from_shallow_ones(monkeypatch, changes):
    config = replaced(recipe_configs()["addition"], {"model.depth.max_steps": 48, **changes})
    task = config.data.load()

    def cost(config, task, **_):
        return (UpdateCost(*[float(config.model.max_steps)] * 4),) * 2

    monkeypatch.setattr(dry_run, "measured_updates", cost)
    counted = estimate(config, task)
    monkeypatch.setattr(dry_run, "MEASURED_STEPS", 1000)
    assert counted == estimate(config, task)
