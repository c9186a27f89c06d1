"""SALUTE reports as the kernel inside Agent-Zero writes them: in place, and sometimes caught halfway."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from parley.orgkernel.salute import (
    Level,
    SaluteActivity,
    SaluteEnvironment,
    SaluteLocation,
    SaluteReport,
    SaluteStatus,
    SaluteTime,
    SaluteUnit,
    State,
    write_report,
)


def report(
    level: Level = "primary", *, step: int = 3, state: State = "active", role: str = "bugfix_specialist",
    plan: str = "Bug Fix Workflow", tool: str = "", files: tuple[str, ...] = (), failures: int = 0, ago_s: float = 0.0,
) -> SaluteReport:  # fmt: skip
    at = datetime.fromtimestamp(time.time() - ago_s, UTC).isoformat()
    return SaluteReport(
        status=SaluteStatus(state, step / 5, level),
        activity=SaluteActivity("Fix the bug", "bugfix", plan, step, 5, tool),
        location=SaluteLocation("/a0/usr/workdir", files),
        unit=SaluteUnit(role, role.replace("_", " ").title()),
        time=SaluteTime(at),
        environment=SaluteEnvironment(tool_failures_consecutive=failures, tool_failures_total=failures),
    )


def write(folder: Path, said: SaluteReport, *, half: bool = False, ago_s: float = 0.0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path, content = folder / f"{said.unit.role_id}_latest.json", write_report(said)
    path.write_bytes(content[: len(content) // 2] if half else content)
    if ago_s:
        os.utime(path, (time.time() - ago_s,) * 2)
