"""Plans and deliverables: what a conversation is about, in versions that never change (contract 002)."""

import re
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from parley.ids import ConversationId, RunId

Kind = Literal["plan", "deliverable"]
Provenance = Literal["conversation_task", "manual_edit", "llm_rerun", "merge_operation", "copy_operation"]

FORMATS: dict[Kind, tuple[str, ...]] = {
    "plan": ("markdown", "json", "yaml"),
    "deliverable": ("markdown", "javascript", "typescript", "python", "json", "yaml", "html", "css"),
}
PREVIEW = 200
"""Characters of a version that a list shows."""
MAX_TITLE = 120

_FENCED = re.compile(r"\s*```([\w+-]*)[^\n]*\n(.*?)\n?```\s*", re.DOTALL)
_SHORT = {"md": "markdown", "js": "javascript", "ts": "typescript", "py": "python", "yml": "yaml"}
_HEADING = re.compile(r"^[^\S\n]{0,3}#{1,6}[^\S\n]++([^\n]+)$", re.MULTILINE)
_CODE = frozenset(("javascript", "typescript", "python", "html", "css"))


class Conversation(Struct, frozen=True):
    """What groups runs, as its owner began it."""

    principal: str
    id: ConversationId
    agent: str
    started_at: int


class Document(Struct, frozen=True):
    """A plan or deliverable. A conversation has at most one of each; one that outlived its conversation has none."""

    id: str
    principal: str
    conversation: str
    kind: Kind
    agent: str
    title: str
    type: str
    current: str
    """The version that holds."""
    revision: int
    """Counts every change, so that two who decide on the same state do not both succeed."""
    versions: int
    """How many there are; the numbers of those that were deleted are never used again."""
    created_at: int
    updated_at: int


class Version(Struct, frozen=True):
    """One version, without its content. Its id is that of the run that made it."""

    id: str
    document: str
    number: int
    format: str
    provenance: Provenance
    metadata: Raw
    at: int
    preview: str = ""
    """How its content begins; empty where the whole of it is at hand."""


class Content(Struct, frozen=True):
    """What an agent's answer is as a version."""

    text: str
    format: str


class Assignment(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Why a run was made, in the words of contract 002, and what becomes of the agent's answer."""

    mode: str
    action: str
    document: Kind | None = None
    """The answer becomes the current version of this document when the run completes."""
    provenance: Provenance = "conversation_task"
    title: str = ""
    """What a new document is called unless its content has a heading."""
    format: str = ""
    """The format that the answer will have, if that is known."""
    metadata: str = "{}"
    """What is known of the version before it is made, as JSON."""
    anew: bool = False
    """The version starts over (`forceNew`): earlier versions are not shown to the agent, and the title is new."""
    history: int | None = None
    """Unix milliseconds: the agent is shown only what was said in runs that began earlier; 0 for nothing."""


class AddVersion(Struct, frozen=True):
    """A new version under the next number. `made` is the id of the document if it begins with this version; without it
    there must be one."""

    principal: str
    conversation: str
    kind: Kind
    agent: str
    title: str
    type: str
    version: RunId
    content: str
    format: str
    provenance: Provenance
    metadata: bytes
    at: int
    current: bool = True
    made: str = ""
    retitle: str = ""
    """The new title of a document that exists already, if this version becomes current; empty keeps the title."""


class PointTo(Struct, frozen=True):
    """Another version holds from now on."""

    document: str
    revision: int
    version: str
    at: int
    title: str = ""
    """The new title of the document; empty keeps the title."""


class DropVersion(Struct, frozen=True):
    """Forget a version that does not hold."""

    document: str
    revision: int
    version: str
    at: int


class DropDocument(Struct, frozen=True):
    """Forget a document and all its versions."""

    document: str
    revision: int


class DropConversation(Struct, frozen=True):
    """The conversation is over; its documents go with it, or stay on their own."""

    principal: str
    conversation: str
    documents: bool
    at: int


Change = AddVersion | PointTo | DropVersion | DropDocument | DropConversation
"""What is written of documents together with the events of a run."""


class Operation(Struct, frozen=True):
    """That something was asked which made no run of its own: a read, or what was refused."""

    id: str
    principal: str
    conversation: str
    agent: str
    mode: str
    action: str
    code: str
    """Why it was refused; empty when it was done."""
    message: str
    started_at: int
    completed_at: int


def content_of(answer: str, kind: Kind, expected: str = "") -> Content:
    """What an agent answered, without the fence around it. A fence's language is the format if the kind allows it."""
    answer = storable(answer)
    fenced = _FENCED.fullmatch(answer)
    if fenced is None or "```" in fenced[2]:
        return Content(answer, expected or "markdown")
    language = _SHORT.get(fenced[1].lower(), fenced[1].lower())
    return Content(fenced[2], language if language in FORMATS[kind] else expected or "markdown")


def title_of(content: str, message: str) -> str:
    """The first heading, else how the request begins."""
    return heading_of(content) or _titled(message.strip().partition("\n")[0]) or "Untitled"


def heading_of(content: str) -> str:
    """First heading of a text, short enough for a title; empty if there is none."""
    heading = _HEADING.search(content)
    return _titled(_unmarked(heading[1])) if heading else ""


def _titled(words: str) -> str:
    return storable(words[:MAX_TITLE]).strip()


def _unmarked(heading: str) -> str:
    """A heading without the signs that may close it. Not part of the pattern: it would try every way to divide them."""
    return heading.rstrip().rstrip("#").rstrip() or heading.strip()


def storable(text: str) -> str:
    """The one character that a column of text does not take is shown as unreadable."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def type_of(format_: str) -> str:
    if format_ in ("json", "yaml"):
        return "data"
    return "code" if format_ in _CODE else "document"


def merged_format(formats: Iterable[str]) -> str:
    """JSON if one of them is; else Markdown."""
    return "json" if "json" in set(formats) else "markdown"


def metadata_with(known: str, more: dict[str, object]) -> bytes:
    """More members beside those already known."""
    return msgspec.json.encode({**msgspec.json.decode(known), **more})
