"""One page that needs nothing else: no scripts, no fonts, no pictures from elsewhere; light or dark, and printable.

What was said is Markdown. It is rendered without raw HTML, and what comes of that is sanitised once more.
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
from parley.core.dialogue import Attachment
from parley.core.transcripts import Said
from parley.engine.export import Cover, Sheet
from parley.exports.parsing import NOTE, Budget, OverBudget, budgeted, environment
from parley.exports.words import (
    KINDS,
    MADE,
    NESTING,
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
        style = (files("parley.exports") / "page.css").read_text("utf-8")
        title = f"Conversation with {cover.agent}"
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
            f'<meta name="export" content="{escape(cover.id)}">\n'
            f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
            f'<header class="cover"><p class="eyebrow">Conversation</p><h1>{escape(cover.agent)}</h1>\n<dl>'
            f"{_fact('Begun', _time(begun.started_at, moment(begun.started_at)))}"
            f"{_fact('Exported', _time(cover.exported_at, moment(cover.exported_at)))}"
            f"{_fact('Id', f'<code>{escape(begun.id)}</code>')}</dl></header>\n<main>\n"
        )

    def message(self, said: Said) -> str:
        return f"{self._new_day(said)}{self._notice(said) if said.role == 'system' else self._speech(said)}"

    def document(self, sheet: Sheet) -> str:
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

    def bound(self, written: Path) -> Path:
        return written

    def _new_day(self, said: Said) -> str:
        if day(said.at) == self._day:
            return ""
        self._day = day(said.at)
        return f'<h2 class="day"><span>{self._day}</span></h2>\n'

    def _notice(self, said: Said) -> str:
        return f'<p class="notice" id="{escape(said.id)}">{escape(said.content)} {_time(said.at, hour(said.at))}</p>\n'

    def _speech(self, said: Said) -> str:
        speaker = (said.agent or self._agent) if said.role == "assistant" else "User"
        by = f'<span class="model">{escape(model(said))}</span>' if model(said) else ""
        words = rendered(said.content, breaks=said.role == "user")
        return (
            f'<article class="{said.role}" id="{escape(said.id)}"><header><b>{escape(speaker)}</b>{by}'
            f"{_time(said.at, hour(said.at))}</header>\n"
            f'<div class="words" dir="auto">{words}</div>{_attached(attachments(said))}</article>\n'
        )


def rendered(markdown: str, *, breaks: bool = False, budget: Budget | None = None) -> str:
    """Safe HTML, whatever the Markdown says. `breaks`: a line ends where it ends, as people mean it who write.

    A text that is too long or costs too much is shown as it was written. Takes a while: not for the event loop.
    """
    parser = _breaking if breaks else _parser
    try:
        made = parser.render(kept(markdown), environment(markdown, budget))
    except OverBudget:
        return unformatted(markdown)
    return nh3.clean(made, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel=_REL)


def unformatted(text: str) -> str:
    return f'<p class="unformatted">{NOTE}</p><pre class="wrapped" tabindex="0">{escape(text)}</pre>'


def _content(sheet: Sheet) -> str:
    if sheet.version.format == "markdown":
        return rendered(sheet.content)
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
    """Headings stand below those of the page; columns say how they are aligned by a class, as styles are not let in."""
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + _LOWER, 6)}"
        if style := str(token.attrs.pop("style", "")):
            token.attrs["class"] = style.removeprefix("text-align:")


class _Parser(MarkdownIt):
    """CommonMark with tables and struck words; no raw HTML; a picture is a link to it, as nothing is loaded."""

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
