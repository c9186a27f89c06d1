"""What a caller wants of the exchange, in nobody's wire format."""

import hashlib

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.core.access import Principal
from parley.core.commands import Start
from parley.core.conversations import Message
from parley.core.documents import Assignment
from parley.core.events import Steered
from parley.core.plans import Rules
from parley.core.runs import Run
from parley.engine.ports import Key
from parley.errors import Conflict, Invalid
from parley.ids import ConversationId, RunId


class Send(Struct, frozen=True):
    """Ask an agent: a new run, or one more input to `run`."""

    agent: str
    principal: Principal
    message: Message
    run: str | None = None
    conversation: str | None = None
    key: str | None = None
    rules: Rules | None = None
    """Those of an orchestration, to be planned by the agent."""


class Opening(Struct, frozen=True):
    """Begin a run that waits for input until somebody closes it. Whoever names it may ask again and gets the same."""

    agent: str
    principal: Principal
    conversation: str
    run: str | None = None
    assignment: Assignment | None = None
    parent: RunId | None = None
    key: Key | None = None


class Branch(Struct, frozen=True):
    """Begin a run as a copy of `run` up to the event `at` (its last one when None), and go on from there."""

    run: str
    principal: Principal
    agent: str | None = None
    at: int | None = None
    message: Message | None = None
    """A new input; None works on the last one again."""
    conversation: str | None = None
    key: str | None = None
    continues: RunId | None = None
    """The orchestration that goes on in the new run, steered so."""
    steered: Steered | None = None


def start_of(opening: Opening, conversation: ConversationId, rules: Rules | None) -> Start:
    return Start(
        opening.agent, conversation, str(opening.principal), None, opening.parent, open=True, rules=rules,
        assignment=opening.assignment, reach=opening.principal.reach,
    )  # fmt: skip


def same_run(run: Run, start: Start) -> Run:
    """The run, if it was opened as this one would be."""
    if (run.agent, run.conversation, run.principal, run.open) != (
        start.agent, start.conversation, start.principal, start.open,
    ):  # fmt: skip
        raise Conflict("There is another run with this id.")
    return run


def send_key(send: Send) -> Key | None:
    """The scope of a key is who asks whom; its digest covers the message, without what is only forwarded with it."""
    message = replace(send.message, forwarded=None)
    asked: list[object] = [message, send.run, send.conversation, *([send.rules] if send.rules else [])]
    return keyed(send.key, send.principal, send.agent, asked)


def branch_key(branch: Branch, run: Run) -> Key | None:
    return keyed(branch.key, branch.principal, run.agent, ["fork", run.id, branch.at, branch.message])


def keyed(name: str | None, principal: Principal, agent: str, asked: list[object]) -> Key | None:
    if name is None:
        return None
    if not 1 <= len(name) <= 255:
        raise Invalid("An idempotency key has 1 to 255 characters.", field="Idempotency-Key")
    return Key(f"{principal}>{agent}", name, hashlib.sha256(msgspec.json.encode(asked)).digest())
