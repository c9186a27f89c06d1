"""The kernel without a server: assignment, traversal, PACE and what is noted, with tools that do as they are told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.execution.rules import MAX_NOTES
from parley.orgkernel.classifier import assign
from parley.orgkernel.definitions import Organisation
from parley.orgkernel.kernel import Kernel
from parley.orgkernel.loader import OrganisationLoader, OrganisationPaths
from parley.orgkernel.steps import (
    GuidanceAsked,
    Happening,
    NodeResult,
    OrgTask,
    Work,
    WorkflowEnded,
    WorkflowFinished,
    WorkflowState,
    WorkflowStep,
    packed,
    unpacked,
)
from tests.orgkernel.organisations import BUGFIX, small, task

Say = Callable[[Work], NodeResult]


def organisation(folder: Path, **plans: Any) -> Organisation:
    found = OrganisationLoader(OrganisationPaths(small(folder, **plans))).read().organisation
    assert found is not None
    return found


class House:
    def __init__(self, folder: Path, say: Say, **plans: Any) -> None:
        self.works: list[Work] = []
        self.say = say
        self.organisation = organisation(folder, **plans)
        self.kernel = Kernel(self.organisation, self._do, lambda path: path == "there.txt", "offline")
        self.folder = folder

    async def _do(self, work: Work) -> NodeResult:
        self.works.append(work)
        return self.say(work)

    async def run(self, text: str = "Fix the bug", state: WorkflowState | None = None) -> list[Happening]:
        asked = OrgTask(text, self.folder)
        return [one async for one in self.kernel.run(asked, state or self.kernel.begin(asked))]

    @property
    def nodes(self) -> list[str]:
        return [work.node.id for work in self.works]


def well(work: Work) -> NodeResult:
    return NodeResult(f"{work.node.id} is well")


def failing(*names: str) -> Say:
    return lambda work: NodeResult(reason="broken") if work.node.id in names else well(work)


async def test_a_task_goes_through_every_step_and_says_so(tmp_path: Path) -> None:
    house = House(tmp_path, well)
    *under_way, last = await house.run()
    assert [one.text for one in under_way if isinstance(one, WorkflowStep)][2] == (
        "Bug Fix Workflow: implementing the fix (step 3/5, 40% complete), role: Bugfix Specialist, "
        "tool: code_execution_tool"
    )
    assert house.nodes == ["reproduce", "isolate", "fix", "test"]
    assert isinstance(last, WorkflowFinished)
    assert last.text == "test is well"
    assert last.context.startswith("Bug fix complete. Verified: Reproduce the bug,")
    assert last.report is not None
    assert (last.report.status.state, last.report.status.progress) == ("complete", 1.0)


async def test_a_role_reports_every_so_many_turns_and_at_once_when_something_changes(tmp_path: Path) -> None:
    tries = iter(range(99))

    def slowly(work: Work) -> NodeResult:
        return NodeResult(reason="broken") if work.node.id == "step_7" and next(tries) < 4 else well(work)

    nodes = [{"name": f"Do {number}", "max_retries": 9} for number in range(1, 13)]
    house = House(tmp_path, slowly, long={"name": "Long", "domains": ["bugfix"], "triggers": ["fix"], "steps": nodes})
    happened = [one for one in await house.run() if isinstance(one, WorkflowStep)]
    due = [(one.report.time.turns_elapsed, one.report.status.pace_level) for one in happened if one.due]
    assert len(happened) == 16
    assert due == [(0, "primary"), (5, "primary"), (9, "alternate"), (11, "primary")]


async def test_what_no_role_does_passes_through_without_a_report(tmp_path: Path) -> None:
    house = House(tmp_path, well)
    (only,) = await house.run("How are you today?")
    assert isinstance(only, WorkflowFinished)
    assert only.report is None
    assert house.nodes == ["answer"]


async def test_a_domain_without_a_workflow_is_one_step_of_the_lowest_role(tmp_path: Path) -> None:
    house = House(tmp_path, well)
    *_, last = await house.run("An analysis of the figures, please")
    assert isinstance(last, WorkflowFinished)
    assert last.report is not None
    assert last.report.unit.role_id == "co"
    assert last.report.activity.bst_domain == "analysis"
    assert house.nodes == ["work"]


async def test_failed_tests_lead_back_to_the_fix_until_it_is_exhausted(tmp_path: Path) -> None:
    house = House(tmp_path, lambda work: NodeResult("error" if work.node.id == "test" else "fine"))
    *_, last = await house.run()
    assert house.nodes == ["reproduce", "isolate", *(["fix", "test"] * 3)]
    assert isinstance(last, GuidanceAsked)
    assert "Fix attempts exhausted" in last.question.text
    assert "the output contains 'error' (3 times)" in last.question.text
    assert last.question.tried == (
        "Reproduce the bug", "Isolate the cause", "Implement the fix", "Run the tests (3 times)",
    )  # fmt: skip
    assert last.state.back == "fix"


async def test_what_nothing_was_done_about_is_not_called_verified(tmp_path: Path) -> None:
    def say(work: Work) -> NodeResult:
        return NodeResult("Passed over.", skipped=True) if work.node.id == "isolate" else well(work)

    *_, last = await House(tmp_path, say).run()
    assert isinstance(last, WorkflowFinished)
    assert last.context == (
        "Bug fix complete. Verified: Reproduce the bug, Implement the fix, Run the tests, Review the change. "
        "Passed over: Isolate the cause."
    )


async def test_guidance_lets_the_work_go_on_where_it_stood(tmp_path: Path) -> None:
    house = House(tmp_path, failing("reproduce"))
    *_, asked = await house.run()
    assert isinstance(asked, GuidanceAsked)
    assert asked.report.status.pace_level == "contingent"
    house.say, house.works = well, []
    *_, last = await house.run(state=house.kernel.answered(asked.state, "It is in app.py"))
    assert isinstance(last, WorkflowFinished)
    assert house.nodes == ["reproduce", "isolate", "fix", "test"]
    assert house.works[0].guidance == ("It is in app.py",)


async def test_levels_rise_with_failures_and_are_restored_by_success(tmp_path: Path) -> None:
    patient = {"type": "task", "name": "Try", "max_retries": 9}
    graph = {
        "nodes": {"start": {"type": "start"}, "try": patient, "then": task("Go on"), "done": {"type": "exit"}},
        "edges": [{"from": "start", "to": "try"}, {"from": "try", "to": "then"}, {"from": "then", "to": "done"}],
    }
    left = [3]

    def say(work: Work) -> NodeResult:
        left[0] -= 1
        return NodeResult(reason="broken") if left[0] >= 0 else NodeResult("fine")

    house = House(tmp_path, say, p={"name": "Try", "domains": ["bugfix"], "graph": graph})
    happened = await house.run("bugfix, please")
    levels = [one.report.status.pace_level for one in happened if isinstance(one, WorkflowStep)]
    assert levels == ["primary", "primary", "primary", "alternate", "primary"]
    assert "retrying with alternative approach" in [one.text for one in happened if isinstance(one, WorkflowStep)][3]
    assert isinstance(happened[-1], WorkflowFinished)
    assert [work.alternative for work in house.works] == [False, True, True, True, False]


async def test_failures_without_end_are_asked_about_and_then_given_up(tmp_path: Path) -> None:
    patient = {"type": "task", "name": "Try", "max_retries": 99}
    nodes = {"start": {"type": "start"}, "try": patient, "done": {"type": "exit"}}
    graph = {"nodes": nodes, "edges": [{"from": "start", "to": "try"}, {"from": "try", "to": "done"}]}
    house = House(tmp_path, failing("try"), p={"name": "Try", "domains": ["bugfix"], "graph": graph})
    *_, last = await house.run("bugfix, please")
    ends: list[str] = []
    while isinstance(last, GuidanceAsked):
        ends.append(last.report.status.pace_level)
        *_, last = await house.run("bugfix, please", house.kernel.answered(last.state, "Try harder"))
    assert isinstance(last, WorkflowEnded)
    assert ends == ["contingent"] * 3
    assert len(house.works) == 20
    assert "Task Failure Report" in last.report_of.text
    assert last.report.status.state == "aborted"


async def test_what_is_hopeless_is_given_up_at_once(tmp_path: Path) -> None:
    house = House(tmp_path, lambda work: NodeResult(reason="no disk", hopeless=True))
    *_, last = await house.run()
    assert isinstance(last, WorkflowEnded)
    assert last.report_of.reason == "no disk"
    assert house.nodes == ["reproduce"]


def asking(check: str) -> dict[str, Any]:
    look = {"type": check, "name": "Look", "verify": {"type": "manual"}}
    nodes = {"start": {"type": "start"}, "make": task("Make"), "look": look, "done": {"type": "exit"}}
    edges = [{"from": "start", "to": "make"}, {"from": "make", "to": "look"}, {"from": "look", "to": "done"}]
    return {"name": "Ask", "domains": ["bugfix"], "graph": {"nodes": nodes, "edges": edges}}


@pytest.mark.parametrize("check", ["checkpoint", "task"])
async def test_what_only_a_person_can_verify_is_asked_of_the_client(tmp_path: Path, check: str) -> None:
    house = House(tmp_path, well, p=asking(check))
    *_, asked = await house.run("bugfix, please")
    assert isinstance(asked, GuidanceAsked)
    assert asked.report.status.state == "waiting"
    before = list(house.nodes)
    *_, again = await house.run("bugfix, please", house.kernel.answered(asked.state, "No, use red"))
    assert isinstance(again, GuidanceAsked)
    assert len(house.nodes) == len(before) + 1
    *_, last = await house.run("bugfix, please", house.kernel.answered(again.state, "Yes."))
    assert isinstance(last, WorkflowFinished)
    assert len(house.nodes) == len(before) + 1


async def test_a_decision_chooses_its_way_and_is_no_failure(tmp_path: Path) -> None:
    choice = {"type": "decision", "name": "Choose", "verify": {"type": "output_contains", "value": "left"}}
    nodes = {
        "start": {"type": "start"}, "look": task("Look"), "choose": choice, "left": task("Left"),
        "right": task("Right"),
        "done": {"type": "exit"},
    }  # fmt: skip
    edges = [
        {"from": "start", "to": "look"}, {"from": "look", "to": "choose"},
        {"from": "choose", "to": "left", "condition": "on_success"},
        {"from": "choose", "to": "right", "condition": "on_fail"},
        {"from": "left", "to": "done"}, {"from": "right", "to": "done"},
    ]  # fmt: skip
    plan = {"name": "Choose", "domains": ["bugfix"], "graph": {"nodes": nodes, "edges": edges}}
    for said, way in (("go left", "left"), ("go right", "right")):
        house = House(tmp_path, lambda work, said=said: NodeResult(said), p=plan)
        *_, last = await house.run("bugfix, please")
        assert isinstance(last, WorkflowFinished)
        assert last.state.failures_total == 0
        assert house.nodes == ["look", way]


async def test_a_circle_that_never_fails_ends_too(tmp_path: Path) -> None:
    nodes = {"start": {"type": "start"}, "a": task("A"), "b": task("B"), "done": {"type": "exit"}}
    edges = [
        {"from": "start", "to": "a"}, {"from": "a", "to": "b"}, {"from": "b", "to": "a", "condition": "on_success"},
        {"from": "b", "to": "done", "condition": "on_fail"},
    ]  # fmt: skip
    house = House(
        tmp_path, well, p={"name": "Circle", "domains": ["bugfix"], "graph": {"nodes": nodes, "edges": edges}}
    )
    *_, last = await house.run("bugfix, please")
    assert isinstance(last, WorkflowEnded)


@settings(max_examples=60)
@given(st.lists(st.booleans(), max_size=40))
async def test_from_every_note_the_work_comes_to_an_end(
    tmp_path_factory: pytest.TempPathFactory, fortune: list[bool]
) -> None:
    """Whatever fails, and even if the process dies before every step."""
    luck = iter(fortune)
    house = House(
        tmp_path_factory.mktemp("org"), lambda work: NodeResult("ok") if next(luck, True) else NodeResult(reason="no")
    )
    asked = OrgTask("Fix the bug", house.folder)
    state = house.kernel.begin(asked)
    for _ in range(60):
        first = None
        async for happening in house.kernel.run(asked, state):
            first = happening
            if isinstance(happening, WorkflowStep) and len(house.works) % 3 == 0 and happening.state != state:
                break
        assert first is not None
        found = unpacked(packed(first.state))
        assert found == first.state
        if isinstance(first, WorkflowFinished | WorkflowEnded):
            return
        state = house.kernel.answered(found, "go on") if isinstance(first, GuidanceAsked) else found
    raise AssertionError("no end")


@given(
    st.dictionaries(st.text(max_size=20), st.text(max_size=400), max_size=20),
    st.lists(st.text(max_size=300), max_size=40),
    st.lists(st.text(max_size=600), max_size=6),
)
def test_a_note_fits_and_is_read_again(said: dict[str, str], files: list[str], words: list[str]) -> None:
    state = WorkflowState(
        "bugfix", "role", "plan", "node", said=said, files=tuple(files), guidance=tuple(words), failures=3
    )
    note = packed(state)
    assert len(note) <= MAX_NOTES - 10
    found = unpacked(note)
    assert found is not None
    assert (found.node, found.plan) == ("node", "plan")


def test_a_message_finds_its_domain_by_phrases_names_and_skills(tmp_path: Path) -> None:
    found = organisation(tmp_path, bugfix_workflow=BUGFIX)
    for text in ("Please fix the login bug", "debug this", "Bug Fix: the door", "BUGFIX", "fix bugs in my code"):
        assert assign(found, text).domain == "bugfix", text
    for text in ("hello", "", "a bug", "x" * 10_000_000):
        assert assign(found, text).role is None, text[:20]


@settings(max_examples=50)
@given(st.text(max_size=300))
def test_any_text_is_about_something_or_nothing(text: str) -> None:
    assert assign(ORGANISATION[0], text).domain


ORGANISATION: list[Organisation] = []


@pytest.fixture(autouse=True, scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> None:
    ORGANISATION[:] = [organisation(tmp_path_factory.mktemp("shared"))]
