"""State of a workflow, the work of its nodes, and the events that it produces."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.orgkernel.definitions import Level, Role, Workflow, WorkflowNode
from parley.orgkernel.pace import GivenUp, Guidance
from parley.orgkernel.salute import SaluteReport

# The state of a task in its workflow. It is small enough to be stored at each step, so that a restart continues there.

MAX_NOTE = 3800
MAX_WORDS = 300
MAX_GUIDANCE = 600
MAX_KEPT = 6
_KEPT_PATHS = 40


class WorkflowState(Struct, frozen=True, omit_defaults=True):
    domain: str
    role: str = ""
    plan: str = ""
    node: str = ""
    attempts: dict[str, int] = {}
    """Number of attempts of each node since the client's last message."""
    done: tuple[str, ...] = ()
    """Nodes that were verified, each once."""
    passed_over: tuple[str, ...] = ()
    """Nodes in `done` that were skipped because no model is configured."""
    level: Level = "primary"
    failures: int = 0
    failures_total: int = 0
    rounds: int = 0
    """Number of times that the client gave guidance since the last progress."""
    reached: int = 0
    """Highest step number that was shown."""
    turns: int = 0
    turns_since_progress: int = 0
    failed: tuple[str, ...] = ()
    said: dict[str, str] = {}
    """Results of the latest nodes, shortened."""
    files: tuple[str, ...] = ()
    guidance: tuple[str, ...] = ()
    back: str = ""
    """Node to continue with after an answer."""
    confirming: bool = False
    """True if the client was asked to confirm that node."""
    verdict: Literal["", "yes", "no"] = ""
    """The client's answer to that question."""
    started: int = 0
    salute: str = ""
    """Level and state of the last report; `saluted` is its turn."""
    saluted: int = 0
    modelled: bool = False
    """True if a model has written into the folder of the task."""
    proposed: str = ""
    """Digest of the proposal that the client was asked to approve."""
    approved: str = ""
    declined: bool = False
    """True if the client did not approve."""

    def noted(self, node: str, words: str) -> "WorkflowState":
        said = {name: one for name, one in self.said.items() if name != node}
        kept = dict([*said.items(), (node, shortened(words))][-MAX_KEPT:])
        return replace(self, said=kept)


def shortened(words: str, most: int = MAX_WORDS) -> str:
    plain = " ".join(words[: most * 4].split())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def kept_guidance(text: str) -> str:
    """Shorten a message of the client to the length that the state stores."""
    return shortened(text, MAX_GUIDANCE)


def packed(state: WorkflowState) -> str:
    """Encode the state as a note. If it is too long, drop the results first, then the oldest failures and files."""
    state = replace(state, files=state.files[:_KEPT_PATHS])
    text = _written(state)
    while len(text) > MAX_NOTE:
        smaller = _smaller(state)
        if smaller == state:
            return _written(WorkflowState(state.domain, state.role, state.plan, state.node, started=state.started))
        state, text = smaller, _written(smaller)
    return text


def unpacked(note: str) -> WorkflowState | None:
    """Decode the state from a note; None if it is not such a note."""
    try:
        return msgspec.json.decode(note, type=WorkflowState)
    except msgspec.MsgspecError:
        return None


def _written(state: WorkflowState) -> str:
    return msgspec.json.encode(state).decode()


def _smaller(state: WorkflowState) -> WorkflowState:
    if state.said:
        return replace(state, said=dict(list(state.said.items())[1:]))
    if len(state.failed) > 1:
        return replace(state, failed=state.failed[1:])
    if len(state.guidance) > 1:
        return replace(state, guidance=state.guidance[1:])
    return replace(state, files=state.files[: len(state.files) // 2])


class Work(Struct, frozen=True):
    """The work of one node."""

    node: WorkflowNode
    task: str
    folder: Path
    role: Role | None = None
    workflow: Workflow | None = None
    guidance: tuple[str, ...] = ()
    """Later messages of the client in full, newest last."""
    before: dict[str, str] = {}
    """Results of earlier nodes."""
    failed: tuple[str, ...] = ()
    alternative: bool = False
    """True if the earlier approach failed and another one should be tried."""
    modelled: bool = False
    """True if a model has written into the folder of the task."""
    approved: str = ""
    """Digest of the proposal that the client has approved."""


class Proposal(Struct, frozen=True):
    """A command that may run code written by a model, and all that code, for the client to approve."""

    digest: str
    text: str


class NodeResult(Struct, frozen=True):
    """The result of a node's work. `reason` explains a failure."""

    text: str = ""
    exit_code: int | None = None
    files: tuple[str, ...] = ()
    reason: str = ""
    hopeless: bool = False
    """True if a retry cannot succeed."""
    skipped: bool = False
    modelled: bool = False
    """True if a model has written a file."""
    proposal: Proposal | None = None
    """Set if nothing was done because the client must approve this first."""


class OrgTask(Struct, frozen=True):
    """A task: the client's message, and the folder for the work."""

    text: str
    folder: Path
    said: tuple[str, ...] = ()
    """All messages of the client in full; the state stores only the beginning of each."""

    def in_full(self, guidance: str) -> str:
        """Return the full message whose beginning the state stores."""
        return next((one for one in reversed(self.said) if kept_guidance(one) == guidance), guidance)


class WorkflowStep(Struct, frozen=True):
    """The workflow is now at this node. `due`: its role must write a report; the client is informed in any case."""

    text: str
    state: WorkflowState
    report: SaluteReport
    due: bool = True


class GuidanceAsked(Struct, frozen=True):
    question: Guidance
    state: WorkflowState
    report: SaluteReport


class WorkflowFinished(Struct, frozen=True):
    """The work is done. Without a report the message passed through: no role worked on it."""

    text: str
    state: WorkflowState
    context: str = ""
    """Meaning of the exit node, and the nodes that were verified before it."""
    report: SaluteReport | None = None


class WorkflowEnded(Struct, frozen=True):
    """The work has failed. Without a report no role worked on it."""

    report_of: GivenUp
    state: WorkflowState
    report: SaluteReport | None


Happening = WorkflowStep | GuidanceAsked | WorkflowFinished | WorkflowEnded
Do = Callable[[Work], Awaitable[NodeResult]]
Exists = Callable[[str], bool]
"""Tells whether a file exists. Its path is relative to the folder of the task."""
Shown = Callable[[str], str]
"""Converts a path to the form that the client sees."""
