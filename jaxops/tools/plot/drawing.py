"""A model as a picture: boxes for modules and operators, arrows with the shapes of the tensors."""

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from jaxops.errors import ArgumentError
from jaxops.graph.nodes import Graph
from jaxops.shown_text import clean
from jaxops.tools.plot.blocks import BOTTOM, KINDS, TOP, Block, blocks
from jaxops.tools.plot.coordinates import Placed, Point, place

# Fill and border of each kind.
_COLORS = {
    "input": ("#ffffff", "#8a94a3"),
    "output": ("#ffffff", "#8a94a3"),
    "attention": ("#fde8cd", "#e0a458"),
    "linear": ("#d8e8fb", "#7fa9d8"),
    "convolution": ("#d5efe3", "#6fb894"),
    "recurrent": ("#d3eef2", "#64b0bd"),
    "embedding": ("#fbdfe6", "#d98aa0"),
    "normalization": ("#e8e1f7", "#a893d6"),
    "pooling": ("#e3efcd", "#9dbb67"),
    "activation": ("#fdf3c4", "#d3bd56"),
    "operators": ("#eef1f4", "#aab3bf"),
}
_FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"
_NAME, _SMALL = 13.0, 10.5  # sizes of letters
_LINE, _INNER, _TITLE = 16.0, 16.0, 30.0  # height of a line; margin around the contents of a module; space above them
_MARGIN = 24.0
_ALONG = (0.5, 0.3, 0.7)  # positions of a shape along an arrow


