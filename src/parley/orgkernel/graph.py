"""Rules of a workflow graph: the next node, the step number of a node, and checks of a graph."""

import re
from collections.abc import Callable, Iterator
from typing import Literal

from parley.orgkernel.definitions import Condition, Workflow, WorkflowGraph, WorkflowNode
from parley.orgkernel.json_structs import Wrong

Outcome = Literal["pass", "fail", "retry", "exhausted"]
WORK = ("task", "decision", "checkpoint")
"""Types of nodes that count as steps."""

_CONDITIONS: dict[Outcome, tuple[Condition, ...]] = {
    "pass": ("on_success", "always"),
    "fail": ("on_fail", "on_exhaust", "always"),
    "retry": ("on_retry",),
    "exhausted": ("on_exhaust", "on_fail", "always"),
}


def next_node(graph: WorkflowGraph, node: str, outcome: Outcome) -> str | None:
    """Return the next node for an outcome. None if no edge matches: then a failure needs guidance, and a retry stays at
    the node."""
    for condition in _CONDITIONS[outcome]:
        for edge in graph.edges:
            if edge.start == node and edge.condition == condition and edge.to in graph.nodes:
                return edge.to
    return None


def spine(graph: WorkflowGraph) -> list[str]:
    """Return the success path: the nodes of a run without failures."""
    found: dict[str, None] = {}
    node: str | None = graph.start
    while node is not None and node in graph.nodes and node not in found:
        found[node] = None
        node = next_node(graph, node, "pass")
    return list(found)


def steps(workflow: Workflow) -> list[str]:
    """Return the nodes that count as steps: those on the success path in order, then the others."""
    graph = workflow.graph
    way = spine(graph)
    ordered = [*way, *(name for name in graph.nodes if name not in way)]
    return [name for name in ordered if graph.nodes[name].type in WORK]


def step_number(workflow: Workflow, node: str) -> int:
    """Return the number of a step, from 1; 0 for a node that is not a step."""
    names = steps(workflow)
    return names.index(node) + 1 if node in names else 0


def step_node(workflow: Workflow, number: int) -> WorkflowNode | None:
    names = steps(workflow)
    return workflow.graph.nodes[names[number - 1]] if 1 <= number <= len(names) else None


def check_workflow(workflow: Workflow, wrong: Wrong) -> None:
    """Report everything that would prevent a task from reaching its work or its end."""
    graph = workflow.graph
    if not graph.nodes:
        wrong("graph.nodes", "is empty; add nodes")
        return
    if graph.start not in graph.nodes:
        wrong("graph.start", f"unknown node {graph.start!r}")
        return
    _check_edges(graph, wrong)
    _check_nodes(graph, wrong)
    reached = reachable(graph, graph.start)
    for name in graph.nodes.keys() - reached:
        wrong(f"graph.nodes.{name}", "cannot be reached from the start")
    for name in sorted(reached - _leading_out(graph)):
        wrong(f"graph.nodes.{name}", "leads to no exit and no escalation")


def reachable(graph: WorkflowGraph, start: str) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        for name in _after(graph, todo.pop()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return found


def _leading_out(graph: WorkflowGraph) -> set[str]:
    """Return the nodes from which an exit or an escalation can be reached."""
    found = {name for name, node in graph.nodes.items() if node.type in ("exit", "escalate")}
    grown = True
    while grown:
        more = {edge.start for edge in graph.edges if edge.to in found} - found
        found, grown = found | more, bool(more)
    return found


def _after(graph: WorkflowGraph, node: str) -> Iterator[str]:
    return (edge.to for edge in graph.edges if edge.start == node and edge.to in graph.nodes)


def _check_edges(graph: WorkflowGraph, wrong: Wrong) -> None:
    for place, edge in enumerate(graph.edges):
        for end, name in (("from", edge.start), ("to", edge.to)):
            if name not in graph.nodes:
                wrong(f"graph.edges[{place}].{end}", f"unknown node {name!r}")
        if edge.start in graph.nodes and graph.nodes[edge.start].type == "exit":
            wrong(f"graph.edges[{place}]", "must not start at an exit")


def _check_nodes(graph: WorkflowGraph, wrong: Wrong) -> None:
    if not any(node.type == "exit" for node in graph.nodes.values()):
        wrong("graph.nodes", "has no exit; add a node of type exit")
    for name, node in graph.nodes.items():
        at = f"graph.nodes.{name}"
        if node.type not in ("exit", "escalate") and next_node(graph, name, "pass") is None:
            wrong(at, "has no edge for success")
        if node.verify.type in ("output_contains", "output_not_contains", "file_exists") and not node.verify.value:
            wrong(f"{at}.verify.value", f"is missing; {node.verify.type} needs it")
        if node.max_retries < 0:
            wrong(f"{at}.max_retries", "must be zero or more")
        if node.command and node.type not in ("task", "decision", "checkpoint"):
            wrong(f"{at}.command", f"a node of type {node.type} runs no command; remove it")


# Verification of a node's result, by the verification types of the workflow library.

_YES = re.compile(r"\s*(?:y|yes|ok|okay|approved?|confirm(?:ed)?|correct|done|lgtm|go(?: ahead| on)?|proceed)\b", re.I)
_NO = re.compile(r"\b(?:not?|but|except|however|don'?t|wrong|instead)\b", re.IGNORECASE)


def agreed(text: str) -> bool:
    """Tell whether the text is a plain yes. A yes with a condition counts as guidance."""
    return _YES.match(text) is not None and _NO.search(text) is None


def failure_reason(
    node: WorkflowNode, output: str, exit_code: int | None, reason: str, exists: Callable[[str], bool]
) -> str:
    """Return the reason why the node failed; empty if it succeeded."""
    if reason:
        return reason
    if exit_code:
        return f"ended with exit code {exit_code}{_last_line(output)}"
    value = node.verify.value
    match node.verify.type:
        case "output_contains":
            return "" if value.lower() in output.lower() else f"the output does not contain {value!r}"
        case "output_not_contains":
            return f"the output contains {value!r}" if value.lower() in output.lower() else ""
        case "file_exists":
            return "" if exists(value) else f"there is no {value}"
        case "any_output":
            return "" if output.strip() else "there was no output"
        case "exit_code_zero" | "manual":
            return ""


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""
