"""Markdown export. Most messages are Markdown already; each is kept as it is and cannot affect the next message."""

import html
import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.token import Token

from parley.documents.export.renderer import (
    KINDS,
    MADE,
    Bound,
    Cover,
    ExportedDocument,
    attachments,
    counted,
    described,
    edition,
    fenced,
    is_web,
    model,
    moment,
)
from parley.runs.rules.transcript import Attachment, TranscriptMessage

# Markdown parsers that stop when a text costs too much.
#
# Links of CommonMark nest, so a few thousand characters such as `[![a](` can keep any parser busy for seconds. The
# parser calls a rule before each piece of a text; our rule checks the remaining processor time and lets other threads
# run.

MAX_TEXT = 500_000
"""Characters of one text that are parsed; a longer text is shown as it was written."""
MAX_CPU_S = 2.0
"""Processor time for one text of an export, in seconds."""
NOTE = "Too long or too complex to be formatted, so it is shown as it was written."

_YIELD_S = 0.001


class OverBudget(Exception):
    """The text is longer than the limit, or its processor time is used up."""


class Budget:
    """Limits the processor time of the thread that creates it, for one text or for all texts of a page."""

    def __init__(self, cpu_s: float | None = None) -> None:
        self._yielded = time.thread_time()
        self._end = self._yielded + (MAX_CPU_S if cpu_s is None else cpu_s)

    def check(self) -> None:
        now = time.thread_time()
        if now >= self._end:
            raise OverBudget
        if now - self._yielded >= _YIELD_S:
            # Without this the event loop would wait five milliseconds for the interpreter each time it has something to
            # do.
            time.sleep(0)
            self._yielded = now


def budgeted(parser: MarkdownIt) -> MarkdownIt:
    """Make a parser check the `budget` of its environment before each block and each piece of a line."""

    def before_inline(state: Any, silent: bool) -> bool:
        state.env["budget"].check()
        return False

    def before_block(state: Any, start: int, end: int, silent: bool) -> bool:
        state.env["budget"].check()
        return False

    parser.inline.ruler.before("text", "budget", before_inline)
    parser.block.ruler.before("table", "budget", before_block)
    return parser


def environment(text: str, budget: Budget | None = None, most: int = MAX_TEXT) -> dict[str, Any]:
    """Return the environment that a budgeted parser needs for a text. Raises OverBudget if the text is too long."""
    if len(text) > most:
        raise OverBudget
    budget = budget or Budget()
    budget.check()
    return {"budget": budget}


# Markdown without raw HTML: nothing in it runs or is hidden, whichever program renders it.
#
# Text is read as CommonMark without HTML, since that is what it is afterwards. Code is not changed.

_TAG = re.compile(r"(?<!\\)(\\*)<(?=[A-Za-z/!?])")
_AUTOLINK = re.compile(r"<(?:(?:https?://|mailto:)[^\s<>`\"'\\]{1,2000}|[\w.+-]{1,64}@[\w.-]{1,255})>")
_ANGLED = re.compile(r"(\]\(\s*|\]:\s*)<([^<>\n`]{0,2000})>(?=[\s)]|$)")
_NO_TARGET = re.compile(r"\](?=[(:]\s*<)")
_TARGET_LENGTH = 300
_TARGET = re.compile(rf"\](\(\s*)([^\s()<>]{{0,{_TARGET_LENGTH}}})")
_LINE_OF_HTML = re.compile(r"\n[^\n<]*<[A-Za-z/!?]")
_RUN = re.compile("`+")
_LABEL = re.compile(r"\[([^\[\]]{1,999})\]")
_FOOTNOTE = re.compile(r"[ \t>]*\[(\^[^\[\]]{1,999})\]:")
_RAW_BLOCK = re.compile(r"\{=([^{}\s]*)\}")
_BLOCKS = frozenset(("fence", "code_block", "inline", "table_open"))
_USED = 2
"""Number of times that the label of a definition occurs in a text that uses it."""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):")
_UNSEEN = re.compile(r"[\x00-\x20\\]")
_HARMLESS = frozenset(("http", "https", "mailto", "tel", "ftp"))
_IN_TARGETS = ":/?#[]@!$&'*+,;=%~"

Span = tuple[int, int]


def escaped(lines: Sequence[str], tokens: Iterable[Token]) -> list[str]:
    """Return the lines of a text with raw HTML, comments and script links shown as text.

    `tokens` come from parsing the text without HTML. Takes time in proportion to the text.
    """
    made = list(lines)
    for start, end, is_table in _regions(tokens, len(lines)):
        made[start:end] = _region("\n".join(lines[start:end]), is_table=is_table).split("\n")
    for token in tokens:
        if token.type == "fence" and token.map is not None:
            made[token.map[0]] = _RAW_BLOCK.sub(r"\1", made[token.map[0]])
    return made


