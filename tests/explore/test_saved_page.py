"""A page that opens from a disk: everything is inside, and no text can get out of its place."""

import json
import re
from dataclasses import replace

from small_explored import STORY, stories
from universal_transformer.explore.input_trace import trace_input
from universal_transformer.explore.saved_page import ASSETS, saved_page

HOSTILE = "</script><script>alert('1')</script> \" & <!-- \\ TRACES_OF_THIS_PAGE"


def trace():
    pipeline = stories()
    return trace_input(pipeline.model, pipeline.codec, pipeline.example(STORY, 0), name="tiny")


def inside(page):
    (text,) = re.findall(r'<script type="application/json" id="traces">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(text)


def test_the_traces_are_inside():
    traces = [trace(), trace()]
    page = saved_page(traces)
    assert inside(page) == json.loads(json.dumps([each.to_dict() for each in traces]))
    for name in ("d3.min.js", "plot.umd.min.js", "draw.js"):
        assert (ASSETS / name).read_text(encoding="utf-8") in page


def test_no_text_ends_the_script_that_it_is_in():
    hostile = replace(trace(), model=HOSTILE, answer=HOSTILE, unknown=(HOSTILE,))
    page = saved_page([hostile])
    assert inside(page)[0]["answer"] == HOSTILE
    assert page.count("<script") == page.count("</script>") == saved_page([trace()]).count("<script")


def test_the_page_reads_nothing_from_elsewhere():
    page = saved_page([])
    assert "default-src 'none'" in page
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=\"(?!data:)", page)
    names = {path.name for path in ASSETS.iterdir()}
    assert {"d3.LICENSE", "plot.LICENSE"} <= names
