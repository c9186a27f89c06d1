"""Messages between runtimes and this server. In requests, unknown members are ignored, and null means the same as
omitting a member."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct

from parley.errors import LeaseLost
from parley.ids import RunId
from parley.paired.leases import Lease, last_claim
from parley.paired.runtimes import Runtime
from parley.runs.rules.content import Message, Part
from parley.runs.rules.state import Run

MAX_WAIT_MS = 25_000
MAX_PULLED = 32
MAX_TOLD = 256

Count = Annotated[int, Meta(ge=0)]
LeaseId = Annotated[
    str | None,
    Meta(description="Lease with which the task was pulled. If omitted, the token and the task identify the holder."),
]
WaitMs = Annotated[
    Count | None,
    Meta(description=f"Longest time to wait for a result, in milliseconds; at most {MAX_WAIT_MS}."),
]


class AttachIn(Struct, frozen=True):
    """A pairing code, and a description of the runtime."""

    pairing_token: Annotated[str, Meta(description="The pairing code. It works once, for ten minutes.")]
    runtime_name: Annotated[
        str | None, Meta(description="Name shown to the operator, for example that of the computer.")
    ] = None
    runtime_version: str | None = None
    capabilities: Annotated[dict[str, Any] | None, Meta(description="Shown to the operator unchanged.")] = None


class HeldIn(Struct, frozen=True):
    """A task that the runtime works on."""

    task_run_id: str
    lease_id: LeaseId = None


class HeartbeatIn(Struct, frozen=True):
    """Tasks whose leases to renew."""

    task_runs: Annotated[list[HeldIn], Meta(max_length=MAX_TOLD)] | None = None
    status: Annotated[
        Literal["ready", "draining"] | None,
        Meta(description="draining: the runtime finishes its tasks and pulls no more. Default: ready."),
    ] = None


class ControlIn(Struct, frozen=True):
    """Tasks that the runtime watches for a request to stop."""

    task_run_ids: Annotated[list[str], Meta(max_length=MAX_TOLD)] | None = None
    wait_ms: WaitMs = None

    @property
    def wait_s(self) -> float:
        return min(self.wait_ms or 0, MAX_WAIT_MS) / 1000


class PullIn(Struct, frozen=True):
    """Amount of work that the runtime can take."""

    limit: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description=f"Largest number of tasks; default 1, at most {MAX_PULLED}."),
    ] = None
    wait_ms: WaitMs = None

    @property
    def most(self) -> int:
        return min(self.limit or 1, MAX_PULLED)

    @property
    def wait_s(self) -> float:
        return min(self.wait_ms or 0, MAX_WAIT_MS) / 1000


class ProgressIn(Struct, frozen=True):
    """Progress of the agent; a body without text, parts and percent only renews the lease."""

    lease_id: LeaseId = None
    text: str | None = None
    parts: Annotated[list[Raw] | None, Meta(description="Parts in the format of A2A.")] = None
    percent: Annotated[float, Meta(ge=0, le=100)] | None = None


class ArtifactIn(Struct, frozen=True):
    """A file that the agent made."""

    filename: Annotated[str, Meta(description="Relative path without . and .., such as reports/result.md.")]
    content_text: Annotated[str, Meta(description="Complete content of the file, at most 1 MiB in UTF-8.")]
    lease_id: LeaseId = None
    artifact_type: Annotated[str | None, Meta(description="Default: file.")] = None
    title: Annotated[str | None, Meta(description="Default: the filename.")] = None
    summary: str | None = None
    keywords: list[str] | None = None
    mime_type: Annotated[str | None, Meta(description="Default: text/plain.")] = None
    index: Annotated[
        Count | None, Meta(description="Distinguishes files with the same name in one task; default 0.")
    ] = None


class EndIn(Struct, frozen=True):
    """Output with which the turn ends."""

    output: Annotated[
        dict[str, Raw],
        Meta(
            description="For complete: text, parts, further members of the agent, and state input-required if the "
            "output is a question. For fail: error, and code if there is one."
        ),
    ]
    lease_id: LeaseId = None


class ReleaseIn(Struct, frozen=True):
    """Lease of the task that goes back to the queue."""

    lease_id: LeaseId = None


class Nothing(Struct, frozen=True):
    """An empty object."""


# Responses.

Moment = Annotated[str, Meta(description="ISO 8601 time in UTC.")]
Seconds = float | int


class Platform(Struct, frozen=True):
    """Name of this server for local agents; contains no credential and no address to call."""

    name: str
    origin: str


class Attached(Struct, frozen=True):
    """A runtime that was paired. The token is shown only once."""

    runtime_token: Annotated[str, Meta(description="Secret token; send it as X-Runtime-Token with every further call.")]
    runtime_id: str
    agent_id: str
    agent_name: str
    platform: Platform
    heartbeat_interval_seconds: Annotated[Seconds, Meta(description="Time between two heartbeats.")]
    pull_interval_seconds: Annotated[Seconds, Meta(description="Shortest time between two pulls that return no task.")]
    lease_seconds: Annotated[
        Seconds, Meta(description="Time after which a lease expires unless the runtime renews it.")
    ]


class Renewed(Struct, frozen=True):
    """A lease that was renewed."""

    task_run_id: str
    lease_id: str
    lease_expires_at: Moment


class Beat(Struct, frozen=True):
    """State of the tasks that the runtime listed."""

    runtime_id: str
    agent_id: str
    server_time: Moment
    task_runs: Annotated[list[Renewed], Meta(description="Tasks that the runtime still holds.")]
    lost_task_run_ids: Annotated[list[str], Meta(description="Tasks that it no longer holds: stop working on them.")]
    cancel_task_run_ids: Annotated[
        list[str], Meta(description="Tasks to cancel: stop working on them, then call fail.")
    ]


class Stops(Struct, frozen=True):
    """Tasks on which to stop working."""

    cancel_task_run_ids: list[str]
    lost_task_run_ids: list[str]


class Detached(Struct, frozen=True):
    """The runtime is offline; tasks that this process held are in the queue again."""

    runtime_id: str
    detached: Literal[True] = True


class RuntimeStatus(Struct, frozen=True):
    """State of the runtime on the platform."""

    runtime_id: str
    agent_id: str
    agent_name: str
    platform: Platform
    attached_at: Moment
    last_seen_at: Moment
    active: Literal[True]
    queued: Annotated[int, Meta(description="Waiting tasks; counted up to 1000.")]
    running: Annotated[int, Meta(description="Tasks that this runtime holds.")]


class TaskRun(Struct, frozen=True):
    """A task that was pulled; the request to the local agent is made from it."""

    id: str
    conversation_id: str
    workspace_id: str
    task_type: Annotated[str, Meta(description="chat, or the task_type that the caller set in the message's metadata.")]
    input_snapshot: Annotated[
        dict[str, Any],
        Meta(description="text: text of all messages; parts, in the format of A2A, if there is more than plain text."),
    ]
    initiator_agent_id: Annotated[str, Meta(description="Agent that requested the task; empty if no agent did.")]
    target_agent_id: str
    platform: Platform
    attempt: Annotated[int, Meta(description="Starts at 1 and grows by one each time a lease expires.")]
    lease_id: str
    lease_expires_at: Moment


class Pulled(Struct, frozen=True):
    """Tasks that the runtime holds from now on; empty if the waiting time ended first."""

    task_runs: list[TaskRun]


class Progressed(Struct, frozen=True):
    """The lease was renewed."""

    task_run_id: str
    lease_expires_at: Moment
    cancel_requested: Annotated[bool, Meta(description="If true, stop working on the task, then call fail.")]


class Ended(Struct, frozen=True):
    """Status with which the turn ended."""

    task_run_id: str
    status: Annotated[str, Meta(description="completed, failed, canceled, input_required or auth_required.")]
    idempotent: Annotated[bool, Meta(description="True if the same report was made before; then nothing has changed.")]


class Released(Struct, frozen=True):
    """Status of the task after the release: queued, or the state in which it had already ended."""

    task_run_id: str
    status: str


class RuntimeFault(Struct, frozen=True):
    """An error: a code for programs, and a message for people."""

    code: str
    message: str


class RuntimeRefusal(Struct, frozen=True):
    """Response to a call that was refused."""

    error: RuntimeFault


# A claim on the wire: its lease as an opaque name, and the input for the local agent.

CHAT = "chat"
MAX_TYPE = 64


class _Typed(Struct, frozen=True):
    task_type: str | None = None


def lease_id(lease: Lease) -> str:
    return f"{lease.owner.partition(':')[2]}.{lease.epoch}"


def lease_named(runtime: Runtime, run_id: str, name: str, instance: str = "") -> Lease | None:
    """Return the lease with a name; None for a name that this runtime never received."""
    id_, _, epoch = name.rpartition(".")
    if id_ != runtime.id or not (epoch.isascii() and epoch.isdigit() and len(epoch) < 16):
        return None
    return Lease(str(runtime.principal), RunId(run_id), int(epoch), instance)


def held_lease(runtime: Runtime, run: Run, name: str | None, instance: str = "") -> Lease:
    """Return the lease of a report; without a name, the current lease of the runtime on the task."""
    if name is None:
        lease = last_claim(run, str(runtime.principal), instance)
        if lease is None:
            raise LeaseLost("This runtime does not hold the task; pull it first.")
        return lease
    lease = lease_named(runtime, run.id, name, instance)
    if lease is None:
        raise LeaseLost("lease_id is not a lease of this runtime.")
    return lease


def snapshot(inputs: Sequence[Message]) -> dict[str, object]:
    """Return the text of all messages, joined by line breaks; and all parts, if any is more than plain text."""
    parts = [part for message in inputs for part in message.parts]
    shown: dict[str, object] = {"text": "\n".join(part.text for part in parts if part.text is not None)}
    if not all(_is_plain(part) for part in parts):
        shown["parts"] = parts
    return shown


def task_type(inputs: Sequence[Message]) -> str:
    """Return the task type of the newest message that has one; else `chat`."""
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
