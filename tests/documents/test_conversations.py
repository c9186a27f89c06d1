"""Conversations over every store: read by pages, deleted, exported."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from parley import ArtifactChunk, NeedInput, Status, Text, Turn, agent
from parley.clock import now_ms
from parley.documents.conversations import Conversations, Exported, MessagePage
from parley.documents.export import RENDERERS
from parley.documents.export.renderer import ExportWriter
from parley.documents.rules import Conversation, Kind
from parley.documents.service import DocumentRequest, Documents
from parley.errors import (
    AgentNotFound,
    ConversationBusy,
    ConversationNotFound,
    ExportNotFound,
    Invalid,
    KeyReused,
    NotFound,
    RunNotFound,
)
from parley.ids import ConversationId, RunId, new_id
from parley.runs.log import Outcome
from parley.runs.requests import Branch, Extensions, Send
from parley.runs.rules.access import Principal
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import Completed
from parley.runs.rules.state import State
from parley.runs.rules.transcript import TranscriptMessage
from parley.runs.service import Exchange
from parley.runs.store import Listing, LogStore
from parley.runs.streams import read_all
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo
from parley.stores.memory import MemoryStore
from parley.testing.logs import LogWriter, put

ANN, BEN = Principal("user", "ann"), Principal("user", "ben")
DAY = 24 * 3600 * 1000


@agent("echo", name="Echo")
async def echo(turn: Turn) -> AsyncIterator[Status | Text]:
    yield Status("listening")
    yield Text(f"{turn.text}, ")
    yield Text("indeed")


@agent("asker")
async def asker(turn: Turn) -> AsyncIterator[NeedInput | ArtifactChunk]:
    if turn.number == 1:
        yield NeedInput("For whom?")
    else:
        yield ArtifactChunk(b"\x01" * 50_000, filename="a.bin", media_type="application/x")


@agent("parent")
async def parent(turn: Turn) -> AsyncIterator[Text]:
    yield Text((await turn.ask("echo", "psst")).text)


@agent("broken")
async def broken(turn: Turn) -> AsyncIterator[Text]:
    yield Text("half")
    raise RuntimeError("no")


@agent("endless")
async def endless(turn: Turn) -> AsyncIterator[Text]:
    yield Text("wait")
    await asyncio.Event().wait()


class Clock:
    """Begins now, as whoever keeps the files has a clock of its own."""

    def __init__(self) -> None:
        self.now = now_ms()

    def __call__(self) -> int:
        self.now += 1
        return self.now


class Parlour:
    def __init__(self, exchange: Exchange, clock: Clock) -> None:
        self.exchange, self.clock = exchange, clock
        self.blobs = open_blobs("memory:")
        self.documents = Documents(exchange, clock)
        self.conversations = Conversations(
            exchange, self.documents, ExportWriter(RENDERERS, self.blobs), keep_ms=3600_000, patience_s=1.0, clock=clock
        )

    async def say(
        self, text: str, slug: str = "echo", *, who: Principal = ANN, conversation: str = "talk", run: str | None = None
    ) -> Outcome:
        message = Message(new_id(), (text_part(text),))
        outcome = await self.exchange.send(Send(slug, who, message, run=run, conversation=conversation))
        await self.exchange.settled(outcome)
        return outcome

    def asking(
        self, action: str, *, who: Principal = ANN, key: str | None = None, body: bytes = b""
    ) -> DocumentRequest:
        return DocumentRequest(who, "talk", "echo", "converse", action, key, body)

    async def page(self, limit: int = 50, offset: int = 0, *, system: bool = False) -> MessagePage:
        return await self.conversations.page(ANN, "talk", limit, offset, include_system=system)

    async def words(self, *, system: bool = False) -> list[str]:
        return [said.content for said in (await self.page(system=system)).messages]

    async def delete(self, *, documents: bool = True, key: str | None = None, body: bytes = b"") -> dict[str, object]:
        asking = self.asking("delete_conversation", key=key, body=body)
        return await self.told(await self.conversations.delete(asking, documents=documents))

    async def export(self, format_: str, *, artifacts: bool = False, key: str | None = None) -> Exported:
        asking = self.asking("export_conversation", key=key)
        outcome = await self.conversations.export(asking, format_, artifacts=artifacts)
        return await self.conversations.exported(outcome.run.id)

    async def content(self, exported: Exported) -> bytes:
        return b"".join([piece async for piece in self.conversations.content(exported)])

    async def told(self, outcome: Outcome) -> dict[str, object]:
        """Data recorded by a run that completed at once."""
        _, event = await self.exchange.store.read(outcome.run.id, 0, 10)
        assert isinstance(event.payload, Completed)
        return msgspec.json.decode(event.payload.parts[0].data)

    async def document(self, kind: Kind) -> str:
        asking = DocumentRequest(ANN, "talk", "echo", "plan", "create")
        await self.conversations.begin(ANN, "echo", "talk")
        outcome = await self.documents.create(asking, kind, f"# A {kind}")
        await self.exchange.settled(outcome)
        return outcome.run.id


@pytest.fixture
async def parlour(store: LogStore) -> AsyncIterator[Parlour]:
    clock = Clock()
    blobs = open_blobs("memory:")
    exchange = Exchange(
        store,
        blobs,
        Solo(store),
        NoSignals(),
        clock=clock,
        grace_s=0.2,
        keep_ms=DAY,
        shared=True,
        extend=lambda made: Extensions(fulfil=Documents(made, clock).fulfil),
    )
    for one in (echo, asker, parent, broken, endless):
        exchange.add(one)
    await exchange.start()
    yield Parlour(exchange, clock)
    await exchange.close()


def lines(messages: list[TranscriptMessage]) -> list[tuple[str, str]]:
    return [(said.role, said.content) for said in messages]


async def test_a_conversation_is_begun_once_and_is_its_owners(parlour: Parlour) -> None:
    talks = parlour.conversations
    begun, new = await talks.begin(ANN, "echo", "talk")
    assert new
    assert begun == Conversation("user:ann", ConversationId("talk"), "echo", begun.started_at)
    assert await talks.begin(ANN, "asker", "talk") == (begun, False)
    assert await talks.exists(ANN, "talk") == begun
    assert await talks.exists(BEN, "talk") is None
    assert (await talks.begin(ANN, "echo", None))[0].id != "talk"
    for wrong in ("", "not an id!"):
        with pytest.raises(Invalid):
            await talks.begin(ANN, "echo", wrong)
    with pytest.raises(AgentNotFound):
        await talks.begin(ANN, "nobody", "other")
    empty = await parlour.page()
    assert (empty.messages, empty.total, empty.has_more, empty.last_message_at) == ([], 0, False, None)


async def test_a_conversation_that_is_known_from_a_run_exists_for_its_owner(parlour: Parlour) -> None:
    outcome = await parlour.say("hello")
    found = await parlour.conversations.exists(ANN, "talk")
    assert found == Conversation("user:ann", ConversationId("talk"), "echo", outcome.run.created_at)
    assert await parlour.conversations.exists(BEN, "talk") is None
    with pytest.raises(ConversationNotFound):
        await parlour.conversations.page(BEN, "talk")


async def test_what_was_said_while_an_older_version_wrote_is_shown_too(parlour: Parlour, store: LogStore) -> None:
    """It knows nothing of the counts in a row, and drops them."""
    if isinstance(store, MemoryStore):
        pytest.skip("No older process can have written there.")
    question = await parlour.say("write", "asker")
    log = LogWriter(question.run.id)
    log.events = await read_all(store, question.run.id)
    head = await store.head(question.run.id)
    assert head is not None
    log.run = msgspec.structs.replace(head.run, said=0, said_at=0, fold=0)
    await put(store, log.progress())
    (listed,), _ = await store.list_runs(Listing())
    assert (listed.said, listed.fold) == (0, 0)
    assert await parlour.words() == ["write", "For whom?"]
    assert (await parlour.page()).total == 2


async def test_messages_are_read_in_order_and_notices_only_when_asked_for(parlour: Parlour) -> None:
    await parlour.say("one")
    question = await parlour.say("write", "asker")
    await parlour.say("me", "asker", run=question.run.id)
    failed = await parlour.say("fail", "broken")
    await parlour.say("other", who=BEN)
    shown = await parlour.page(system=True)
    assert lines(shown.messages) == [
        ("user", "one"), ("assistant", "one, indeed"), ("user", "write"), ("assistant", "For whom?"), ("user", "me"),
        ("assistant", ""), ("user", "fail"), ("assistant", "half"),
        ("system", "The agent stopped with an unexpected RuntimeError."),
    ]  # fmt: skip
    assert msgspec.json.decode(shown.messages[5].metadata)["attachments"][0]["size"] == 50_000
    assert (shown.total, shown.has_more) == (9, False)
    assert shown.last_message_at == shown.messages[-1].at
    assert shown.messages[-1].run == failed.run.id
    quiet = await parlour.page()
    assert (quiet.total, [said.role for said in quiet.messages].count("system")) == (8, 0)


async def test_what_agents_ask_each_other_is_no_part_of_it(parlour: Parlour) -> None:
    await parlour.say("go", "parent")
    assert await parlour.words() == ["go", "psst, indeed"]


async def test_a_page_reads_only_the_logs_that_it_shows(
    parlour: Parlour, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    for number in range(12):
        await parlour.say(f"m{number}", "broken" if number == 3 else "echo")
    whole = (await parlour.page(100, system=True)).messages
    assert len(whole) == 25
    for limit, offset in ((5, 0), (4, 7), (3, 24), (5, 25), (50, 90), (1, 8)):
        page = await parlour.page(limit, offset, system=True)
        assert page.messages == whole[offset : offset + limit]
        assert (page.total, page.has_more) == (25, offset + len(page.messages) < 25)
    read: list[RunId] = []
    store = parlour.exchange.store
    original = store.read

    async def counted(run: RunId, after: int, limit: int) -> object:
        read.append(run)
        return await original(run, after, limit)

    monkeypatch.setattr(store, "read", counted)
    await parlour.page(4, 10)
    assert len(set(read)) == 2


async def test_a_forgotten_log_tells_what_it_told_before(parlour: Parlour) -> None:
    question = await parlour.say("write", "asker")
    await parlour.say("me", "asker", run=question.run.id)
    await parlour.say("fail", "broken")
    before = await parlour.page(system=True)
    parlour.clock.now += 2 * DAY
    await parlour.exchange.retention.tick()
    assert await parlour.exchange.store.read(question.run.id, 0, 10) == []
    assert await parlour.page(system=True) == before
    await parlour.say("again")
    assert len(await parlour.words()) == len(before.messages) + 1


async def test_a_fork_does_not_repeat_what_was_said(parlour: Parlour) -> None:
    outcome = await parlour.say("one")
    fork = await parlour.exchange.fork(Branch(outcome.run.id, ANN, message=Message("n", (text_part("two"),))))
    await parlour.exchange.settled(fork)
    again = await parlour.exchange.fork(Branch(outcome.run.id, ANN))
    await parlour.exchange.settled(again)
    assert await parlour.words() == ["one", "one, indeed", "two", "two, indeed", "one, indeed"]


async def test_a_conversation_is_deleted_with_all_that_was_said(parlour: Parlour) -> None:
    said = [await parlour.say("one"), await parlour.say("go", "parent"), await parlour.say("x", "broken")]
    plan = await parlour.document("plan")
    kept = await parlour.say("other", who=BEN)
    assert (await parlour.page(system=True)).total == 9
    assert await parlour.delete() == {"messagesDeleted": 9, "artifactsDeleted": {"plans": 1, "deliverables": 0}}
    talks, store = parlour.conversations, parlour.exchange.store
    assert await talks.exists(ANN, "talk") is None
    with pytest.raises(ConversationNotFound):
        await parlour.page()
    with pytest.raises(ConversationNotFound):
        await parlour.delete()
    for run_id in (*(one.run.id for one in said), RunId(plan)):
        assert await store.read(run_id, 0, 10) == []
        with pytest.raises(RunNotFound):
            await parlour.exchange.visible(run_id, ANN)
        with pytest.raises(RunNotFound):
            await parlour.exchange.view(run_id)
    assert await store.library.version(plan) is None
    assert (await parlour.exchange.view(kept.run.id)).run.state is State.COMPLETED
    listed, _ = await store.list_runs(Listing(principal="user:ann"))
    assert [run.assignment.action for run in listed if run.assignment] == ["delete_conversation"]


async def test_a_deleted_conversation_can_be_begun_again_and_nothing_of_before_comes_back(parlour: Parlour) -> None:
    await parlour.say("secret")
    await parlour.delete(key="k", body=b"1")
    assert await parlour.delete(key="k", body=b"1") == {
        "messagesDeleted": 2,
        "artifactsDeleted": {"plans": 0, "deliverables": 0},
    }
    with pytest.raises(KeyReused):
        await parlour.delete(key="k", body=b"2")
    before = parlour.clock.now
    assert (await parlour.conversations.begin(ANN, "echo", "talk"))[0].started_at > before
    assert await parlour.words() == []
    await parlour.say("new")
    assert await parlour.words() == ["new", "new, indeed"]
    await parlour.delete()
    outcome = await parlour.say("newer")
    found = await parlour.conversations.exists(ANN, "talk")
    assert found is not None
    assert found.started_at == outcome.run.created_at
    assert await parlour.words() == ["newer", "newer, indeed"]


async def test_documents_may_outlive_their_conversation(parlour: Parlour) -> None:
    await parlour.conversations.begin(ANN, "echo", "talk")
    plan = await parlour.document("plan")
    assert await parlour.delete(documents=False) == {"messagesDeleted": 2}
    found = await parlour.exchange.store.library.version(plan)
    assert found is not None
    assert found.document is not None
    assert (found.document.conversation, found.document.principal) == ("", "user:ann")
    await parlour.conversations.begin(ANN, "echo", "talk")
    assert (await parlour.documents.find(ANN, "talk", "plan")).document is None


async def test_what_is_under_way_is_stopped_before_it_is_deleted(parlour: Parlour) -> None:
    message = Message("m", (text_part("go"),))
    live = [
        await parlour.exchange.send(Send("endless", ANN, message, conversation="talk")),
        await parlour.exchange.send(Send("asker", ANN, message, conversation="talk")),
    ]
    await parlour.exchange.settled(live[1])
    with await parlour.exchange.follow(live[0].run.id, 0) as follower:
        while not any(event.type == "artifact" for event in await follower.next()):
            pass
    told = await parlour.delete()
    assert told["messagesDeleted"] == 6
    for outcome in live:
        head = await parlour.exchange.store.head(outcome.run.id)
        assert head is not None
        assert (head.run.state, head.run.principal) == (State.CANCELED, "")


async def test_what_does_not_stop_keeps_its_conversation(parlour: Parlour, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with an agent whose work is done elsewhere, by somebody who is not heard of any more."""
    message = Message("m", (text_part("go"),))
    live = await parlour.exchange.send(Send("endless", ANN, message, conversation="talk"))
    monkeypatch.setattr(parlour.exchange.execution, "cancel", lambda run: None)
    with pytest.raises(ConversationBusy):
        await parlour.delete()
    assert await parlour.conversations.exists(ANN, "talk") is not None
    monkeypatch.undo()
    parlour.exchange.execution.cancel(await parlour.exchange.commands.state(live.run.id))
    assert (await parlour.delete())["messagesDeleted"] == 3


