"""Findings of `make audit`; a missing answer is never taken for a good one."""

import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from dev.audit.__main__ import main
from dev.audit.expressions import Unreadable, allows
from dev.audit.licences import RULES, judged, licence_of, rules
from dev.audit.words import installed

ALLOWED = frozenset(("MIT", "Apache-2.0"))


class House:
    """A place with packages in it, and a program that says of them what it is told to."""

    def __init__(self, directory: Path) -> None:
        self.place = directory / "site-packages"
        self.place.mkdir()
        self._program = directory / "pip-audit"
        self._known: list[dict[str, Any]] = []

    def package(self, name: str, *lines: str, version: str = "1.0") -> None:
        folder = self.place / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        text = "\n".join(("Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines))
        (folder / "METADATA").write_text(text + "\n")

    def audited(self, name: str, *vulnerabilities: str, version: str = "1.0") -> None:
        known = [{"id": one, "fix_versions": ["1.1"], "aliases": [], "description": ""} for one in vulnerabilities]
        self._known.append({"name": name, "version": version, "vulns": known})

    def skipped(self, name: str, reason: str) -> None:
        self._known.append({"name": name, "skip_reason": reason})

    def audit(self) -> int:
        report = json.dumps({"dependencies": self._known, "fixes": []})
        return self.audit_with(f"print({report!r})\nraise SystemExit({any(one.get('vulns') for one in self._known)})")

    def audit_with(self, source: str) -> int:
        self._program.write_text(f"#!{sys.executable}\n{source}\n")
        self._program.chmod(0o755)
        return main(self._program, self.place)


@pytest.fixture
def house(tmp_path: Path) -> House:
    made = House(tmp_path)
    made.package("good-one", "License-Expression: MIT")
    made.audited("good-one")
    return made


def test_where_nothing_is_known_against_anything_all_is_well(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    house.package("parley-a2a", "License-Expression: Apache-2.0")
    house.skipped("parley-a2a", "not on the index")
    assert house.audit() == 0
    assert "2 packages: nothing is known against them" in capsys.readouterr().out


def test_a_vulnerable_package_is_found(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    house.package("weak", "License-Expression: MIT")
    house.audited("weak", "CVE-2026-1")
    assert house.audit() == 1
    assert "weak 1.0: CVE-2026-1 is known, mended by 1.1." in capsys.readouterr().out


def test_a_package_that_was_skipped_is_a_finding(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    house.package("private", "License-Expression: MIT")
    house.skipped("private", "Dependency not found on PyPI")
    assert house.audit() == 1
    assert "private: could not be audited: Dependency not found on PyPI." in capsys.readouterr().out


def test_a_package_that_the_report_leaves_out_is_a_finding(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    house.package("forgotten", "License-Expression: MIT")
    house.package("other", "License-Expression: MIT", version="2.0")
    house.audited("other", version="1.9")
    assert house.audit() == 1
    said = capsys.readouterr().out
    assert "forgotten 1.0: was not audited" in said
    assert "other 2.0: was not audited" in said


def test_a_service_that_cannot_be_reached_is_a_finding(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.audit_with("raise ConnectionError('Name or service not known')") == 1
    said = capsys.readouterr().out
    assert "everything: could not be audited: pip-audit ended with 1" in said
    assert "Name or service not known" in said


def test_a_service_that_knows_nothing_is_told_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house = House(tmp_path)
    for number in range(30):
        house.package(f"p{number}", "License-Expression: MIT")
        house.skipped(f"p{number}", "Dependency not found on PyPI")
    assert house.audit() == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("None of 30 packages could be audited: does the service answer?")
    assert len(said) == 2


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["License-Expression: AGPL-3.0-only"], "not allowed: AGPL-3.0-only"),
        (["License-Expression: MIT AND GPL-2.0-only"], "not allowed: MIT AND GPL-2.0-only"),
        (["Classifier: License :: OSI Approved :: GNU General Public License (GPL)"], "cannot be read"),
        (["License: Do what you want"], "cannot be read"),
        ([], "does not say on which terms"),
    ],
)
def test_a_licence_that_is_not_allowed_is_found(
    house: House, capsys: pytest.CaptureFixture[str], lines: list[str], problem: str
) -> None:
    house.package("strange", *lines)
    house.audited("strange")
    assert house.audit() == 1
    assert problem in capsys.readouterr().out


def test_an_exception_is_for_one_licence_only(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.package("certifi", "License-Expression: MPL-2.0")
    assert judged(installed(house.place), rules()) == []
    house.package("hypothesis", "License-Expression: AGPL-3.0-only")
    (found,) = judged(installed(house.place), rules())
    assert "is excepted for 'MPL-2.0', and has 'AGPL-3.0-only' now" in str(found)


def test_every_exception_has_its_reason() -> None:
    given = rules(RULES)
    assert given.exceptions
    assert all(len(one.reason) > 20 for one in given.exceptions.values())
    assert not {one.licence for one in given.exceptions.values()} & given.allowed


def test_the_licences_of_what_is_installed_here_are_allowed() -> None:
    packages = list(installed(Path(sysconfig.get_path("purelib"))))
    assert len(packages) > 50
    assert judged(packages, rules()) == []
    assert {licence_of(one, rules()) for one in packages if one.name == "parley-a2a"} == {"Apache-2.0"}


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ("MIT", True), ("GPL-3.0-only", False), ("GPL-3.0-only OR MIT", True), ("GPL-3.0-only AND MIT", False),
        ("(GPL-3.0-only OR MIT) AND Apache-2.0", True), ("MIT or Apache-2.0", True),
        ("Apache-2.0 WITH LLVM-exception", True), ("MIT AND (GPL-3.0-only AND MIT)", False),
    ],
)  # fmt: skip
def test_expressions_are_read_as_spdx_means_them(expression: str, verdict: bool) -> None:
    assert allows(expression, ALLOWED) is verdict


@pytest.mark.parametrize("text", ["", "MIT OR", "(MIT", "MIT Apache-2.0", "AND MIT", "MIT)", "()"])
def test_what_is_no_expression_is_not_taken_for_one(text: str) -> None:
    with pytest.raises(Unreadable):
        allows(text, ALLOWED)
