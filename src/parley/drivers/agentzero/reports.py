"""The kernel's SALUTE reports beside an Agent-Zero: which of them speak of our work, and what they say."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from parley.drivers.organised import Organised
from parley.orgkernel.definitions import Role, Workflow
from parley.orgkernel.pace import Evidence, GivenUp, Shown, given_up, shown
from parley.orgkernel.reports import Found, Reports
from parley.orgkernel.salute import Report, status_text

MARK = "salute:"
SLACK_S = 1.0
"""Times in reports may be in whole seconds; those of files are a few milliseconds behind."""
_FILE_SLACK_S = 0.05


class Bulletins:
    """Looks into the folder of reports. Without one there is never anything in it."""

    def __init__(self, folder: Path | None, organised: Organised, marks: list[str]) -> None:
        self._reports = Reports(folder) if folder else None
        self._organised = organised
        self._seen = max((float(mark.removeprefix(MARK)) for mark in marks if mark.startswith(MARK)), default=0.0)
        self.latest: Found | None = None

    async def look(self, since_ms: int, began_ms: int) -> Found | None:
        """The newest report of this work, if it is news. One that is half written is read at the next look."""
        if self._reports is None:
            return None
        found = await asyncio.to_thread(self._reports.since, since_ms / 1000 - _FILE_SLACK_S)
        mine = next((one for one in found if belongs(one.report, since_ms, began_ms)), None)
        if mine is not None:
            self.latest = mine
        if mine is None or mine.at <= self._seen:
            return None
        self._seen = mine.at
        return mine

    def told(self, report: Report, evidence: Evidence) -> Shown:
        """In the client's words, with the names that the organisation has for things."""
        return shown(report, *self._named(report), evidence)

    def working(self, report: Report) -> str:
        """Work under way in the client's words, whatever level the report says."""
        return status_text(report, self._named(report)[0])

    def given_up(self, report: Report, evidence: Evidence) -> GivenUp:
        """The failure report, whatever level the report says."""
        return given_up(report, *self._named(report), evidence)

    def _named(self, report: Report) -> tuple[Workflow | None, Role | None]:
        found = self._organised.active
        if found is None:
            return None, None
        return found.workflow(report.activity.htn_plan), found.role(report.unit.role_id)


def belongs(report: Report, since_ms: int, began_ms: int) -> bool:
    """Reports name no task. Ours says that it was made after our message, of work not begun before our task, and that
    somebody is at work at all: a role without work reports too."""
    if report.status.state == "idle":
        return False
    made, started = moment(report.time.timestamp), moment(report.time.task_started or "")
    return (made is None or made >= since_ms / 1000 - SLACK_S) and (
        started is None or started >= began_ms / 1000 - SLACK_S
    )


def moment(text: str) -> float | None:
    """Seconds; a time without a zone is in UTC, as the kernel writes it."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
