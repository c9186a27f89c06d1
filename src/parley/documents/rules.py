"""Plans and deliverables: documents of a conversation, in versions that never change (the actions contract, 002)."""

import re
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.ids import ConversationId, RunId
from parley.runs.rules.content import CONTEXT, Part, Parts, text_part

# Formats of documents: which there are, how an agent names one, and how a text shows its format.
#
# The rules read each text only once, whatever it contains: answers of models can be long, and hostile.

PlanFormat = Literal["markdown", "json", "yaml", "html", "text"]
DeliverableFormat = Literal["markdown", "javascript", "typescript", "python", "json", "yaml", "html", "css", "text"]

_SHORT = {
    "md": "markdown", "js": "javascript", "ts": "typescript", "py": "python", "yml": "yaml", "htm": "html",
    "txt": "text", "plain": "text", "plaintext": "text",
}  # fmt: skip
_MEDIA_TYPES = {
    "text/markdown": "markdown", "text/html": "html", "text/css": "css", "application/json": "json",
    "application/yaml": "yaml", "text/yaml": "yaml", "application/x-yaml": "yaml", "text/javascript": "javascript",
    "application/javascript": "javascript", "application/typescript": "typescript", "text/x-python": "python",
}  # fmt: skip
"""Without `text/plain`, which agents also use for Markdown."""
_CODE = frozenset(("javascript", "typescript", "python", "html", "css"))
_SHOWN = frozenset(("markdown", "json", "html", "text"))
"""Formats that `detected` can distinguish."""

_HTML = re.compile(r"(?:<\?xml[^>]*+>\s*+)?(?:<!--.*?-->\s*+)*+(?:<!doctype\s++html|<html)[\s>]", re.DOTALL | re.I)
_MARKS = re.compile(
    r"""
    ^[^\S\n]{0,3}+ (?:
        \#{1,6}+[^\S\n]++\S             # heading
      | >                               # quotation
      | (?:[-*+]|\d{1,9}+[.)])[ \t]++\S # item of a list
      | ```|~~~                         # fence
      | (?:-{3,}+|={3,}+|\*{3,}+|_{3,}+)[^\S\n]*+$  # rule, or the line below a heading
      | \|[^|\n]++\|                    # row of a table
    )
    | \*\*[^\s*][^*\n]*+\*\* | (?<!\w)__[^\s_][^_\n]*+__(?!\w) | ~~[^\s~][^~\n]*+~~
    | (?<![\w*])\*[^\s*][^*\n]*+\*(?!\w) | (?<!\w)_[^\s_][^_\n]*+_(?!\w)
    | `[^`\n]++`                        # code
    | \]\([^\s)]                        # link, image
    """,
    re.MULTILINE | re.VERBOSE,
)


def detected(text: str) -> str:
    """Return the format that a text shows: `json` if the whole text is one object or array, `html` if it begins like a
    page, `markdown` if it contains Markdown syntax, else `text`."""
    stripped = text.strip().removeprefix("\ufeff").lstrip()
    if _is_json(stripped):
        return "json"
    if _HTML.match(stripped):
        return "html"
    return "markdown" if _MARKS.search(stripped) else "text"


def _is_json(text: str) -> bool:
    """Return whether the text is a JSON object or array. A number or a quoted word alone is prose."""
    if (text[:1], text[-1:]) not in (("{", "}"), ("[", "]")):
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def named_by_fence(language: str, allowed: Iterable[str]) -> str:
    """Return the format that a fence's language stands for; empty for any other language."""
    named = _SHORT.get(language.lower(), language.lower())
    return named if named in allowed else ""


def named_by_media_type(media_type: str | None, allowed: Iterable[str]) -> str:
    named = _MEDIA_TYPES.get((media_type or "").partition(";")[0].strip().lower(), "")
    return named if named in allowed else ""


def edited_format(before: str, content: str) -> str:
    """Return the format after an edit: the same as before, except that plain text which now contains Markdown syntax
    becomes Markdown."""
    return "markdown" if before == "text" and detected(content) == "markdown" else before


def merged_format(formats: Iterable[str]) -> str:
    """Return the format of a merged document: JSON if one version is JSON; else the format that all have, if the merged
    text will not show it; else empty."""
    known = set(formats)
    if "json" in known:
        return "json"
    return hidden_format(known.pop()) if len(known) == 1 else ""


def hidden_format(format_: str) -> str:
    """Return the format if a text does not show it by itself, else empty."""
    return "" if format_ in _SHOWN else format_


def type_of(format_: str) -> str:
    if format_ in ("json", "yaml"):
        return "data"
    return "code" if format_ in _CODE else "document"


Kind = Literal["plan", "deliverable"]
Provenance = Literal["conversation_task", "manual_edit", "llm_rerun", "merge_operation", "copy_operation"]

