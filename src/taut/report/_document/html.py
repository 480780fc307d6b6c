"""A document as one HTML page that asks nobody for anything."""

from __future__ import annotations

import html
from collections.abc import Sequence

from taut.report._document.blocks import (
    Block,
    Cards,
    Code,
    Items,
    Notice,
    Paragraph,
    Plot,
    Section,
    Table,
    inline_html,
)

__all__ = ["DARK", "LIGHT", "html_page"]

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f3f4f6",
    "ink": "#16181d",
    "quiet": "#50565f",
    "rule": "#d3d7dd",
    "accent": "#0b4f8a",
    "warning": "#7a2e00",
    "warning-panel": "#fff3e0",
}
DARK = {
    "paper": "#14161a",
    "panel": "#1f2329",
    "ink": "#eceff3",
    "quiet": "#b1b8c2",
    "rule": "#3c434d",
    "accent": "#8ec5ff",
    "warning": "#ffc48a",
    "warning-panel": "#33230f",
}

_STYLE = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
main, header, footer { max-width: 62rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 2.75rem 0 .75rem; padding-top: .9rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .4rem; }
p, ul { margin: .7rem 0; max-width: 46rem; }
li { margin: .35rem 0; }
.subtitle { color: var(--quiet); margin: 0 0 1.25rem; }
nav ul { list-style: none; padding: 0; margin: 0 0 1rem; display: flex; flex-wrap: wrap;
  gap: .2rem 1.1rem; max-width: none; font-size: .92rem; }
nav li { margin: 0; }
a { color: var(--accent); }
#guarantee > p:first-of-type { font-size: 1.15rem; max-width: 52rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem;
  margin: 1.25rem 0; padding: 0; }
