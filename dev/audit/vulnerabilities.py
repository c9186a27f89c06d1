"""Reads the report of pip-audit. A package that it did not check is a finding too."""

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from dev.audit.words import OURS, Finding, Package, plain

EVERYTHING = "everything"
MISSED = "could not be audited"


class _Vulnerability(Struct, frozen=True):
    id: str
    fix_versions: list[str] = []


class _Dependency(Struct, frozen=True):
    name: str
    version: str | None = None
    vulns: list[_Vulnerability] | None = None
    skip_reason: str | None = None


class _Report(Struct, frozen=True):
    dependencies: list[_Dependency]


def audited(program: Path, place: Path, packages: Iterable[Package]) -> list[Finding]:
    """Run pip-audit on all packages installed in a folder."""
    asked = [str(program), "--path", str(place), "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    try:
        report = msgspec.json.decode(done.stdout, type=_Report)
    except msgspec.MsgspecError:
        said = (done.stderr.strip() or "nothing").splitlines()[-1]
        return [Finding(EVERYTHING, f"{MISSED}: pip-audit ended with {done.returncode} and said: {said}")]
    return sorted({*_found(report), *_unseen(report, packages)})


def _found(report: _Report) -> Iterator[Finding]:
    for one in report.dependencies:
        name = plain(one.name)
        if name in OURS:
            continue
        for vulnerability in one.vulns or ():
            fix = ", ".join(vulnerability.fix_versions) or "nothing yet"
            yield Finding(f"{name} {one.version}", f"{vulnerability.id} is known, mended by {fix}.")
        if one.vulns is None:
            yield Finding(name, f"{MISSED}: {one.skip_reason or 'no reason is given'}.")


def _unseen(report: _Report, packages: Iterable[Package]) -> Iterator[Finding]:
    """Installed packages that are missing in the report, or listed with another version."""
    seen = {(plain(one.name), one.version) for one in report.dependencies if one.vulns is not None}
    skipped = {plain(one.name) for one in report.dependencies if one.vulns is None}
    for package in packages:
        if package.name not in OURS | skipped and (package.name, package.version) not in seen:
            yield Finding(str(package), "was not audited: the report does not have it.")


def shown(findings: list[Finding], packages: Iterable[Package]) -> list[str]:
    """Findings to print. If nothing could be audited, one finding instead of two hundred."""
    asked = {one.name for one in packages} - OURS
    missed = {one.package for one in findings if one.problem.startswith(MISSED)}
    if len(asked) < 2 or missed != asked:
        return list(map(str, findings))
    return [f"None of {len(asked)} packages could be audited: does the service answer? It said: {findings[0]}"]
