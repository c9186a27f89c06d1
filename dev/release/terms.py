"""Texts of the licences of all packages that a user of the distributions installs."""

from collections.abc import Iterable
from pathlib import Path

from dev.audit.licences import Rules, licence_of
from dev.audit.words import Package

_NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")
_RULE = "=" * 78


def texts(packages: Iterable[Package], rules: Rules, place: Path) -> str:
    """One section for each package: its licence, and the licence files that it installs."""
    return "\n".join(_section(package, rules, place) for package in packages)


def _section(package: Package, rules: Rules, place: Path) -> str:
    files = [file.read_text("utf-8", errors="replace").rstrip() for file in _files(package, place)]
    head = f"{_RULE}\n{package.name} {package.version}\nLicense: {licence_of(package, rules)}\n{_RULE}\n"
    return head + "\n" + "\n\n".join(files or ["This package installs no licence file."]) + "\n"


def _files(package: Package, place: Path) -> list[Path]:
    # The folder's name is the package's, but for case and the kind of dashes.
    wanted = f"{package.name}-{package.version}".replace("-", "_").replace(".", "_").lower()
    for folder in place.glob("*.dist-info"):
        if folder.name.removesuffix(".dist-info").replace("-", "_").replace(".", "_").lower() == wanted:
            return sorted(file for file in folder.rglob("*") if file.is_file() and file.name.upper().startswith(_NAMES))
    return []
