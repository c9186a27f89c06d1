"""What nodes say. Fields that are not known are ignored."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from parley.core.nodes import Beat

Count = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=0, le=1)]
Line = Annotated[str, Meta(max_length=2000)]


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
