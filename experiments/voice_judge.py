"""Let a run of `ut train speech`, which has heard real recordings only, read what a run of `ut train voice` says.

    python experiments/voice_judge.py RUN RECOGNISER [--record results/studies/voice_judge.json] [--limit N]

Each sound is written as a WAV file and read by the recogniser, and counts if the answer is the word that was asked for.
Four kinds of sounds are judged: the 300 recordings of the test; copies of them (their frames of mel bands, turned into
samples again), which show what is lost without any model; for each speaker and digit the mean of the frames of the
training recordings at each place, as long as their median; and what the model says, once for each speaker and digit.
The spectral convergence of the copies is ``‖|T x| - |T y|‖ / ‖|T y|‖`` over the part of a recording that is copied.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from study import record

from universal_transformer.data.example import Frames
from universal_transformer.data.griffin_lim import spectral_convergence, waveform
from universal_transformer.data.recordings import RECORDINGS, SPEAKERS, recorded_frames
from universal_transformer.data.sound import SPOKEN, encode_wav, log_mel
from universal_transformer.errors import UserError
from universal_transformer.evaluation.prediction import predict
from universal_transformer.runs.opened import Run, open_run
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.sides.recording import Heard, Spoken
from universal_transformer.tasks.speech import WORDS
from universal_transformer.tasks.voice import SPEAKER_AND_DIGIT, VoiceData


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("recogniser", type=Path)
    parser.add_argument("--record", type=Path, help="write the figures with their provenance")
    parser.add_argument("--limit", type=int, default=len(RECORDINGS), help="judge at most N sounds of each kind")
    chosen = parser.parse_args()
    run, judge = open_run(chosen.run), open_run(chosen.recogniser)
    if not isinstance(run.codec.target, Spoken) or not isinstance(judge.codec.source, Heard):
        raise SystemExit("expected a run of voice and a run of speech")

    figures: dict[str, Any] = {}
    test = [one for one in RECORDINGS if one.part == "test"][: chosen.limit]
    words, recorded = [WORDS[one.digit] for one in test], recorded_frames()
    clips = [recorded.sound(one).samples for one in test]
    figures["real_recordings_read"] = share(words, heard(judge, map(encode_wav, clips)))
    copies = [waveform(log_mel(clip, bands=SPOKEN), bands=SPOKEN) for clip in clips]
    figures["copies_read"] = share(words, heard(judge, map(encode_wav, copies)))
    pairs = zip(copies, clips, strict=True)
    figures["spectral_convergence_of_copies"] = float(
        np.mean([spectral_convergence(copy, clip, bands=SPOKEN) for copy, clip in pairs])
    )
    lines = [f"{speaker} {word}" for word in WORDS for speaker in SPEAKERS][: chosen.limit]
    asked, means = [line.split()[1] for line in lines], mean_frames()
    content = [run.codec.target.content(means[line]) for line in lines]
    figures["mean_frames_read"] = share(asked, heard(judge, content))
    examples = run.codec.read(enumerate(lines, start=1), name="texts")
    answers = list(predict(run.model, run.codec, examples))
    said = heard(judge, [answer.content for answer in answers])
    figures["said"] = len(said)
    figures["said_as_asked"] = share(asked, said)
    figures["stopped"] = float(np.mean([answer.finished for answer in answers]))
    figures["said_as_asked_by_speaker"] = by(asked, said, [line.split()[0] for line in lines])
    figures["said_as_asked_by_digit"] = by(asked, said, asked)
    record(chosen.record, run, figures, recogniser=judge.config.digest())
    return 0


def heard(judge: Run, files: Iterable[bytes]) -> list[str]:
    """Return what the recogniser reads in each WAV file; nothing of one that it refuses, such as silence."""
    with TemporaryDirectory() as folder:
        found = {}
        for number, content in enumerate(files):
            path = Path(folder) / f"{number}.wav"
            path.write_bytes(content)
            try:
                found[number] = next(judge.codec.read([(1, str(path))], name="sounds"))
            except ValueError as error:
                print(f"not read: {error}", file=sys.stderr)
                found[number] = None
        answers = iter(predict(judge.model, judge.codec, [one for one in found.values() if one is not None]))
        return ["" if one is None else next(answers).text for one in found.values()]


def mean_frames() -> dict[str, Frames]:
    """Return the mean frames at each place of the training recordings of each line, as many as their median."""
    groups: dict[str, list[Frames]] = {}
    codec = Codec(SPEAKER_AND_DIGIT, Spoken())
    for example in VoiceData().load().train:
        assert isinstance(example.target, np.ndarray)
        groups.setdefault(" ".join(codec.words(example)[:2]), []).append(example.target)
    found = {}
    for line, clips in groups.items():
        length = round(float(np.median([len(clip) for clip in clips])))
        long = [clip for clip in clips if len(clip) >= length]
        found[line] = np.mean([clip[:length] for clip in long], axis=0).astype(np.float32)
    return found


def share(asked: Sequence[str], given: Sequence[str]) -> float:
    return float(np.mean([one == other for one, other in zip(asked, given, strict=True)]))


def by(asked: Sequence[str], given: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """Return the share by name."""
    found = {}
    for name in dict.fromkeys(names):
        rows = [row for row, other in enumerate(names) if other == name]
        found[name] = round(share([asked[row] for row in rows], [given[row] for row in rows]), 3)
    return found


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(str(error))
