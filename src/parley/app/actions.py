"""Assembles the face of the actions contract (002): plans, deliverables, conversations, tools, orchestrations."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache

import msgspec
from msgspec import Struct

from parley.documents.action_log import ActionLog
from parley.documents.actions import Actions
from parley.documents.conversations import Conversations
from parley.documents.export import RENDERERS
from parley.documents.export.renderer import ExportWriter
from parley.documents.service import Documents
from parley.execution.membership import TIDY_S, Loop
from parley.faces.actions.documents import ConversationActions, DocumentActions
from parley.faces.actions.executions import OrchestrationActions, ToolActions
from parley.faces.actions.face import EXPORTS, ActionsFace, ExportsFace
from parley.faces.actions.openapi import document
from parley.faces.actions.table import ACTIONS
from parley.runs.service import Exchange
from parley.security.secrets import Links, Secrets
from parley.settings import Settings, blobs_location
from parley.stores.blobs import below, open_blobs
from parley.tools.mcp_calls import ToolCalls

# Conversations, their exports, and the links to exported files.


class ConversationServices(Struct, frozen=True):
    """Services of conversations, and the face that serves exported files."""

    documents: Documents
    conversations: Conversations
    exports: ExportsFace


@asynccontextmanager
async def open_conversations(
    exchange: Exchange, documents: Documents, settings: Settings, secrets: Secrets, base_url: str
) -> AsyncGenerator[ConversationServices, None]:
    """Open the services of conversations. While they are open, the leader deletes files whose links have expired."""
    writer = ExportWriter(RENDERERS, open_blobs(below(blobs_location(settings), "exports")))
    conversations = Conversations(exchange, documents, writer, keep_ms=settings.export_ttl_s * 1000)
    tidying = Loop("exports", TIDY_S, conversations.tidy)
    tidying.start()
    try:
        exports = ExportsFace(conversations, Links(secrets, EXPORTS), base_url)
        yield ConversationServices(documents, conversations, exports)
    finally:
        await tidying.stop()


@asynccontextmanager
async def open_actions(
    exchange: Exchange, settings: Settings, services: ConversationServices, version: str
) -> AsyncGenerator[ActionsFace, None]:
    """Open the face. The action log is written completely before it closes."""
    documents, conversations = services.documents, services.conversations
    tools = exchange.execution.toolcalls
    handlers = {
        **DocumentActions(documents).handlers(),
        **ConversationActions(conversations, services.exports.address).handlers(),
        **OrchestrationActions(exchange, documents, conversations).handlers(),
        **(ToolActions(tools, conversations).handlers() if isinstance(tools, ToolCalls) else {}),
    }
    log = ActionLog(exchange.store.library)

    @cache
    def described() -> bytes:
        """Build the OpenAPI document at the first request: that takes longer than building the rest of the face."""
        offered = [row for row in ACTIONS if (row.mode, row.name) in handlers]
        return msgspec.json.encode(document(offered, ActionsFace.operations(), version))

    actions = Actions(exchange.agents, conversations)
    try:
        yield ActionsFace(
            exchange, actions, documents, conversations, log, handlers, described, settings.max_body_bytes
        )
    finally:
        await log.close()
