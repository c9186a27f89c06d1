"""The actions of the mode converse, handed to the engine's conversations."""

from typing import cast

import msgspec
from msgspec import Struct

from parley.clock import iso
from parley.core.params import DeleteConversation, ExportConversation, ReadConversation
from parley.core.results import (
    ArtifactsDeleted,
    ConversationDeleted,
    ConversationExported,
    ConversationRead,
    ExportCounts,
    ExportFormat,
    MessageShown,
)
from parley.core.runs import Run
from parley.engine.commands import Outcome
from parley.engine.conversations import MESSAGES, Conversations, Exported
from parley.faces.modes.exports import Exports
from parley.faces.modes.reading import Call
from parley.faces.modes.rows import Offer, Read, Row, of
from parley.faces.modes.showing import shown_conversation


class ConversationCalls:
    def __init__(self, conversations: Conversations, exports: Exports) -> None:
        self._conversations = conversations
        self._exports = exports

    def offers(self) -> dict[Row, Offer]:
        return {
            ("converse", "read_conversation"): Offer(self.read),
            ("converse", "delete_conversation"): Offer(self.delete, deleted),
            ("converse", "export_conversation"): Offer(self.export, self.exported),
        }

    async def read(self, call: Call) -> Read:
        params = of(call, ReadConversation)
        page = await self._conversations.page(
            call.principal, call.conversation, params.limit or MESSAGES, params.offset or 0,
            include_system=bool(params.include_system),
        )  # fmt: skip
        messages = [MessageShown(one.id, one.role, one.content, iso(one.at), one.metadata) for one in page.messages]
        conversation = shown_conversation(page.conversation, page.last_message_at)
        return Read(ConversationRead(conversation, messages, page.total, page.has_more))

    async def delete(self, call: Call) -> Outcome:
        params = of(call, DeleteConversation)
        return await self._conversations.delete(call.asking, documents=params.delete_artifacts)

    async def export(self, call: Call) -> Outcome:
        params = of(call, ExportConversation)
        return await self._conversations.export(call.asking, params.format, artifacts=bool(params.include_artifacts))

    async def exported(self, run: Run, said: bytes) -> ConversationExported:
        told = msgspec.json.decode(said, type=Exported)
        return ConversationExported(
            self._exports.address(run.id, told), cast("ExportFormat", told.format), iso(told.expires_at), told.size,
            ExportCounts(told.message_count, told.artifacts_included),
        )  # fmt: skip


class _Deleted(Struct, frozen=True, rename="camel"):
    messages_deleted: int
    artifacts_deleted: ArtifactsDeleted | None = None


async def deleted(run: Run, said: bytes) -> ConversationDeleted:
    told = msgspec.json.decode(said, type=_Deleted)
    return ConversationDeleted(True, run.conversation, told.messages_deleted, told.artifacts_deleted)
