"""Tasks: where examples come from, how they are encoded, how answers are scored. Nothing here imports torch.

`TASKS` is the one list of tasks. A task is added by a module with a frozen dataclass (`TaskData`) and one entry here;
from outside the package by ``TASKS["name"] = MyData`` before a run is trained or read.
"""

from collections.abc import Callable

from universal_transformer.errors import UserError
from universal_transformer.members import Members
from universal_transformer.tasks.algorithmic import AlgorithmicData as AlgorithmicData
from universal_transformer.tasks.babi import BabiData as BabiData
from universal_transformer.tasks.captions import CaptionsData as CaptionsData
from universal_transformer.tasks.codec import Codec as Codec
from universal_transformer.tasks.control import ControlData as ControlData
from universal_transformer.tasks.labelled import LabelledData as LabelledData
from universal_transformer.tasks.pairs import PairsData as PairsData
from universal_transformer.tasks.parsing import ParsingData as ParsingData
from universal_transformer.tasks.pictures import PicturesData as PicturesData
from universal_transformer.tasks.plans import PlansData as PlansData
from universal_transformer.tasks.speech import SpeechData as SpeechData
from universal_transformer.tasks.stories import StoriesData as StoriesData
from universal_transformer.tasks.sudoku import SudokuData as SudokuData
from universal_transformer.tasks.tagged import TaggedData as TaggedData
from universal_transformer.tasks.task import Task as Task
from universal_transformer.tasks.task import TaskData as TaskData
from universal_transformer.tasks.text import TextData as TextData
from universal_transformer.tasks.voice import VoiceData as VoiceData

TASKS: Members[type[TaskData]] = Members(
    {
        "stories": StoriesData,
        "babi": BabiData,
        "algorithmic": AlgorithmicData,
        "sudoku": SudokuData,
        "pairs": PairsData,
        "text": TextData,
        "labelled": LabelledData,
        "tagged": TaggedData,
        "speech": SpeechData,
        "voice": VoiceData,
        "parsing": ParsingData,
        "pictures": PicturesData,
        "captions": CaptionsData,
        "control": ControlData,
        "plans": PlansData,
    }
)
"""Name in a configuration file -> the class of its data."""

OTHER_TESTS: Members[Callable[..., Task]] = Members()
"""Name -> a function that returns test sets for the codec of a language model of another task; those of a clone."""


def task_name(data: TaskData) -> str:
    for name, kind in TASKS.items():
        if kind is type(data):
            return name
    raise UserError(f"data: {type(data).__name__} is no task; known are {', '.join(TASKS)}")
