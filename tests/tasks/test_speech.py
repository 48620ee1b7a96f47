"""Spoken digits as a task: parts without a recording in common, distorted training, sound files in and words out."""

import dataclasses

import numpy as np
import pytest
import torch

from small_sounds import sound_file, tone
from small_task_models import model_for
from universal_transformer.cli import main
from universal_transformer.data import recordings
from universal_transformer.data.recordings import PARTS, RECORDINGS, SPEAKERS, RecordedFrames
from universal_transformer.data.sound import FLOOR, HEARD, RATE, log_mel
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.measure import Selection, evaluate
from universal_transformer.evaluation.prediction import predict
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.recipes import RECIPES
from universal_transformer.tasks import Codec, speech
from universal_transformer.tasks.sides.recording import MIDDLE, SPREAD, Heard, scaled
from universal_transformer.tasks.speech import DIGITS, MASKS, SpeechData, blanked, pause, tilted, warped
from universal_transformer.typed import replaced

FEW = {"train_examples": 60, "validation_strings": 8, "test_strings": 12}
PLACE = {one: place for place, one in enumerate(RECORDINGS)}
LENGTHS = range(12, 17)


class MadeUp(RecordedFrames):
    """Recordings whose frames all have the number of the recording."""

    def __init__(self):
        pass

    def __getitem__(self, one):
        return np.full((LENGTHS[PLACE[one] % len(LENGTHS)], HEARD.bands), PLACE[one], dtype=np.float32)


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(speech, "recorded_frames", MadeUp)


def parts_of(task):
    return {"train": list(task.train), "validation": task.validation, **task.test}


def recordings_of(examples):
    """The recordings that the frames of undistorted examples are of."""
    numbers = [example.source[:, 0] * SPREAD + MIDDLE for example in examples]
    return [
        [RECORDINGS[place] for place in dict.fromkeys(np.rint(row).astype(int).tolist()) if place >= 0]
        for row in numbers
    ]


@pytest.mark.parametrize("unseen", ["", "lucas"])
def test_a_recording_belongs_to_one_part_and_an_example_says_its_digits(made_up, unseen):
    data = SpeechData(distorted=False, strings=0.5, unseen_speaker=unseen, **FEW)
    parts = parts_of(data.load())
    single = "unseen speaker" if unseen else "digits"
    counts = (
        {"train": 60, "strings": 12, single: 500, "validation": 158}
        if unseen
        else {"train": 60, "validation": 188, "digits": 300, "strings": 12}
    )
    assert {name: len(examples) for name, examples in parts.items()} == counts
    used = {}
    for name, examples in parts.items():
        for example, found in zip(examples, recordings_of(examples), strict=True):
            said = [one.digit for one in found]
            assert len({one.speaker for one in found}) == 1
            if len(set(said)) == len(example.target) - 1:  # no recording twice
                assert example.target == (*[3 + digit for digit in said], 2)
            of_part = "test" if name in ("strings", single) else name
            used.setdefault(of_part, set()).update(found)
            if unseen:
                assert all((one.speaker == unseen) == (of_part == "test") for one in found)
            else:
                assert all(one.number in PARTS[of_part] for one in found)
    assert not used["train"] & used["validation"]
    assert not used["train"] & used["test"]
    assert not used["validation"] & used["test"]


def test_groups_are_speakers_and_numbers_of_digits(made_up):
    task = SpeechData(**FEW).load()
    assert {example.group for example in task.test["digits"]} == set(SPEAKERS)
    assert [example.group for example in task.test["strings"]] == [f"{length} digits" for length in (2, 3, 4, 5)] * 3
    assert all(len(one.target) == int(one.group[0]) + 1 for one in task.test["strings"])


def test_the_same_seed_gives_the_same_examples_and_another_seed_others(made_up):
    first, again, other = (SpeechData(strings=0.5, seed=seed, **FEW).load() for seed in (0, 0, 1))
    for name, examples in parts_of(first).items():
        same, others = parts_of(again)[name], parts_of(other)[name]
        assert all(np.array_equal(one.source, two.source) for one, two in zip(examples, same, strict=True))
        if name in ("train", "strings"):
            assert not all(np.array_equal(one.source, two.source) for one, two in zip(examples, others, strict=True))


