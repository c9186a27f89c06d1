"""Pages for language models: `llms.txt` lists them, `llms-full.txt` holds all, and each is there as Markdown."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_HIDDEN = re.compile(r"^ *<!--.*?-->\n?", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class Entry(NamedTuple):
    section: str
    title: str
    page: str


def write(root: Path, site: Path) -> None:
    project = tomllib.loads((root / "zensical.toml").read_text("utf-8"))["project"]
    docs = root / "docs"
    entries = list(_entries(project.get("nav", [])))
    texts = {entry.page: shown((docs / entry.page).read_text("utf-8")) for entry in entries}
    for page, text in texts.items():
        (site / page).write_text(text, "utf-8")
    (site / "llms.txt").write_text(_listed(project, entries, texts), "utf-8")
    full = "\n\n---\n\n".join(f"<!-- {page} -->\n\n{text.strip()}" for page, text in texts.items())
    (site / "llms-full.txt").write_text(full + "\n", "utf-8")


def shown(page: str) -> str:
    """The page as a reader sees it: without comments for tests."""
    return re.sub(r"\n{3,}", "\n\n", _HIDDEN.sub("", page))


def _entries(nav: list[Any], section: str = "") -> Iterator[Entry]:
    for entry in nav:
        for title, below in entry.items():
            if isinstance(below, str):
                yield Entry(section, title, below)
            else:
                yield from _entries(below, section or title)


def _listed(project: dict[str, Any], entries: list[Entry], texts: dict[str, str]) -> str:
    lines = [f"# {project['site_name']}", "", f"> {project.get('site_description', '')}"]
    section = None
    for entry in entries:
        if entry.section != section:
            section = entry.section
            lines += ["", f"## {section or 'Start'}", ""]
        lines.append(f"- [{entry.title}]({entry.page}): {_summary(texts[entry.page])}")
    return "\n".join(lines) + "\n"


def _summary(page: str) -> str:
    """The first sentence of the first paragraph."""
    paragraphs = (" ".join(one.split()) for one in _FENCED.sub("", page).split("\n\n"))
    first = next((one for one in paragraphs if re.match(r"[\w`*\[]", one)), "")
    sentence = re.match(r".*?[.:?!](?= [A-Z]|$)", _LINK.sub(r"\1", first).replace("**", ""))
    return sentence[0] if sentence else first
