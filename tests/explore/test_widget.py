"""A trace in a notebook."""

import re

import pytest

from small_explored import STORY, stories
from universal_transformer.explore.input_trace import trace_input
from universal_transformer.explore.saved_page import SCRIPTS, asset


def test_a_widget_has_the_trace_and_all_that_draws_it():
    pytest.importorskip("anywidget")
    from universal_transformer.explore.widget import trace_widget

    pipeline = stories()
    trace = trace_input(pipeline.model, pipeline.codec, pipeline.example(STORY, 0), name="tiny")
    widget = trace_widget(trace)
    assert widget.trace == trace.to_dict()
    module = str(widget._esm)
    assert all(asset(file) in module for file in SCRIPTS.values())
    assert len(re.findall(r"^export default ", module, flags=re.MULTILINE)) == 1
