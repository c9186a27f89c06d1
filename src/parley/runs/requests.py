"""Requests to the exchange, independent of any wire format, and the collaborators that it is built with."""

import hashlib

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.documents.rules import Assignment
from parley.errors import Conflict, Invalid
from parley.execution.executor import Conduct
from parley.execution.turn import ToolCaller
from parley.ids import ConversationId, RunId, is_id
from parley.orchestrations.rules.plan import Rules
from parley.runs.attachments import Attachments
from parley.runs.log import Fulfil
from parley.runs.rules.access import Principal
from parley.runs.rules.agents import Agent, check_content
from parley.runs.rules.commands import Fork, Start
from parley.runs.rules.content import Message, check_parts
from parley.runs.rules.events import Origin, Steered
from parley.runs.rules.state import Run
from parley.runs.store import Key, LogStore
from parley.runs.streams import entries_upto
from parley.telemetry.trace import sent


class Send(Struct, frozen=True):
    """Send a message to an agent: starts a new run, or adds an input to `run`."""

    agent: str
    principal: Principal
    message: Message
    run: str | None = None
    conversation: str | None = None
    key: str | None = None
    rules: Rules | None = None
    """The rules of an orchestration that the agent is to plan."""
    id: str | None = None
    """Id for a new run. A repeated request with the same id returns the same run."""
    generation: int | None = None
    """The generation that `run` must have; None if any will do."""


class Opening(Struct, frozen=True):
    """Open a run that waits for input until it is closed. A repeated request with the same id returns the same run."""

    agent: str
    principal: Principal
    conversation: str
    run: str | None = None
    assignment: Assignment | None = None
    parent: RunId | None = None
    key: Key | None = None


class Branch(Struct, frozen=True):
    """Start a run as a copy of `run` up to the event `at` (the last one if None), and continue from there."""

    run: str
    principal: Principal
    agent: str | None = None
    at: int | None = None
    message: Message | None = None
    """A new input; with None, the last input is processed again."""
    conversation: str | None = None
    key: str | None = None
    continues: RunId | None = None
    """The orchestration that continues in the new run, with `steered` applied."""
    steered: Steered | None = None


def start_of(opening: Opening, conversation: ConversationId, rules: Rules | None) -> Start:
    return Start(
        opening.agent,
        conversation,
        str(opening.principal),
        None,
        opening.parent,
        open=True,
        rules=rules,
        assignment=opening.assignment,
        reach=opening.principal.reach,
    )


def same_run(run: Run, start: Start) -> Run:
    """Return the run if it was opened with the same values. Raise Conflict otherwise."""
    if (run.agent, run.conversation, run.principal, run.open) != (
        start.agent,
        start.conversation,
        start.principal,
        start.open,
    ):
        raise Conflict("There is another run with this id.")
    return run


def send_key(send: Send) -> Key | None:
    """Return the idempotency key of a send. Its scope is the principal and the agent; its digest covers the message,
    without the data that is only forwarded with it."""
    message = replace(send.message, forwarded=None)
    asked: list[object] = [message, send.run, send.conversation, *([send.rules] if send.rules else [])]
    return keyed(send.key, send.principal, send.agent, asked)


def branch_key(branch: Branch, run: Run) -> Key | None:
    return keyed(branch.key, branch.principal, run.agent, ["fork", run.id, branch.at, branch.message])


def keyed(name: str | None, principal: Principal, agent: str, asked: list[object]) -> Key | None:
    if name is None:
        return None
    if not 1 <= len(name) <= 255:
        raise Invalid("An idempotency key must have 1 to 255 characters.", field="Idempotency-Key")
    return Key(f"{principal}>{agent}", name, hashlib.sha256(msgspec.json.encode(asked)).digest())


# Content of a fork: the entries of another run up to a given one.


async def fork_of(store: LogStore, attachments: Attachments, agent: Agent, run: Run, branch: Branch) -> Fork:
    message = branch.message
    if message is not None:
        check_parts(message.parts)
        check_content(agent, message.parts)
        message = await attachments.stored_message(message)
    entries = await entries_upto(store, run.id, branch.at)
    last = entries[-1]
    origin = Origin(run.id, last.seq, last.hash.hex())
    payloads = tuple(entry.payload for entry in entries if entry.payload is not None)
    return Fork(
        origin,
        payloads,
        str(branch.principal),
        message,
        trace=sent(),
        continues=branch.continues,
        steered=branch.steered,
        reach=branch.principal.reach,
    )


def chosen_id(run_id: str) -> RunId:
    """Return the id that a caller chose for a run. Raise Invalid if it cannot be one."""
    if not is_id(run_id):
        raise Invalid("A run id must have 1 to 128 letters, digits or ._:@/+=~-", field="run_id")
    return RunId(run_id)


class Extensions(Struct, frozen=True):
    """Collaborators that use the exchange, and that the exchange uses."""

    toolcalls: ToolCaller | None = None
    """Calls the tools of agents."""
    conduct: Conduct | None = None
    fulfil: Fulfil | None = None
