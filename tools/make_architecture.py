"""Write the packages and their imports into docs/architecture.md, from the source.

Run ``python tools/make_architecture.py`` after a change of imports; a test checks that the page is up to date.

An arrow means "imports". Arrows that follow from others are left out (the transitive reduction). The summary of a
package is the first paragraph of its docstring.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = "universal_transformer"
BEGIN, END = (
    "<!-- made by tools/make_architecture.py: begin -->",
    "<!-- made by tools/make_architecture.py: end -->",
)


def imports():
    """Package -> the packages that it imports, types included."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    children = sorted(graph.find_children(PACKAGE))
    for child in children:
        graph.squash_module(child)
    return {
        child.removeprefix(f"{PACKAGE}."): {
            name.removeprefix(f"{PACKAGE}.")
            for name in graph.find_modules_directly_imported_by(child)
            if name in children and name != child
        }
        for child in children
    }


def reduced(graph):
    """The levels of the packages, and the arrows without those that a path of other arrows implies."""
    level, below = {}, {}
    for name in TopologicalSorter(graph).static_order():  # a cycle is an error that names it
        level[name] = 1 + max((level[one] for one in graph[name]), default=-1)
        below[name] = graph[name].union(*(below[one] for one in graph[name]))
    arrows = {name: {one for one in found if not any(one in below[o] for o in found)} for name, found in graph.items()}
    return level, arrows


def summary(name):
    """The first paragraph of a package's docstring, as Markdown."""
    folder = ROOT / "src" / PACKAGE / name
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")


def render():
    """The part of the page between the markers."""
    level, arrows = reduced(imports())
    names = sorted(level, key=lambda name: (-level[name], name))
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"    {name} --> {one}" for name in names for one in sorted(arrows[name], key=names.index)]
    lines += ["```", "", "| level | package | what it is |", "|---|---|---|"]
    lines += [f"| {level[name]} | `{name}` | {summary(name)} |" for name in reversed(names)]
    return "\n".join(lines)


def page():
    """The whole page with a fresh part."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{render()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