def test_training_is_single_digits_unless_strings_are_asked_for(made_up):
    for share, lengths in ((0.0, {2}), (1.0, {3, 4, 5, 6})):
        task = SpeechData(strings=share, **FEW).load()
        assert {len(example.target) for example in task.train} == lengths


def test_training_frames_are_distorted_and_finite():
    draw = np.random.default_rng(0)
    frames = draw.normal(size=(60, HEARD.bands)).astype(np.float32)
    lengths = {len(warped(frames, draw)) for _ in range(50)}
    assert min(lengths) < 50
    assert max(lengths) > 70
    kept = [blanked(frames, draw) for _ in range(20)]
    assert all(np.isin(one, [*frames.ravel(), 0.0]).all() for one in kept)
    shares = [(one == 0).mean() for one in kept]
    assert 0 < np.mean(shares) < 0.6
    assert MASKS == 2
    assert warped(frames[:1], draw).shape[0] == 1


def test_frames_at_the_same_pace_and_height_are_unchanged(monkeypatch):
    monkeypatch.setattr(speech, "PACE", 0.0)
    monkeypatch.setattr(speech, "HEIGHT", 0.0)
    frames = np.random.default_rng(0).normal(size=(9, HEARD.bands)).astype(np.float32)
    np.testing.assert_allclose(warped(frames, np.random.default_rng(1)), frames, rtol=1e-6)


def test_level_and_tilt_add_one_line_over_the_bands_to_every_frame():
    draw = np.random.default_rng(0)
    frames = draw.standard_normal((5, HEARD.bands)).astype(np.float32)
    changes = [tilted(frames, draw) - frames for _ in range(20)]
    for change in changes:
        line = np.linspace(change[0, 0], change[0, -1], HEARD.bands)
        np.testing.assert_allclose(change, np.broadcast_to(line, change.shape), atol=1e-5)
        assert abs(change.mean()) <= speech.LEVEL + 1e-5
        assert abs(change[0, -1] - change[0, 0]) <= speech.TILT + 1e-5
    assert len({float(change[0, 0]) for change in changes}) == len(changes)
    assert all((tilted(pause(3), draw) >= np.log(FLOOR) - 1e-5).all() for _ in range(20))


def test_joined_frames_are_those_of_joined_sounds_but_at_their_ends():
    first, second = tone(hertz=500, seconds=0.4, peak=1.0), tone(hertz=1500, seconds=0.3, peak=1.0)
    silence = np.zeros(HEARD.hop * 12, dtype=np.float32)
    whole = log_mel(np.concatenate([first, silence, second]))
    joined = np.concatenate([log_mel(first), pause(12), log_mel(second)])
    assert joined.shape == whole.shape
    ends = [len(log_mel(first)), len(log_mel(first)) + 12]
    inside = [place for place in range(len(whole)) if all(abs(place - end) > 1 for end in ends)]
    np.testing.assert_allclose(joined[inside], whole[inside], atol=1e-3)
    assert (pause(3) == np.float32(np.log(FLOOR))).all()


def test_a_codec_reads_sounds_and_writes_words(tmp_path):
    Codec(Heard(), DIGITS).save(tmp_path)
    codec = Codec.load(tmp_path)
    assert codec == Codec(Heard(), DIGITS)
    assert codec.render((3 + 7, 3 + 0, 2)) == "seven zero"
    (tmp_path / "a.wav").write_bytes(sound_file(tone()))
    (tmp_path / "b.flac").write_bytes(sound_file(tone(rate=16_000), rate=16_000, kind="FLAC"))
    lines = [(1, f"{tmp_path}/a.wav"), (2, " "), (3, f"{tmp_path}/b.flac ")]
    first, second = codec.read(lines, name="list.txt")
    assert first.source.shape == second.source.shape == (30, HEARD.bands)
    np.testing.assert_allclose(first.source, scaled(log_mel(tone(peak=1.0))), atol=0.05)
    assert not first.notes
    assert "16,000 samples a second are converted" in second.notes[0]
    with pytest.raises(UserError, match=r"c\.wav: no such file"):
        list(codec.read([(1, f"{tmp_path}/c.wav")], name="list.txt"))


