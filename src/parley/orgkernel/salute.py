"""SALUTE reports: what a role says of itself, in the schema of contract 001, and what a client is told of it."""

from typing import Literal

import msgspec
from msgspec import Struct, field

from parley.orgkernel.definitions import Workflow
from parley.orgkernel.graph import step_node
from parley.orgkernel.shapes import decoded, members_of, shaped
from parley.orgkernel.wording import doing, plain_name, title_name

SCHEMA = "orgkernel:salute_report"
ACTIVE = "active"

State = Literal["idle", "active", "waiting", "error_recovery", "escalating", "complete", "aborted"]
Level = Literal["primary", "alternate", "contingent", "emergency"]
Health = Literal["nominal", "degraded", "critical"]


class Status(Struct, frozen=True):
    state: State = "active"
    progress: float = 0.0
    pace_level: Level = "primary"
    health: Health = "nominal"


class Activity(Struct, frozen=True):
    current_task: str = ""
    bst_domain: str = ""
    htn_plan: str = ""
    """The workflow's name, as the origin writes it, or its id, as the contract's example does."""
    htn_step: int = 0
    htn_total_steps: int = 0
    current_tool: str = ""
    iterations_on_current_step: int = 0


class Location(Struct, frozen=True):
    working_directory: str = ""
    files_modified: tuple[str, ...] = ()
    files_read: tuple[str, ...] = ()
    resources_claimed: tuple[str, ...] = ()


class Unit(Struct, frozen=True):
    role_id: str = ""
    role_name: str = ""
    agent_number: int = 0
    reports_to: str = ""
    organization: str = ""


class Time(Struct, frozen=True):
    timestamp: str = ""
    task_started: str | None = None
    elapsed_seconds: float = 0
    turns_elapsed: int = 0
    turns_since_progress: int = 0
    context_turns_remaining: int | None = None


class Environment(Struct, frozen=True):
    model: str = ""
    context_fill_pct: float = 0.0
    context_tokens_used: int = 0
    context_tokens_max: int = 0
    gpu_available: bool = True
    tool_failures_consecutive: int = 0
    tool_failures_total: int = 0
    memory_fragments_stored: int = 0
    memory_health: dict[str, object] = {}


class Report(Struct, frozen=True):
    schema: str = field(default=SCHEMA, name="_schema")
    version: str = field(default="1.0", name="_version")
    status: Status = Status()
    activity: Activity = Activity()
    location: Location = Location()
    unit: Unit = Unit()
    time: Time = Time()
    environment: Environment = Environment()


def read_report(content: bytes) -> Report | None:
    """What a report says, as far as it can be understood. None while it is half written, or is no report at all."""
    try:
        value = decoded(content)
    except ValueError:
        return None
    return shaped(Report, value) if "status" in members_of(value) else None


def write_report(report: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=2)


def health(level: Level, consecutive_failures: int) -> Health:
    if level in ("contingent", "emergency"):
        return "critical"
    return "degraded" if level == "alternate" or consecutive_failures >= 2 else "nominal"


def status_text(report: Report, workflow: Workflow | None = None) -> str:
    """ "Bug Fix Workflow: implementing the fix (step 3/5, 60% complete), role: …, tool: …"."""
    activity, unit = report.activity, report.unit
    about = [
        f"{_what(report, workflow)}{_how_far(report)}",
        *([f"role: {unit.role_name or unit.role_id}"] if unit.role_name or unit.role_id else []),
        *([f"tool: {activity.current_tool}"] if activity.current_tool else []),
        *([f"attempt: {tries + 1}"] if (tries := activity.iterations_on_current_step) > 0 else []),
    ]
    return ", ".join(about)


def percent(progress: float) -> int:
    """Of a share that may be out of bounds; what is not done yet is never shown as 100."""
    share = min(max(progress, 0.0), 1.0)
    return 100 if share == 1.0 else min(99, round(share * 100))


def _what(report: Report, workflow: Workflow | None) -> str:
    activity = report.activity
    plan = workflow.name if workflow else title_name(activity.htn_plan) or plain_name(activity.bst_domain)
    node = step_node(workflow, activity.htn_step) if workflow else None
    now = doing(node.name) if node else _STATES[report.status.state]
    return f"{plan}: {now}" if plan else now[:1].upper() + now[1:]


def _how_far(report: Report) -> str:
    activity = report.activity
    if not activity.htn_total_steps:
        return ""
    step = min(max(activity.htn_step, 0), activity.htn_total_steps)
    return f" (step {step}/{activity.htn_total_steps}, {percent(report.status.progress)}% complete)"


_STATES: dict[State, str] = {
    "idle": "waiting for work",
    "active": "working",
    "waiting": "waiting",
    "error_recovery": "recovering from an error",
    "escalating": "asking for guidance",
    "complete": "complete",
    "aborted": "aborted",
}
