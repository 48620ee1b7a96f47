"""Words of digits to sound as a task: parts, what is left out, sound files out, and the commands from end to end."""

import importlib.util
import json
from collections import defaultdict
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from small_sounds import tone
from universal_transformer.cli import main
from universal_transformer.data.example import Example
from universal_transformer.data.recordings import RECORDINGS, SPEAKERS
from universal_transformer.data.sound import FLOOR, RATE, SPOKEN, Sound, encode_wav, log_mel
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics import metric_of
from universal_transformer.evaluation.metrics.frames import FrameBaseline
from universal_transformer.evaluation.pipeline import load
from universal_transformer.explore.input_trace import trace_input
from universal_transformer.models.components import DepthConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.step_config import Sizes
from universal_transformer.recipes import RECIPES
from universal_transformer.registry import build
from universal_transformer.runs.opened import open_run
from universal_transformer.tasks import Codec, voice
from universal_transformer.tasks.sides.recording import Heard, Spoken, scaled
from universal_transformer.tasks.speech import DIGITS, WORDS
from universal_transformer.tasks.task import Task
from universal_transformer.tasks.voice import LONGEST, PAUSE, SPEAKER_AND_DIGIT, VoiceData, spoken_frames
from universal_transformer.typed import replaced

FEW = [one for one in RECORDINGS if one.number in (0, 5, 8, 9) and one.speaker in ("george", "theo")]


def samples_of(one):
    """A tone of the digit with silence around it; the last recordings of theo are too long."""
    seconds = 1.4 if (one.speaker, one.number) == ("theo", 9) else 0.1 + one.digit / 100
    sound = tone(hertz=300 * (1 + one.digit), seconds=seconds, peak=1.0)
    return np.concatenate([np.zeros(1500, np.float32), sound, np.zeros(900, np.float32)])


class MadeUp:
    def sound(self, one):
        return Sound(samples_of(one))


def make_up(monkeypatch):
    monkeypatch.setattr(voice, "recorded_frames", MadeUp)
    monkeypatch.setattr(voice, "RECORDINGS", FEW)


@pytest.fixture
def made_up(monkeypatch):
    make_up(monkeypatch)


def test_examples_say_who_says_what_and_long_recordings_are_left_out_of_training(made_up):
    task = VoiceData().load()
    counts = {"train": len(task.train), "validation": len(task.validation), "digits": len(task.test["digits"])}
    assert counts == {"train": 30, "validation": 20, "digits": 20}
    assert task.notes == ("recordings of more than 1.1 seconds are not trained on",)
    assert max(len(example.target) for example in task.train) <= LONGEST
    for example in task.test["digits"][:13]:
        speaker, digit, end = task.codec.words(example)
        assert end == "<end>"
        assert example.group == speaker
        one = next(one for one in FEW if (one.speaker, WORDS[one.digit], one.number) == (speaker, digit, 0))
        assert np.array_equal(example.target, spoken_frames(samples_of(one)))
    assert task.answer_limit() == max(len(one.target) for one in task.train) * 5 // 4 + 10


def test_frames_begin_with_sound_and_end_in_silence():
    sound = tone(hertz=1000, seconds=0.3, peak=1.0)
    frames = spoken_frames(np.concatenate([np.zeros(4000, np.float32), sound, np.zeros(6000, np.float32)]))
    assert 24 + PAUSE <= len(frames) <= 24 + 8 + PAUSE
    silent = scaled(np.full((PAUSE, SPOKEN.bands), np.log(FLOOR), dtype=np.float32))
    assert np.array_equal(frames[-PAUSE:], silent)
    loudest = scaled(log_mel(sound, bands=SPOKEN)).max(axis=1)
    assert frames[4].max() > loudest.max() - 3
    assert frames.dtype == np.float32


def test_a_codec_reads_words_and_writes_sounds(tmp_path):
    Codec(SPEAKER_AND_DIGIT, Spoken()).save(tmp_path)
    codec = Codec.load(tmp_path)
    assert codec == Codec(SPEAKER_AND_DIGIT, Spoken())
    lines = [(1, "theo seven"), (2, " "), (3, " Yweweler  ZERO")]
    assert [codec.words(one) for one in codec.read(lines, name="a")] == [
        ["theo", "seven", "<end>"],
        ["yweweler", "zero", "<end>"],
    ]
    assert codec.source.render(codec.source.encode("george", "one")) == "george one"
    frames = scaled(log_mel(tone(hertz=1000, peak=1.0), bands=SPOKEN))
    (tmp_path / "a.wav").write_bytes(codec.target.content(frames))
    samples, rate = soundfile.read(tmp_path / "a.wav")
    assert (rate, len(samples)) == (RATE, len(frames) * SPOKEN.hop)
    assert np.abs(np.fft.rfft(samples)).argmax() * RATE / len(samples) == pytest.approx(1000, abs=60)


