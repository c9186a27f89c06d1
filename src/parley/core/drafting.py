"""What an agent is asked when its answer is to become a version of a document.

The last part is what the caller said; what stands before it is marked as context, so that a transcript leaves it out.
"""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Raw

from parley.core.artifacts import Part, Parts, text_part
from parley.core.conversations import CONTEXT
from parley.core.documents import Kind, Version

_WRITE: dict[Kind, str] = {
    "plan": "Write a plan for what is asked at the end: its goal, its steps in order, and how to tell that it is done.",
    "deliverable": "Write the deliverable that is asked for at the end.",
}
_ALONE = "Answer with the {kind} alone, in Markdown unless another format is asked for: no preamble, no closing remark."
_MERGE = "Make one {kind} of the versions that follow, as asked at the end."
_REWORK = "Write the {kind} that follows once more, as asked at the end."

NOTHING_SAID: dict[Kind, str] = {
    "plan": "Write the plan once more.",
    "deliverable": "Write the deliverable that the plan describes.",
}
"""What is asked when the caller leaves it to us."""


def draft(kind: Kind, message: str, current: str | None = None, plan: str | None = None) -> Parts:
    """A new version from what is asked: of nothing, of the current version, and for a deliverable of the plan."""
    context = [_context("task", f"{_WRITE[kind]} {_alone(kind)}")]
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
    """A version that nobody was asked for: its content is the prompt."""
    task = _context("task", f"{_REWORK.format(kind=kind)} {_alone(kind)}")
    return (task, _context(kind, content), text_part(message or "Write it again."))


def again(parts: Parts, message: str | None) -> Parts:
    """What was asked before, and what is asked in addition."""
    return (*parts, text_part(f"\n\n{message}")) if message else parts


def is_context(part: Part) -> bool:
    return bool(context_of(part))


def spoken(parts: Parts) -> Parts:
    """Parts that the caller wrote, without the context that was added to them."""
    return tuple(part for part in parts if not is_context(part))


def context_of(part: Part) -> str:
    """What a part shows that nobody said; empty when somebody did."""
    if part.metadata is UNSET:
        return ""
    try:
        return str(msgspec.json.decode(part.metadata).get(CONTEXT, ""))
    except (msgspec.MsgspecError, AttributeError):
        return ""


def _context(what: str, text: str) -> Part:
    return Part(text=f"{text}\n\n", metadata=Raw(msgspec.json.encode({CONTEXT: what})))


def _alone(kind: Kind) -> str:
    return _ALONE.format(kind=kind)
