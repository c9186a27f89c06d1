"""A workflow as a picture: in a terminal along the way without failure, as SVG in layers."""

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from msgspec import Struct

from parley.orgkernel.definitions import Edge, Graph, Node, NodeType, Workflow
from parley.orgkernel.graph import next_node, reachable

BOX_HEIGHT = 44
GAP_X, GAP_Y, MARGIN = 36, 56, 24
LANE = 22
CHAR = 7.2
_SIGNS: dict[NodeType, str] = {
    "start": "●", "task": "▢", "decision": "◇", "checkpoint": "⚑", "escalate": "▲", "exit": "◉",
}  # fmt: skip
_COLOURS: dict[NodeType, str] = {
    "start": "#dbeafe", "task": "#f8fafc", "decision": "#fef9c3", "checkpoint": "#e0e7ff", "escalate": "#fee2e2",
    "exit": "#dcfce7",
}  # fmt: skip
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#0f172a}.label{font-size:10px;fill:#475569}"
    "rect,polygon{stroke:#334155;stroke-width:1.2}path{fill:none;stroke:#64748b;stroke-width:1.2}"
    ".back{stroke-dasharray:4 3}"
)


def terminal(workflow: Workflow) -> str:
    """The spine from top to bottom; beside each node where else it may lead."""
    graph = workflow.graph
    spine = list(_spine(graph))
    others = [name for name in graph.nodes if name not in spine]
    domains = f" ({', '.join(workflow.domains)})" if workflow.domains else ""
    lines = [f"{workflow.name}{domains}", ""]
    for place, name in enumerate(spine):
        lines.extend(_entry(graph, name, spine[place + 1] if place + 1 < len(spine) else None))
    for name in others:
        lines.extend(["", *_entry(graph, name, None)])
    return "\n".join(lines)


def _spine(graph: Graph) -> Iterator[str]:
    seen: set[str] = set()
    name: str | None = graph.start
    while name is not None and name in graph.nodes and name not in seen:
        seen.add(name)
        yield name
        name = next_node(graph, name, "pass")


def _entry(graph: Graph, name: str, below: str | None) -> list[str]:
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


def _remarks(node: Node) -> str:
    found = [
        node.tool or (node.command[0] if node.command else ""),
        f"retries {node.max_retries}" if node.max_retries else "",
        f"{node.verify.type} {node.verify.value}".strip() if node.verify.type != "any_output" else "",
        f"PACE {node.pace_level}" if node.type == "escalate" else "",
    ]
    told = ", ".join(one for one in found if one)
    return f"  [{told}]" if told else ""


def _named(graph: Graph, name: str) -> str:
    return graph.nodes[name].name if name in graph.nodes else name


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


