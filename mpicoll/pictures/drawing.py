"""A writer of SVG: shapes and text on white, in the fonts that the reader has.

    drawing = Drawing()
    drawing.rect(0, 0, 20, 10, fill="#4e79a7")
    drawing.text(10, 8, "b0", anchor="middle")
    svg = drawing.svg(40, 20, "a block")

Coordinates are pixels, from the left and from above.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import hypot
from xml.sax.saxutils import escape, quoteattr

from mpicoll.pictures.colours import DARK

STYLE = (
    "text{font-family:sans-serif;font-size:11px}.digit{font-size:10px}"
    ".head{font-size:16px;font-weight:bold}.strong{font-weight:bold}.soft{fill:#666}"
    ".mono{font-family:monospace;font-size:10px}"
    ".halo{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}"
)
#: length of an arrow's head
HEAD = 7.0
Point = tuple[float, float]
Attribute = str | float


class Drawing:
    """Elements of a picture, in the order in which they cover each other."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def add(self, tag: str, content: str, attributes: Mapping[str, Attribute]) -> None:
        """Add an element; an attribute's `_` stands for `-`, and a last one for nothing (class_)."""
        start = f"<{tag}{_written(attributes)}"
        self.parts.append(f"{start}>{escape(content)}</{tag}>" if content else f"{start}/>")

    @contextmanager
    def group(self, title: str = "", **attributes: Attribute) -> Iterator[None]:
        """Put what is added meanwhile into a group; its title is shown where the mouse rests on it."""
        self.parts.append(f"<g{_written(attributes)}>")
        if title:
            self.add("title", title, {})
        yield
        self.parts.append("</g>")

    def rect(self, x: float, y: float, width: float, height: float, **attributes: Attribute) -> None:
        """Add a rectangle.

        Args:
            x: its left side.
            y: its upper side.
            width: to the right.
            height: downwards.
            attributes: SVG's own.
        """
        self.add("rect", "", {"x": x, "y": y, "width": width, "height": height, **attributes})

    def path(self, d: str, **attributes: Attribute) -> None:
        """Add a path."""
        self.add("path", "", {"d": d, **attributes})

    def text(self, x: float, y: float, content: str, anchor: str = "start", **attributes: Attribute) -> None:
        """Add a line of text.

        Args:
            x: of the anchor.
            y: of the line on which it stands.
            content: the text.
            anchor: "start", "middle" or "end".
            attributes: SVG's own.
        """
        if anchor != "start":
            attributes["text_anchor"] = anchor
        self.add("text", content, {"x": x, "y": y, **attributes})

    def check(self, x: float, y: float, size: float = 8.0) -> None:
        """Add the mark of what is complete, in a square whose left upper corner is given."""
        parts = [(x, y + size * 0.55), (x + size * 0.38, y + size * 0.95), (x + size, y + size * 0.05)]
        d = polyline(parts)
        self.path(d, class_="halo", fill="none", stroke="#fff", stroke_width=4.5)
        self.path(d, class_="done", fill="none", stroke=DARK, stroke_width=2)

    def arrow(self, start: Point, end: Point, colours: Sequence[str], **attributes: Attribute) -> None:
        """Add an arrow with one stripe for each colour.

        Args:
            start: where it begins.
            end: of its head.
            colours: of the stripes; the head has the first one's.
            attributes: of the stripes.
        """
        along = hypot(end[0] - start[0], end[1] - start[1]) or 1.0
        ux, uy = (end[0] - start[0]) / along, (end[1] - start[1]) / along
        neck = end[0] - ux * HEAD, end[1] - uy * HEAD
        width = 2.2 if len(colours) == 1 else 1.8
        self.path(polyline([start, neck]), stroke="#fff", stroke_width=width * len(colours) + 2, opacity=0.85)
        for k, colour in enumerate(colours):
            off = (k - (len(colours) - 1) / 2) * width
            ends = [(px - uy * off, py + ux * off) for px, py in (start, neck)]
            self.path(polyline(ends), stroke=colour, stroke_width=width, **attributes)
        half = HEAD * 0.5 + width * (len(colours) - 1) / 2
        corners = [(neck[0] - uy * half, neck[1] + ux * half), end, (neck[0] + uy * half, neck[1] - ux * half)]
        self.path(polyline(corners) + "z", fill=colours[0])

    def svg(self, width: float, height: float, title: str, style: bool = True) -> str:
        """Return the picture on white.

        Args:
            width: of the picture.
            height: of the picture.
            title: for readers that do not see it.
            style: with the style sheet, which several pictures on one page share.
        """
        sheet = f"<style>{STYLE}</style>" if style else ""
        start = _written({"width": width, "height": height, "viewBox": f"0 0 {number(width)} {number(height)}"})
        head = f'<svg xmlns="http://www.w3.org/2000/svg"{start} role="img"><title>{escape(title)}</title>{sheet}'
        return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *self.parts, "</svg>"]) + "\n"


def polyline(points: Sequence[Point]) -> str:
    """Return a path along points."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def number(value: float) -> str:
    """Return a coordinate, to a tenth."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _written(attributes: Mapping[str, Attribute]) -> str:
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    values = {name: value if isinstance(value, str) else number(value) for name, value in attributes.items()}
    return "".join(f" {names[name]}={quoteattr(value)}" for name, value in values.items())
