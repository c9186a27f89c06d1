"""A workflow as SVG: the way without failure from top to bottom, what lies aside beside it, and lanes for the rest.

Lines never pass behind boxes. What leads to the same node by the same side joins in one lane.
"""

from collections import defaultdict
from html import escape
from itertools import pairwise
from typing import Literal
from unicodedata import east_asian_width

from msgspec import Struct

from parley.orgkernel.definitions import Graph, Node, NodeType, Workflow
from parley.orgkernel.graph import spine

BOX_HEIGHT = 44
GAP_Y, MARGIN, LANE = 44, 24, 18
CHAR, SMALL = 7.2, 5.8
Side = Literal["left", "right"]
Route = Literal["down", "left", "between", "right"]
"""To the next box; beside the way; between the way and what lies aside; beside that."""
_LANED: tuple[Route, ...] = ("left", "between", "right")
_COLOURS: dict[NodeType, str] = {
    "start": "#dbeafe", "task": "#f8fafc", "decision": "#fef9c3", "checkpoint": "#e0e7ff", "escalate": "#fee2e2",
    "exit": "#dcfce7",
}  # fmt: skip
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#0f172a}"
    ".label{font-size:10px;fill:#475569;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    "rect,polygon{stroke:#334155;stroke-width:1.2}path{fill:none;stroke:#64748b;stroke-width:1.2}"
    ".back{stroke-dasharray:4 3}.ground{fill:#fff;stroke:none}.tip{fill:#64748b;stroke:none}"
    + "".join(f".{type_} .shape{{fill:{colour}}}" for type_, colour in _COLOURS.items())
)


class Box(Struct, frozen=True):
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + BOX_HEIGHT

    def edge(self, side: Side) -> float:
        return self.x if side == "left" else self.x + self.width


class Link(Struct, frozen=True):
    """All edges from one node to another."""

    start: str
    to: str
    words: str
    route: Route
    back: bool

    @property
    def lane(self) -> tuple[Route, str]:
        return self.route, self.to


