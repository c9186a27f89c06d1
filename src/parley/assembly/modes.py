"""The face of contract 002."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cache

import msgspec
from starlette.routing import BaseRoute, Mount

from parley.assembly.conversations import Talks
from parley.core.actions import ACTIONS
from parley.engine.exchange import Exchange
from parley.engine.ledger import Ledger
from parley.engine.toolcalls import ToolCalls
from parley.faces.modes.calls import Calls
from parley.faces.modes.conversing import ConversationCalls
from parley.faces.modes.documents import DocumentCalls
from parley.faces.modes.executing import ExecutionCalls
from parley.faces.modes.face import Modes
from parley.faces.modes.openapi import document
from parley.faces.modes.orchestrating import OrchestrationCalls
from parley.faces.modes.rows import Offer, Row
from parley.faces.modes.stream import Streaming
from parley.faces.modes.tasks import Tasks
from parley.faces.modes.words import PREFIX
from parley.settings import Settings


@asynccontextmanager
async def open_modes(
    exchange: Exchange, settings: Settings, talks: Talks, version: str, more: Mapping[Row, Offer] | None = None
) -> AsyncGenerator[list[BaseRoute], None]:  # fmt: skip
    """Its routes. `more` are offers of modes that are put together elsewhere. What was asked is written down before it
    closes."""
    documents, conversations, exports = talks.documents, talks.conversations, talks.exports
    tools = exchange.execution.toolcalls
    offers = {
        **DocumentCalls(documents).offers(), **ConversationCalls(conversations, exports).offers(),
        **OrchestrationCalls(exchange, documents, conversations).offers(),
        **(ExecutionCalls(tools, conversations).offers() if isinstance(tools, ToolCalls) else {}), **(more or {}),
    }  # fmt: skip
    ledger = Ledger(exchange.store.library)
    tasks = Tasks(exchange, ledger, offers)
    calls = Calls(exchange, documents, conversations, ledger, tasks, offers, settings.max_body_bytes)

    @cache
    def described() -> bytes:
        """When it is asked for: few do, and it takes longer to make than all the rest of the face."""
        return msgspec.json.encode(document([row for row in ACTIONS if (row.mode, row.name) in offers], version))

    face = Modes(
        calls, conversations, tasks, Streaming(exchange, tasks), described, settings.max_body_bytes,
    )  # fmt: skip
    try:
        yield [Mount(PREFIX, face), *exports.routes()]
    finally:
        await ledger.close()