def layers(graph: Graph) -> list[list[str]]:
    """Each node below everything that leads to it, circles aside; neighbours stand below their parents."""
    forward = _forward(graph)
    depth = dict.fromkeys(graph.nodes, 0)
    for _ in graph.nodes:
        for edge in forward:
            depth[edge.to] = max(depth[edge.to], depth[edge.start] + 1)
    rows: list[list[str]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for name in graph.nodes:
        rows[depth[name]].append(name)
    for above, row in pairwise(rows):
        row.sort(key=lambda name: _weight(name, above, forward))
    return [row for row in rows if row]


def _weight(name: str, above: list[str], edges: list[Edge]) -> float:
    places = [above.index(edge.start) for edge in edges if edge.to == name and edge.start in above]
    return sum(places) / len(places) if places else len(above)


def _forward(graph: Graph) -> list[Edge]:
    """The edges without those that close a circle."""
    kept: list[Edge] = []
    for edge in sorted(graph.edges, key=lambda edge: edge.condition not in ("always", "on_success")):
        if edge.start in graph.nodes and edge.to in graph.nodes and edge.start != edge.to:
            ahead = Graph(graph.start, graph.nodes, tuple(kept))
            if edge.start not in reachable(ahead, edge.to):
                kept.append(edge)
    return kept


def svg(workflow: Workflow) -> str:
    graph = workflow.graph
    boxes = _boxes(graph)
    forward = _forward(graph)
    backward = [
        edge for edge in graph.edges if edge not in forward and {edge.start, edge.to} <= graph.nodes.keys()
    ]  # fmt: skip
    width = max((box.x + box.width for box in boxes.values()), default=0) + MARGIN + LANE * (len(backward) + 1)
    height = max((box.bottom for box in boxes.values()), default=0) + MARGIN
    parts = [
        *(_line(edge, boxes) for edge in forward),
        *(_curve(edge, boxes, width - LANE * (place + 1)) for place, edge in enumerate(backward)),
        *(_box(graph.nodes[name], box) for name, box in boxes.items()),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
        f"<title>{escape(workflow.name)}</title><style>{_STYLE}</style>"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<polygon points="0,0 8,4 0,8" fill="#64748b" stroke="none"/></marker></defs>'
        f"{''.join(parts)}</svg>\n"
    )


def _boxes(graph: Graph) -> dict[str, Box]:
    rows = layers(graph)
    widths = {name: max(90.0, len(node.name) * CHAR + 44) for name, node in graph.nodes.items()}
    spans = [sum(widths[name] for name in row) + GAP_X * (len(row) - 1) for row in rows]
    found: dict[str, Box] = {}
    for place, row in enumerate(rows):
        x = MARGIN + (max(spans) - spans[place]) / 2
        for name in row:
            found[name] = Box(x, MARGIN + place * (BOX_HEIGHT + GAP_Y), widths[name])
            x += widths[name] + GAP_X
    return found


def _box(node: Node, box: Box) -> str:
    fill = _COLOURS[node.type]
    if node.type == "decision":
        points = f"{box.x},{box.y + BOX_HEIGHT / 2} {box.x + 16},{box.y} {box.x + box.width - 16},{box.y} "
        points += f"{box.x + box.width},{box.y + BOX_HEIGHT / 2} {box.x + box.width - 16},{box.bottom} "
        shape = f'<polygon points="{points}{box.x + 16},{box.bottom}" fill="{fill}"/>'
    else:
        round_ = BOX_HEIGHT / 2 if node.type in ("start", "exit") else 6
        shape = (
            f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{BOX_HEIGHT}" rx="{round_}" '
            f'fill="{fill}"/>'
        )
    label = f'<text x="{box.middle:.1f}" y="{box.y + 26:.1f}" text-anchor="middle">{escape(node.name)}</text>'
    return f"<g><title>{escape(node.action or node.reason or node.type)}</title>{shape}{label}</g>"


def _line(edge: Edge, boxes: dict[str, Box]) -> str:
    one, two = boxes[edge.start], boxes[edge.to]
    half = (two.y - one.bottom) / 2
    path = (
        f"M{one.middle:.1f},{one.bottom:.1f} C{one.middle:.1f},{one.bottom + half:.1f} "
        f"{two.middle:.1f},{two.y - half:.1f} {two.middle:.1f},{two.y:.1f}"
    )
    label = _label(edge, (one.middle + two.middle) / 2, (one.bottom + two.y) / 2)
    return f'<path d="{path}" marker-end="url(#tip)"/>{label}'


def _curve(edge: Edge, boxes: dict[str, Box], lane: float) -> str:
    """What leads back runs beside the boxes, each in a lane of its own."""
    one, two = boxes[edge.start], boxes[edge.to]
    start, end = one.y + BOX_HEIGHT * 0.66, two.y + BOX_HEIGHT * 0.33
    path = f"M{one.x + one.width:.1f},{start:.1f} H{lane:.1f} V{end:.1f} H{two.x + two.width:.1f}"
    label = _label(edge, one.x + one.width + 30, start - 4)
    return f'<path class="back" d="{path}" marker-end="url(#tip)"/>{label}'


def _label(edge: Edge, x: float, y: float) -> str:
    if edge.condition == "always":
        return ""
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{edge.condition}</text>'
