"""HTML export: one self-contained page without scripts, remote fonts or remote pictures; light or dark, and printable.

Messages are Markdown. They are rendered without raw HTML, and the result is sanitised as well.
"""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token

from parley.clock import iso
from parley.documents.export.markdown import NOTE, Budget, OverBudget, budgeted, environment
from parley.documents.export.renderer import (
    KINDS,
    MADE,
    NESTING,
    Bound,
    Cover,
    ExportedDocument,
    attachments,
    counted,
    day,
    described,
    edition,
    hour,
    is_web,
    kept,
    model,
    moment,
)
from parley.runs.rules.transcript import Attachment, TranscriptMessage

_LOWER = 2
_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s", "strong",
    "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title"}, "code": {"class"}, "ol": {"start"}, "td": {"class"}, "th": {"class"}}
_SCHEMES = {"http", "https", "mailto"}
_REL = "noopener noreferrer nofollow"


class HtmlRenderer:
    media_type = "text/html; charset=utf-8"
    extension = "html"

    def __init__(self) -> None:
        self._agent = ""
        self._day = ""
        self._documents = 0

    def opening(self, cover: Cover) -> str:
        begun, self._agent = cover.conversation, cover.agent
        style = (files("parley.documents.export") / "page.css").read_text("utf-8")
        title = f"Conversation with {cover.agent}"
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
            f'<meta name="export" content="{escape(cover.id)}">\n'
            f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
            f'<header class="cover"><p class="eyebrow">Conversation</p><h1>{escape(cover.agent)}</h1>\n<dl>'
            f"{_fact('Started', _time(begun.started_at, moment(begun.started_at)))}"
            f"{_fact('Exported', _time(cover.exported_at, moment(cover.exported_at)))}"
            f"{_fact('ID', f'<code>{escape(begun.id)}</code>')}</dl></header>\n<main>\n"
        )

    def message(self, said: TranscriptMessage) -> str:
        return f"{self._new_day(said)}{self._notice(said) if said.role == 'system' else self._speech(said)}"

    def document(self, sheet: ExportedDocument) -> str:
        self._documents += 1
        document, first = sheet.document, self._documents == 1
        opened = '<section class="artifacts">\n<h2>Artifacts</h2>\n' if first else ""
        rows = "".join(
            f"<tr><td>{one.number}</td><td>{MADE[one.provenance]}</td><td>{_time(one.at, moment(one.at))}</td></tr>\n"
            for one in sheet.versions
        )
        return (
            f'{opened}<article class="sheet"><header><p class="eyebrow">{KINDS[document.kind]} · '
            f"{escape(edition(sheet))}</p><h3>{escape(document.title)}</h3></header>\n"
            f'<div class="words" dir="auto">{_content(sheet)}</div>\n'
            f"<details><summary>{counted(document.versions, 'version')}</summary>"
            f'<table class="versions"><tbody>{rows}</tbody></table></details></article>\n'
        )

    def closing(self, messages: int) -> str:
        closed = "</section>\n" if self._documents else ""
        return f"{closed}</main>\n<footer>{counted(messages, 'message')}</footer>\n</body>\n</html>\n"

    def bound(self, written: Path) -> Bound:
        return Bound(written)

    def _new_day(self, said: TranscriptMessage) -> str:
        if day(said.at) == self._day:
            return ""
        self._day = day(said.at)
        return f'<h2 class="day"><span>{self._day}</span></h2>\n'

    def _notice(self, said: TranscriptMessage) -> str:
        return f'<p class="notice" id="{escape(said.id)}">{escape(said.content)} {_time(said.at, hour(said.at))}</p>\n'

    def _speech(self, said: TranscriptMessage) -> str:
        speaker = (said.agent or self._agent) if said.role == "assistant" else "User"
        by = f'<span class="model">{escape(model(said))}</span>' if model(said) else ""
        words = rendered(said.content, breaks=said.role == "user")
        return (
            f'<article class="{said.role}" id="{escape(said.id)}"><header><b>{escape(speaker)}</b>{by}'
            f"{_time(said.at, hour(said.at))}</header>\n"
            f'<div class="words" dir="auto">{words}</div>{_attached(attachments(said))}</article>\n'
        )


def rendered(markdown: str, *, breaks: bool = False, budget: Budget | None = None) -> str:
    """Return safe HTML for any Markdown. `breaks`: each line break of the text is kept, as people who type a message
    expect.

    A text that is too long or too costly to parse is shown as it was written. Slow: do not call it on the event loop.
    """
    parser = _breaking if breaks else _parser
    try:
        made = parser.render(kept(markdown), environment(markdown, budget))
    except OverBudget:
        return unformatted(markdown)
    return nh3.clean(made, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel=_REL)


def unformatted(text: str) -> str:
    return f'<p class="unformatted">{NOTE}</p><pre class="wrapped" tabindex="0">{escape(text)}</pre>'


def _content(sheet: ExportedDocument) -> str:
    if sheet.version.format == "markdown":
        return rendered(sheet.content)
    if sheet.version.format == "text":
        return f'<pre class="wrapped">{escape(sheet.content)}</pre>'
    return f"<pre><code>{escape(sheet.content)}</code></pre>"


def _attached(given: Sequence[Attachment]) -> str:
    if not given:
        return ""
    return f'<ul class="attached">{"".join(f"<li>{_mention(one)}</li>" for one in given)}</ul>'


def _mention(one: Attachment) -> str:
    words = escape(described(one))
    return f'<a href="{escape(one.url or "")}" rel="{_REL}">{words}</a>' if is_web(one.url) else words


def _fact(name: str, value: str) -> str:
    return f"<div><dt>{name}</dt><dd>{value}</dd></div>"


def _time(at: int, words: str) -> str:
    return f'<time datetime="{iso(at)}">{words}</time>'


def _lowered(tokens: Sequence[Token]) -> None:
    """Lower headings below those of the page, and mark the alignment of columns by a class, as style attributes are not
    allowed."""
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + _LOWER, 6)}"
        if style := str(token.attrs.pop("style", "")):
            token.attrs["class"] = style.removeprefix("text-align:")


class _Parser(MarkdownIt):
    """CommonMark with tables and strikethrough. No raw HTML; a picture becomes a link to it, as the page loads
    nothing."""

    def __init__(self, *, breaks: bool = False) -> None:
        super().__init__("commonmark", {"html": False, "breaks": breaks, "maxNesting": NESTING})
        self.enable(["table", "strikethrough"])
        self.add_render_rule("image", _picture)
        budgeted(self)

    def parse(self, src: str, env: Any = None) -> list[Token]:
        tokens = super().parse(src, env)
        _lowered(tokens)
        return tokens


def _picture(self: object, tokens: Sequence[Token], index: int, options: object, env: object) -> str:
    token = tokens[index]
    return f'<a href="{escape(str(token.attrs.get("src", "")))}">{escape(token.content or "picture")}</a>'


_parser = _Parser()
_breaking = _Parser(breaks=True)
