"""Layout of graphs: nodes in layers from top to bottom, each node near the nodes it depends on.

A line that spans several layers passes between the boxes of the layers in between, never behind a box.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

WIDTH, HEIGHT = 176.0, 52.0
GAP_X, GAP_Y, MARGIN = 24.0, 44.0, 12.0
PASSING = 12.0
"""The width that a line takes when it passes through a layer."""
SWEEPS = 6

Ends = tuple[str, str]
Place = tuple[int, str]
"""A node, or a line that passes through a layer: the layer, and a name that is unique in it."""


Beside = defaultdict[Place, list[Place]]


class GraphBox(Struct, frozen=True):
    x: float
    y: float
    width: float = WIDTH
    height: float = HEIGHT

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


class GraphLine(Struct, frozen=True):
    start: str
    to: str
    path: str
    """Value of the attribute `d` of an SVG path."""


class GraphLayout(Struct, frozen=True):
    width: float
    height: float
    boxes: Mapping[str, GraphBox]
    lines: Sequence[GraphLine]


def layered(names: Sequence[str], edges: Sequence[Ends], widest: int | None = None) -> GraphLayout:
    """Lay out a graph. Edges to unknown nodes are left out, and so are edges that would close a cycle.

    With `widest`, a layer has at most that many nodes, the others come below them, and lines that pass a layer on the
    way from or to the same node share one place: a plan in which hundreds of steps are parallel stays narrow.
    """
    known, kept = dict.fromkeys(names), list[Ends]()
    given = [ends for ends in edges if known.keys() >= set(ends)]
    layers = _layers(list(known), given, kept, widest or len(known))
    ways = _bundled(kept, layers) if widest else {ends: _way(ends, layers) for ends in kept}
    rows = _ordered(list(known), layers, ways)
    spots, width = _spots(rows, layers, ways)
    boxes = {
        name: GraphBox(spots[layers[name], name] - WIDTH / 2, MARGIN + layers[name] * (HEIGHT + GAP_Y))
        for name in known
    }
    lines = [GraphLine(*ends, _path([(spots[place], place[0]) for place in way])) for ends, way in ways.items()]
    depth = max(layers.values(), default=-1) + 1
    return GraphLayout(width, 2 * MARGIN + max(depth * (HEIGHT + GAP_Y) - GAP_Y, 0), boxes, lines)


def _layers(names: list[str], edges: list[Ends], kept: list[Ends], widest: int) -> dict[str, int]:
    """The layer of each node: below all nodes it depends on, as high as possible. Nodes that are in a cycle are placed
    in the given order, and the edges back to them are left out."""
    above: dict[str, set[str]] = {name: {start for start, to in edges if to == name != start} for name in names}
    layers: dict[str, int] = {}
    filled: defaultdict[int, int] = defaultdict(int)
    open_ = list(names)
    while open_:
        ready = [name for name in open_ if above[name] <= layers.keys()] or open_[:1]
        for name in ready:
            hangs_on = [one for one in above[name] if one in layers]
            layer = max((layers[one] + 1 for one in hangs_on), default=0)
            while filled[layer] == widest:
                layer += 1
            layers[name] = layer
            filled[layer] += 1
        open_ = [name for name in open_ if name not in layers]
    kept += dict.fromkeys((start, to) for start, to in edges if layers[start] < layers[to])
    return layers


def _bundled(edges: list[Ends], layers: dict[str, int]) -> dict[Ends, list[Place]]:
    """The ways of lines that share their places with the other lines of their busier end."""
    out, into = Counter(start for start, _ in edges), Counter(to for _, to in edges)
    return {
        ends: _way(ends, layers, f"{ends[0]}\0" if out[ends[0]] > into[ends[1]] else f"\0{ends[1]}") for ends in edges
    }


def _way(ends: Ends, layers: dict[str, int], name: str = "") -> list[Place]:
    """The places that a line passes, layer by layer, from its start to its end."""
    start, to = ends
    between = [(layer, name or f"{start}\0{to}") for layer in range(layers[start] + 1, layers[to])]
    return [(layers[start], start), *between, (layers[to], to)]


def _ordered(names: list[str], layers: dict[str, int], ways: dict[Ends, list[Place]]) -> list[list[Place]]:
    """The order within each layer: every place moves to the mean of its neighbours, down and up a few times."""
    rows: defaultdict[int, list[Place]] = defaultdict(list)
    for name in names:
        rows[layers[name]].append((layers[name], name))
    for place in dict.fromkeys(place for way in ways.values() for place in way[1:-1]):
        rows[place[0]].append(place)
    up, down = _neighbours(ways)
    at = {place: spot for row in rows.values() for spot, place in enumerate(row)}
    depth = len(rows)
    for sweep in range(SWEEPS):
        beside, order = (up, range(1, depth)) if sweep % 2 == 0 else (down, range(depth - 2, -1, -1))
        for layer in order:
            rows[layer].sort(key=lambda place: _mean([at[one] for one in beside[place]], at[place]))
            at |= {place: spot for spot, place in enumerate(rows[layer])}
    return [rows[layer] for layer in range(depth)]


def _neighbours(
    ways: dict[Ends, list[Place]],
) -> tuple[defaultdict[Place, list[Place]], defaultdict[Place, list[Place]]]:
    up: defaultdict[Place, list[Place]] = defaultdict(list)
    down: defaultdict[Place, list[Place]] = defaultdict(list)
    for way in ways.values():
        for one, two in pairwise(way):
            up[two].append(one)
            down[one].append(two)
    return up, down


def _spots(
    rows: list[list[Place]], layers: dict[str, int], ways: dict[Ends, list[Place]]
) -> tuple[dict[Place, float], float]:
    """The horizontal centre of every place, with each row centred below the widest row; and the total width."""
    sizes = {place: WIDTH if place[1] in layers else PASSING for row in rows for place in row}
    wide = [sum(sizes[place] for place in row) + GAP_X * (len(row) - 1) for row in rows]
    most = max(wide, default=0.0)
    spots: dict[Place, float] = {}
    for row, width in zip(rows, wide, strict=True):
        x = MARGIN + (most - width) / 2
        for place in row:
            spots[place] = x + sizes[place] / 2
            x += sizes[place] + GAP_X
    return spots, most + 2 * MARGIN


def _path(way: list[tuple[float, int]]) -> str:
    """The SVG path from the lower edge of a box to the upper edge of another; vertical where it passes a layer."""
    x, layer = way[0]
    y = MARGIN + layer * (HEIGHT + GAP_Y) + HEIGHT
    path = [f"M{x:.1f},{y:.1f}"]
    for place, (x2, _) in enumerate(way[1:], 1):
        bend = y + GAP_Y / 2
        path.append(f"C{x:.1f},{bend:.1f} {x2:.1f},{bend:.1f} {x2:.1f},{y + GAP_Y:.1f}")
        x, y = x2, y + GAP_Y
        if place < len(way) - 1:
            y += HEIGHT
            path.append(f"V{y:.1f}")
    return " ".join(path)


def _mean(spots: list[int], otherwise: int) -> float:
    return sum(spots) / len(spots) if spots else float(otherwise)
