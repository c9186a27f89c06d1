"""A claim on the wire: its lease by an opaque name, and what the local agent is given to read."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Struct

from parley.core.artifacts import Part
from parley.core.conversations import Message
from parley.core.leases import Lease, last_claim
from parley.core.runs import Run
from parley.errors import LeaseLost
from parley.ids import RunId
from parley.security.runtimes import Runtime

CHAT = "chat"
MAX_TYPE = 64


class Platform(Struct, frozen=True):
    """How this server calls itself towards local agents: no credential, and no address to call."""

    name: str
    origin: str


class _Typed(Struct, frozen=True):
    task_type: str | None = None


def lease_id(lease: Lease) -> str:
    return f"{lease.owner.partition(':')[2]}.{lease.epoch}"


def lease_named(runtime: Runtime, run_id: str, name: str, instance: str = "") -> Lease | None:
    """None for a name that this runtime was never given."""
    id_, _, epoch = name.rpartition(".")
    if id_ != runtime.id or not (epoch.isascii() and epoch.isdigit() and len(epoch) < 16):
        return None
    return Lease(str(runtime.principal), RunId(run_id), int(epoch), instance)


def held_lease(runtime: Runtime, run: Run, name: str | None, instance: str = "") -> Lease:
    """The lease that a report is about; without a name the current one, which token and task identify."""
    if name is None:
        lease = last_claim(run, str(runtime.principal), instance)
        if lease is None:
            raise LeaseLost("This runtime does not hold the task; pull it first.")
        return lease
    lease = lease_named(runtime, run.id, name, instance)
    if lease is None:
        raise LeaseLost("This is not a lease of this runtime.")
    return lease


def snapshot(inputs: Sequence[Message]) -> dict[str, object]:
    """The text of all that was said, line by line; and every part, when some of it is more than plain text."""
    parts = [part for message in inputs for part in message.parts]
    shown: dict[str, object] = {"text": "\n".join(part.text for part in parts if part.text is not None)}
    if not all(_is_plain(part) for part in parts):
        shown["parts"] = parts
    return shown


def task_type(inputs: Sequence[Message]) -> str:
    """What the newest message that says so asks for."""
    for message in reversed(inputs):
        try:
            typed = msgspec.json.decode(b"{}" if message.metadata is UNSET else message.metadata, type=_Typed)
        except msgspec.MsgspecError:
            continue
        if typed.task_type and len(typed.task_type) <= MAX_TYPE:
            return typed.task_type
    return CHAT


def _is_plain(part: Part) -> bool:
    plain = part.text is not None and part.media_type in (None, "text/plain")
    return plain and part.filename is None and part.metadata is UNSET
