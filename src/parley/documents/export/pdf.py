"""PDF export, typeset by Typst. Messages reach the template as data in a file, so no text can be read as a command."""

import re
import sys
import unicodedata
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from subprocess import CalledProcessError, TimeoutExpired, run
from threading import Lock
from typing import cast

import msgspec
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from parley import extras
from parley.documents.export.markdown import NOTE, OverBudget, budgeted, environment
from parley.documents.export.renderer import (
    KINDS,
    MADE,
    NESTING,
    Bound,
    Cover,
    ExportedDocument,
    as_json,
    attachments,
    comma,
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
from parley.errors import ExportFailed
from parley.runs.rules.transcript import TranscriptMessage
from parley.telemetry import tell

# Markdown as data: what a typesetter needs to know, and nothing that it could read as a command.
#
# A block or a piece of a line is a JSON object whose `t` names its type; plain text is a string.

Node = dict[str, object] | str

DEEPEST = 12
"""Blocks that are nested deeper are flattened to their text."""
LONGEST = 40
"""Longer words may be broken, so that they stay on the page."""
LONGEST_IN_CELL = 3
"""The same limit in a table cell, used if the column is narrower than the word."""

_LONG = re.compile(rf"\S{{{LONGEST}}}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BREAK = "\u200b"
_JOINED_BREAK = "\u200d\u200b\u200d"
_LONG_IN_CELL = re.compile(rf"([^\s\u200b]{{{LONGEST_IN_CELL},}})")
_GLUE = frozenset("\u200c\u200d\u200b\u2060")
_PAIRED = re.compile("[\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff\U000e0000-\U000e007f\ufe00-\ufe0f]")
"""Regional indicators, skin tones, tags and variation selectors: parts of an emoji."""
_VIRAMA = 9
"""Combining class of the marks that join two letters of an Indic script."""
_RTL = {"L": False, "R": True, "AL": True}
_KANA = re.compile("[\u3040-\u30ff\u31f0-\u31ff]")
_HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")
_LOOKED_AT = 1000
"""Number of characters at the start of a text that decide its direction and language."""
_SPANS = {"strong": "b", "em": "i", "s": "s"}

_parser = budgeted(MarkdownIt("commonmark", {"html": False, "maxNesting": NESTING}).enable(["table", "strikethrough"]))


def blocks_of(markdown: str, *, breaks: bool = False) -> list[Node]:
    """Return a text as data. `breaks`: each line break of the text is kept, as people who type a message expect."""
    try:
        tokens = _parser.parse(kept(markdown), environment(markdown))
    except OverBudget:
        return [{"t": "p", "c": [{"t": "i", "c": [NOTE]}]}, code(markdown)]
    for child in (child for token in tokens for child in token.children or () if breaks):
        child.type = "hardbreak" if child.type == "softbreak" else child.type
    return list(_blocks(SyntaxTreeNode(tokens), 0))


def paragraph(text: str) -> Node:
    return {"t": "p", "c": [words(text)], **written_in(text)}


def written_in(text: str) -> dict[str, object]:
    """Return the direction of a text, by its first letter that has one, and the language whose glyphs its Han
    characters need.

    Both are left out where they are the page's defaults: left to right, Chinese.
    """
    start = text[:_LOOKED_AT]
    rtl = next((_RTL[kind] for kind in map(unicodedata.bidirectional, start) if kind in _RTL), False)
    lang = "ja" if _KANA.search(start) else "ko" if _HANGUL.search(start) else ""
    return {**({"d": "rtl"} if rtl else {}), **({"lang": lang} if lang else {})}


def broken(word: str) -> str:
    """Return a word with a break opportunity between any two letters that can be separated without changing them.

    Joiners around a break opportunity keep Arabic letters in their joined forms; marks stay with their letters.
    """
    return "".join(f"{_gap(before, char)}{char}" for before, char in zip(" " + word, word, strict=False))


def _gap(before: str, char: str) -> str:
    if before in _GLUE or char in _GLUE or before == " " or unicodedata.combining(before) == _VIRAMA:
        return ""
    if unicodedata.category(char)[0] == "M" or _PAIRED.match(char):
        return ""
    return _JOINED_BREAK if unicodedata.bidirectional(before) == unicodedata.bidirectional(char) == "AL" else _BREAK


def words(text: str) -> str:
    """Return plain text without control characters, in which very long words can be broken."""
    return _LONG.sub(lambda found: found[0] + _BREAK, _CONTROL.sub("", text))


def code(text: str, language: str = "") -> Node:
    return {"t": "code", "s": words(text.rstrip("\n").expandtabs(4)), "lang": language}


def _blocks(node: SyntaxTreeNode, depth: int) -> Iterator[Node]:
    for child in node.children:
        if depth >= DEEPEST:
            yield paragraph(_flat(child))
        else:
            yield from _block(child, depth)


def _block(node: SyntaxTreeNode, depth: int) -> Iterator[Node]:
    match node.type:
        case "paragraph":
            yield {"t": "p", "c": list(_line(node, depth)), **written_in(_flat(node))}
        case "heading":
            yield {"t": "h", "n": int(node.tag[1]), "c": list(_line(node, depth)), **written_in(_flat(node))}
        case "fence" | "code_block":
            yield code(node.content, (node.info.split() or [""])[0])
        case "bullet_list":
            yield {"t": "ul", "c": [list(_blocks(item, depth + 1)) for item in node.children], **_direction(node)}
        case "ordered_list":
            start = int(node.attrs.get("start", 1))
            items = [list(_blocks(item, depth + 1)) for item in node.children]
            yield {"t": "ol", "start": start, "c": items, **_direction(node)}
        case "blockquote":
            yield {"t": "quote", "c": list(_blocks(node, depth + 1)), **_direction(node)}
        case "hr":
            yield {"t": "hr"}
        case "table":
            yield _table(node, depth)
        case _:
            yield paragraph(_flat(node))


def _table(node: SyntaxTreeNode, depth: int) -> Node:
    rows = [row for part in node.children for row in part.children]
    cells = [[_cell(cell, depth) for cell in row.children] for row in rows]
    styles = [str(cell.attrs.get("style", "")) for cell in rows[0].children]
    aligned = [style.removeprefix("text-align:") or "start" for style in styles]
    return {"t": "table", "align": aligned, "c": cells, **_direction(node)}


def _cell(cell: SyntaxTreeNode, depth: int) -> Node:
    """Return a table cell. A cell is as narrow as its table needs, so its long words can be broken anywhere."""
    pieces = [part for piece in _line(cell, depth) for part in _narrow(piece)]
    return {"c": pieces, **written_in(_flat(cell))}


def _narrow(piece: Node) -> Iterator[Node]:
    if isinstance(piece, str):
        for part in _LONG_IN_CELL.split(piece):
            yield {"t": "w", "s": part, "b": broken(part)} if len(part) >= LONGEST_IN_CELL else part
    elif piece["t"] == "c":
        yield {**piece, "b": _LONG_IN_CELL.sub(lambda found: broken(found[0]), str(piece["s"]))}
    elif "c" in piece:
        inner = cast("list[Node]", piece["c"])
        yield {**piece, "c": [part for one in inner for part in _narrow(one)]}
    else:
        yield piece


def _line(node: SyntaxTreeNode, depth: int) -> Iterator[Node]:
    """Yield the pieces of the lines of a block."""
    for inline in node.children:
        for child in inline.children:
            yield _piece(child, depth)


def _piece(node: SyntaxTreeNode, depth: int) -> Node:
    if depth >= DEEPEST:
        return words(_flat(node))
    match node.type:
        case "text":
            return words(node.content)
        case "softbreak":
            return " "
        case "hardbreak":
            return {"t": "br"}
        case "code_inline":
            return {"t": "c", "s": words(node.content)}
        case "strong" | "em" | "s":
            return {"t": _SPANS[node.type], "c": [_piece(child, depth + 1) for child in node.children]}
        case "link":
            return _link(str(node.attrs.get("href", "")), [_piece(child, depth + 1) for child in node.children])
        case "image":
            return _link(str(node.attrs.get("src", "")), [words(node.content or "picture")])
        case _:
            return words(_flat(node))


def _direction(node: SyntaxTreeNode) -> dict[str, object]:
    """Return the direction of a block that holds other blocks, by its text. Languages are set on the inner blocks."""
    return {name: one for name, one in written_in(_flat(node)).items() if name == "d"}


def _link(url: str, said: list[Node]) -> Node:
    return {"t": "a", "u": url, "c": said} if is_web(url) else {"t": "span", "c": said}


def _flat(node: SyntaxTreeNode) -> str:
    if node.children:
        return " ".join(_flat(child) for child in node.children)
    return node.content if not node.is_root else ""


TEMPLATE = "page.typ"
FILES = (TEMPLATE, "fonts.typ", "probe.typ")
MISSING = "No font of this server has these characters, which appear as boxes: {}."
MOST_BYTES = 2 << 30
MOST_S = 180.0
"""Limits of the typesetter, in bytes and seconds. It holds all pages in memory at once, so it runs in a process of its
own, which can be stopped."""

_press = Lock()
"""One typesetter at a time: two would need twice the memory and be no faster."""


class PdfRenderer:
    media_type = "application/pdf"
    extension = "pdf"

    def __init__(self) -> None:
        self._agent = ""
        self._day = ""
        self._messages = 0
        self._documents = 0

    def opening(self, cover: Cover) -> str:
        _check()
        begun, self._agent = cover.conversation, words(cover.agent)
        facts = [
            ["Started", moment(begun.started_at)],
            ["Exported", moment(cover.exported_at)],
            ["ID", words(begun.id)],
        ]
        about = {"agent": self._agent, "facts": facts, "id": cover.id}
        return f'{{"cover": {as_json(about)},\n"messages": [\n'

    def message(self, said: TranscriptMessage) -> str:
        self._messages += 1
        is_system = said.role == "system"
        shown = {
            "role": said.role,
            "day": self._new_day(said),
            "speaker": (words(said.agent) or self._agent) if said.role == "assistant" else "User",
            "model": words(model(said)),
            "time": hour(said.at),
            "c": [paragraph(said.content)] if is_system else _spoken(said),
            "attached": [_mention(described(one), one.url) for one in attachments(said)],
        }
        return f"{comma(self._messages)}{as_json(shown)}"

    def document(self, sheet: ExportedDocument) -> str:
        self._documents += 1
        document, version = sheet.document, sheet.version
        plain = version.format == "markdown"
        shown = {
            "kind": KINDS[document.kind],
            "title": words(document.title),
            "edition": edition(sheet),
            "c": blocks_of(sheet.content) if plain else [code(sheet.content, version.format)],
            "versions": [[str(one.number), MADE[one.provenance], moment(one.at)] for one in sheet.versions],
        }
        before = '\n],\n"sheets": [\n' if self._documents == 1 else ",\n"
        return f"{before}{as_json(shown)}"

    def closing(self, messages: int) -> str:
        return f'\n],\n"missing": {as_json(MISSING)},\n"count": {as_json(counted(messages, "message"))}}}\n'

    def bound(self, written: Path) -> Bound:
        """Typeset the file. Template and data are in a folder of their own, and the typesetter sees nothing else."""
        template, made = written.with_name(TEMPLATE), written.with_name("bound.pdf")
        for name in FILES:
            written.with_name(name).write_bytes((files("parley.documents.export") / name).read_bytes())
        program, folder = str(files("parley.documents.export") / "typesetter.py"), str(written.parent)
        command = [sys.executable, program, str(template), str(made), folder, str(MOST_BYTES)]
        with _press:
            try:
                done = run(command, check=True, capture_output=True, timeout=MOST_S)
            except (CalledProcessError, TimeoutExpired) as error:
                tell("export.failed", format="pdf", size=written.stat().st_size, reason=type(error).__name__)
                raise ExportFailed(
                    "This conversation is too long for a PDF; export it in another format.", field="format"
                ) from None
        return Bound(made, _warnings(msgspec.json.decode(done.stdout, type=list[str])))

    def _new_day(self, said: TranscriptMessage) -> str:
        if day(said.at) == self._day:
            return ""
        self._day = day(said.at)
        return self._day


def _warnings(missing: list[str]) -> tuple[str, ...]:
    if not missing:
        return ()
    tell("export.glyphs_missing", format="pdf", characters=missing)
    return (MISSING.format(", ".join(missing)),)


def _check() -> None:
    extras.check("pdf", "An export as PDF", field="format")


def _spoken(said: TranscriptMessage) -> list[Node]:
    return blocks_of(said.content, breaks=said.role == "user")


def _mention(text: str, url: str | None) -> Node:
    return {"t": "a", "u": url, "c": [words(text)]} if is_web(url) else words(text)
