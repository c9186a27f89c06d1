"""SALUTE reports of roles, in the schema of the organisation contract (001), and their texts for clients."""

import os
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from parley.orgkernel.definitions import Workflow
from parley.orgkernel.graph import step_node
from parley.orgkernel.json_structs import decoded, members_of, shaped
from parley.orgkernel.names import doing, plain_name, title_name

__all__ = ["ReportFolder", "SaluteReport", "read_report"]

SCHEMA = "orgkernel:salute_report"
ACTIVE = "active"

State = Literal["idle", "active", "waiting", "error_recovery", "escalating", "complete", "aborted"]
Level = Literal["primary", "alternate", "contingent", "emergency"]
Health = Literal["nominal", "degraded", "critical"]


class SaluteStatus(Struct, frozen=True):
    state: State = "active"
    progress: float = 0.0
    pace_level: Level = "primary"
    health: Health = "nominal"


class SaluteActivity(Struct, frozen=True):
    current_task: str = ""
    bst_domain: str = ""
    htn_plan: str = ""
    """The workflow's name, as in the contract's origin, or its id, as in the contract's example."""
    htn_step: int = 0
    htn_total_steps: int = 0
    current_tool: str = ""
    iterations_on_current_step: int = 0


class SaluteLocation(Struct, frozen=True):
    working_directory: str = ""
    files_modified: tuple[str, ...] = ()
    files_read: tuple[str, ...] = ()
    resources_claimed: tuple[str, ...] = ()


class SaluteUnit(Struct, frozen=True):
    role_id: str = ""
    role_name: str = ""
    agent_number: int = 0
    reports_to: str = ""
    organization: str = ""


class SaluteTime(Struct, frozen=True):
    timestamp: str = ""
    task_started: str | None = None
    elapsed_seconds: float = 0
    turns_elapsed: int = 0
    turns_since_progress: int = 0
    context_turns_remaining: int | None = None


class SaluteEnvironment(Struct, frozen=True):
    model: str = ""
    context_fill_pct: float = 0.0
    context_tokens_used: int = 0
    context_tokens_max: int = 0
    gpu_available: bool = True
    tool_failures_consecutive: int = 0
    tool_failures_total: int = 0
    memory_fragments_stored: int = 0
    memory_health: dict[str, object] = {}


class SaluteReport(Struct, frozen=True):
    """A role's report about its own work, in the schema of the organisation contract (001)."""

    schema: str = field(default=SCHEMA, name="_schema")
    version: str = field(default="1.0", name="_version")
    status: SaluteStatus = SaluteStatus()
    activity: SaluteActivity = SaluteActivity()
    location: SaluteLocation = SaluteLocation()
    unit: SaluteUnit = SaluteUnit()
    time: SaluteTime = SaluteTime()
    environment: SaluteEnvironment = SaluteEnvironment()


def read_report(content: bytes) -> SaluteReport | None:
    """Read a report; fields that are not valid keep their defaults. None if it is half written or not a report."""
    try:
        value = decoded(content)
    except ValueError:
        return None
    return shaped(SaluteReport, value) if "status" in members_of(value) else None


def write_report(report: SaluteReport) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=2)


def health(level: Level, consecutive_failures: int) -> Health:
    if level in ("contingent", "emergency"):
        return "critical"
    return "degraded" if level == "alternate" or consecutive_failures >= 2 else "nominal"


def status_text(report: SaluteReport, workflow: Workflow | None = None, step: str = "") -> str:
    """Return text such as "Bug Fix Workflow: implementing the fix (step 3/5, 60% complete), role: …, tool: …"."""
    activity, unit = report.activity, report.unit
    about = [
        f"{_activity_text(report, workflow, step)}{_progress_text(report)}",
        *([f"role: {unit.role_name or unit.role_id}"] if unit.role_name or unit.role_id else []),
        *([f"tool: {activity.current_tool}"] if activity.current_tool else []),
        *([f"attempt: {tries + 1}"] if (tries := activity.iterations_on_current_step) > 0 else []),
    ]
    return ", ".join(about)


def percent(progress: float) -> int:
    """Convert a fraction, which may be out of bounds, to percent. Unfinished work is never shown as 100."""
    share = min(max(progress, 0.0), 1.0)
    return 100 if share == 1.0 else min(99, round(share * 100))


def _activity_text(report: SaluteReport, workflow: Workflow | None, step: str) -> str:
    activity = report.activity
    plan = workflow.name if workflow else title_name(activity.htn_plan) or plain_name(activity.bst_domain)
    node = step_node(workflow, activity.htn_step) if workflow else None
    name = step or (node.name if node else "")
    now = doing(name) if name else _STATES[report.status.state]
    return f"{plan}: {now}" if plan else now[:1].upper() + now[1:]


def _progress_text(report: SaluteReport) -> str:
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


# The folder of SALUTE reports: `<role>_latest.json`, and an archive. We write files atomically; other kernels may not.

LATEST = "_latest.json"
ARCHIVE = "archive"
ARCHIVE_S = 3600
MAX_REPORT = 1024 * 1024
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


class FoundReport(Struct, frozen=True):
    """A report, and the time its file was written (seconds)."""

    report: SaluteReport
    at: float
    path: str


class ReportFolder:
    """A folder of reports, which a kernel writes and a server reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, report: SaluteReport) -> Path:
        """Write a report atomically: a reader sees either the old report or this one. Reports older than one hour are
        removed from the archive."""
        name = _UNSAFE.sub("_", report.unit.role_id) or "unknown"
        content = write_report(report)
        archive = self.folder / ARCHIVE
        archive.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC)
        _replace(archive / f"{name}_{now:%Y%m%d_%H%M%S}.json", content)
        latest = self.folder / f"{name}{LATEST}"
        _replace(latest, content)
        _tidy(archive, now.timestamp() - ARCHIVE_S)
        return latest

    def latest(self, since: float = 0.0) -> FoundReport | None:
        """Return the newest readable report of any role that was written at or after a time.

        Reports do not name their task, so only the time shows which task they belong to. A half-written report is
        skipped until the next call.
        """
        return next(iter(self.since(since)), None)

    def since(self, since: float) -> list[FoundReport]:
        """Return the readable reports that were written at or after a time: one for each role, newest first."""
        found = [one for path in self._files() if (one := _found(path, since)) is not None]
        return sorted(found, key=lambda one: one.at, reverse=True)

    def _files(self) -> list[Path]:
        try:
            return [path for path in self.folder.iterdir() if path.name.endswith(LATEST)]
        except OSError:
            return []


def _found(path: Path, since: float) -> FoundReport | None:
    try:
        at = path.stat().st_mtime
        if at < since or path.stat().st_size > MAX_REPORT:
            return None
        report = read_report(path.read_bytes())
    except OSError:
        return None
    return FoundReport(report, at, str(path)) if report is not None else None


def _replace(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _tidy(archive: Path, before: float) -> None:
    for path in archive.glob("*.json"):
        try:
            if path.stat().st_mtime < before:
                path.unlink()
        except OSError:
            continue
