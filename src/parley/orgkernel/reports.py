"""The folder of SALUTE reports: `<role>_latest.json`, and an archive. Written whole, read also when it was not."""

import os
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from parley.orgkernel.salute import Report, read_report, write_report

LATEST = "_latest.json"
ARCHIVE = "archive"
ARCHIVE_S = 3600
MAX_REPORT = 1024 * 1024
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


class Found(Struct, frozen=True):
    """A report, and when its file was written (seconds)."""

    report: Report
    at: float
    path: str


class Reports:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, report: Report) -> Path:
        """In one step: a reader sees the old report or this one. Reports of over an hour ago leave the archive."""
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

    def latest(self, since: float = 0.0) -> Found | None:
        """The newest report that was written at or after a time and can be read, of whichever role.

        Reports carry no task: time is all that tells whose they are. One that is half written is left for next time.
        """
        return next(iter(self.since(since)), None)

    def since(self, since: float) -> list[Found]:
        """All that were written at or after a time and can be read, one for each role, the newest first."""
        found = [one for path in self._files() if (one := _found(path, since)) is not None]
        return sorted(found, key=lambda one: one.at, reverse=True)

    def _files(self) -> list[Path]:
        try:
            return [path for path in self.folder.iterdir() if path.name.endswith(LATEST)]
        except OSError:
            return []


def _found(path: Path, since: float) -> Found | None:
    try:
        at = path.stat().st_mtime
        if at < since or path.stat().st_size > MAX_REPORT:
            return None
        report = read_report(path.read_bytes())
    except OSError:
        return None
    return Found(report, at, str(path)) if report is not None else None


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
