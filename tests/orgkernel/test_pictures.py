"""Workflows as pictures, and the commands that show an organisation."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from parley.cli import app
from parley.orgkernel.definitions import Workflow, WorkflowEdge, WorkflowGraph, WorkflowNode, read_workflows
from parley.orgkernel.json_structs import ignored
from parley.orgkernel.pictures import BOX_HEIGHT, Layout, svg, terminal
from tests.orgkernel.organisations import BUGFIX, role, small, write

(WORKFLOW,) = read_workflows({"plans": {"bugfix_workflow": BUGFIX}}, ignored)
names = st.sampled_from("abcdef")
graphs = st.builds(
    lambda edges: WorkflowGraph(
        "a", {name: WorkflowNode(name, name=name) for name in "abcdef"}, tuple(WorkflowEdge(*ends) for ends in edges)
    ),
    st.lists(st.tuples(names, names), max_size=15),
)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["org", *arguments])
    return result.exit_code, result.output


def test_the_terminal_shows_the_way_and_where_else_it_leads() -> None:
    lines = terminal(WORKFLOW).splitlines()
    assert lines[0] == "Bug Fix Workflow (bugfix)"
    shown = [line.split("[")[0].strip() for line in lines if line[2:3] in set("●▢⚑◉")]
    assert shown == [
        "● Begin bug fix", "▢ Reproduce the bug", "▢ Isolate the cause", "▢ Implement the fix", "▢ Run the tests",
        "⚑ Review the change", "◉ Bug fix complete",
    ]  # fmt: skip
    assert "  │   └─ on_fail ─▶ Implement the fix" in lines
    assert "  ▲ Stuck  [PACE contingent]" in lines


def test_the_picture_has_a_box_for_each_node_and_a_line_for_each_edge() -> None:
    root = ElementTree.fromstring(svg(WORKFLOW))
    space = {"s": "http://www.w3.org/2000/svg"}
    assert len(root.findall("s:g", space)) == len(WORKFLOW.graph.nodes)
    assert len(root.findall("s:path", space)) == len(WORKFLOW.graph.edges)
    assert len(root.findall("s:path[@class='back']", space)) == 1


def test_names_cannot_break_out_of_a_picture() -> None:
    graph = WorkflowGraph("a", {"a": WorkflowNode("a", "exit", "<script>alert('1')</script>&")}, ())
    picture = svg(Workflow("a", "<b>", graph=graph))
    assert "<script>" not in picture
    ElementTree.fromstring(picture)


@given(graphs)
def test_every_graph_can_be_drawn(graph: WorkflowGraph) -> None:
    workflow = Workflow("w", "W", graph=graph)
    ElementTree.fromstring(svg(workflow))
    assert terminal(workflow)
    layout = Layout(graph)
    assert layout.boxes.keys() == graph.nodes.keys()
    assert len({(box.x, box.y) for box in layout.boxes.values()}) == len(graph.nodes)
    assert all(box.x > 0 and box.x + box.width < layout.width for box in layout.boxes.values())


@given(graphs)
def test_no_line_passes_behind_a_box(graph: WorkflowGraph) -> None:
    """Vertical lines are in a lane without boxes, or between two neighbours."""
    layout = Layout(graph)
    for link in layout.links:
        if link.route != "down":
            lane = layout.lane(link)
            assert 0 < lane < layout.width
            assert not any(box.x <= lane <= box.x + box.width for box in layout.boxes.values())
        else:
            assert layout.boxes[link.to].y - layout.boxes[link.start].y < 3 * BOX_HEIGHT


def test_the_sample_is_without_fault() -> None:
    code, said = run("check", "--json")
    found = json.loads(said)
    assert (code, found["faults"], found["remarks"]) == (0, [], [])
    assert found["without_role"] == []
    assert found["without_workflow"] == ["analysis", "osint"]
    assert "bugfix" in [one["id"] for one in found["skills"]]


def test_check_accepts_the_conditions_of_shipped_role_files(tmp_path: Path) -> None:
    folder = small(tmp_path)
    shipped = role("co", "commander", ["bugfix", "analysis"])
    shipped["pace_plan"] = {
        "alternate": {"trigger": "failures>=2 OR ontology_empty"},
        "emergency": {"trigger": "critical_failure OR context_overflow"},
    }
    write(folder, "roles/co.json", shipped)
    code, said = run("check", str(folder), "--json")
    assert (code, json.loads(said)["faults"]) == (0, [])


def test_check_tells_what_is_wrong_and_what_is_out_of_reach(tmp_path: Path) -> None:
    folder = small(tmp_path)
    write(folder, "domains.json", {"poetry": {}})
    code, said = run("check", str(folder))
    assert code == 0
    assert "no role works in this domain" in " ".join(said.split())
    broken: Any = json.loads(json.dumps(BUGFIX))
    broken["graph"]["nodes"]["fix"]["command"] = ["sh", "-c", "{text}"]
    broken["graph"]["edges"].pop()
    small(folder, bugfix_workflow=broken)
    code, said = run("check", str(folder))
    assert code == 2
    assert "graph.nodes.fix.command: sh is a shell" in said
    assert "graph.nodes.review: has no edge for success" in said
    assert run("check", str(tmp_path / "roles"))[0] == 2


def test_a_graph_is_drawn_from_a_folder_or_a_file(tmp_path: Path) -> None:
    code, said = run("graph", "Bug Fix Workflow", "--folder", str(small(tmp_path)))
    assert code == 0
    assert "▢ Implement the fix" in said
    alone = write(tmp_path, "alone.json", {"name": "Alone", "steps": ["Look", "Tell"]})
    picture = tmp_path / "alone.svg"
    assert run("graph", str(alone), "--svg", str(picture))[0] == 0
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize("plan", ["nothing", "nothing.json"])
def test_an_unknown_workflow_is_told_with_those_there_are(plan: str) -> None:
    result = CliRunner().invoke(app, ["org", "graph", plan])
    assert result.exit_code != 0
    assert "bugfix_workflow" in str(result.exception)
