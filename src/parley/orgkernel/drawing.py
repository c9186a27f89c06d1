"""A workflow in a terminal, along the way without failure."""

from parley.orgkernel.definitions import Graph, Node, NodeType, Workflow
from parley.orgkernel.graph import spine

_SIGNS: dict[NodeType, str] = {
    "start": "●", "task": "▢", "decision": "◇", "checkpoint": "⚑", "escalate": "▲", "exit": "◉",
}  # fmt: skip


def terminal(workflow: Workflow) -> str:
    """The way from top to bottom; beside each node where else it may lead."""
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
