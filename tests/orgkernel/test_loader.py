"""Organisations from their folders: variants, faults with their places, and the last good content of each file."""

from pathlib import Path

from parley.orgkernel.card import blank_agent, described, skills
from parley.orgkernel.definitions import read_workflows
from parley.orgkernel.graph import check_workflow, step_node, step_number, steps
from parley.orgkernel.json_structs import ignored
from parley.orgkernel.loader import LoadedOrganisation, OrganisationLoader, OrganisationPaths, marks
from tests.orgkernel.organisations import ACTIVE, BUGFIX, Json, role, small, task, write


def read(folder: Path) -> LoadedOrganisation:
    return OrganisationLoader(OrganisationPaths(folder)).read()


def told(reading: LoadedOrganisation) -> list[tuple[str, str]]:
    return [(problem.path, problem.message) for problem in reading.problems]


def test_a_whole_organisation_is_read_without_complaint(tmp_path: Path) -> None:
    reading = read(small(tmp_path))
    assert reading.problems == ()
    assert reading.organisation is not None
    assert [one.id for one in reading.organisation.roles_for("bugfix")] == ["bugfix_specialist", "co"]
    assert [one.id for one in reading.organisation.roles_for("analysis")] == ["co"]
    assert reading.organisation.roles_for("poetry") == []


def test_the_specifications_hierarchy_with_inner_role_ids_is_understood(tmp_path: Path) -> None:
    small(tmp_path)
    inner = {"commander": {"role_id": "co", "role_name": "CO", "subordinates": []}}
    write(tmp_path, "active.json", {**ACTIVE, "hierarchy": inner})
    reading = read(tmp_path)
    assert reading.organisation is not None
    assert [one.id for one in reading.organisation.roles] == ["co"]


def test_a_name_in_active_json_leads_to_that_organisation(tmp_path: Path) -> None:
    small(tmp_path)
    (tmp_path / "active.json").rename(tmp_path / "small.json")
    write(tmp_path, "active.json", {"active": "small"})
    reading = read(tmp_path)
    assert reading.organisation is not None
    assert reading.organisation.name == "Small Organization"
    write(tmp_path, "active.json", {"active": "../../etc/passwd"})
    assert told(read(tmp_path)) == [
        ("org_name", "is missing"),
        ("hierarchy", "has no role, so no work can be done; add a role"),
    ]


def test_a_list_of_steps_is_a_workflow_too(tmp_path: Path) -> None:
    plan: Json = {"name": "Look around", "domains": ["analysis"], "steps": ["Look", {"name": "Tell", "max_retries": 1}]}
    reading = read(small(tmp_path, look=plan))
    assert reading.organisation is not None
    (workflow,) = reading.organisation.workflows
    assert [workflow.graph.nodes[name].name for name in steps(workflow)] == ["Look", "Tell"]
    assert reading.problems == ()


def test_every_fault_has_its_file_and_its_path(tmp_path: Path) -> None:
    small(tmp_path)
    write(
        tmp_path, "active.json", {**ACTIVE, "hierarchy": {"co": {}, "ghost": {}}, "domain_routing": {"x": ["nobody"]}}
    )
    odd = role("co", "commander", ["bugfix"], ["no_such_plan"])
    odd["pace_plan"] = {"alternate": {"trigger": "mood > 3"}, "panic": {}}
    odd["doctrine"] = {"max_turns_without_progress": "many"}
    write(tmp_path, "roles/co.json", odd)
    found = {(Path(problem.file).name, problem.path) for problem in read(tmp_path).problems}
    assert found == {
        ("active.json", "hierarchy.ghost"),
        ("active.json", "domain_routing.x"),
        ("active.json", "roles.co.capabilities.htn_plans"),
        ("co.json", "doctrine.max_turns_without_progress"),
        ("co.json", "pace_plan.panic"),
        ("co.json", "pace_plan.alternate.trigger"),
    }


