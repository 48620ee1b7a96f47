"""Draw the four stories of the paper's appendix D (figures 5 to 8) with a model of the package.

    python experiments/appendix_stories.py [MODEL]

Writes docs/images/appendix_figure5.svg to appendix_figure8.svg, the attention of the question step by step, and
docs/images/babi_ponder_map.svg, the steps of each fact of the last story, which has three supporting facts as that of
figure 3. MODEL is a run of bAbI (default: babi-halting). Prints what the paper's model answers, and the answer of this
one.
"""

from __future__ import annotations

from pathlib import Path

from study import PROJECT, arguments

from universal_transformer.explore.canvas import svg
from universal_transformer.explore.input_trace import InputTrace, trace_input
from universal_transformer.explore.story_figures import attention_maps, ponder_map
from universal_transformer.runs.opened import Run, open_run

IMAGES = PROJECT / "docs" / "images"
STORIES = {
    5: (
        "John travelled to the hallway. Mary journeyed to the bathroom. Daniel went back to the bathroom. "
        "John moved to the bedroom.",
        "Where is Mary?",
        "bathroom",
    ),
    6: (
        "Sandra journeyed to the hallway. Mary went to the bathroom. Mary took the apple there. "
        "Mary dropped the apple.",
        "Where is the apple?",
        "bathroom",
    ),
    7: (
        "John went to the hallway. John went back to the bathroom. John grabbed the milk there. Sandra went back to "
        "the office. Sandra journeyed to the kitchen. Sandra got the apple there. Sandra dropped the apple there. "
        "John dropped the milk.",
        "Where is the milk?",
        "bathroom",
    ),
    8: (
        "Mary got the milk. John moved to the bedroom. Daniel journeyed to the office. John grabbed the apple "
        "there. John got the football. John journeyed to the garden. Mary left the milk. John left the football. "
        "Daniel moved to the garden. Daniel grabbed the football. Mary moved to the hallway. Mary went to the "
        "kitchen. John put down the apple there. John picked up the apple. Sandra moved to the hallway. Daniel "
        "left the football there. Daniel took the football. John travelled to the kitchen. Daniel dropped the "
        "football. John dropped the apple. John grabbed the apple. John went to the office. Sandra went back to "
        "the bedroom. Sandra took the milk. John journeyed to the bathroom. John travelled to the office. Sandra "
        "left the milk. Mary went to the bedroom. Mary moved to the office. John travelled to the hallway. Sandra "
        "moved to the garden. Mary moved to the kitchen. Daniel took the football. Mary journeyed to the bedroom. "
        "Mary grabbed the milk there. Mary discarded the milk. John went to the garden. John discarded the apple "
        "there.",
        "Where was the apple before the bathroom?",
        "office",
    ),
}
"""Number of the figure -> facts, question, and what the paper's model answers."""
PONDERED = 8
"""The story of three supporting facts."""


def lines(facts: str, question: str) -> list[tuple[int, str]]:
    """A story in the format of bAbI."""
    texts = [f"{fact}." for fact in facts.rstrip(".").split(". ")]
    return [(number, f"{number} {text}") for number, text in enumerate([*texts, question], start=1)]


def traced(run: Run, figure: int) -> InputTrace:
    """What a run does with the story of a figure."""
    facts, question, _ = STORIES[figure]
    (example,) = run.codec.read(lines(facts, question), name=f"figure {figure}")
    return trace_input(run.model, run.codec, example)


def main() -> None:
    (name,) = arguments(__doc__ or "", least=0, most=1) or ["babi-halting"]
    run = open_run(Path(name))
    for figure, (_, question, answer) in STORIES.items():
        story = traced(run, figure)
        print(f"figure {figure}: {question} paper: {answer}; {name}: {story.answer}")
        (IMAGES / f"appendix_figure{figure}.svg").write_bytes(svg(attention_maps(story)))
        if figure == PONDERED:
            (IMAGES / "babi_ponder_map.svg").write_bytes(svg(ponder_map(story)))


if __name__ == "__main__":
    main()