.cards > div { background: var(--panel); border-radius: .5rem; padding: .8rem .9rem; }
.cards dt { font-size: .85rem; color: var(--quiet); }
.cards dd { margin: 0; }
.cards .value { font-size: 1.6rem; font-weight: 650; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.cards .note { font-size: .85rem; color: var(--quiet); }
.notice { background: var(--warning-panel); border-left: .3rem solid var(--warning);
  border-radius: .25rem; padding: .6rem .9rem; margin: .8rem 0; max-width: 52rem; }
.notice strong:first-child { color: var(--warning); }
.wide { overflow-x: auto; margin: 1rem 0; max-width: 46rem; }
.wide:has(.stacked) { max-width: none; }
.pair { display: grid; grid-template-columns: 1fr; gap: 0 2.5rem; align-items: center; }
.pair > * { min-width: 0; }
@media (min-width: 52rem) { .pair { grid-template-columns: 1.15fr 1fr; } }
table { border-collapse: collapse; font-size: .93rem; width: 100%; }
caption { text-align: left; font-weight: 600; padding-bottom: .35rem; }
th, td { text-align: left; vertical-align: top; padding: .38rem .9rem .38rem 0;
  border-bottom: 1px solid var(--rule); font-weight: inherit; overflow-wrap: break-word; }
thead th { color: var(--quiet); font-size: .85rem; border-bottom-width: 2px; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
thead th.number { white-space: normal; }
figure { margin: 1rem 0; }
figure svg { display: block; width: 100%; max-width: 31rem; height: auto; color: var(--ink);
  fill: currentColor; }
figure svg text { font-family: inherit !important; }
figcaption { color: var(--quiet); font-size: .9rem; }
code, pre { font: .88em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
code { overflow-wrap: anywhere; }
pre { background: var(--panel); border-radius: .5rem; padding: .8rem .9rem; overflow-x: auto; }
details { margin: .8rem 0; }
summary { cursor: pointer; color: var(--accent); }
footer { color: var(--quiet); font-size: .88rem; margin-top: 3rem; padding-bottom: 2.5rem; }
@media (max-width: 40rem) {
  header { padding-top: 1.5rem; }
  h1 { font-size: 1.6rem; }
  .cards { grid-template-columns: 1fr 1fr; }
  .cards .value { font-size: 1.3rem; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  .stacked thead { position: absolute; width: 1px; height: 1px; overflow: hidden;
    clip-path: inset(50%); }
  .stacked tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--rule); }
  .stacked th, .stacked td { display: block; border: 0; padding: .1rem 0; text-align: left;
    white-space: normal; }
  .stacked th { font-weight: 600; }
  .stacked td:empty { display: none; }
  .stacked td::before { content: attr(data-label) ": "; color: var(--quiet); font-size: .88em; }
}
@media print {
  body { font-size: 10pt; }
  header, main, footer { max-width: none; padding: 0; }
  nav { display: none; }
  h2, h3, caption, summary { break-after: avoid; }
  figure, .cards, .notice, tr, pre { break-inside: avoid; }
  figure svg { max-width: 11cm; }
  .wide, pre { overflow: visible; }
  pre { white-space: pre-wrap; }
}
"""

_WIDE_TABLE = 5  # columns; from here on a phone shows rows one below the other


def html_page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return a whole page: style, pictures and all in one file."""
    links = "\n".join(f'<li><a href="#{s.id}">{html.escape(s.title)}</a></li>' for s in sections)
    body = "\n".join(_section(section, 2) for section in sections)
    name = html.escape(title)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{name}</title>
<style>{_palette()}{_STYLE}</style>
</head>
<body>
<header>
<h1>{name}</h1>
<p class="subtitle">{inline_html(subtitle)}</p>
<nav aria-label="Sections"><ul>
{links}
</ul></nav>
</header>
<main>
{body}
</main>
<footer><p>Upper bounds are rounded up and lower bounds down. Nothing on this page was computed from
the examples themselves.</p></footer>
</body>
</html>
"""


def _palette() -> str:
    """Return the colours as variables; paper is white, whatever the screen was."""
    light, dark = (
        " ".join(f"--{name}: {colour};" for name, colour in palette.items())
        for palette in (LIGHT, DARK)
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    )


def _section(section: Section, level: int) -> str:
    heading = f"<h{level}>{html.escape(section.title)}</h{level}>"
    parts = _paired(section.blocks)
    parts += [_section(part, level + 1) for part in section.parts]
    return f'<section id="{section.id}">\n{heading}\n' + "\n".join(parts) + "\n</section>"


def _paired(blocks: Sequence[Block]) -> list[str]:
    """Return blocks, a picture beside the one that follows it where the screen has room."""
    parts, place = [], 0
    while place < len(blocks):
        if isinstance(blocks[place], Plot) and place + 1 < len(blocks):
            both = "\n".join(map(_block, blocks[place : place + 2]))
            parts.append(f'<div class="pair">\n{both}\n</div>')
            place += 2
        else:
            parts.append(_block(blocks[place]))
            place += 1
    return parts


def _block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return f"<p>{inline_html(text)}</p>"
        case Notice(text):
            return f'<p class="notice"><strong>Take care.</strong> {inline_html(text)}</p>'
        case Items(texts):
            return "<ul>" + "".join(f"<li>{inline_html(t)}</li>" for t in texts) + "</ul>"
        case Cards(cards):
            return '<dl class="cards">' + "".join(map(_card, cards)) + "</dl>"
        case Code(text):
            # A part that scrolls must be reachable by the keyboard.
            return (
                f'<pre tabindex="0" role="region" aria-label="Code"><code>{html.escape(text)}'
                "</code></pre>"
            )
        case Plot():
            return _figure(block)
        case Table():
            return _folded(block) if block.is_folded else _table(block)


def _figure(plot: Plot) -> str:
    """Return a picture, or where nothing can draw it what it would show."""
    caption = inline_html(plot.caption)
    try:
        picture = plot.draw()
    except ImportError:
        return (
            f'<p class="missing">{inline_html(plot.alt)} (The picture is left out: matplotlib was '
            "not installed.)</p>"
        )
    return f"<figure>\n{picture}\n<figcaption>{caption}</figcaption></figure>"


def _card(card: tuple[str, str, str]) -> str:
    label, value, note = map(inline_html, card)
    return (
        f'<div><dt>{label}</dt><dd><div class="value">{value}</div>'
        f'<div class="note">{note}</div></dd></div>'
    )


def _folded(table: Table) -> str:
    caption = inline_html(table.caption)
    return f"<details><summary>{caption}</summary>\n{_table(table)}\n</details>"


def _table(table: Table) -> str:
    is_wide = len(table.header) >= _WIDE_TABLE or any(
        len(cell) > 60 for row in table.rows for cell in row
    )
    kinds = [' class="number"' if i in table.numeric else "" for i in range(len(table.header))]
    head = "".join(
        f'<th scope="col"{kind}>{inline_html(name)}</th>'
        for name, kind in zip(table.header, kinds, strict=True)
    )
    body = "\n".join(_row(row, table.header, kinds) for row in table.rows)
    stacked = ' class="stacked"' if is_wide else ""
    caption = inline_html(table.caption)
    return (
        f'<div class="wide"><table{stacked}><caption>{caption}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _row(row: Sequence[str], header: Sequence[str], kinds: Sequence[str]) -> str:
    first = f'<th scope="row"{kinds[0]}>{inline_html(row[0])}</th>'
    rest = "".join(
        f'<td{kind} data-label="{html.escape(name)}">{inline_html(cell)}</td>'
        for cell, name, kind in zip(row[1:], header[1:], kinds[1:], strict=True)
    )
    return f"<tr>{first}{rest}</tr>"