def small(task):
    return model_for(task, **{"inputs.kind": "frames", "inputs.stride": 4})


@torch.no_grad()
def test_word_errors_are_scored_with_a_baseline_and_answers_do_not_depend_on_the_batch(made_up):
    task = SpeechData(strings=0.5, **FEW).load()
    model = small(task)
    baseline, few = TrivialBaseline.learn(task.train, model.config), DecodingOptions(max_new_tokens=6)
    report = evaluate(model, task, Selection(split="strings"), options=few, baseline=baseline)
    (total,) = report.totals
    assert set(total.metrics) == {"word_error", "sequence_accuracy"}
    assert total.metrics["word_error"] > 50
    assert total.baseline["word_error"] > 50
    assert report.baseline.startswith("always '")
    for metric, score in (("characters", "character_error"), ("phonemes", "phoneme_error")):
        again = evaluate(model, dataclasses.replace(task, metric=metric), Selection("strings", limit=2), options=few)
        assert set(again.totals[0].metrics) == {score, "sequence_accuracy"}
    together = [one.text for one in predict(model, task.codec, task.test["strings"][:4], options=few)]
    alone = [next(iter(predict(model, task.codec, [one], options=few))).text for one in task.test["strings"][:4]]
    assert together == alone


@pytest.fixture
def run(made_up, tmp_path, monkeypatch):
    """A folder with a run of two updates, and sounds."""
    monkeypatch.chdir(tmp_path)
    fields = {"--training.max-updates": "2", "--data.train-examples": "40", "--data.validation-strings": "4"}
    fields |= {"--data.test-strings": "4", "--model.sizes.width": "16", "--model.sizes.filter-width": "16"}
    options = [part for pair in fields.items() for part in pair]
    assert main(["train", "speech", "--run", "run", "--quiet", *options]) == 0
    (tmp_path / "a.wav").write_bytes(sound_file(tone(rate=16_000), rate=16_000))
    (tmp_path / "silent.wav").write_bytes(sound_file(np.zeros(4000, np.float32)))
    (tmp_path / "list.txt").write_text("a.wav\nsilent.wav\na.wav\n")
    return tmp_path


def test_a_run_is_evaluated_predicts_from_sounds_and_is_plotted(run, capsys):
    capsys.readouterr()
    assert main(["predict", "run", "a.wav"]) == 0
    found = capsys.readouterr()
    assert found.out.count("\n") == 1
    assert "ut: a.wav: 16,000 samples a second are converted to 8,000\n" in found.err
    assert main(["predict", "run", "list.txt"]) == 2
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0] == lines[2] == found.out.rstrip("\n")
    assert lines[1] == ""
    assert "ut: silent.wav: silent, its peak is 0" in shown.err
    before = sorted(run.rglob("*"))
    assert main(["predict", "run", "silent.wav"]) == 2
    assert sorted(run.rglob("*")) == before, "nothing is written"
    capsys.readouterr()
    assert main(["evaluate", "run", "--limit", "6"]) == 0
    assert "word error %" in capsys.readouterr().out
    assert main(["plot", "run"]) == 0
    assert (run / "run" / "report.html").is_file()


def test_the_recipe_reads_published_recordings(shared_data):
    config = RECIPES["speech"]()
    task = replaced(config.data, {"train_examples": 3}).load()
    model = task.configure(config.model)
    assert (model.inputs.kind, model.inputs.features, model.vocabulary.target_size) == ("frames", 40, 13)
    assert all(np.isfinite(example.source).all() for example in task.train)
    assert recordings.recorded_frames() is recordings.recorded_frames()
    assert RATE == 8000
