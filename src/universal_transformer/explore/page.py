"""Parts of a self-contained HTML page: no other files, all text escaped."""

import base64
from collections.abc import Iterable, Sequence
from html import escape

POLICY = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline';
 style-src 'unsafe-inline'; img-src data: blob:">"""
"""Nothing is read from elsewhere."""
STYLE = """
:root { --ink: #1f2933; --muted: #66727f; --line: #e4e7eb; --blue: #0072b2; --orange: #d55e00; }
* { box-sizing: border-box; }
body { margin: 0; background: #f4f6f8; color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 40px 20px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 20px; margin: 0 0 4px; }
p { margin: 4px 0 12px; }
.lead, .hint, figcaption, footer { color: var(--muted); }
.hint, figcaption, footer { font-size: 14px; }
section { background: white; border: 1px solid var(--line); border-radius: 12px; padding: 24px 26px;
  margin-top: 20px; overflow-x: auto; }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 22px 0 0; padding: 0; }
.card { flex: 1 1 150px; background: white; border: 1px solid var(--line); border-radius: 12px; padding: 14px 18px; }
.card b { display: block; font-size: 25px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.card span { color: var(--muted); font-size: 14px; }
.warning { border-color: var(--orange); border-left-width: 6px; }
table { border-collapse: collapse; margin: 8px 0; font-variant-numeric: tabular-nums; font-size: 15px; }
th, td { text-align: right; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--muted); font-weight: 600; }
th.name, td.name { text-align: left; white-space: normal; }
tr.total td { font-weight: 600; }
figure { margin: 14px 0 6px; }
img { max-width: 100%; height: auto; display: block; }
details { margin: 8px 0; }
summary { cursor: pointer; color: var(--blue); }
"""


def page(title: str, parts: Iterable[str], *, scripts: str = "") -> str:
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'{POLICY}\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + f"\n</main>\n{scripts}\n</body>\n</html>\n"
    )


def section(title: str, *parts: str, hint: str = "", kind: str = "") -> str:
    body = [part for part in parts if part]
    if not body and not hint:
        return ""
    head = f"<h2>{escape(title)}</h2>" + (f'<p class="hint">{escape(hint)}</p>' if hint else "")
    return f'<section class="{escape(kind)}">\n' + "\n".join([head, *body]) + "\n</section>"


def cards(values: Sequence[tuple[str, str]]) -> str:
    inside = "".join(
        f"<div class=card><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in values
    )
    return f'<div class="cards">{inside}</div>'


def table(rows: Sequence[Sequence[str]], *, names: int = 1, totals: Sequence[int] = ()) -> str:
    """Return a table: the first row is the head, the first `names` columns are names, rows `totals` are bold."""
    lines = []
    for number, row in enumerate(rows):
        tag = "td" if number else "th"
        cells = [f"{' class=name' if column < names else ''}>{escape(cell)}" for column, cell in enumerate(row)]
        inside = "".join(f"<{tag}{cell}</{tag}>" for cell in cells)
        lines.append(f"<tr{' class=total' if number in totals else ''}>{inside}</tr>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def image(svg: bytes, *, alt: str) -> str:
    """Return a figure inside the page; no script in it could run there."""
    data = base64.b64encode(svg).decode("ascii")
    return f'<figure><img alt="{escape(alt)}" src="data:image/svg+xml;base64,{data}"></figure>'


def folded(title: str, *parts: str) -> str:
    """Return parts that open with a click on `title`; empty without parts."""
    body = "".join(parts)
    return f"<details><summary>{escape(title)}</summary>{body}</details>" if body else ""


def items(texts: Iterable[str]) -> str:
    """Return a list; empty without texts."""
    inside = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{inside}</ul>" if inside else ""
