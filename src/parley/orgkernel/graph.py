"""The rules of a workflow graph: which node comes next, which step a node is, and what is wrong with a graph."""

from collections.abc import Iterator
from typing import Literal

from parley.orgkernel.definitions import Condition, Graph, Node, Workflow
from parley.orgkernel.shapes import Wrong

Outcome = Literal["pass", "fail", "retry", "exhausted"]
WORK = ("task", "decision", "checkpoint")
"""The nodes that count as steps."""

_CONDITIONS: dict[Outcome, tuple[Condition, ...]] = {
    "pass": ("on_success", "always"),
    "fail": ("on_fail", "on_exhaust", "always"),
    "retry": ("on_retry",),
    "exhausted": ("on_exhaust", "on_fail", "always"),
}


def next_node(graph: Graph, node: str, outcome: Outcome) -> str | None:
    """Where an outcome leads. None: nowhere, so a failure needs guidance, and a retry stays where it is."""
    for condition in _CONDITIONS[outcome]:
        for edge in graph.edges:
            if edge.start == node and edge.condition == condition and edge.to in graph.nodes:
                return edge.to
    return None


def spine(graph: Graph) -> list[str]:
    """The way without failure."""
    found: dict[str, None] = {}
    node: str | None = graph.start
    while node is not None and node in graph.nodes and node not in found:
        found[node] = None
        node = next_node(graph, node, "pass")
    return list(found)


def steps(workflow: Workflow) -> list[str]:
    """The nodes that count as steps: those on the way without failure in their order, then the others."""
    graph = workflow.graph
    way = spine(graph)
    ordered = [*way, *(name for name in graph.nodes if name not in way)]
    return [name for name in ordered if graph.nodes[name].type in WORK]


def step_number(workflow: Workflow, node: str) -> int:
    """From 1; 0 for a node that is no step."""
    names = steps(workflow)
    return names.index(node) + 1 if node in names else 0


def step_node(workflow: Workflow, number: int) -> Node | None:
    names = steps(workflow)
    return workflow.graph.nodes[names[number - 1]] if 1 <= number <= len(names) else None


def check_workflow(workflow: Workflow, wrong: Wrong) -> None:
    """Everything that would keep a task from coming to an end, or to its work."""
    graph = workflow.graph
    if not graph.nodes:
        wrong("graph.nodes", "there are none")
        return
    if graph.start not in graph.nodes:
        wrong("graph.start", f"there is no node {graph.start!r}")
        return
    _check_edges(graph, wrong)
    _check_nodes(graph, wrong)
    reached = reachable(graph, graph.start)
    for name in graph.nodes.keys() - reached:
        wrong(f"graph.nodes.{name}", "cannot be reached from the start")
    for name in sorted(reached - _leading_out(graph)):
        wrong(f"graph.nodes.{name}", "leads to no exit, neither by success nor by escalation")


def reachable(graph: Graph, start: str) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        for name in _after(graph, todo.pop()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return found


def _leading_out(graph: Graph) -> set[str]:
    """The nodes from which an end can be reached."""
    found = {name for name, node in graph.nodes.items() if node.type in ("exit", "escalate")}
    grown = True
    while grown:
        more = {edge.start for edge in graph.edges if edge.to in found} - found
        found, grown = found | more, bool(more)
    return found


def _after(graph: Graph, node: str) -> Iterator[str]:
    return (edge.to for edge in graph.edges if edge.start == node and edge.to in graph.nodes)


def _check_edges(graph: Graph, wrong: Wrong) -> None:
    for place, edge in enumerate(graph.edges):
        for end, name in (("from", edge.start), ("to", edge.to)):
            if name not in graph.nodes:
                wrong(f"graph.edges[{place}].{end}", f"there is no node {name!r}")
        if edge.start in graph.nodes and graph.nodes[edge.start].type == "exit":
            wrong(f"graph.edges[{place}]", "nothing follows an exit")


def _check_nodes(graph: Graph, wrong: Wrong) -> None:
    if not any(node.type == "exit" for node in graph.nodes.values()):
        wrong("graph.nodes", "none of them is an exit")
    for name, node in graph.nodes.items():
        at = f"graph.nodes.{name}"
        if node.type not in ("exit", "escalate") and next_node(graph, name, "pass") is None:
            wrong(at, "no edge says what follows when it succeeds")
        if node.verify.type in ("output_contains", "output_not_contains", "file_exists") and not node.verify.value:
            wrong(f"{at}.verify.value", f"is missing; {node.verify.type} looks for it")
        if node.max_retries < 0:
            wrong(f"{at}.max_retries", "is zero or more")
        if node.command and node.type not in ("task", "decision", "checkpoint"):
            wrong(f"{at}.command", f"a node of type {node.type} does no work")
