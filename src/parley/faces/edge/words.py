"""What runtimes say. Fields that are not known are ignored, and null is as good as nothing."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

MAX_WAIT_MS = 25_000
MAX_PULLED = 32
MAX_TOLD = 256

Count = Annotated[int, Meta(ge=0)]
LeaseId = Annotated[
    str | None,
    Meta(description="The lease under which the task was pulled. Left out, the token and the task name the holder."),
]
WaitMs = Annotated[
    Count | None,
    Meta(description=f"How long to wait if there is nothing to say yet, in milliseconds; at most {MAX_WAIT_MS}."),
]


class AttachIn(Struct, frozen=True):
    """A pairing code, and what the runtime says of itself."""

    pairing_token: Annotated[str, Meta(description="The pairing code. It works once, for ten minutes.")]
    runtime_name: Annotated[str | None, Meta(description="A name for the operator, such as the machine's.")] = None
    runtime_version: str | None = None
    capabilities: Annotated[dict[str, Any] | None, Meta(description="Shown to the operator as it is.")] = None


class HeldIn(Struct, frozen=True):
    """A task that the runtime works on."""

    task_run_id: str
    lease_id: LeaseId = None


class HeartbeatIn(Struct, frozen=True):
    """The tasks whose leases are to be renewed."""

    task_runs: Annotated[list[HeldIn], Meta(max_length=MAX_TOLD)] | None = None
    status: Annotated[
        Literal["ready", "draining"] | None,
        Meta(description="draining: the runtime finishes what it holds and pulls no more. ready if left out."),
    ] = None


class ControlIn(Struct, frozen=True):
    """The tasks about which the runtime wants to be told."""

    task_run_ids: Annotated[list[str], Meta(max_length=MAX_TOLD)] | None = None
    wait_ms: WaitMs = None

    @property
    def wait_s(self) -> float:
        return min(self.wait_ms or 0, MAX_WAIT_MS) / 1000


class PullIn(Struct, frozen=True):
    """How much work the runtime can take."""

    limit: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description=f"The largest number of tasks; 1 if left out, at most {MAX_PULLED}."),
    ] = None
    wait_ms: WaitMs = None

    @property
    def most(self) -> int:
        return min(self.limit or 1, MAX_PULLED)

    @property
    def wait_s(self) -> float:
        return min(self.wait_ms or 0, MAX_WAIT_MS) / 1000


class ProgressIn(Struct, frozen=True):
    """What the agent is doing; a body without text, parts and percent only renews the lease."""

    lease_id: LeaseId = None
    text: str | None = None
    parts: Annotated[list[Raw] | None, Meta(description="Parts as A2A writes them.")] = None
    percent: Annotated[float, Meta(ge=0, le=100)] | None = None


class ArtifactIn(Struct, frozen=True):
    """A file that the agent made."""

    filename: Annotated[str, Meta(description="A relative path without . and .., such as reports/result.md.")]
    content_text: Annotated[str, Meta(description="The whole file, at most 1 MiB in UTF-8.")]
    lease_id: LeaseId = None
    artifact_type: Annotated[str | None, Meta(description="file if left out.")] = None
    title: Annotated[str | None, Meta(description="The filename if left out.")] = None
    summary: str | None = None
    keywords: list[str] | None = None
    mime_type: Annotated[str | None, Meta(description="text/plain if left out.")] = None
    index: Annotated[
        Count | None, Meta(description="Tells two files of one name apart, where a task makes such; 0 if left out.")
    ] = None


class EndIn(Struct, frozen=True):
    """How the turn ends."""

    output: Annotated[
        dict[str, Raw],
        Meta(
            description="For complete: text, parts, members of the agent's own, and input-required as the state of a "
            "question. For fail: error, and code if there is one."
        ),
    ]
    lease_id: LeaseId = None


class ReleaseIn(Struct, frozen=True):
    """The task that goes back to the queue."""

    lease_id: LeaseId = None


class Nothing(Struct, frozen=True):
    """An empty object."""
