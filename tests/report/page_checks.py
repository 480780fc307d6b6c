"""What a page must be: well-formed, readable by everybody, and asking nobody for anything."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link", "input"}
HEADINGS = {f"h{level}": level for level in range(1, 7)}
LOADING = {"src", "srcset", "data", "action", "poster", "background", "ping", "formaction"}


class Page(HTMLParser):
    """Reads a page and notes what is wrong with it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.faults: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.headings: list[int] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._named: list[str | None] = []
        self.feed(text)
        self.close()
        if self.open:
            self.faults.append(f"never closed: {self.open}")
        self._check_names()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if len(values) != len(attrs):
            self.faults.append(f"an attribute twice in <{tag}>")
        self.tags.append((tag, values))
        if "id" in values:
            self.ids.append(values["id"])
        if tag in HEADINGS:
            self.headings.append(HEADINGS[tag])
        self._check_links(tag, values)
        if tag not in VOID:
            self.open.append(tag)
            self._named.append(values.get("id"))

    def handle_startendtag(self, tag, attrs):
        if not {"svg"} & set(self.open):
            self.faults.append(f"<{tag}/> outside of a picture")
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"</{tag}> where {self.open[-1:]} is open")
            return
        self.open.pop()
        self._named.pop()

    def handle_data(self, data):
        for name in self._named:
            if name is not None:
                self.texts[name] = self.texts.get(name, "") + data

    def _check_links(self, tag, values):
        for name in LOADING & set(values):
            self.faults.append(f"<{tag} {name}> loads something")
        if tag in {"script", "link", "iframe", "object", "embed", "base"}:
            self.faults.append(f"<{tag}> loads or runs something")
        for name in ("href", "xlink:href"):
            target = values.get(name)
            if target is not None and not target.startswith("#"):
                self.faults.append(f"a link leaves the page: {target}")
            if target is not None:
                self.targets.append(target[1:])
        for name, value in values.items():
            if name.startswith("on"):
                self.faults.append(f"<{tag} {name}> runs something")
            if name == "style" and value and "url(" in value and "url(#" not in value:
                self.faults.append(f"a style loads something: {value}")
            if name in ("clip-path", "style") and value and "url(#" in value:
                self.targets.append(value.split("url(#")[1].split(")")[0])

    def _check_names(self):
        twice = {name for name in self.ids if self.ids.count(name) > 1}
        if twice:
            self.faults.append(f"ids twice: {sorted(twice)}")
        missing = set(self.targets) - set(self.ids)
        if missing:
            self.faults.append(f"links to nowhere: {sorted(missing)}")
        last = 0
        for level in self.headings:
            if level > last + 1:
                self.faults.append(f"heading {level} below heading {last}")
            last = level


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours, as WCAG 2.2 defines it."""
    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
