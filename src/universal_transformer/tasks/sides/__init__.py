"""Sides of codecs. `SIDES` is the one list of them: a new one is a file here and an entry in it."""

from universal_transformer.members import Members
from universal_transformer.tasks.sides.board import Cells
from universal_transformer.tasks.sides.fact_list import Facts
from universal_transformer.tasks.sides.film import Film
from universal_transformer.tasks.sides.listed import Brackets, Classes, Labels, Names, Symbols, Tags
from universal_transformer.tasks.sides.observations import Observations
from universal_transformer.tasks.sides.picture import PixelColumns, Raster
from universal_transformer.tasks.sides.recording import Heard, Spoken
from universal_transformer.tasks.sides.side import Side
from universal_transformer.tasks.sides.tokenized import RunningText, Sentence, Text

SIDES: Members[type[Side]] = Members(
    {
        side.kind: side
        for side in (
            *(Text, RunningText, Sentence, Symbols, Names, Facts, Cells, PixelColumns, Heard, Observations, Film),
            *(Classes, Labels, Tags, Brackets, Raster, Spoken),
        )
    }
)
"""Kind in a saved codec -> class."""
