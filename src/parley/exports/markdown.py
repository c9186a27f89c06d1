"""Markdown: what was said is Markdown mostly, and stays what it is within its own message."""

import re
from pathlib import Path
from urllib.parse import quote

from markdown_it import MarkdownIt

from parley.core.dialogue import Attachment
from parley.core.transcripts import Said
from parley.engine.export import Cover, Sheet
from parley.exports.parsing import OverBudget, budgeted, environment
from parley.exports.words import KINDS, MADE, attachments, counted, described, edition, fenced, is_web, model, moment

_LOWER = 2
"""How far a heading within a message is lowered, so that the outline is that of the conversation."""
_PROBE = "3d0c1e0a-end"
_ARTIFACTS = "---\n\n# Artifacts\n\n"
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")

_IN_URLS = ":/?#[]@!$&'()*+,;=%~"

_parser = budgeted(MarkdownIt("commonmark").enable("table"))


class MarkdownRenderer:
    media_type = "text/markdown; charset=utf-8"
    extension = "md"

    def __init__(self) -> None:
        self._agent = ""
        self._documents = 0

    def opening(self, cover: Cover) -> str:
        begun, self._agent = cover.conversation, cover.agent
        return (
            f"# Conversation with {plain(cover.agent)}\n\n"
            f"- Conversation: `{begun.id}`\n- Begun: {moment(begun.started_at)}\n"
            f"- Exported: {moment(cover.exported_at)} (`{cover.id}`)\n\n"
        )

    def message(self, said: Said) -> str:
        if said.role == "system":
            return f"---\n\n*{plain(said.content)}* ({moment(said.at)})\n\n"
        by = f" · {plain(model(said))}" if model(said) else ""
        speaker = plain(said.agent or self._agent) if said.role == "assistant" else "User"
        heading = f"---\n\n## {speaker}{by} · {moment(said.at)}\n\n"
        return f"{heading}{contained(said.content)}\n\n{_attached(said)}"

    def document(self, sheet: Sheet) -> str:
        self._documents += 1
        document, first = sheet.document, self._documents == 1
        versions = "".join(f"| {one.number} | {MADE[one.provenance]} | {moment(one.at)} |\n" for one in sheet.versions)
        return (
            f"{_ARTIFACTS if first else ''}"
            f"## {KINDS[document.kind]}: {plain(document.title)}\n\n"
            f"*{edition(sheet)}, {MADE[sheet.version.provenance]} {moment(sheet.version.at)}*\n\n"
            f"{_content(sheet)}\n\n"
            f"| Version | How | When |\n|---:|---|---|\n{versions}\n"
        )

    def closing(self, messages: int) -> str:
        return f"---\n\n*{counted(messages, 'message')}*\n"

    def bound(self, written: Path) -> Path:
        return written


def plain(text: str) -> str:
    """One line, in which nothing means anything but itself."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def contained(text: str) -> str:
    """Markdown that ends where it ends. What would go on into the next message is quoted as a whole, and so is what
    is too long or costs too much to find out."""
    text = text.strip("\n")
    try:
        tokens = _parser.parse(f"{text}\n\n{_PROBE}\n", environment(text))
    except OverBudget:
        return _quoted(text)
    if not tokens or tokens[-1].type != "paragraph_close" or tokens[-2].content != _PROBE:
        return _quoted(text)
    lines = text.split("\n")
    for token in reversed(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map is not None:
            _lower(lines, token.map[0], token.map[1], token.markup, int(token.tag[1]))
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.split("\n"))


def _lower(lines: list[str], start: int, end: int, markup: str, level: int) -> None:
    hashes = "#" * min(level + _LOWER, 6)
    if markup.startswith("#"):
        lines[start] = f"{hashes} {lines[start].strip().lstrip('#').strip()}"
    else:
        words = " ".join(line.strip() for line in lines[start : end - 1])
        lines[start:end] = [f"{hashes} {words}"]


def _content(sheet: Sheet) -> str:
    if sheet.version.format == "markdown":
        return contained(sheet.content)
    return fenced(sheet.content, sheet.version.format)


def _attached(said: Said) -> str:
    lines = [f"- {_link(one) if is_web(one.url) else plain(described(one))}\n" for one in attachments(said)]
    return f"Attached:\n\n{''.join(lines)}\n" if lines else ""


def _link(one: Attachment) -> str:
    return f"[{plain(described(one))}](<{quote(one.url or '', safe=_IN_URLS)}>)"
