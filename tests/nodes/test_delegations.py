"""Runs read as delegations."""

import pytest
from msgspec.structs import replace

from parley.ids import ConversationId, RunId
from parley.nodes.delegations import RECORDED, Delegation, assignment_of, delegation_of, status_of
from parley.runs.rules.state import Run, State

HANDED = Delegation("one", "two", "a task")
RUN = Run(RunId("r"), "node:two", ConversationId("c"), "node:one", assignment=assignment_of(HANDED), started_at=5)
TAKEN = {"task": "t"}


@pytest.mark.parametrize(
    ("run", "status"),
    [
        (RUN, "pending"),
        (replace(RUN, state=State.WORKING), "dispatched"),
        (replace(RUN, state=State.WORKING, notes={"again_at": "9"}), "dispatched"),
        (replace(RUN, state=State.WORKING, notes=TAKEN, status_at=5), "received"),
        (replace(RUN, state=State.WORKING, notes=TAKEN, status_at=6), "in_progress"),
        (replace(RUN, state=State.WORKING, notes=TAKEN, answering=True), "in_progress"),
        (replace(RUN, state=State.SUBMITTED, notes=TAKEN, epoch=2), "in_progress"),
        (replace(RUN, state=State.INPUT_REQUIRED, notes=TAKEN), "in_progress"),
        (replace(RUN, state=State.INPUT_REQUIRED, agent=RECORDED), "dispatched"),
        (replace(RUN, state=State.COMPLETED), "completed"),
        (replace(RUN, state=State.FAILED), "failed"),
        (replace(RUN, state=State.REJECTED), "failed"),
        (replace(RUN, state=State.CANCELED), "failed"),
    ],
)
def test_a_delegation_stands_as_its_run_does(run: Run, status: str) -> None:
    assert status_of(run) == status


def test_one_without_room_at_its_target_is_queued() -> None:
    assert status_of(RUN, crowded=True) == "queued"
    assert status_of(replace(RUN, state=State.SUBMITTED, notes=TAKEN, epoch=2), crowded=True) == "in_progress"


def test_what_was_handed_over_is_kept_with_the_run() -> None:
    assert delegation_of(RUN) == HANDED
    assert delegation_of(replace(RUN, assignment=None)) is None