@pytest.mark.parametrize("line", ["theo", "seven theo", "theo seven one", "theo sevn", "anna one"])
def test_other_lines_are_refused(line):
    message = rf"^a:4: '{line}': expected one of george, .*such as yweweler nine"
    with pytest.raises(UserError, match=message) as raised:
        next(Codec(SPEAKER_AND_DIGIT, Spoken()).read([(4, line)], name="a"))
    assert ("mean seven" in str(raised.value)) is ("sevn" in line)


def test_the_baseline_repeats_the_frame_before_each_position(tmp_path):
    frames = np.arange(8, dtype=np.float32)[:, None] * np.ones((1, 3), np.float32)
    example = Example(source=(3, 2), target=frames)
    model = replaced(RECIPES["voice"]().model, Codec(SPEAKER_AND_DIGIT, Spoken()).model_fields)
    assert model.outputs.stride == 3
    baseline = FrameBaseline.learn([example], model)
    baseline.save(tmp_path / "baseline.json")
    assert FrameBaseline.load(tmp_path / "baseline.json", model) == baseline
    task = Task("voice", Codec(SPEAKER_AND_DIGIT, Spoken()), (), (), {}, "frames")
    sums = metric_of(task).trivial(baseline, example)
    # before the positions stand 0, 2 and 5
    assert sums.sums == {"difference": 0 + 1 + 2 + 1 + 2 + 3 + 1 + 2, "frames": 8}
    assert model.outputs.features == SPOKEN.bands


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two updates."""
    folder = tmp_path_factory.mktemp("voice")
    small = ["--model.sizes.width", "16", "--model.sizes.filter-width", "16", "--training.max-updates", "2", "--quiet"]
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_up(monkeypatch)
        assert main(["train", "voice", "--run", str(folder / "run"), *small]) == 0
    return folder / "run"


@pytest.fixture
def run(trained, made_up, tmp_path, monkeypatch):
    """A folder with the run and lines of text."""
    monkeypatch.chdir(tmp_path)
    copytree(trained, tmp_path / "run")
    (tmp_path / "texts").write_text("theo seven\ntheo sevn\nlucas zero\n")
    return tmp_path


def test_a_run_says_what_it_is_asked_for_is_evaluated_and_plotted(run, capsys):
    capsys.readouterr()
    assert main(["predict", "run", "texts", "--max-new-tokens", "24"]) == 2
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["predictions/0001.wav", "", "predictions/0003.wav"]
    assert "ut: texts:2: 'theo sevn': expected one of george" in shown.err
    for name in ("0001", "0003"):
        assert soundfile.info(run / "predictions" / f"{name}.wav").samplerate == RATE
    assert main(["predict", "run", "texts", "--format=jsonl", "--output", "out", "--exit", "state_change:0.9"]) == 2
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["file"] == "out/0001.wav"
    assert main(["predict", "run", "texts", "--max-new-tokens", "24"]) == 2
    assert capsys.readouterr().out.splitlines() == ["predictions/0004.wav", "", "predictions/0006.wav"]
    assert first["text"] == f"{3 * len(first['output'])} frames"
    assert {token["steps"] for token in first["output"]} <= {2.0, 3.0, 4.0}
    assert main(["evaluate", "run", "--limit", "6"]) == 0
    found = capsys.readouterr().out
    assert all(text in found for text in ("frame error", "stopped", "baseline: the frame before each position"))
    assert main(["plot", "run"]) == 0
    assert (run / "run" / "plots" / "frames.svg").is_file()
    assert "<h2>Frames</h2>" in (run / "run" / "report.html").read_text()


def test_a_trace_has_the_positions_that_were_written(run):
    pipeline = load("run")
    options = DecodingOptions(max_new_tokens=24)
    trace = trace_input(pipeline.model, pipeline.codec, pipeline.example("theo seven", 1), options=options)
    words, frames = trace.sides
    assert words.tokens == ("theo", "seven", "<end>")
    assert list(frames.steps) == [token.steps for token in pipeline("theo seven", options=options).output]
    assert len(frames.tokens) == len(trace.places) == frames.self_attention.shape[2] == frames.cross_attention.shape[2]
    assert trace.after_steps == []


PROJECT = Path(__file__).parents[2]


def script(path):
    """The module of a script outside of the package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_recogniser_reads_recordings_copies_means_and_what_is_said(run, monkeypatch, capsys):
    judge = script(PROJECT / "experiments" / "voice_judge.py")
    monkeypatch.setattr(judge, "recorded_frames", MadeUp)
    monkeypatch.setattr(judge, "RECORDINGS", FEW)
    monkeypatch.setattr(judge, "mean_frames", lambda: defaultdict(lambda: spoken_frames(samples_of(FEW[0]))))
    answers = iter(["zero", "zero", "zero", "zero", "", "two"])
    monkeypatch.setattr(judge, "heard", lambda _, files: [next(answers) for _ in files])
    speech = SimpleNamespace(codec=Codec(Heard(), DIGITS), config=SimpleNamespace(digest=lambda: "0"))
    monkeypatch.setattr(judge, "open_run", lambda path: speech if path.name == "speech" else open_run(path))
    monkeypatch.setattr("sys.argv", ["voice_judge.py", "run", "speech", "--limit", "1", "--record", "found.json"])
    monkeypatch.setattr("universal_transformer.models.components.GenerationConfig.limit", lambda *_: 9)
    assert judge.main() == 0
    figures = json.loads((run / "found.json").read_text())["figures"]
    assert [figures[name] for name in ("real_recordings_read", "copies_read", "mean_frames_read", "said")] == [
        1,
        1,
        1,
        1,
    ]
    assert figures["said_as_asked_by_speaker"] == {"george": 1.0}
    assert 0 < figures["spectral_convergence_of_copies"] < 1
    assert "said as asked" in capsys.readouterr().out