@dataclass(frozen=True)
class Plot:
    """A picture of a model as SVG; a notebook shows it.

    >>> import jaxops.onnx
    >>> picture = jaxops.onnx.load("notebooks/digits.onnx").plot()
    >>> picture.svg[:4]
    '<svg'
    """

    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture to an .svg file. Raises ArgumentError for a path with another ending.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Plot("<svg></svg>").save(f"{folder}/model.svg")
        ...     Path(folder, "model.svg").read_text()
        '<svg></svg>'
        """
        if Path(path).suffix != ".svg":
            raise ArgumentError(
                f"plot: a picture is saved as .svg, not {Path(path).suffix or 'without an ending'}: {path}"
            )
        Path(path).write_text(self.svg, encoding="utf-8")


def plot(graph: Graph, weights: Mapping[str, Any], shapes: Mapping[str, str], *, depth: int = 2) -> Plot:
    """Draws a prepared graph. shapes: of tensors, as `float32[2, 3]`. depth: how many levels of modules
    show their contents.

    Raises ArgumentError for a negative depth, ModuleNotFoundError without `igraph`.
    """
    if depth < 0:
        raise ArgumentError(f"plot: depth is {depth}; it must be at least 0")
    root = blocks(graph, weights, depth)
    picture = _Picture(shapes)
    size = picture.measure(root)
    legend = [kind for kind in (*KINDS, "operators") if kind in picture.kinds]
    width = max(size[0], _legend_width(legend)) + 2 * _MARGIN
    height = size[1] + 2 * _MARGIN + 34
    picture.draw(root, ((width - size[0]) / 2, _MARGIN))
    parts = [*picture.boxes, *picture.arrows, *picture.labels, *_legend(legend, width, height - 22)]
    return Plot(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="{escape(_FONT)}">\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0.8 L7.5,4 L0,7.2 L2,4 z" fill="#6b7684"/></marker></defs>\n'
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def text_width(text: str, size: float) -> float:
    """The largest width of a text in common fonts; letters are grouped into four widths."""
    units = sum(
        0.36 if c in "iljtf.,:·[]() |!'" else 0.95 if c in "mwMW—…" else 0.72 if c.isupper() else 0.62
        for c in clean(text)
    )
    return units * size


def _bold_width(text: str) -> float:
    return 1.1 * text_width(text, _NAME)


class _Picture:
    def __init__(self, shapes: Mapping[str, str]) -> None:
        self.shapes = shapes
        self.boxes: list[str] = []
        self.arrows: list[str] = []
        self.labels: list[str] = []
        self.kinds: set[str] = set()
        self.taken: list[tuple[float, float, float]] = []  # centers and widths of labels
        self.sizes: dict[int, Point] = {}
        self.placed: dict[int, Placed] = {}

    def measure(self, block: Block) -> Point:
        """The size of a block, once all that it holds is placed."""
        if not block.inside:
            self.kinds.add(block.kind)
            width = max(_bold_width(block.name), text_width(block.detail, _SMALL)) + 24
            self.sizes[id(block)] = max(width, 64.0), 34.0 if not block.detail else 42.0
            return self.sizes[id(block)]
        sizes = [self.measure(inner) for inner in block.inside]
        # The upper and the lower border are boxes of no size, from which and to which arrows go.
        borders = {TOP: len(sizes), BOTTOM: len(sizes) + 1}
        edges = [(borders.get(a, a), borders.get(b, b)) for a, b in block.edges]
        used = {end for edge in edges for end in edge}
        bordered = bool(used & set(borders.values()))
        placed = place([*sizes, *([(2.0, 1.0)] * 2 if bordered else [])], edges, bordered=bordered)
        # An arrow enters in the middle, next to the name.
        title = 2 * _bold_width(block.name) + 48 if bordered else 0.0
        self.placed[id(block)] = placed
        width, height = max(placed.size[0] + 2 * _INNER, title), placed.size[1] + (0 if bordered else _TITLE)
        self.sizes[id(block)] = width, height
        return self.sizes[id(block)]

    def draw(self, block: Block, corner: Point) -> None:
        """Draws a block. corner: its upper left corner."""
        (x, y), (width, height) = corner, self.sizes[id(block)]
        if not block.inside:
            self._leaf(block, x, y, width, height)
            return
        placed = self.placed[id(block)]
        bordered = len(placed.centers) > len(block.inside)
        if bordered:
            self.boxes.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="10" fill="#5b6b80" '
                'fill-opacity="0.045" stroke="#c3cbd5"/>'
            )
        name = _bold_width(block.name)
        self.labels.append(_text(x + 12, y + 19, block.name, _NAME, "#3d4855", "start", bold=True))
        if not bordered or name + text_width(block.detail, _SMALL) + 28 < width / 2:
            self.labels.append(_text(x + 20 + name, y + 19, block.detail, _SMALL, "#7b8694", "start"))
        left, top = x + (width - placed.size[0]) / 2, y + (0 if bordered else _TITLE)
        for inner, (cx, cy) in zip(block.inside, placed.centers, strict=False):
            w, h = self.sizes[id(inner)]
            self.draw(inner, (left + cx - w / 2, top + cy - h / 2))
        seen: set[tuple[int, str]] = set()
        for (ends, names), route in zip(block.edges.items(), placed.routes, strict=True):
            points = [(left + px, top + py) for px, py in route]
            if ends[0] == TOP:
                points[0] = x + width / 2, y
            if ends[1] == BOTTOM:
                points[-1] = x + width / 2, y + height
            self._arrow(points, tip=ends[1] != BOTTOM)
            shape = _sizes(self.shapes.get(names[0], "")) if len(names) == 1 else f"{len(names)} tensors"
            if shape and ends[0] != TOP and ends[1] != BOTTOM and (ends[0], shape) not in seen:
                seen.add((ends[0], shape))
                self._label(points, shape)

    def _leaf(self, block: Block, x: float, y: float, width: float, height: float) -> None:
        fill, border = _COLORS[block.kind]
        round_ = height / 2 if block.kind in ("input", "output") else 7
        self.boxes.append(
            f'<g><title>{escape(clean(_hint(block)))}</title><rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" rx="{round_:.1f}" fill="{fill}" stroke="{border}" stroke-width="1.2"/></g>'
        )
        middle = x + width / 2
        first = y + height / 2 + (4.5 if not block.detail else -3.0)
        self.labels.append(_text(middle, first, block.name, _NAME, "#222b36", "middle", bold=True))
        if block.detail:
            self.labels.append(_text(middle, first + _LINE - 1, block.detail, _SMALL, "#5f6a78", "middle"))

    def _arrow(self, points: list[Point], *, tip: bool) -> None:
        path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
        for (x1, y1), (x2, y2) in itertools.pairwise(points):
            half = (y1 + y2) / 2
            straight = abs(x1 - x2) < 0.5
            path += (
                f" L{x2:.1f},{y2:.1f}" if straight else f" C{x1:.1f},{half:.1f} {x2:.1f},{half:.1f} {x2:.1f},{y2:.1f}"
            )
        marker = ' marker-end="url(#tip)"' if tip else ""
        self.arrows.append(f'<path d="{path}" fill="none" stroke="#6b7684" stroke-width="1.2"{marker}/>')

    def _label(self, points: list[Point], shape: str) -> None:
        """Writes a shape on an arrow, at the first position where it overlaps no other shape."""
        (x1, y1), (x2, y2) = points[0], points[1]
        width = text_width(shape, 10) + 8
        for along in _ALONG:
            eased = along * along * (3 - 2 * along)  # the horizontal fraction of a curve at this vertical fraction
            x, y = x1 + (x2 - x1) * eased, y1 + (y2 - y1) * eased
            if not any(abs(x - a) < (width + w) / 2 and abs(y - b) < 14 for a, b, w in self.taken):
                break
        else:
            return
        self.taken.append((x, y, width))
        self.labels.append(
            f'<rect x="{x - width / 2:.1f}" y="{y - 8:.1f}" width="{width:.1f}" height="14" rx="4" fill="#ffffff" '
            'fill-opacity="0.92"/>' + _text(x, y + 2.5, shape, 10, "#3c6e9f", "middle")
        )


def _sizes(text: str) -> str:
    """The sizes in `float32[2, s + 1]`, as 2×(s + 1)."""
    sizes = re.split(r", (?![^()]*\))", text.partition("[")[2].removesuffix("]"))
    return "×".join(f"({size})" if re.search(" [+-]", size) and len(sizes) > 1 else size for size in sizes)


def _hint(block: Block) -> str:
    """The text that a browser shows over a box."""
    names = [node.operator.name for node in block.nodes]
    counts = ", ".join(f"{name} ×{names.count(name)}" for name in dict.fromkeys(names))
    return f"{block.name}: {counts}" if counts else f"{block.name}: {block.detail}"


def _text(x: float, y: float, text: str, size: float, color: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{color}" text-anchor="{anchor}"{weight}>'
        f"{escape(clean(text))}</text>"
    )


def _legend_width(kinds: list[str]) -> float:
    return sum(text_width(kind, 11) + 34 for kind in kinds)


def _legend(kinds: list[str], width: float, y: float) -> list[str]:
    elements, x = [], (width - _legend_width(kinds)) / 2
    for kind in kinds:
        fill, border = _COLORS[kind]
        elements.append(
            f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="12" height="12" rx="3" fill="{fill}" stroke="{border}"/>'
        )
        elements.append(_text(x + 18, y + 1, kind, 11, "#5f6a78", "start"))
        x += text_width(kind, 11) + 34
    return elements
