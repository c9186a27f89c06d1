"""A workflow as SVG: the success path from top to bottom, the other nodes next to it, and lanes for the other edges.

Lines never pass behind boxes. Edges that enter the same node on the same side share one lane."""

from collections import defaultdict
from html import escape
from itertools import pairwise
from typing import Literal
from unicodedata import east_asian_width

from msgspec import Struct

from parley.orgkernel.definitions import NodeType, Workflow, WorkflowGraph, WorkflowNode
from parley.orgkernel.graph import spine

BOX_HEIGHT = 44
GAP_Y, MARGIN, LANE = 44, 24, 18
CHAR, SMALL = 7.2, 5.8
Side = Literal["left", "right"]
Route = Literal["down", "left", "between", "right"]
"""Course of a line: down to the next box; left of the success path; between the path and the nodes next to it; right of
those nodes."""
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


class WorkflowBox(Struct, frozen=True):
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


class WorkflowLink(Struct, frozen=True):
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
    """Positions of all boxes, lanes and ports."""

    def __init__(self, graph: WorkflowGraph) -> None:
        self._graph = graph
        self._way = spine(graph)
        self.rows = {name: row for row, name in enumerate(self._way)}
        self.rows |= _aside(graph, self.rows)
        self.links = self._links()
        self._lanes = {route: self._targets(route) for route in _LANED}
        self.boxes, self._edges, self.width = self._placed()
        self.height = max((box.bottom for box in self.boxes.values()), default=0.0) + MARGIN
        self._ports = self._found_ports()

    def sides(self, link: WorkflowLink) -> tuple[Side, Side]:
        """Return the side on which a link leaves its node, and the side on which it enters the other."""
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

    def lane(self, link: WorkflowLink) -> float:
        return self._edges[link.route] + LANE * self._lanes[link.route].index(link.to)

    def _links(self) -> list[WorkflowLink]:
        words: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for edge in self._graph.edges:
            if {edge.start, edge.to} <= self._graph.nodes.keys():
                words[edge.start, edge.to].append("" if edge.condition == "always" else edge.condition)
        return [self._link(*ends, ", ".join(dict.fromkeys(filter(None, said)))) for ends, said in words.items()]

    def _link(self, start: str, to: str, words: str) -> WorkflowLink:
        on_way = (start in self._way) + (to in self._way)
        below = on_way == 2 and (start, to) in pairwise(self._way)
        route: Route = "down" if below else "left" if on_way == 2 else "between" if on_way else "right"
        return WorkflowLink(start, to, words, route, back=to in self._way and self.rows[to] <= self.rows[start])

    def _targets(self, route: Route) -> list[str]:
        """Return the targets of the lanes in order. The shortest link gets the innermost lane; on the left that is the
        last one."""
        spans: dict[str, int] = {}
        for link in self.links:
            if link.route == route:
                spans[link.to] = max(spans.get(link.to, 0), abs(self.rows[link.start] - self.rows[link.to]))
        return sorted(spans, key=lambda name: spans[name], reverse=route == "left")

    def _placed(self) -> tuple[dict[str, WorkflowBox], dict[Route, float], float]:
        """Place everything from left to right: lanes, success path, lanes, other nodes, lanes; with space for labels
        next to boxes."""
        widths = {name: max(90.0, _length(node.name) * CHAR + 40) for name, node in self._graph.nodes.items()}
        way = max((widths[name] for name in self._way), default=0.0)
        aside = max((widths[name] for name in widths if name not in self._way), default=0.0)
        left = float(MARGIN)
        at_way = left + self._room("left")
        between = at_way + way + self._words("between")
        at_aside = at_way + way + (self._room("between") + self._words("between") if aside else 0)
        right = at_aside + aside + self._words("right")
        boxes = {
            name: WorkflowBox(
                (at_way + (way - widths[name]) / 2) if name in self._way else at_aside,
                MARGIN + row * (BOX_HEIGHT + GAP_Y),
                widths[name],
            )
            for name, row in self.rows.items()
        }
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


def _aside(graph: WorkflowGraph, rows: dict[str, int]) -> dict[str, int]:
    """Return the row of each node that is not on the success path: next to the last node that leads to it, one node per
    row."""
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
    """Return the picture as a standalone file, with its own colours."""
    return _picture(workflow, f"<style>{_STYLE}</style>", 'xmlns="http://www.w3.org/2000/svg" ') + "\n"


def figure(workflow: Workflow, lit: str = "") -> str:
    """Return the picture for a page that has its own styles. The node `lit` is marked with `aria-current`."""
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


def _box(node: WorkflowNode, box: WorkflowBox, *, lit: bool = False) -> str:
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


def _line(link: WorkflowLink, layout: Layout) -> str:
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


def _label(link: WorkflowLink, layout: Layout) -> str:
    """Return the label, next to the start of its line."""
    if link.route == "down":
        box = layout.boxes[link.start]
        x, y, anchor = box.middle + 7, box.bottom + GAP_Y / 2 + 2, "start"
    else:
        out = layout.sides(link)[0]
        edge, at = layout.port(link.start, out, link)
        x, y, anchor = (edge + 6, at - 6, "start") if out == "right" else (edge - 6, at - 6, "end")
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{link.words}</text>'


def _length(text: str) -> int:
    """Return the width of a text in characters; East Asian characters count twice."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


# A workflow as text for a terminal, along the success path.

_SIGNS: dict[NodeType, str] = {
    "start": "●", "task": "▢", "decision": "◇", "checkpoint": "⚑", "escalate": "▲", "exit": "◉",
}  # fmt: skip


def terminal(workflow: Workflow) -> str:
    """Return the success path from top to bottom, with the other edges listed at each node."""
    graph = workflow.graph
    way = spine(graph)
    others = [name for name in graph.nodes if name not in way]
    domains = f" ({', '.join(workflow.domains)})" if workflow.domains else ""
    lines = [f"{workflow.name}{domains}", ""]
    for place, name in enumerate(way):
        lines.extend(_entry(graph, name, way[place + 1] if place + 1 < len(way) else None))
    for name in others:
        lines.extend(["", *_entry(graph, name, None)])
    return "\n".join(lines)


def _entry(graph: WorkflowGraph, name: str, below: str | None) -> list[str]:
    node = graph.nodes[name]
    edges = [edge for edge in graph.edges if edge.start == name]
    aside = [edge for edge in edges if edge.to != below]
    down = next((edge for edge in edges if edge.to == below), None)
    lines = [f"  {_SIGNS[node.type]} {node.name}{_remarks(node)}"]
    bar = "│" if down else " "
    lines.extend(f"  {bar}   └─ {edge.condition} ─▶ {_named(graph, edge.to)}" for edge in aside)
    if down is not None:
        lines.append(f"  │ {down.condition}" if down.condition != "always" else "  │")
    return lines


def _remarks(node: WorkflowNode) -> str:
    found = [
        node.tool or (node.command[0] if node.command else ""),
        f"retries {node.max_retries}" if node.max_retries else "",
        f"{node.verify.type} {node.verify.value}".strip() if node.verify.type != "any_output" else "",
        f"PACE {node.pace_level}" if node.type == "escalate" else "",
    ]
    told = ", ".join(one for one in found if one)
    return f"  [{told}]" if told else ""


def _named(graph: WorkflowGraph, name: str) -> str:
    return graph.nodes[name].name if name in graph.nodes else name
