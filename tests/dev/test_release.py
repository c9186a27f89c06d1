"""A release can be built again byte for byte, and says what it installs."""

import hashlib
import json
import sysconfig
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from dev.audit import licences
from dev.audit.words import OURS, Package, installed
from dev.release.__main__ import describe
from dev.release.bill import bill_of, document
from dev.release.building import built_twice, git


def package(name: str, *requires: str, extras: tuple[str, ...] = ()) -> Package:
    lines = [f"Name: {name}", "Version: 1.0", "License-Expression: MIT"]
    lines += [f"Requires-Dist: {one}" for one in requires] + [f"Provides-Extra: {one}" for one in extras]
    return Package(name, "1.0", Parser().parsestr("\n".join(lines)))


def wheel(place: Path, of: Package) -> Path:
    file = place / f"{of.name}-1.0-py3-none-any.whl"
    with ZipFile(file, "w") as archive:
        archive.writestr(f"{of.name}-1.0.dist-info/METADATA", of.metadata.as_string())
    return file


def test_the_bill_holds_what_is_installed_and_only_that(tmp_path: Path) -> None:
    known = [
        package("server", "loop[fast]"),
        package("loop", "speed; extra == 'fast'", "windows-only; sys_platform == 'never'", extras=("fast",)),
        package("speed"),
        package("driver", "server"),
        package("linter"),
    ]
    own = package(
        "own",
        "server",
        "driver; extra == 'sql'",
        "linter; extra == 'dev'",
        "own[sql]; extra == 'all'",
        extras=("sql", "all", "dev"),
    )
    bill = bill_of(wheel(tmp_path, own), {one.name: one for one in known})
    assert set(bill.needed) == {"server", "loop", "speed"}
    assert set(bill.optional) == {"driver"}


def test_a_requirement_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="gone is required"):
        bill_of(wheel(tmp_path, package("own", "gone")), {})


@pytest.mark.parametrize(
    ("licence", "shown"),
    [
        ("MIT", {"expression": "MIT"}),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", {"expression": "MPL-2.0 AND (Apache-2.0 OR MIT)"}),
        ("Some words of its own", {"license": {"name": "Some words of its own"}}),
    ],
)
def test_licences_are_spdx_where_they_can_be(licence: str, shown: object, tmp_path: Path) -> None:
    own, other = package("own", "other"), package("other")
    other.metadata.replace_header("License-Expression", licence)
    made = document(bill_of(wheel(tmp_path, own), {"other": other}), licences.rules(), 0)
    assert made["components"][0]["licenses"] == [shown]


@pytest.mark.slow
def test_two_builds_are_the_same_and_everything_is_described(tmp_path: Path) -> None:
    try:
        git("rev-parse", "HEAD")
    except OSError:
        pytest.skip("This copy of the project has no history to build a commit of.")
    dist = tmp_path / "dist"
    dist.mkdir()
    for file in built_twice(tmp_path):
        file.rename(dist / file.name)
    place = Path(sysconfig.get_path("purelib"))
    describe(dist, {one.name: one for one in installed(place) if one.name not in OURS}, place)

    sums = dict(reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines())
    files = {file.name: file for file in dist.iterdir() if file.name != "SHA256SUMS"}
    assert sums == {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    assert sorted(file.suffix for file in files.values()) == [
        "",
        ".gz",
        ".gz",
        ".json",
        ".json",
        ".txt",
        ".whl",
        ".whl",
    ]
    for name in ("parley_a2a", "parley_edge"):
        (made,) = (json.loads(file.read_text()) for file in dist.glob(f"{name}-*.cdx.json"))
        (built,) = dist.glob(f"{name}-*.whl")
        assert made["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": sums[built.name]}]
        refs = [one["bom-ref"] for one in made["components"]]
        assert sorted(set(refs)) == sorted(refs)
        assert {ref for one in made["dependencies"] for ref in (one["ref"], *one["dependsOn"])} >= set(refs)
    assert "\nLicense: " in (dist / "THIRD-PARTY-LICENSES.txt").read_text()
