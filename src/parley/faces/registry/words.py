"""What nodes and their operators say. Fields that are not known are ignored."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from parley.core.nodes import Beat, Status

Count = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=0, le=1)]
Line = Annotated[str, Meta(max_length=2000)]
Name = Annotated[str, Meta(min_length=1)]
Slots = Annotated[int, Meta(ge=1, le=1000)]
Tier = Annotated[int, Meta(ge=0, le=100)]
Cents = Annotated[int, Meta(ge=0)]


class RegisterIn(Struct, frozen=True):
    id: str
    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    agent_card: dict[str, Raw]
    name: str | None = None


class HeartbeatIn(Struct, frozen=True):
    workspace_id: str
    error_rate: Rate = 0.0
    sample_error: Line = ""
    active_tasks: Count = 0
    uptime_seconds: Annotated[float, Meta(ge=0)] = 0
    current_task: Line = ""
    monthly_spend: int = 0
    runtime_state: Annotated[str, Meta(max_length=100)] = ""
    runtime_metadata: dict[str, Raw] | None = None

    def beat(self, at: int, metadata: bytes) -> Beat:
        return Beat(
            at, self.error_rate, self.sample_error, self.active_tasks, int(self.uptime_seconds), self.current_task,
            self.monthly_spend, self.runtime_state, metadata,
        )  # fmt: skip


class CardIn(Struct, frozen=True):
    workspace_id: str
    agent_card: dict[str, Raw]


class AccessIn(Struct, frozen=True):
    caller_id: str
    target_id: str


class TokenIn(Struct, frozen=True):
    token: Annotated[str, Meta(min_length=1)]


class NewIn(Struct, frozen=True):
    name: Name
    role: str = ""
    tier: Tier = 1
    parent_id: str | None = None
    runtime: str = ""
    model: str = ""
    url: str = ""
    external: bool = False
    max_concurrent_tasks: Slots = 1
    budget_limit: Cents | None = None


class PatchIn(Struct, frozen=True):
    name: Name | UnsetType = UNSET
    role: str | UnsetType = UNSET
    tier: Tier | UnsetType = UNSET
    parent_id: str | UnsetType | None = UNSET
    runtime: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    x: float | UnsetType = UNSET
    y: float | UnsetType = UNSET
    max_concurrent_tasks: Slots | UnsetType = UNSET
    budget_limit: Cents | UnsetType | None = UNSET
    status: Literal["paused", "hibernated", "provisioning", "failed"] | UnsetType = UNSET

    @property
    def wanted_status(self) -> Status | UnsetType:
        return UNSET if self.status is UNSET else Status(self.status)