async def test_an_export_has_all_that_was_said_and_made(parlour: Parlour) -> None:
    await parlour.say("one <b>")
    await parlour.document("plan")
    await parlour.document("deliverable")
    await parlour.say("x", "broken")
    exported = await parlour.export("json", artifacts=True)
    content = await parlour.content(exported)
    assert (len(content), hashlib.sha256(content).hexdigest()) == (exported.size, exported.sha256)
    assert exported.expires_at > parlour.clock.now + 3_000_000
    talk = msgspec.json.decode(content)
    assert [one["content"] for one in talk["messages"]] == await parlour.words(system=True)
    assert (exported.message_count, talk["messageCount"], exported.artifacts_included) == (9, 9, 2)
    assert [one["kind"] for one in talk["artifacts"]] == ["plan", "deliverable"]
    assert "# A plan" in talk["artifacts"][0]["currentVersion"]["content"]
    assert "artifacts" not in msgspec.json.decode(await parlour.content(await parlour.export("json")))


@pytest.mark.parametrize("format_", ["markdown", "html", "pdf"])
async def test_every_format_can_be_exported(parlour: Parlour, format_: str) -> None:
    await parlour.say("one")
    exported = await parlour.export(format_, artifacts=True)
    content = await parlour.content(exported)
    begins = {"markdown": b"# Conversation with Echo", "html": b"<!doctype html>", "pdf": b"%PDF-"}
    assert content.startswith(begins[format_])
    assert (exported.message_count, exported.artifacts_included, exported.size) == (2, 0, len(content))
    assert exported.name == f"conversation-talk.{ {'markdown': 'md'}.get(format_, format_) }"