def hidden(lines: Sequence[str], tokens: Iterable[Token], known: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the lines on which a link or footnote definition starts that would not be visible, because
    the text does not use it, or that leads to a script. `known` is the environment with which the text was parsed."""
    labels = Counter(normalizeReference(label) for line in lines for label in _LABEL.findall(line))
    references: dict[str, Any] = known.get("references", {})
    found = [one["map"][0] for one in known.get("duplicate_refs", ())]
    found += [
        one["map"][0]
        for label, one in references.items()
        if labels[label] < _USED or not is_harmless(one["href"][:_TARGET_LENGTH])
    ]
    for start, end, _ in _regions(tokens, len(lines)):
        for number in range(start, end):
            note = _FOOTNOTE.match(lines[number])
            if note is not None and labels[normalizeReference(note[1])] < _USED:
                found.append(number)
    return sorted({number for number in found if number < len(lines)})


def with_shown(lines: Sequence[str], numbers: Iterable[int]) -> list[str]:
    """Return the lines, with the definitions that start on the given line numbers shown as text."""
    made = list(lines)
    for number in numbers:
        made[number] = made[number].replace("[", "\\[", 1)
    return made


def escaped_unparsed(text: str) -> str:
    """Like `escaped`, for a text that is too long to parse: HTML in its code is escaped too."""
    return _shown(text)


def _regions(tokens: Iterable[Token], count: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the first line and the end of each stretch that is not a block of code, and whether it is a table.

    Each paragraph is a stretch of its own, since code spans end with it; so is the text between two blocks.
    """
    after = 0
    for token in tokens:
        if token.map is None or token.type not in _BLOCKS or not after <= token.map[0] < count:
            continue
        start, end = token.map[0], min(token.map[1], count)
        if after < start:
            yield after, start, False
        if token.type in ("inline", "table_open"):
            yield start, end, token.type == "table_open"
        after = end
    if after < count:
        yield after, count, False


def _region(text: str, *, is_table: bool) -> str:
    code = _code_spans(text)
    if is_table:
        # For a renderer without tables, a code span may begin in one cell and end in another.
        code = sorted(set(code) & set(_cell_spans(text)))
    made, at = list[str](), 0
    for start, end in code:
        span = text[start:end]
        # A tag at the start of a line ends the paragraph, and with it the code span.
        made += (_shown(text[at:start]), _shown(span) if _LINE_OF_HTML.search(span) else span)
        at = end
    return "".join((*made, _shown(text[at:])))


def _code_spans(text: str, offset: int = 0) -> list[Span]:
    """Return the positions of code spans: from a run of backticks to the next run of the same length."""
    starts: dict[int, list[int]] = {}
    for run in _RUN.finditer(text):
        starts.setdefault(len(run[0]), []).append(run.start())
    spans, at = list[Span](), 0
    for run in _RUN.finditer(text):
        opening = run.start() + _is_escaped(text, run.start())
        closings = starts.get(run.end() - opening, ())
        place = bisect_left(closings, run.end())
        if run.start() >= at and opening < run.end() and place < len(closings):
            at = closings[place] + run.end() - opening
            spans.append((opening + offset, at + offset))
    return spans


def _cell_spans(text: str) -> Iterator[Span]:
    at = 0
    for cell in re.split(r"([|\n])", text):
        yield from _code_spans(cell, at)
        at += len(cell)


def _is_escaped(text: str, at: int) -> bool:
    before = at
    while before and text[before - 1] == "\\":
        before -= 1
    return (at - before) % 2 == 1


def _shown(text: str) -> str:
    """Return text without code in which nothing starts HTML and no link leads to a script."""
    text = _ANGLED.sub(lambda found: found[1] + quote(found[2], safe=_IN_TARGETS), text)
    # If `<` became an entity here, the entity would be the start of the link's target.
    text = _NO_TARGET.sub(r"]\\", text)
    text = _TAG.sub(lambda found: _entity(found, text), text)
    return _TARGET.sub(_target, text).replace("{=", "\\{=")


def _entity(found: re.Match[str], text: str) -> str:
    slashes = found[1]
    if len(slashes) % 2 == 0 and _AUTOLINK.match(text, found.end() - 1):
        return found[0]
    # Not every renderer lets a backslash escape `<`; all of them know the entity.
    return f"{slashes[: len(slashes) // 2 * 2]}&lt;"


def _target(found: re.Match[str]) -> str:
    return found[0] if is_harmless(found[2]) else f"]\\{found[1]}{found[2]}"


def is_harmless(target: str) -> bool:
    """Return whether a link leads to a web page or a mail address, also after its entities have been decoded."""
    plain = _UNSEEN.sub("", html.unescape(target)).lower()
    scheme = _SCHEME.match(plain)
    if scheme is None:
        return len(target) < _TARGET_LENGTH or "&" not in target
    return scheme[1] in _HARMLESS


_LOWER = 2
"""Levels by which a heading within a message is lowered, so that the outline is that of the conversation."""
_PROBE = "3d0c1e0a-end"
_ARTIFACTS = "---\n\n# Artifacts\n\n"
_SPECIAL = re.compile(r"([\\`*_\[\]{&>#|])")
_NEWLINE = re.compile("\r\n?")

_IN_URLS = ":/?#[]@!$&'()*+,;=%~"

_parser = budgeted(MarkdownIt("commonmark").enable("table").disable(["html_block", "html_inline"]))
# Accept every definition: other programs may follow links that this parser would refuse.
_parser.validateLink = lambda url: True


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
            f"- Conversation: `{begun.id}`\n- Started: {moment(begun.started_at)}\n"
            f"- Exported: {moment(cover.exported_at)} (`{cover.id}`)\n\n"
        )

    def message(self, said: TranscriptMessage) -> str:
        if said.role == "system":
            return f"---\n\n*{plain(said.content)}* ({moment(said.at)})\n\n"
        by = f" · {plain(model(said))}" if model(said) else ""
        speaker = plain(said.agent or self._agent) if said.role == "assistant" else "User"
        heading = f"---\n\n## {speaker}{by} · {moment(said.at)}\n\n"
        return f"{heading}{contained(said.content)}\n\n{_attached(said)}"

    def document(self, sheet: ExportedDocument) -> str:
        self._documents += 1
        document, first = sheet.document, self._documents == 1
        versions = "".join(f"| {one.number} | {MADE[one.provenance]} | {moment(one.at)} |\n" for one in sheet.versions)
        return (
            f"{_ARTIFACTS if first else ''}"
            f"## {KINDS[document.kind]}: {plain(document.title)}\n\n"
            f"*{edition(sheet)}, {MADE[sheet.version.provenance]} {moment(sheet.version.at)}*\n\n"
            f"{_content(sheet)}\n\n"
            f"| Version | Origin | Created |\n|---:|---|---|\n{versions}\n"
        )

    def closing(self, messages: int) -> str:
        return f"---\n\n*{counted(messages, 'message')}*\n"

    def bound(self, written: Path) -> Bound:
        return Bound(written)