def test_a_broken_file_counts_as_it_was_and_says_so(tmp_path: Path) -> None:
    reader = OrganisationLoader(OrganisationPaths(small(tmp_path)))
    good = reader.read()
    for name in ("active.json", "roles/co.json", "workflows.json"):
        whole = (tmp_path / name).read_text()
        write(tmp_path, name, whole[: len(whole) // 2])
        reading = reader.read()
        assert reading.organisation == good.organisation
        (problem,) = reading.problems
        assert problem.kept
        assert "last good content is still used" in problem.text
        write(tmp_path, name, whole)
    assert reader.read() == good


def test_a_file_that_was_never_whole_is_left_out(tmp_path: Path) -> None:
    small(tmp_path)
    write(tmp_path, "roles/co.json", "{")
    reading = read(tmp_path)
    assert reading.organisation is not None
    assert [one.id for one in reading.organisation.roles] == ["bugfix_specialist"]
    assert [problem.kept for problem in reading.problems if problem.file.endswith("co.json")] == [False]


def test_without_an_active_organisation_there_is_none(tmp_path: Path) -> None:
    assert read(tmp_path) == LoadedOrganisation(None, ())


def test_a_change_of_any_file_shows(tmp_path: Path) -> None:
    places = OrganisationPaths(small(tmp_path))
    seen = {marks(places)}
    write(tmp_path, "roles/co.json", role("co", "commander", ["bugfix"], doctrine={}))
    seen.add(marks(places))
    write(tmp_path, "workflows/more.json", {"name": "More", "steps": ["Look"], "domains": ["analysis"]})
    seen.add(marks(places))
    (tmp_path / "active.json").unlink()
    seen.add(marks(places))
    assert len(seen) == 4


def test_the_card_offers_workflows_then_domains_without_one(tmp_path: Path) -> None:
    write(
        small(tmp_path),
        "domains.json",
        {"analysis": {"name": "Analysis & Research"}, "poetry": {}, "conversational": {}},
    )
    reading = read(tmp_path)
    assert told(reading) == [("domains.poetry", "no role works in this domain, so it is not offered")]
    assert reading.organisation is not None
    agent = described(blank_agent("org"), reading.organisation)
    assert (agent.name, agent.version) == ("Small Organization", "1.4")
    assert agent.description == "Mends what is broken. Leave nothing broken."
    assert [(one.id, one.name, one.tags) for one in agent.skills] == [
        ("bugfix", "Bug Fix", ("bugfix",)),
        ("analysis", "Analysis & Research", ("analysis",)),
    ]
    assert agent.limits.max_queued == 10


def test_two_workflows_of_one_domain_are_skills_beside_that_of_the_domain(tmp_path: Path) -> None:
    reading = read(small(tmp_path, one=BUGFIX, two={**BUGFIX, "name": "Hot Fix"}))
    assert reading.organisation is not None
    assert [one.id for one in skills(reading.organisation)] == ["bugfix", "one", "two", "analysis"]


def test_steps_are_counted_along_the_way_without_failure() -> None:
    (workflow,) = read_workflows({"plans": {"b": BUGFIX}}, ignored)
    assert steps(workflow) == ["reproduce", "isolate", "fix", "test", "review"]
    assert step_number(workflow, "fix") == 3
    assert step_number(workflow, "stuck") == 0
    node = step_node(workflow, 5)
    assert node is not None
    assert node.name == "Review the change"
    assert step_node(workflow, 6) is None


def faults(graph: Json) -> list[str]:
    found: list[str] = []
    (workflow,) = read_workflows({"plans": {"p": {"graph": graph}}}, ignored)
    check_workflow(workflow, lambda at, why: found.append(f"{at}: {why}"))
    return sorted(found)


def test_a_graph_that_cannot_end_or_be_reached_is_named() -> None:
    nodes = {"start": {"type": "start"}, "a": task("A"), "b": task("B"), "c": task("C"), "done": {"type": "exit"}}
    edges = [{"from": "start", "to": "a"}, {"from": "a", "to": "b"}, {"from": "b", "to": "a"}, {"from": "c", "to": "x"}]
    assert faults({"nodes": nodes, "edges": edges}) == [
        "graph.edges[3].to: unknown node 'x'",
        "graph.nodes.a: leads to no exit and no escalation",
        "graph.nodes.b: leads to no exit and no escalation",
        "graph.nodes.c: cannot be reached from the start",
        "graph.nodes.c: has no edge for success",
        "graph.nodes.done: cannot be reached from the start",
        "graph.nodes.start: leads to no exit and no escalation",
    ]
    assert faults({"nodes": {"a": task("A")}, "edges": []}) == ["graph.start: unknown node ''"]
    looking = {"start": {"type": "start"}, "a": task("A", verify={"type": "file_exists"}), "done": {"type": "exit"}}
    ahead = [{"from": "start", "to": "a"}, {"from": "a", "to": "done"}]
    assert faults({"nodes": looking, "edges": ahead}) == [
        "graph.nodes.a.verify.value: is missing; file_exists needs it"
    ]
