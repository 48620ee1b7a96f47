"""The four stories of the paper's appendix D, with the model of the package that draws them."""

from pathlib import Path

import pytest

from appendix_stories import STORIES, traced
from universal_transformer.runs.opened import open_run


@pytest.mark.claim("figure 5", "figure 6", "figure 7", "figure 8", "appendix D")
def test_three_of_the_four_answers_are_those_of_the_papers_model():
    run = open_run(Path("babi-halting"))
    papers = {figure: answer for figure, (_, _, answer) in STORIES.items()}
    assert {figure: traced(run, figure).answer for figure in STORIES} == papers | {8: "hallway"}  # the paper's: office
