"""Puts the face of contract 002 together."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import msgspec
from starlette.routing import Mount

from parley.core.actions import ACTIONS
from parley.engine.conversations import Conversations
from parley.engine.documents import Documents
from parley.engine.exchange import Exchange
from parley.engine.ledger import Ledger
from parley.faces.modes.calls import Calls
from parley.faces.modes.documents import DocumentCalls
from parley.faces.modes.face import Modes
from parley.faces.modes.openapi import document
from parley.faces.modes.rows import Offer, Row
from parley.faces.modes.stream import Streaming
from parley.faces.modes.tasks import Tasks
from parley.faces.modes.words import PREFIX


@asynccontextmanager
async def open_modes(
    exchange: Exchange, max_body: int, version: str, more: Mapping[Row, Offer] | None = None
) -> AsyncGenerator[Mount, None]:
    """The face on its path. `more` are offers of modes that are put together elsewhere. What was asked is written down
    before it closes."""
    documents, conversations = Documents(exchange), Conversations(exchange)
    offers = {**DocumentCalls(documents).offers(), **(more or {})}
    ledger = Ledger(exchange.store.library)
    tasks = Tasks(exchange, ledger, offers)
    calls = Calls(exchange, documents, conversations, ledger, tasks, offers, max_body)
    described = document([action for action in ACTIONS if (action.mode, action.name) in offers], version)
    streaming = Streaming(exchange, tasks)
    try:
        yield Mount(PREFIX, Modes(calls, conversations, tasks, streaming, msgspec.json.encode(described), max_body))
    finally:
        await ledger.close()
