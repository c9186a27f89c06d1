"""What runtimes say. Fields that are not known are ignored, and null is as good as nothing."""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

MAX_WAIT_MS = 25_000
MAX_PULLED = 32
MAX_TOLD = 256

Count = Annotated[int, Meta(ge=0)]


class AttachIn(Struct, frozen=True):
    pairing_token: str
    runtime_name: str | None = None
    runtime_version: str | None = None
    capabilities: dict[str, object] | None = None


class HeldIn(Struct, frozen=True):
    task_run_id: str
    lease_id: str | None = None


class HeartbeatIn(Struct, frozen=True):
    task_runs: Annotated[list[HeldIn], Meta(max_length=MAX_TOLD)] | None = None
    status: Literal["ready", "draining"] | None = None


class ControlIn(Struct, frozen=True):
    task_run_ids: Annotated[list[str], Meta(max_length=MAX_TOLD)] | None = None
    wait_ms: Count | None = None

    @property
    def wait_s(self) -> float:
        return min(self.wait_ms or 0, MAX_WAIT_MS) / 1000


class PullIn(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1)] | None = None
    wait_ms: Count | None = None

    @property
    def most(self) -> int:
        return min(self.limit or 1, MAX_PULLED)

    @property
    def wait_s(self) -> float:
        return min(self.wait_ms or 0, MAX_WAIT_MS) / 1000


class ProgressIn(Struct, frozen=True):
    lease_id: str | None = None
    text: str | None = None
    parts: list[Raw] | None = None
    percent: Annotated[float, Meta(ge=0, le=100)] | None = None


class ArtifactIn(Struct, frozen=True):
    filename: str
    content_text: str
    lease_id: str | None = None
    artifact_type: str | None = None
    title: str | None = None
    summary: str | None = None
    keywords: list[str] | None = None
    mime_type: str | None = None
    index: Count | None = None


class EndIn(Struct, frozen=True):
    output: dict[str, Raw]
    lease_id: str | None = None


class ReleaseIn(Struct, frozen=True):
    lease_id: str | None = None


class Nothing(Struct, frozen=True):
    pass
