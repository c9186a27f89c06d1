"""What drivers of organisations share: the log of PACE levels, and the artifact of a failure report."""

import msgspec
from msgspec import Raw

from parley.core.artifacts import Part
from parley.core.turns import ArtifactChunk
from parley.engine.turns import Turn
from parley.orgkernel.definitions import Level
from parley.orgkernel.pace import GivenUp
from parley.orgkernel.salute import Report
from parley.telemetry import tell

STATES: dict[Level, str] = {
    "primary": "working", "alternate": "working", "contingent": "input-required", "emergency": "failed",
}  # fmt: skip
"""The contract's table, PACE → A2A."""


class Levels:
    def __init__(self, turn: Turn, level: Level = "primary") -> None:
        self._turn = turn
        self._level: Level = level

    def heard(self, report: Report) -> None:
        before, level = self._level, report.status.pace_level
        if level == before:
            return
        self._level = level
        tell(
            "org.pace", run=self._turn.run_id, agent=self._turn.agent.slug, role=report.unit.role_id,
            before=before, pace=level, state=STATES[level],
        )  # fmt: skip


def failure_report(given_up: GivenUp) -> ArtifactChunk:
    content = Part(data=Raw(msgspec.json.encode(given_up)), media_type="application/json")
    return ArtifactChunk(content, "failure-report", "Failure report", filename="failure-report.json")
