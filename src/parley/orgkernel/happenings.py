"""What a workflow wants done, and what happens on the way through it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct

from parley.orgkernel.definitions import Node, Role, Workflow
from parley.orgkernel.pace import GivenUp, Guidance
from parley.orgkernel.salute import Report
from parley.orgkernel.state import State, kept_guidance


class Work(Struct, frozen=True):
    """What a node wants done."""

    node: Node
    task: str
    folder: Path
    role: Role | None = None
    workflow: Workflow | None = None
    guidance: tuple[str, ...] = ()
    """What the client has said since, in full, the newest last."""
    before: dict[str, str] = {}
    """What earlier nodes brought to light."""
    failed: tuple[str, ...] = ()
    alternative: bool = False
    """Whether what was tried before did not work, so that something else should be."""
    modelled: bool = False
    """Whether a model has written into the folder of the task."""
    approved: str = ""
    """The digest of what the client has agreed to run."""


class Proposal(Struct, frozen=True):
    """A command that may run what a model wrote, and all that it may run, for the client to approve."""

    digest: str
    text: str


class Result(Struct, frozen=True):
    """What came of it. `reason` says why it came to nothing."""

    text: str = ""
    exit_code: int | None = None
    files: tuple[str, ...] = ()
    reason: str = ""
    hopeless: bool = False
    """Whether trying again is of no use to anybody."""
    skipped: bool = False
    modelled: bool = False
    """Whether a model has written a file."""
    proposal: Proposal | None = None
    """Nothing was done: the client has to approve this first."""


class Task(Struct, frozen=True):
    """The work as the client put it, and the folder in which it is done."""

    text: str
    folder: Path
    said: tuple[str, ...] = ()
    """All messages of the client in full: the state keeps only the beginning of each."""

    def in_full(self, guidance: str) -> str:
        """The message of which the state keeps this beginning."""
        return next((one for one in reversed(self.said) if kept_guidance(one) == guidance), guidance)


class Step(Struct, frozen=True):
    """The work goes on at this node. `due`: its role is to report; the client is told in any case."""

    text: str
    state: State
    report: Report
    due: bool = True


class Asked(Struct, frozen=True):
    question: Guidance
    state: State
    report: Report


class Finished(Struct, frozen=True):
    """Done. Without a report the message passed through: no role had anything to do with it."""

    text: str
    state: State
    context: str = ""
    """What the exit node stands for, and what was verified on the way to it."""
    report: Report | None = None


class Ended(Struct, frozen=True):
    """The work has failed. Without a report no role worked on it."""

    report_of: GivenUp
    state: State
    report: Report | None


Happening = Step | Asked | Finished | Ended
Do = Callable[[Work], Awaitable[Result]]
Exists = Callable[[str], bool]
"""Whether a file is there, named from the folder of the task."""
Shown = Callable[[str], str]
"""A path as the client sees it."""
