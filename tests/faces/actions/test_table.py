"""The table of actions, and which agents can do them."""

import pytest

from parley.faces.actions.table import ACTIONS, BY_NAME, COMMON, MODES, STATUSES
from parley.runs.rules.agents import Agent, has_capability

CAPABILITIES = {
    "plan": "create_plan read_plan list_plan_versions edit_plan set_current_plan_version delete_plan_version "
    "merge_plan_versions copy_plan_version delete_plan",
    "build": "create_deliverable read_deliverable list_deliverable_versions edit_deliverable "
    "set_current_deliverable_version delete_deliverable_version merge_deliverable_versions copy_deliverable_version "
    "delete_deliverable rerun_deliverable",
    "converse": "read_conversation delete_conversation export_conversation",
    "tool": "execute_tool read_tool_result list_tool_executions",
    "orchestrate": "create_orchestration read_orchestration list_orchestration_runs pause_orchestration "
    "resume_orchestration cancel_orchestration retry_orchestration_step delete_orchestration",
}


def able(*capabilities: str) -> set[str]:
    agent = Agent("writer", "Writer", "Writes.", capabilities=capabilities)
    return {
        action.capability for action in ACTIONS if has_capability(agent, action.mode, action.name, action.capability)
    }


def test_each_action_has_the_capability_of_the_contract() -> None:
    found = {mode: " ".join(one.capability for one in ACTIONS if one.mode == mode) for mode in MODES}
    assert found == CAPABILITIES


def test_the_model_works_where_the_contract_says_so() -> None:
    assert {(one.mode, one.name) for one in ACTIONS if one.model} == {
        ("plan", "create"), ("plan", "merge_versions"), ("build", "create"), ("build", "rerun"),
        ("build", "merge_versions"), ("orchestrate", "create"),
    }  # fmt: skip


def test_every_error_has_a_status() -> None:
    assert {code for action in ACTIONS for code in action.errors} | set(COMMON) <= set(STATUSES)


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ((), {one.capability for one in ACTIONS}),
        (("*",), {one.capability for one in ACTIONS}),
        (("create_plan",), {"create_plan"}),
        (("plan.create", "build.read"), {"create_plan", "read_deliverable"}),
        (("converse.*",), {"read_conversation", "delete_conversation", "export_conversation"}),
        (("chat",), set()),
    ],
)
def test_an_agent_can_do_what_it_lists_or_everything(listed: tuple[str, ...], found: set[str]) -> None:
    assert able(*listed) == found


def test_the_rows_are_found_by_mode_and_action() -> None:
    assert len(BY_NAME) == 33
    assert BY_NAME["build", "create"].kind == "deliverable"
