"""Conversations, their exports, and the links to those."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from parley.engine.conversations import Conversations
from parley.engine.documents import Documents
from parley.engine.exchange import Exchange
from parley.engine.export import Press
from parley.engine.membership import TIDY_S, Loop
from parley.exports import RENDERERS
from parley.faces.modes.exports import PREFIX, Exports
from parley.security.links import Links
from parley.security.secrets import Secrets
from parley.settings import Settings, blobs_location
from parley.stores.blobs import below, open_blobs


class Talks(Struct, frozen=True):
    """What contract 002 asks of conversations, and the face that hands out their files."""

    documents: Documents
    conversations: Conversations
    exports: Exports


@asynccontextmanager
async def open_conversations(
    exchange: Exchange, settings: Settings, secrets: Secrets, base_url: str
) -> AsyncGenerator[Talks, None]:
    """While it is open, the leader forgets files whose links have expired."""
    documents = Documents(exchange)
    press = Press(RENDERERS, open_blobs(below(blobs_location(settings), "exports")))
    conversations = Conversations(exchange, documents, press, keep_ms=settings.export_ttl_s * 1000)
    tidying = Loop("exports", TIDY_S, conversations.tidy)
    tidying.start()
    try:
        yield Talks(documents, conversations, Exports(conversations, Links(secrets, PREFIX), base_url))
    finally:
        await tidying.stop()
