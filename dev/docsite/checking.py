"""Checks that the generator does not make: pictures, links in HTML, and no page loads anything from other sites."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("video", "src")}
_STATED = {"canonical", "next", "prev"}
"""Relations of `<link>` that name an address and load nothing."""


class Page(HTMLParser):
    """The ids of a page, where it leads, and what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.ids: set[str] = {""}
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        for name in ("href", "src"):
            if name not in given:
                continue
            loads = (tag, name) in _LOADED and given.get("rel") not in _STATED
            (self.loads if loads else self.leads).append(given[name])


def faults(site: Path) -> list[str]:
    pages = {file.resolve(): Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    return sorted({fault for page in pages.values() for fault in _faults(page, pages, site)})


def _faults(page: Page, pages: dict[Path, Page], site: Path) -> Iterator[str]:
    name = page.file.relative_to(site)
    for address in page.loads:
        if urlsplit(address).netloc:
            yield f"{name}: loads {address} from elsewhere"
    for address in (*page.loads, *page.leads):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = (page.file.parent / unquote(parts.path)).resolve() if parts.path else page.file.resolve()
        target = target / "index.html" if target.is_dir() else target
        if not target.exists():
            yield f"{name}: {address} is not there"
        elif target in pages and unquote(parts.fragment) not in pages[target].ids:
            yield f"{name}: {address} has no such heading"
