"""The active organisation of a folder, for a kernel in this process or elsewhere. Read again when its files change."""

import time

import msgspec
from msgspec import Raw

from parley.execution.rules import ArtifactChunk
from parley.execution.turn import Turn
from parley.orgkernel.card import described
from parley.orgkernel.definitions import Level, Organisation
from parley.orgkernel.loader import LoadedOrganisation, Marks, OrganisationLoader, OrganisationPaths, marks
from parley.orgkernel.pace import GivenUp
from parley.orgkernel.salute import SaluteReport
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Part
from parley.telemetry import tell

LOOK_S = 1.0
"""Shortest time between two checks of the files when a caller only reads the organisation."""


class Organised:
    """The active organisation. A broken file keeps its last good content, and the problem is logged once."""

    def __init__(self, places: OrganisationPaths | None, slug: str) -> None:
        self._reader = OrganisationLoader(places) if places else None
        self._slug = slug
        self._marks: Marks | None = None
        self._looked = -LOOK_S
        self.reading = LoadedOrganisation(None, ())
        """The organisation as last read, and the problems in its files."""

    @property
    def active(self) -> Organisation | None:
        if time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            self.refresh()
        return self.reading.organisation

    def described(self, agent: Agent) -> Agent:
        return described(agent, self.active)

    def refresh(self) -> bool:
        """Check the files. Returns True if they were read again."""
        seen = marks(self._reader.places) if self._reader else None
        if self._reader is None or seen == self._marks:
            return False
        told = self.reading.problems
        self._marks, self.reading = seen, self._reader.read()
        for problem in self.reading.problems:
            if problem not in told:
                tell("org.problem", agent=self._slug, message=problem.text)
        return True


# Shared by the drivers of organisations: logging of PACE levels, and the failure report as an artifact.

STATES: dict[Level, str] = {
    "primary": "working", "alternate": "working", "contingent": "input-required", "emergency": "failed",
}  # fmt: skip
"""A2A state of each PACE level, from the organisation contract (001)."""


class Levels:
    def __init__(self, turn: Turn, level: Level = "primary") -> None:
        self._turn = turn
        self._level: Level = level

    def heard(self, report: SaluteReport) -> None:
        before, level = self._level, report.status.pace_level
        if level == before:
            return
        self._level = level
        tell(
            "org.pace",
            run=self._turn.run_id,
            agent=self._turn.agent.slug,
            role=report.unit.role_id,
            before=before,
            pace=level,
            state=STATES[level],
        )


def failure_report(given_up: GivenUp) -> ArtifactChunk:
    content = Part(data=Raw(msgspec.json.encode(given_up)), media_type="application/json")
    return ArtifactChunk(content, "failure-report", "Failure report", filename="failure-report.json")
