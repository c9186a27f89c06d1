"""Published distributions contain all needed files and no other."""

import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet

from parley import __version__, extras
from tests.packaging.distributions import ROOT, Distribution

FOREIGN = re.compile(r"(^|/)(tests?|bench|node_modules|__pycache__)/|\.(pyc|lock|toml)$")


def in_source(folder: Path, packages: tuple[str, ...]) -> set[str]:
    """Every file of the packages, whatever it is: code, templates, migrations, pictures."""
    return {
        str(path.relative_to(folder))
        for package in packages
        for path in (folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_packages_as_they_are_and_nothing_besides(parley: Distribution) -> None:
    files = {name for name in parley.wheel_files() if ".dist-info/" not in name}
    assert files == in_source(ROOT / "src", ("parley", "a2a_server"))
    assert not [name for name in files if FOREIGN.search(name)]


def test_the_wheel_has_what_is_no_code(parley: Distribution) -> None:
    files = parley.wheel_files()
    for kind in (
        r"^parley/py\.typed$",
        r"^parley/console/templates/.*\.html$",
        r"^parley/console/static/.*\.css$",
        r"^parley/stores/migrations/.*\.sql$",
        r"^parley/documents/export/page\.typ$",
        r"^parley/orgkernel/sample/.*\.json$",
    ):
        assert any(re.search(kind, name) for name in files), kind


def test_the_wheel_of_the_edge_is_its_package(edge: Distribution) -> None:
    files = {name for name in edge.wheel_files() if ".dist-info/" not in name}
    assert files == in_source(ROOT / "edge" / "src", ("parley_edge",))
    assert "parley_edge/py.typed" in files


def test_a_source_distribution_can_be_built_and_tested_without_the_repository(parley: Distribution) -> None:
    files = parley.sdist_files()
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "Makefile", "constraints.txt"} <= files
    assert in_source(ROOT, ("src",)) <= files
    assert "tests/packaging/test_distributions.py" in files
    assert not [name for name in files if re.search(r"(^|/)(node_modules|__pycache__|\.venv|build|dist)/", name)]


def test_every_extra_is_declared_and_all_means_all() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert declared.keys() == {*extras.MODULES, "all", "dev", "docs"}
    (everything,) = declared["all"]
    assert everything == f"parley-a2a[{','.join(sorted(extras.MODULES))}]"


def test_the_versions_agree() -> None:
    for project in (ROOT / "pyproject.toml", ROOT / "edge" / "pyproject.toml"):
        assert tomllib.loads(project.read_text())["project"]["version"] == __version__


def test_pins_are_names_and_versions_and_no_addresses() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []


def test_every_requirement_is_pinned(parley: Distribution) -> None:
    pinned = {_plain(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    named = {_plain(one) for one in re.findall(r"^Requires-Dist: ([A-Za-z0-9._-]+)", parley.metadata(), re.MULTILINE)}
    assert named
    assert named - pinned == set()


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_versions_that_we_pin_take_every_python_that_we_take() -> None:
    """Also the first release of one, which is what a distribution may have."""
    oldest = (
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=") + ".0"
    )
    asking = {found.name: found.metadata.get("Requires-Python") or ">=3" for found in distributions()}
    assert len(asking) > 100
    assert {name for name, wanted in asking.items() if not SpecifierSet(wanted).contains(oldest)} == set()