def plain(text: str) -> str:
    """Return the text as one line in which no character has a special meaning in Markdown."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split())).replace("<", "&lt;")


def contained(text: str) -> str:
    """Return Markdown without raw HTML that cannot continue into the next message. Text that would continue is quoted
    as a whole, and so is text that is too long or too costly to check."""
    text = _NEWLINE.sub("\n", text).strip("\n")
    try:
        lines, tokens = _parsed(text)
        if not tokens or tokens[-1].type != "paragraph_close" or tokens[-2].content != _PROBE:
            # Parse again: a tab is narrower within a quote, so a block may no longer be code.
            return "\n".join(_parsed(_quoted(text))[0])
    except OverBudget:
        return _quoted(escaped_unparsed(text))
    for token in reversed(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map is not None:
            _lower(lines, token.map[0], token.map[1], token.markup, int(token.tag[1]))
    return "\n".join(lines)


def _parsed(text: str) -> tuple[list[str], list[Token]]:
    """Return the escaped lines of a text, and the tokens of the text and of the probe."""
    lines, known = text.split("\n"), environment(text)
    tokens = _parser.parse(_probed(lines), known)
    if numbers := hidden(lines, tokens, known):
        # As text, definitions can become part of a paragraph, which changes how the following lines are read.
        lines = with_shown(lines, numbers)
        tokens = _parser.parse(_probed(lines), {"budget": known["budget"]})
    return escaped(lines, tokens), tokens


def _probed(lines: list[str]) -> str:
    return "\n".join([*lines, "", _PROBE, ""])


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.split("\n"))


def _lower(lines: list[str], start: int, end: int, markup: str, level: int) -> None:
    hashes = "#" * min(level + _LOWER, 6)
    if markup.startswith("#"):
        lines[start] = f"{hashes} {lines[start].strip().lstrip('#').strip()}"
    else:
        words = " ".join(line.strip() for line in lines[start : end - 1])
        lines[start:end] = [f"{hashes} {words}"]


def _content(sheet: ExportedDocument) -> str:
    if sheet.version.format == "markdown":
        return contained(sheet.content)
    return fenced(sheet.content, sheet.version.format)


def _attached(said: TranscriptMessage) -> str:
    lines = [f"- {_link(one) if is_web(one.url) else plain(described(one))}\n" for one in attachments(said)]
    return f"Attached:\n\n{''.join(lines)}\n" if lines else ""


def _link(one: Attachment) -> str:
    return f"[{plain(described(one))}](<{quote(one.url or '', safe=_IN_URLS)}>)"