def test_a_recogniser_hears_nothing_in_silence(capsys):
    config = ModelConfig(sizes=Sizes(width=8, filter_width=8, num_heads=2), depth=DepthConfig(max_steps=1))
    model = build(replaced(config, Codec(Heard(), DIGITS).model_fields | {"inputs.stride": 4})).eval()
    heard = script(PROJECT / "experiments" / "voice_judge.py").heard
    sounds = [encode_wav(samples) for samples in (tone(), np.zeros(4000, np.float32), tone())]
    first, silent, third = heard(SimpleNamespace(model=model, codec=Codec(Heard(), DIGITS)), sounds)
    assert (first, silent) == (third, "")
    assert "silent, its peak is 0" in capsys.readouterr().err


def test_what_frames_do_not_have_is_refused(run, capsys):
    capsys.readouterr()
    for options, message in (
        (["--beams", "2"], "frames, which are not searched or sampled"),
        (["--temperature", "1"], "frames, which are not searched or sampled"),
        (["--exit", "confidence:0.5"], "this model writes frames, which have no probabilities"),
    ):
        assert main(["predict", "run", "texts", *options]) == 2
        assert message in capsys.readouterr().err
    assert main(["train", "voice", "--run", "other", "--training.step-loss", "mean"]) == 2
    assert "this model writes frames" in capsys.readouterr().err
    assert main(["export", "run", "--out", "x.onnx"]) == 2
    assert "outputs.kind='frames': not exported" in capsys.readouterr().err
    assert {path.name for path in run.iterdir()} == {"run", "texts"}, "nothing is written"


def test_frames_and_tokens_are_not_scored_as_each_other(run, capsys):
    assert main(["evaluate", "run", "--split", "digits", "--limit", "2", "--beams", "2"]) == 2
    assert "not searched or sampled" in capsys.readouterr().err


def test_the_recipe_reads_published_recordings(shared_data):
    config = RECIPES["voice"]()
    task = replaced(config.data, {"limit": 24}).load()
    model = task.configure(config.model)
    assert (model.outputs.kind, model.outputs.features, model.vocabulary.size) == ("frames", SPOKEN.bands, 19)
    assert len(task.train) == len(task.test["digits"]) == 24
    assert {example.group for example in task.test["digits"]} == set(SPEAKERS)
    assert all(np.isfinite(example.target).all() for example in task.train)
