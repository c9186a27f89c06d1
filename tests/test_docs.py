"""The pages say what the code does."""

import re
import sys
from pathlib import Path

import pytest

import parley.client
import parley.extras
import parley.faces.a2a.errors
from parley import __version__
from parley.errors import ParleyError
from parley.runs.rules.events import EVENT_TYPES
from parley.tools.rules.policy import REASON_CODES

ROOT = Path(__file__).parent.parent


def codes(kind: type[ParleyError]) -> set[str]:
    return {kind.code}.union(*(codes(child) for child in kind.__subclasses__()))


def test_every_error_code_is_documented() -> None:
    assert parley.client
    assert parley.extras.ExtraMissing
    assert parley.faces.a2a.errors
    page = (ROOT / "docs" / "errors.md").read_text()
    missing = {code for code in codes(ParleyError) if f"`{code}`" not in page}
    assert not missing


def test_every_event_is_documented() -> None:
    page = (ROOT / "docs" / "log.md").read_text()
    assert [name for name in EVENT_TYPES if f"`{name}`" not in page] == []


def test_every_reason_of_a_tool_is_documented() -> None:
    page = (ROOT / "docs" / "tools.md").read_text()
    assert [code for code in REASON_CODES if f"`{code}`" not in page] == []


@pytest.mark.parametrize("page", ["README.md", "docs/agents.md", "docs/nodekit.md", "docs/telemetry.md"])
def test_the_agents_in_the_pages_work(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snippet whose first line names a file can be imported by the snippets after it."""
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert snippets
    monkeypatch.syspath_prepend(tmp_path)
    for snippet in snippets:
        if named := re.match(r"# (\w+)\.py\n", snippet):
            (tmp_path / f"{named[1]}.py").write_text(snippet)
            monkeypatch.delitem(sys.modules, named[1], raising=False)
        exec(compile(snippet, page, "exec"), {})


def test_every_link_leads_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("**/README.md")):
        if "node_modules" in page.parts:
            continue
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_decision_that_the_code_links_to_exists() -> None:
    links = [
        (file.name, *link)
        for source in ("src", "edge/src")
        for file in (ROOT / source).rglob("*.py")
        for link in re.findall(r"# Why: (docs/decisions/[\w-]+\.md)#(\S+)", file.read_text())
    ]
    assert len(links) > 60
    anchors = {page: _anchors((ROOT / page).read_text()) for page in {page for _, page, _ in links}}
    assert [link for link in links if link[2] not in anchors[link[1]]] == []


def _anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_every_module_that_the_pages_name_exists() -> None:
    named = [
        (page.name, path)
        for page in (ROOT / "docs").rglob("*.md")
        for path in re.findall(r"`((?:edge/)?src/[\w/]+\.py)`", page.read_text())
    ]
    assert len(named) > 50
    assert [one for one in named if not (ROOT / one[1]).is_file()] == []


def test_every_module_in_the_pictures_of_requests_exists() -> None:
    places = [
        (picture.name, name)
        for picture in (ROOT / "docs" / "pictures").glob("walk-*.svg")
        for name in re.findall(r'class="m"[^>]*>([a-z_0-9.]+)<', picture.read_text())
        if "." in name
    ]
    assert len(places) > 30
    source = ROOT / "src" / "parley"
    assert [one for one in places if not (source / f"{one[1].replace('.', '/')}.py").is_file()] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_what_is_to_be_made_can_be_made(page: str) -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:^    |`)make ([a-z-]+)", (ROOT / page).read_text(), re.MULTILINE)
    assert named
    assert [name for name in named if name not in known] == []


def test_there_are_notes_for_the_version_that_there_is() -> None:
    notes = (ROOT / "docs" / "releases" / f"{__version__}.md").read_text()
    assert notes.startswith(f"# Parley {__version__}\n")


def test_the_readme_is_short_and_begins_with_what_it_is() -> None:
    page = (ROOT / "README.md").read_text()
    assert page.count("\n") <= 200
    pitch, _, _ = page.partition("## Quick start")
    assert len(pitch.split()) < 160
    assert {"docs/pictures/run-1600-light.png", "docs/pictures/architecture.svg"} <= set(
        re.findall(r"\]\((\S+)\)", pitch)
    )


def test_the_comparisons_name_their_sources() -> None:
    table, _, sources = (ROOT / "docs" / "peers.md").read_text().partition("## Sources")
    projects = [row[0].split("**")[1] for row in rows(table)[1:]]
    assert len(projects) >= 11
    assert [name for name in projects if f"- **{name}" not in sources] == []
    named = [row[0].strip("*") for row in rows((ROOT / "README.md").read_text().partition("## Comparison")[2])[1:8]]
    assert [name for row in named for name in row.split(", ") if name.split()[0] not in table] == []


def rows(text: str) -> list[list[str]]:
    """The tables of a page, row by row."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]


def test_the_figures_in_the_readme_are_those_of_the_benchmarks() -> None:
    section = (ROOT / "README.md").read_text().partition("## Benchmarks")[2].partition("\n## ")[0]
    kept = rows((ROOT / "docs" / "benchmarks.md").read_text())
    shown = [[re.findall(r"[\d.,]+ (?:/s|ms|kB)", cell) for cell in row[1:3]] for row in rows(section)[1:]]
    assert len(shown) >= 8
    for ours, beside in shown:
        found = [row for row in kept if any(one in row[1] for one in ours) and beside[0] in row[2]]
        assert found, f"{ours} beside {beside} is not in docs/benchmarks.md"


def test_the_readme_tells_of_every_bound_that_is_missed() -> None:
    section = (ROOT / "README.md").read_text().partition("## Benchmarks")[2].partition("\n## ")[0]
    missed = [row for row in rows((ROOT / "docs" / "benchmarks.md").read_text()) if "**missed**" in row[-1]]
    assert missed
    for row in missed:
        assert row[3] in section, f"{row[0]} misses its bound with {row[3]}"


def test_the_conformance_in_the_readme_is_that_of_the_page() -> None:
    section = (ROOT / "README.md").read_text().partition("## Conformance")[2].partition("\n## ")[0]
    counted = [
        [int(cell) for cell in row[3:6]]
        for row in rows((ROOT / "docs" / "conformance.md").read_text())
        if row[:2] == ["1.0-dev", "cards of 1.0 alone"]
    ]
    passed, failed, skipped = map(sum, zip(*counted, strict=True))
    words = " ".join(section.split())
    assert f"passes {passed} checks and fails {failed}; {skipped} are skipped" in words
