"""What runtimes are answered."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from parley.faces.edge.claims import Platform

Moment = Annotated[str, Meta(description="A time in UTC, as ISO 8601.")]
Seconds = float | int


class Attached(Struct, frozen=True):
    """A runtime that was paired. The token is shown this once."""

    runtime_token: Annotated[str, Meta(description="To be sent as X-Runtime-Token from now on, and kept secret.")]
    runtime_id: str
    agent_id: str
    agent_name: str
    platform: Platform
    heartbeat_interval_seconds: Annotated[Seconds, Meta(description="How often to send a heartbeat.")]
    pull_interval_seconds: Annotated[
        Seconds, Meta(description="The shortest time between two pulls that bring nothing.")
    ]
    lease_seconds: Annotated[Seconds, Meta(description="How long a task is left to the runtime without a word of it.")]


class Renewed(Struct, frozen=True):
    """A lease that was renewed."""

    task_run_id: str
    lease_id: str
    lease_expires_at: Moment


class Beat(Struct, frozen=True):
    """How the tasks stand that the runtime listed."""

    runtime_id: str
    agent_id: str
    server_time: Moment
    task_runs: Annotated[list[Renewed], Meta(description="Those that the runtime still holds.")]
    lost_task_run_ids: Annotated[list[str], Meta(description="Those that it does not hold any more: stop working.")]
    cancel_task_run_ids: Annotated[
        list[str], Meta(description="Those that are to be canceled: stop, and say so with fail.")
    ]


class Stops(Struct, frozen=True):
    """The tasks on which work is to stop."""

    cancel_task_run_ids: list[str]
    lost_task_run_ids: list[str]


class Detached(Struct, frozen=True):
    """The runtime is shown as offline; what this process held is in the queue again."""

    runtime_id: str
    detached: Literal[True] = True


class RuntimeStatus(Struct, frozen=True):
    """The runtime as the platform knows it."""

    runtime_id: str
    agent_id: str
    agent_name: str
    platform: Platform
    attached_at: Moment
    last_seen_at: Moment
    active: Literal[True]
    queued: Annotated[int, Meta(description="Tasks that wait; counted up to 1000.")]
    running: Annotated[int, Meta(description="Tasks that this runtime holds.")]


class TaskRun(Struct, frozen=True):
    """A task that was handed out; what the local agent is sent is made from it."""

    id: str
    conversation_id: str
    workspace_id: str
    task_type: Annotated[str, Meta(description="chat, or what the caller set as task_type in the message's metadata.")]
    input_snapshot: Annotated[
        dict[str, Any],
        Meta(description="text: all that was said; parts, as A2A writes them, where it is more than plain text."),
    ]
    initiator_agent_id: Annotated[str, Meta(description="The agent that asks; empty if it is none.")]
    target_agent_id: str
    platform: Platform
    attempt: Annotated[int, Meta(description="1, and one more each time that a lease has run out.")]
    lease_id: str
    lease_expires_at: Moment


class Pulled(Struct, frozen=True):
    """The tasks that the runtime holds from now on; none if the time was up."""

    task_runs: list[TaskRun]


class Progressed(Struct, frozen=True):
    """The lease was renewed."""

    task_run_id: str
    lease_expires_at: Moment
    cancel_requested: Annotated[bool, Meta(description="true: stop, and say so with fail.")]


class Ended(Struct, frozen=True):
    """How the turn ended."""

    task_run_id: str
    status: Annotated[str, Meta(description="completed, failed, canceled, input_required or auth_required.")]
    idempotent: Annotated[bool, Meta(description="Whether the same had been said before; then nothing has changed.")]


class Released(Struct, frozen=True):
    """What became of the task: queued, or how it had ended."""

    task_run_id: str
    status: str


class RuntimeFault(Struct, frozen=True):
    """What is wrong: a code for programs, and a sentence."""

    code: str
    message: str


class RuntimeRefusal(Struct, frozen=True):
    """The answer to a call that was refused."""

    error: RuntimeFault
