"""The SDK is what the server's document and table say."""

import re

from parley.faces.actions.table import BY_NAME, Action
from sdk.package import HOME
from sdk.types import FILE, current, types_of

ROW = re.compile(r'^  (\w+): (reads|writes|works)\("(\w+)\.(\w+)", ', re.MULTILINE)
METHODS = [
    "createPlan", "readPlan", "listPlanVersions", "editPlan", "setCurrentPlanVersion", "deletePlanVersion",
    "mergePlanVersions", "copyPlanVersion", "deletePlan", "createDeliverable", "readDeliverable",
    "listDeliverableVersions", "editDeliverable", "rerunDeliverable", "setCurrentDeliverableVersion",
    "deleteDeliverableVersion", "mergeDeliverableVersions", "copyDeliverableVersion", "deleteDeliverable",
    "readConversation", "deleteConversation", "exportConversation", "executeTool",
    "readToolResult", "listToolExecutions", "createOrchestration", "readOrchestration", "listOrchestrations",
    "pauseOrchestration", "resumeOrchestration", "cancelOrchestration", "retryOrchestrationStep",
    "deleteOrchestration",
]  # fmt: skip
"""As the contract names them, in its order."""


def rows() -> list[tuple[str, str, str, str]]:
    """Name, manner, mode and action of each method."""
    return ROW.findall((HOME / "src" / "actions.ts").read_text())


def manner(action: Action) -> str:
    if action.model:
        return "works"
    return "writes" if action.changes else "reads"


async def test_the_types_are_those_of_the_servers_document() -> None:
    assert FILE.read_text() == types_of(await current()), "run `make sdk`"


async def test_every_action_that_is_offered_has_its_method() -> None:
    offered = {(row["mode"], row["action"]) for row in (await current())["x-actions"]}
    assert {(mode, action) for _, _, mode, action in rows()} == offered


def test_every_method_treats_its_action_as_what_it_is() -> None:
    for name, how, mode, action in rows():
        assert how == manner(BY_NAME[mode, action]), name


ANSWERS = ("answerPlan", "answerDeliverable", "answerOrchestration")
"""Methods beyond the contract: actions of its table that answer a task which waits."""


def test_the_methods_are_called_as_the_contract_calls_them() -> None:
    assert [name for name, *_ in rows() if name not in ANSWERS] == METHODS
