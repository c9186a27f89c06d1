"""What every format that people read says in the same words."""

import re
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from parley.core.dialogue import Attachment
from parley.core.documents import Kind, Provenance
from parley.core.transcripts import Said
from parley.engine.export import Sheet

KINDS: dict[Kind, str] = {"plan": "Plan", "deliverable": "Deliverable"}
MADE: dict[Provenance, str] = {
    "conversation_task": "written by the agent",
    "manual_edit": "edited by hand",
    "llm_rerun": "written again",
    "merge_operation": "merged",
    "copy_operation": "copied",
}


NESTING = 100
"""The parser leaves out what is nested deeper."""
_TOO_DEEP = re.compile(r"^(?:[ \t]*>){90}|^(?:[ \t]*[*+-][ \t]){45}", re.MULTILINE)


def kept(markdown: str) -> str:
    """Markdown of which the parser keeps every word: what is nested beyond reason stands there as it was typed."""
    return fenced(markdown, "") if _TOO_DEEP.search(markdown) else markdown


def fenced(text: str, language: str) -> str:
    """A block of code, with a fence that is longer than any within."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


_encode = msgspec.json.Encoder().encode


class _About(Struct):
    attachments: tuple[Attachment, ...] = ()
    model: str = ""


def attachments(said: Said) -> tuple[Attachment, ...]:
    return _about(said).attachments


def model(said: Said) -> str:
    return _about(said).model


def _about(said: Said) -> _About:
    try:
        return msgspec.json.decode(said.metadata, type=_About)
    except msgspec.MsgspecError:
        # An agent may tell what it likes of its answers.
        return _About()


def moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%d %b %Y, %H:%M").lstrip("0") + " UTC"


def day(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%A, %d %B %Y").replace(", 0", ", ")


def hour(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%H:%M")


def described(one: Attachment) -> str:
    """`report.pdf (application/pdf, 12 kB)`"""
    name = one.name or one.url or {"file": "a file", "link": "a link", "data": "data"}[one.kind]
    more = [text for text in (one.media_type, _size(one.size)) if text]
    return f"{name} ({', '.join(more)})" if more else name


def edition(sheet: Sheet) -> str:
    count = sheet.document.versions
    return f"version {sheet.version.number}" + (f", one of {count}" if count > 1 else "")


def counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}".replace(",", "\u202f")


def _size(size: int | None) -> str:
    if size is None:
        return ""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.0f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def is_web(url: str | None) -> bool:
    """Whether a link may be one: whatever else an address can be, a page must not follow it."""
    return url is not None and url.lower().startswith(("https://", "http://"))


def as_json(value: object) -> str:
    return _encode(value).decode()


def comma(count: int) -> str:
    """What stands before the how-manieth of a list, each on a line of its own."""
    return ",\n" if count > 1 else ""
