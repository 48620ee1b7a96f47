"""A trace in a notebook, drawn by the module of the page. Needs anywidget (extra ``notebook``)."""

from functools import cache
from typing import Any

from universal_transformer.errors import optional
from universal_transformer.explore.input_trace import InputTrace
from universal_transformer.explore.saved_page import SCRIPTS, asset

MODULE = """const define = undefined, module = undefined, exports = undefined;  // of loaders that a notebook may have
{d3}
{plot}
{draw}
export default {{
  render({{ model, el }}) {{
    const show = () => draw(el, model.get("trace"));
    model.on("change:trace", show);
    show();
  }},
}};
"""


@cache
def _widget() -> Any:
    anywidget: Any = optional("anywidget", needed="a trace in a notebook needs anywidget", extra="notebook")
    traitlets: Any = optional("traitlets", needed="a trace in a notebook needs anywidget", extra="notebook")

    class TraceWidget(anywidget.AnyWidget):
        _esm = MODULE.format(**{name: asset(file) for name, file in SCRIPTS.items()})
        trace = traitlets.Dict().tag(sync=True)

    return TraceWidget


def trace_widget(trace: InputTrace) -> Any:
    """The widget of a trace: the last line of a cell shows it, and a new value of its ``trace`` replaces it."""
    return _widget()(trace=trace.to_dict())
