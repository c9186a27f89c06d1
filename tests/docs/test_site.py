"""The site: it builds without a warning, has every page, and needs nothing from elsewhere."""

import re
import tomllib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from dev.docsite.building import BuildFailed, built
from dev.docsite.checking import faults

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SHAPES = {"table", "tr", "pre", "li", "h1", "h2", "h3"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site() -> Path:
    return built(ROOT)


def test_it_has_no_broken_link_and_loads_nothing_from_elsewhere(site: Path) -> None:
    assert faults(site) == []
    styles = "".join(file.read_text() for file in site.rglob("*.css"))
    assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)]*", styles)


def navigated(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [page for child in children for page in navigated(child)]


def test_every_page_is_in_the_navigation_once() -> None:
    pages = navigated(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    assert sorted(pages) == sorted(str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md"))


def test_language_models_find_every_page(site: Path) -> None:
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): (.+)$", (site / "llms.txt").read_text("utf-8"), re.MULTILINE)
    assert sorted(page for page, _ in listed) == sorted(str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md"))
    full = (site / "llms-full.txt").read_text("utf-8")
    for page, summary in listed:
        assert len(summary) > 10, page
        text = (site / page).read_text("utf-8")
        assert text.strip() in full
        assert "<!-- prepare" not in text


class Shapes(HTMLParser):
    """Counts the elements of a page's article, without what the theme adds around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in SHAPES:
            self.counts[tag] += 1


def article(html: str) -> str:
    found = re.search(r"<article[^>]*>(.*)</article>", html, re.DOTALL)
    assert found
    return found[1]


def test_it_shows_the_pages_as_any_reader_of_markdown_does(site: Path) -> None:
    """The generator reads another Markdown than the places where the files themselves are looked at."""
    common = MarkdownIt("commonmark").enable("table")
    differ: dict[str, Any] = {}
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix(".html")
        here = Shapes(article((site / name).read_text("utf-8"))).counts
        there = Shapes(common.render(page.read_text("utf-8"))).counts
        if here != there:
            differ[str(name)] = {tag: (here[tag], there[tag]) for tag in SHAPES if here[tag] != there[tag]}
    assert differ == {}


@pytest.mark.parametrize(
    "text", ["[x](nothing.md)", "[x](log.md#no-such-heading)", "![x](pictures/none.png)", '<img src="https://a.example/b">']
)  # fmt: skip
def test_a_page_with_something_wrong_does_not_pass(text: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("index", "log"):
        (tmp_path / "docs" / f"{name}.md").write_text(f"# {name}\n\n{text}\n")
    (tmp_path / "zensical.toml").write_text(
        '[project]\nsite_name = "x"\nsite_dir = "build/site"\nuse_directory_urls = false\n'
    )
    try:
        found = faults(built(tmp_path))
    except BuildFailed:
        return
    assert found