class Layout:
    """Where everything stands."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._way = spine(graph)
        self.rows = {name: row for row, name in enumerate(self._way)}
        self.rows |= _aside(graph, self.rows)
        self.links = self._links()
        self._lanes = {route: self._targets(route) for route in _LANED}
        self.boxes, self._edges, self.width = self._placed()
        self.height = max((box.bottom for box in self.boxes.values()), default=0.0) + MARGIN
        self._ports = self._found_ports()

    def sides(self, link: Link) -> tuple[Side, Side]:
        """By which side a link leaves its node, and by which it comes to the other."""
        match link.route:
            case "between":
                return ("right", "left") if link.start in self._way else ("left", "right")
            case "right":
                return "right", "right"
            case _:
                return "left", "left"

    def port(self, name: str, side: Side, key: object) -> tuple[float, float]:
        box, keys = self.boxes[name], self._ports[name, side]
        return box.edge(side), box.y + BOX_HEIGHT * (keys.index(key) + 1) / (len(keys) + 1)

    def lane(self, link: Link) -> float:
        return self._edges[link.route] + LANE * self._lanes[link.route].index(link.to)

    def _links(self) -> list[Link]:
        words: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for edge in self._graph.edges:
            if {edge.start, edge.to} <= self._graph.nodes.keys():
                words[edge.start, edge.to].append("" if edge.condition == "always" else edge.condition)
        return [self._link(*ends, ", ".join(dict.fromkeys(filter(None, said)))) for ends, said in words.items()]

    def _link(self, start: str, to: str, words: str) -> Link:
        on_way = (start in self._way) + (to in self._way)
        below = on_way == 2 and (start, to) in pairwise(self._way)
        route: Route = "down" if below else "left" if on_way == 2 else "between" if on_way else "right"
        return Link(start, to, words, route, back=to in self._way and self.rows[to] <= self.rows[start])

    def _targets(self, route: Route) -> list[str]:
        """The shortest way in the innermost lane; on the left that is the last one."""
        spans: dict[str, int] = {}
        for link in self.links:
            if link.route == route:
                spans[link.to] = max(spans.get(link.to, 0), abs(self.rows[link.start] - self.rows[link.to]))
        return sorted(spans, key=lambda name: spans[name], reverse=route == "left")

    def _placed(self) -> tuple[dict[str, Box], dict[Route, float], float]:
        """From left to right: lanes, the way, lanes, what lies aside, lanes; each with room for words beside boxes."""
        widths = {name: max(90.0, _length(node.name) * CHAR + 40) for name, node in self._graph.nodes.items()}
        way = max((widths[name] for name in self._way), default=0.0)
        aside = max((widths[name] for name in widths if name not in self._way), default=0.0)
        left = float(MARGIN)
        at_way = left + self._room("left")
        between = at_way + way + self._words("between")
        at_aside = at_way + way + (self._room("between") + self._words("between") if aside else 0)
        right = at_aside + aside + self._words("right")
        boxes = {
            name: Box(
                (at_way + (way - widths[name]) / 2) if name in self._way else at_aside,
                MARGIN + row * (BOX_HEIGHT + GAP_Y), widths[name],
            )
            for name, row in self.rows.items()
        }  # fmt: skip
        return (
            boxes,
            {"left": left, "between": between, "right": right},
            at_aside + aside + self._room("right") + MARGIN,
        )

    def _room(self, route: Route) -> float:
        lanes = len(self._lanes[route])
        return self._words(route) + LANE * lanes if lanes else 0.0

    def _words(self, route: Route) -> float:
        longest = max((len(link.words) for link in self.links if link.route == route), default=0)
        return longest * SMALL + 14 if self._lanes[route] else 0.0

    def _found_ports(self) -> dict[tuple[str, Side], list[object]]:
        found: defaultdict[tuple[str, Side], list[object]] = defaultdict(list)
        for link in self.links:
            if link.route != "down":
                out, into = self.sides(link)
                found[link.start, out].append(link)
                if link.lane not in found[link.to, into]:
                    found[link.to, into].append(link.lane)
        return found


def _aside(graph: Graph, rows: dict[str, int]) -> dict[str, int]:
    """Each node off the way beside the last that leads to it, one in a row."""
    wanted: dict[str, int] = {}
    for name in graph.nodes:
        if name not in rows:
            wanted[name] = max((rows.get(edge.start, 0) for edge in graph.edges if edge.to == name), default=0)
    found: dict[str, int] = {}
    last = -1
    for name in sorted(wanted, key=lambda name: wanted[name]):
        last = found[name] = max(wanted[name], last + 1)
    return found


def svg(workflow: Workflow) -> str:
    """A file of its own, with its colours."""
    return _picture(workflow, f"<style>{_STYLE}</style>", 'xmlns="http://www.w3.org/2000/svg" ') + "\n"


def figure(workflow: Workflow, lit: str = "") -> str:
    """For a page, whose styles say how it looks. The node that is `lit` is told by `aria-current`."""
    return _picture(workflow, "", 'class="graph workflow" ', lit)


def _picture(workflow: Workflow, style: str, more: str, lit: str = "") -> str:
    layout = Layout(workflow.graph)
    size = f"{layout.width:.0f} {layout.height:.0f}"
    parts = [
        *(_line(link, layout) for link in layout.links),
        *(_box(workflow.graph.nodes[name], box, lit=name == lit) for name, box in layout.boxes.items()),
        *(_label(link, layout) for link in layout.links if link.words),
    ]
    return (
        f'<svg {more}viewBox="0 0 {size}" width="{layout.width:.0f}" '
        f'height="{layout.height:.0f}" role="img"><title>{escape(workflow.name)}</title>{style}'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<polygon class="tip" points="0,0 8,4 0,8"/></marker></defs>'
        f'<rect class="ground" width="100%" height="100%"/>{"".join(parts)}</svg>'
    )


def _box(node: Node, box: Box, *, lit: bool = False) -> str:
    if node.type == "decision":
        points = f"{box.x},{box.y + BOX_HEIGHT / 2} {box.x + 16},{box.y} {box.x + box.width - 16},{box.y} "
        points += f"{box.x + box.width},{box.y + BOX_HEIGHT / 2} {box.x + box.width - 16},{box.bottom} "
        shape = f'<polygon points="{points}{box.x + 16},{box.bottom}" class="shape"/>'
    else:
        round_ = BOX_HEIGHT / 2 if node.type in ("start", "exit") else 6
        shape = (
            f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{BOX_HEIGHT}" rx="{round_}" '
            'class="shape"/>'
        )
    label = f'<text x="{box.middle:.1f}" y="{box.y + 26:.1f}" text-anchor="middle">{escape(node.name)}</text>'
    mark = ' aria-current="step"' if lit else ""
    title = escape(node.action or node.reason or node.type)
    return f'<g class="{node.type}"{mark}><title>{title}</title>{shape}{label}</g>'


def _line(link: Link, layout: Layout) -> str:
    if link.route == "down":
        one, two = layout.boxes[link.start], layout.boxes[link.to]
        path = f"M{one.middle:.1f},{one.bottom:.1f} V{two.y:.1f}"
    else:
        out, into = layout.sides(link)
        x, y = layout.port(link.start, out, link)
        end, at = layout.port(link.to, into, link.lane)
        path = f"M{x:.1f},{y:.1f} H{layout.lane(link):.1f} V{at:.1f} H{end:.1f}"
    kind = ' class="back"' if link.back else ""
    return f'<path{kind} d="{path}" marker-end="url(#tip)"/>'


def _label(link: Link, layout: Layout) -> str:
    """Right beside where the line begins."""
    if link.route == "down":
        box = layout.boxes[link.start]
        x, y, anchor = box.middle + 7, box.bottom + GAP_Y / 2 + 2, "start"
    else:
        out = layout.sides(link)[0]
        edge, at = layout.port(link.start, out, link)
        x, y, anchor = (edge + 6, at - 6, "start") if out == "right" else (edge - 6, at - 6, "end")
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{link.words}</text>'


def _length(text: str) -> int:
    """In letters; those of the East are twice as wide."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
