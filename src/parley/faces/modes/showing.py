"""Documents as the contract shows them."""

from typing import cast

from parley.clock import iso
from parley.core.documents import Conversation, Document, Version
from parley.core.results import ConversationShown, Deliverable, DocumentType, DocumentVersion, Plan, VersionSummary


def shown_plan(one: Document) -> Plan:
    return Plan(one.id, one.conversation, one.title, one.current, iso(one.created_at), iso(one.updated_at))


def shown_deliverable(one: Document) -> Deliverable:
    type_ = cast("DocumentType", one.type)
    return Deliverable(
        one.id, one.conversation, one.title, one.current, iso(one.created_at), iso(one.updated_at), type_
    )


def shown_version(document: Document, one: Version, content: str) -> DocumentVersion:
    return DocumentVersion(
        one.id, one.number, content, one.format, one.provenance, one.id == document.current, iso(one.at), one.metadata
    )  # fmt: skip


def summary(document: Document, one: Version) -> VersionSummary:
    return VersionSummary(
        one.id, one.number, one.preview, one.format, one.provenance, one.id == document.current, iso(one.at),
        one.metadata,
    )  # fmt: skip


def shown_conversation(one: Conversation, last_message_at: int | None = None) -> ConversationShown:
    last = iso(last_message_at) if last_message_at is not None else None
    return ConversationShown(one.id, one.agent, one.principal, iso(one.started_at), last)
