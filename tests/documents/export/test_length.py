"""The memory of an export does not depend on the length of the conversation."""

import tracemalloc
from pathlib import Path

import pytest

from parley.documents.conversations import Conversations
from parley.documents.export import RENDERERS
from parley.documents.export.renderer import ExportWriter
from parley.documents.service import DocumentRequest, Documents
from parley.runs.rules.access import LOCAL
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import RESPONSE, ArtifactAdded, InputReceived, InputRequired, Started
from parley.runs.service import Exchange
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo
from parley.stores.sqlite import SqliteStore
from parley.testing.logs import LogWriter, put

RUNS, ROUNDS = 10, 500
WORDS = "A few words of an answer that goes on for a while, and then ends. " * 15
MOST = 3 << 20


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["json", "markdown", "html"])
async def test_ten_thousand_messages_are_exported_in_little_memory(tmp_path: Path, format_: str) -> None:
    store = SqliteStore(tmp_path / "data")
    for number in range(RUNS):
        await _talk(store, number)
    exchange = Exchange(store, open_blobs("memory:"), Solo(store), NoSignals())
    press = ExportWriter(RENDERERS, open_blobs(str(tmp_path / "exports")))
    conversations = Conversations(exchange, Documents(exchange), press)
    tracemalloc.start()
    asking = DocumentRequest(LOCAL, "conversation", "agent", "converse", "export_conversation")
    outcome = await conversations.export(asking, format_, artifacts=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    exported = await conversations.exported(outcome.run.id)
    assert exported.message_count == 2 * RUNS * ROUNDS
    assert exported.size > 10_000_000
    assert peak < MOST
    await store.close()


async def _talk(store: SqliteStore, number: int) -> None:
    """One run of many turns, written in one go."""
    log = LogWriter(at=1_794_000_000_000 + number * 10**7)
    await put(store, log.start())
    for turn in range(1, ROUNDS + 1):
        asked = [InputReceived(Message(f"m{turn}", (text_part(f"Question {turn}"),)))] if turn > 1 else []
        answer = ArtifactAdded(f"response-{turn}", (text_part(f"{turn}: {WORDS}{WORDS}"),), RESPONSE)
        append = log.append(*asked, Started(turn, "r"), answer, InputRequired(()))
        future = put(store, append)
    await future