FORMATS: dict[Kind, tuple[str, ...]] = {"plan": get_args(PlanFormat), "deliverable": get_args(DeliverableFormat)}
PREVIEW = 200
"""Characters of a version that a list shows."""
MAX_TITLE = 120
CUT_REASONS = frozenset(("length", "max_tokens", "model_context_window_exceeded", "content_filter"))
"""Finish reasons of models that mean an incomplete answer."""

_FENCED = re.compile(r"```([\w+-]*+)[^\n]*+\n(.*)", re.DOTALL)
_HEADING = re.compile(r"^[^\S\n]{0,3}#{1,6}[^\S\n]++([^\n]+)$", re.MULTILINE)


class Conversation(Struct, frozen=True):
    """A group of runs, as its owner started it."""

    principal: str
    id: ConversationId
    agent: str
    started_at: int


class Document(Struct, frozen=True):
    """A plan or deliverable. A conversation has at most one of each. `conversation` is empty if the conversation was
    deleted and the document kept."""

    id: str
    principal: str
    conversation: str
    kind: Kind
    agent: str
    title: str
    type: str
    current: str
    """The id of the current version."""
    revision: int
    """Counts every change, so that of two requests that decided on the same state only one succeeds."""
    versions: int
    """Number of versions that exist; the numbers of deleted versions are never used again."""
    created_at: int
    updated_at: int


class Version(Struct, frozen=True):
    """One version, without its content. Its id is the id of the run that made it."""

    id: str
    document: str
    number: int
    format: str
    provenance: Provenance
    metadata: Raw
    at: int
    preview: str = ""
    """Beginning of its content; empty where the whole content is returned too."""


class Content(Struct, frozen=True):
    """An agent's answer as the content of a version."""

    text: str
    format: str


