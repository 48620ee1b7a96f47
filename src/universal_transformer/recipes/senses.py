"""Sound, pictures and actions: spoken digits, handwritten digits, classic control."""

from universal_transformer.recipes.start import Changes, named, start
from universal_transformer.tasks import CaptionsData, ControlData, PicturesData, PlansData, SpeechData, VoiceData
from universal_transformer.training.run_config import RunConfig

_ADAMW = {"training.optimizer": "adamw", "training.warmup_updates": 100}
_DECAY = {**_ADAMW, "training.weight_decay": 0.01}


def speech() -> RunConfig:
    """Spoken digits, alone and in strings, to words (`ut data fetch fsdd`; needs the extra `sound`)."""
    changes = {
        "model.inputs.kind": "frames",
        "model.inputs.stride": 4,
        "model.inputs.stem": "convolution",
        "training.max_updates": 12_000,
        "training.batch_tokens": 2048,
        "training.label_smoothing": 0.1,
    }
    return start("speech", SpeechData(), _DECAY, changes)


def voice() -> RunConfig:
    """A speaker and the word of a digit to sound (`ut data fetch fsdd`; needs the extra `sound`)."""
    changes = {
        "model.outputs.kind": "frames",
        "model.outputs.stride": 3,
        "training.max_updates": 10_000,
        "training.validate_every": 500,
    }
    return start("voice", VoiceData(), _DECAY, changes)


def pictures() -> RunConfig:
    """Draw what a text says: handwritten digits of 14 × 14 pixels, or your own pictures (--data.train FILE)."""
    return start("pictures", PicturesData(side=14, levels=256), _pixels(14))


def pictures_28() -> RunConfig:
    """Draw what a text says: handwritten digits of 28 × 28 pixels with 16 intensities."""
    return start("pictures-28", PicturesData(side=28, levels=16), _pixels(28))


def _pixels(side: int) -> Changes:
    return {
        "model.step.dropout": 0.0,
        "training.max_updates": 4500,
        "training.batch_tokens": 16 * side**2,
        "training.optimizer": "adamw",
        "training.schedule": "linear",
        "training.warmup_updates": 30,
        "training.validate_every": 500,
    }


_PATCHES = {
    "model.inputs.kind": "patches",
    "model.inputs.stride": 4,
    "model.inputs.stem": "convolution",
    "training.batch_tokens": 2688,
    "training.optimizer": "adamw",
    "training.learning_rate": 1e-3,
    "training.select_by": "metric",
}


def captions_digits() -> RunConfig:
    """Read single handwritten digits: the first stage, from which `captions` starts."""
    changes = {"training.max_updates": 1200, "training.validate_every": 200}
    return start("captions-digits", CaptionsData(rows=0), _PATCHES, changes)


def captions() -> RunConfig:
    """Read handwritten digits alone and in rows; start from the first stage: --from RUN of captions-digits.

    Or caption your own pictures (--data.train FILE).
    """
    # without the first stage 54 % are correct after 3,000 updates: notebook/README.md
    changes = {"training.max_updates": 2500, "training.validate_every": 500}
    return start("captions", CaptionsData(rows=1000), _PATCHES, changes)


def control_cartpole() -> RunConfig:
    """Balance a pole without seeing velocities; --data.environment names another task (needs the extra `control`)."""
    changes = {
        "model.architecture": "classifier",
        "model.inputs.kind": "frames",
        "model.outputs.pooling": "last",
        "model.sizes.width": 64,
        "model.sizes.filter_width": 256,
        "training.max_updates": 1000,
    }
    return start("control-cartpole", ControlData(), _ADAMW, changes)


def plans_cartpole() -> RunConfig:
    """Balance a pole that is seen in pictures, four actions at once; --data.environment names another task (needs the
    extra `control`).
    """
    changes = {
        "model.inputs.kind": "frames",
        "model.sizes.width": 64,
        "model.sizes.filter_width": 256,
        "training.max_updates": 1000,
    }
    return start("plans-cartpole", PlansData(), _ADAMW, changes)


MAIN = named(speech, voice, pictures, pictures_28, captions_digits, captions, control_cartpole, plans_cartpole)