async def test_an_export_is_made_once_for_a_key_and_no_two_are_the_same(parlour: Parlour) -> None:
    await parlour.say("one")
    first = await parlour.export("markdown", key="k")
    assert await parlour.export("markdown", key="k") == first
    assert (await parlour.export("markdown")).sha256 != first.sha256
    with pytest.raises(Invalid):
        await parlour.export("docx")


async def test_an_export_is_forgotten_when_it_expires_or_its_conversation_is_deleted(parlour: Parlour) -> None:
    await parlour.say("one")
    first = await parlour.export("markdown")
    await parlour.conversations.tidy()
    assert await parlour.content(first)
    await parlour.delete()
    with pytest.raises(NotFound):
        await parlour.content(first)
    await parlour.say("two")
    second = await parlour.export("markdown")
    parlour.clock.now += 10**12
    await parlour.conversations.tidy()
    with pytest.raises(NotFound):
        await parlour.content(second)


async def test_only_an_export_is_one(parlour: Parlour) -> None:
    said = await parlour.say("one")
    for run_id in (said.run.id, "no such run", new_id()):
        with pytest.raises(ExportNotFound):
            await parlour.conversations.exported(run_id)


async def test_a_text_that_lies_beside_the_log_is_told_like_any_other(parlour: Parlour) -> None:
    long = "long words " * 20_000
    outcome = await parlour.say(long)
    assert (await parlour.exchange.commands.state(outcome.run.id)).beside
    shown = await parlour.page()
    assert lines(shown.messages) == [("user", long), ("assistant", f"{long}, indeed")]
    assert msgspec.json.decode(shown.messages[0].metadata) == {}
