"""Pictures as SVG inside of a page: in the ink of the page, with names for those who cannot see."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

import html
import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["inline_svg", "new_figure"]

_SIZE = (4.4, 3.1)  # inches: on a phone, letters keep about the size they have here
_SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 10.5, "font.family": "sans-serif"}


def inline_svg(name: str, title: str, alt: str, draw: Callable[[Axes], None]) -> str:
    """Return a picture to be put into HTML.

    Args:
        name: unique in the page; all ids in the picture begin with it.
        title: a few words.
        alt: what the picture shows, in sentences.
        draw: fills the axes, in black.
    """
    figure = new_figure(*_SIZE)
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({**_SETTINGS, "svg.hashsalt": name}):
        draw(figure.subplots())
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return _embedded(text.getvalue(), name, title, alt)


def _embedded(svg: str, name: str, title: str, alt: str) -> str:
    """Return an SVG file as an element of a page whose ids, size and ink are the page's."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("xlink:href", "href").replace("url(#", f"url(#{name}-")
    svg = svg.replace("#000000", "currentColor")
    svg = re.sub(r"\n\s*", "\n", svg)
    box = re.search(r'viewBox="([^"]*)"', svg)
    assert box is not None
    label = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box[1]}" role="img" '
        f'aria-labelledby="{name}-title {name}-alt">'
        f'<title id="{name}-title">{html.escape(title)}</title>'
        f'<desc id="{name}-alt">{html.escape(alt)}</desc>'
    )
    return re.sub(r"<svg[^>]*>", lambda _: label, svg, count=1)


def new_figure(width: float = 7.5, height: float = 5.0) -> Figure:
    """Return an empty figure, of a size in inches.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "plots need matplotlib; install it with: pip install 'taut[report]'"
        ) from None
    return Figure(figsize=(width, height), layout="constrained")
