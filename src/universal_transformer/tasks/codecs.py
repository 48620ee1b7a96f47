"""Which class reads the codec that a run saved."""

from __future__ import annotations

from pathlib import Path

from universal_transformer.errors import UserError
from universal_transformer.files import read_json, show, show_path
from universal_transformer.tasks.algorithmic import CharacterCodec
from universal_transformer.tasks.facts import FactCodec
from universal_transformer.tasks.labelled import LabelledCodec
from universal_transformer.tasks.pairs import PairsCodec
from universal_transformer.tasks.task import CODEC_FILE, Codec
from universal_transformer.tasks.text import TextCodec
from universal_transformer.tasks.word_codecs import ReadingCodec, WordCodec

CODECS: dict[
    str,
    type[CharacterCodec | FactCodec | LabelledCodec | PairsCodec | TextCodec | WordCodec | ReadingCodec],
] = {
    "facts": FactCodec,
    "characters": CharacterCodec,
    "pairs": PairsCodec,
    "text": TextCodec,
    "labelled": LabelledCodec,
    "words": WordCodec,
    "reading": ReadingCodec,
}


def load_codec(folder: Path) -> Codec:
    """Load the codec that `Codec.save` wrote to `folder`."""
    path = folder / CODEC_FILE
    if not path.is_file():
        raise UserError(f"{show_path(path)}: no such file; a run's codec is written when its training starts")
    kind = read_json(path).get("kind")
    if not isinstance(kind, str) or kind not in CODECS:
        raise UserError(f"{show_path(path)}: unknown kind {show(kind)}; known are {', '.join(CODECS)}")
    return CODECS[kind].load(folder)