class Assignment(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Why a run was made, in the terms of the actions contract (002), and what to do with the agent's answer."""

    mode: str
    action: str
    document: Kind | None = None
    """The answer becomes the current version of this document when the run completes."""
    provenance: Provenance = "conversation_task"
    title: str = ""
    """Title of a new document whose content has no heading."""
    format: str = ""
    """Format that the answer will have, if it is known."""
    metadata: str = "{}"
    """Metadata of the version that is known before it is made, as JSON."""
    anew: bool = False
    """True if the version starts over (`forceNew`): the agent is not shown earlier versions, and the title is new."""
    history: int | None = None
    """Unix milliseconds: the agent is shown only messages of runs that began earlier; 0 for none."""
    expected: str = ""
    """The version that must still be current when the answer is written; empty for any version."""
    asked_at: int = 0
    """Time of the request in Unix milliseconds, if it is earlier than the run; 0 if not known."""


class AddVersion(Struct, frozen=True):
    """Add a version under the next number. `made` is the id of the document if this version creates it; if it is empty,
    the document must exist."""

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
    """New title of an existing document if this version becomes current; empty keeps the title."""
    expected: str = ""
    """The version that must be current, which also means that the document must exist; empty for any version."""


class PointTo(Struct, frozen=True):
    """Make another version current."""

    document: str
    revision: int
    version: str
    at: int
    title: str = ""
    """New title of the document; empty keeps the title."""


class DropVersion(Struct, frozen=True):
    """Delete a version that is not current."""

    document: str
    revision: int
    version: str
    at: int


class DropDocument(Struct, frozen=True):
    """Delete a document and all its versions."""

    document: str
    revision: int


class DropConversation(Struct, frozen=True):
    """Delete a conversation, with its documents (`documents`) or without: then they are kept on their own."""

    principal: str
    conversation: str
    documents: bool
    at: int


Change = AddVersion | PointTo | DropVersion | DropDocument | DropConversation
"""A change of documents that is written together with the events of a run."""


class DocumentChange(Struct, frozen=True):
    """Log entry of an action that made no run of its own: a read, or a refused request."""

    id: str
    principal: str
    conversation: str
    agent: str
    mode: str
    action: str
    code: str
    """Error code if the action was refused; empty if it was done."""
    message: str
    started_at: int
    completed_at: int


def content_of(answer: str, kind: Kind, expected: str = "") -> Content:
    """Return an agent's answer without the fence around it, which a cut-off answer leaves open. The language of the
    fence is the format if the kind allows it; else the format is `expected`, or detected."""
    answer = storable(answer)
    fenced = _FENCED.fullmatch(answer.strip())
    text = fenced[2].removesuffix("```").removesuffix("\n") if fenced is not None else ""
    if fenced is None or "```" in text:
        return Content(answer, expected or detected(answer))
    return Content(text, named_by_fence(fenced[1], FORMATS[kind]) or expected or detected(text))


def title_of(content: str, message: str) -> str:
    """Return the first heading, else the beginning of the request."""
    return heading_of(content) or _titled(message.strip().partition("\n")[0]) or "Untitled"


def heading_of(content: str) -> str:
    """Return the first heading of a text, short enough for a title; empty if there is none."""
    heading = _HEADING.search(content)
    return _titled(_unmarked(heading[1])) if heading else ""


def _titled(words: str) -> str:
    return storable(words[:MAX_TITLE]).strip()


def _unmarked(heading: str) -> str:
    """Return a heading without closing `#` signs. Not part of the pattern, which would backtrack over them."""
    return heading.rstrip().rstrip("#").rstrip() or heading.strip()


def storable(text: str) -> str:
    """Replace NUL, the one character that a text column cannot store, by the replacement character."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


class _Told(Struct, frozen=True):
    """Metadata of an answer, as LLM drivers write it."""

    model: str = ""
    usage: dict[str, int | None] = {}
    estimated: bool = False
    temperature: float | None = None
    finish: str = ""


def made_by(metadata: Raw | UnsetType) -> dict[str, object]:
    """Return the members that an answer's metadata adds to its version's: the model, its temperature, the tokens, and
    whether the answer was cut off. Metadata of another shape, which an agent is free to write, adds none."""
    if metadata is UNSET:
        return {}
    try:
        told = msgspec.json.decode(metadata, type=_Told)
    except msgspec.MsgspecError:
        return {}
    tokens = [count for count in told.usage.values() if count is not None]
    cut = told.finish in CUT_REASONS
    known: dict[str, object] = {
        "llmModel": told.model or None,
        "tokensUsed": sum(tokens) if tokens else None,
        "tokensEstimated": told.estimated or None,
        "temperature": told.temperature,
        "truncated": cut or None,
        "finishReason": told.finish if cut else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def metadata_with(known: str, more: dict[str, object]) -> bytes:
    """Return metadata (JSON) with more members added."""
    return msgspec.json.encode({**msgspec.json.decode(known), **more})


# Prompts for an agent whose answer becomes a version of a document.
#
# The last part is the caller's message. The parts before it are marked as context, so that a transcript leaves them
# out.

_WRITE: dict[Kind, str] = {
    "plan": "Write a plan for what is asked at the end: its goal, its steps in order, and how to tell that it is done.",
    "deliverable": "Write the deliverable that is asked for at the end.",
}
_ALONE = "Answer with the {kind} alone, in {format}: no preamble, no closing remark."
_FREE = "Markdown unless another format is asked for"
_MERGE = "Make one {kind} of the versions that follow, as asked at the end."
_REWORK = "Write the {kind} that follows once more, as asked at the end."

NOTHING_SAID: dict[Kind, str] = {
    "plan": "Write the plan once more.",
    "deliverable": "Write the deliverable that the plan describes.",
}
"""The request to the agent when the caller gives no message."""


def draft(kind: Kind, message: str, current: str | None = None, plan: str | None = None, format_: str = "") -> Parts:
    """Ask for a new version: from nothing, from the current version, and for a deliverable from the plan."""
    context = [_context("task", f"{_WRITE[kind]} {_alone(kind, format_)}")]
    if plan is not None:
        context.append(_context("plan", f"This is the plan to carry out:\n\n{plan}"))
    if current is not None:
        context.append(
            _context(kind, f"This is the current {kind}; keep of it what is not asked to change:\n\n{current}")
        )
    return (*context, text_part(message or NOTHING_SAID[kind]))


def merge(kind: Kind, versions: Iterable[tuple[Version, str]], prompt: str) -> Parts:
    shown = [_context("version", f"Version {one.number}:\n\n{content}") for one, content in versions]
    return (_context("task", f"{_MERGE.format(kind=kind)} {_alone(kind)}"), *shown, text_part(prompt))


def rework(kind: Kind, content: str, message: str | None) -> Parts:
    """Ask to rework a version that a person wrote: no request led to it, so its content is the prompt."""
    task = _context("task", f"{_REWORK.format(kind=kind)} {_alone(kind)}")
    return (task, _context(kind, content), text_part(message or "Write it again."))


def again(parts: Parts, message: str | None) -> Parts:
    """Repeat an earlier request, with a further message if there is one."""
    return (*parts, text_part(f"\n\n{message}")) if message else parts


def is_context(part: Part) -> bool:
    return bool(context_of(part))


def spoken(parts: Parts) -> Parts:
    """Return the parts that the caller wrote, without added context."""
    return tuple(part for part in parts if not is_context(part))


def context_of(part: Part) -> str:
    """Return the kind of context that a part adds to the caller's message; empty for the message itself."""
    if part.metadata is UNSET:
        return ""
    try:
        return str(msgspec.json.decode(part.metadata).get(CONTEXT, ""))
    except (msgspec.MsgspecError, AttributeError):
        return ""


def _context(what: str, text: str) -> Part:
    return Part(text=f"{text}\n\n", metadata=Raw(msgspec.json.encode({CONTEXT: what})))


def _alone(kind: Kind, format_: str = "") -> str:
    return _ALONE.format(kind=kind, format={"": _FREE, "text": "plain text"}.get(format_, format_))
