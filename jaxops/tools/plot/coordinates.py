"""Coordinates of boxes and arrows: Sugiyama's layered layout by `igraph`, then positions that respect their sizes."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxops.errors import install

Point = tuple[float, float]
# Pixels between adjacent boxes, beside an arrow, and between layers.
_BESIDE, _PAST, _BELOW = 22.0, 12.0, 40.0
_SWEEPS = 40


@dataclass
class Placed:
    """A layout. centers: of the boxes. routes: for each edge, its points. size: of the picture."""

    centers: list[Point]
    routes: list[list[Point]]
    size: Point


@dataclass
class _Item:
    """A box, or the point at which an edge crosses a layer."""

    layer: int
    order: float
    width: float
    x: float = 0.0
    box: bool = True
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)


def place(sizes: Sequence[Point], edges: Sequence[tuple[int, int]], *, bordered: bool = False) -> Placed:
    """Places boxes of these sizes so that edges point down.

    bordered: whether the last two boxes are the upper and the lower border, above and below all others.
    Raises ModuleNotFoundError without `igraph`.
    """
    try:
        import igraph
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"plot needs the igraph package; {install('plot')}") from error
    if not sizes:
        return Placed([], [], (0.0, 0.0))
    graph: Any = igraph.Graph(n=len(sizes), edges=list(edges), directed=True)
    against = set(graph.feedback_arc_set(method="eades"))
    down = [(b, a) if k in against else (a, b) for k, (a, b) in enumerate(edges)]
    level = _layers(len(sizes), down, bordered)
    layered: Any = igraph.Graph(n=len(sizes), edges=down, directed=True)
    layout = layered.layout_sugiyama(layers=level, maxiter=200)
    items = [_Item(level[k], layout.coords[k][0], sizes[k][0]) for k in range(len(sizes))]
    chains = []
    for (a, b), points in zip(down, layout.edge_routing, strict=True):
        chain = [a]
        # The points of the edge on the layers between the two boxes, from top to bottom.
        for x, y in sorted(points, key=lambda point: point[1])[: max(level[b] - level[a] - 1, 0)]:
            items.append(_Item(round(y), x, 0.0, box=False))
            chain.append(len(items) - 1)
        chain.append(b)
        for one, other in itertools.pairwise(chain):
            items[one].below.append(other)
            items[other].above.append(one)
        chains.append(chain)
    rows = _rows(items)
    _settle(items, rows)
    return _points(items, rows, sizes, chains, against)


def _layers(count: int, edges: Sequence[tuple[int, int]], bordered: bool) -> list[int]:
    """The layer of each box: the longest path from above; boxes without a predecessor move down to their readers."""
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        above[b].append(a)
        below[a].append(b)
    waiting = [len(sources) for sources in above]
    order = [k for k in range(count) if not waiting[k]]
    for k in order:
        for b in below[k]:
            waiting[b] -= 1
            if not waiting[b]:
                order.append(b)
    top = count - 2 if bordered else -1
    level = [0] * count
    for k in order:
        level[k] = max((level[a] + 1 for a in above[k]), default=int(bordered and k != top))
    for k in reversed(order):
        if below[k] and not above[k] and k != top:
            level[k] = min(level[b] for b in below[k]) - 1
    if bordered:
        level[-1] = max(level[:-1]) + 1
    return level


def _rows(items: list[_Item]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(max(item.layer for item in items) + 1)]
    for index, item in enumerate(items):
        rows[item.layer].append(index)
    for row in rows:
        row.sort(key=lambda k: items[k].order)
    return rows


def _gap(items: list[_Item], left: int, right: int) -> float:
    """The distance between the centers of two adjacent items."""
    a, b = items[left], items[right]
    return (a.width + b.width) / 2 + (_BESIDE if a.box and b.box else _PAST)


def _settle(items: list[_Item], rows: list[list[int]]) -> None:
    """Moves each item towards its connected items, alternately from above and from below, keeping order and gaps."""
    for row in rows:
        x = 0.0
        for left, right in zip([None, *row], row, strict=False):
            x = x + _gap(items, left, right) if left is not None else x
            items[right].x = x
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            targets, weights = [], []
            for k in row:
                near = items[k].above if sweep % 2 == 0 else items[k].below
                near = (items[k].above + items[k].below) if sweep >= _SWEEPS - 8 else near
                # Straight arrows matter more than centered boxes.
                pulls = [8.0 if not (items[k].box or items[n].box) else 1.0 for n in near]
                pulled = sum(pull * items[n].x for pull, n in zip(pulls, near, strict=True))
                targets.append(pulled / sum(pulls) if near else items[k].x)
                weights.append(8.0 if not items[k].box else 1.0 + len(near))
            gaps = [_gap(items, a, b) for a, b in itertools.pairwise(row)]
            for k, x in zip(row, _apart(targets, weights, gaps), strict=True):
                items[k].x = x


def _apart(targets: Sequence[float], weights: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """The positions closest to the targets that keep the gaps; items that collide move together."""
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    pools: list[list[float]] = []  # sum of weighted positions, weight, count
    for x, weight, offset in zip(targets, weights, offsets, strict=True):
        pools.append([(x - offset) * weight, weight, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            last = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
    shifts = [pool[0] / pool[1] for pool in pools for _ in range(int(pool[2]))]
    return [x + offset for x, offset in zip(shifts, offsets, strict=True)]


def _points(
    items: list[_Item], rows: list[list[int]], sizes: Sequence[Point], chains: list[list[int]], against: set[int]
) -> Placed:
    left = min(item.x - item.width / 2 for item in items)
    right = max(item.x + item.width / 2 for item in items)
    tops, heights, y = [], [], 0.0
    for row in rows:
        height = max((sizes[k][1] for k in row if items[k].box), default=0.0)
        tops.append(y)
        heights.append(height)
        y += height + _BELOW
    centers = [(items[k].x - left, tops[items[k].layer] + heights[items[k].layer] / 2) for k in range(len(sizes))]
    routes = []
    for index, chain in enumerate(chains):
        points: list[Point] = []
        for position, k in enumerate(chain):
            item = items[k]
            x, middle = item.x - left, tops[item.layer] + heights[item.layer] / 2
            if item.box:
                half = sizes[k][1] / 2
                points.append((x, middle + half if position == 0 else middle - half))
            else:  # straight, between the adjacent boxes
                points += [(x, tops[item.layer]), (x, tops[item.layer] + heights[item.layer])]
        routes.append(points[::-1] if index in against else points)
    return Placed(centers, routes, (right - left, y - _BELOW))
