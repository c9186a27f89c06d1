"""Plans and deliverables over every store: what changes one is a run, written together with the change."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from parley import Done, NeedInput, Text, Turn, agent
from parley.documents.rules import Conversation, DropConversation, is_context
from parley.documents.service import DocumentRequest, Documents, Drawing
from parley.documents.store import FoundDocument
from parley.errors import (
    ConversationNotFound,
    CurrentVersion,
    DocumentNotFound,
    DocumentVersionNotFound,
    Invalid,
    KeyReused,
)
from parley.ids import ConversationId
from parley.runs.log import Outcome
from parley.runs.requests import Branch, Extensions
from parley.runs.rules.access import Principal
from parley.runs.rules.content import Message, text_of, text_part
from parley.runs.rules.state import State
from parley.runs.service import Exchange
from parley.runs.store import LogStore
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo

ANN = Principal("user", "ann")
BEN = Principal("user", "ben")


@agent("writer")
async def writer(turn: Turn) -> AsyncIterator[Text]:
    """Repeats what it is asked, and says that it is a model."""
    said = [part for part in turn.message.parts if not is_context(part)]
    yield Text(f"# {text_of(said).strip()}\n\n", {"model": "echo-1", "usage": {"inputTokens": 3, "outputTokens": 4}})
    yield Text(f"({len(turn.message.parts) - len(said)} parts of context)")


@agent("silent")
async def silent(turn: Turn) -> AsyncIterator[Done]:
    yield Done()


@agent("asker")
async def asker(turn: Turn) -> AsyncIterator[NeedInput | Text]:
    if turn.number == 1:
        yield NeedInput("For whom?")
    else:
        yield Text(f'```json\n{{"for": "{turn.text}"}}\n```')


class Desk:
    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.documents = Documents(exchange)

    def asking(
        self, action: str = "create", *, who: Principal = ANN, slug: str = "writer", key: str | None = None,
        body: bytes = b"", conversation: str = "talk",
    ) -> DocumentRequest:  # fmt: skip
        return DocumentRequest(who, conversation, slug, "plan", action, key, body)

    async def write(self, message: str = "Do it", *, slug: str = "writer", force_new: bool = False) -> Outcome:
        outcome = await self.documents.create(self.asking(slug=slug), "plan", message, force_new=force_new)
        await self.exchange.settled(outcome)
        return outcome

    async def plan(self, version: str | None = None) -> FoundDocument:
        return await self.documents.find(ANN, "talk", "plan", version)

    async def numbers(self) -> list[int]:
        _, versions = await self.documents.versions(ANN, "talk", "plan", 100)
        return [one.number for one in versions]


@pytest.fixture
async def desk(store: LogStore) -> AsyncIterator[Desk]:
    exchange = Exchange(
        store,
        open_blobs("memory:"),
        Solo(store),
        NoSignals(),
        grace_s=1.0,
        shared=True,
        extend=lambda made: Extensions(fulfil=Documents(made).fulfil),
    )
    for one in (writer, silent, asker):
        exchange.add(one)
    await exchange.start()
    for who in (ANN, BEN):
        await store.library.begin(Conversation(str(who), ConversationId("talk"), "writer", 1))
    yield Desk(exchange)
    await exchange.close()


async def test_an_answer_becomes_the_first_version_when_its_run_completes(desk: Desk) -> None:
    outcome = await desk.write("Paint the fence\nin green")
    found = await desk.plan()
    assert found.document is not None
    assert found.version is not None
    assert (found.document.title, found.document.current) == ("Paint the fence", outcome.run.id)
    assert found.content == "# Paint the fence\nin green\n\n(1 parts of context)"
    assert (found.version.number, found.version.provenance) == (1, "conversation_task")
    assert msgspec.json.decode(found.version.metadata) == {"llmModel": "echo-1", "tokensUsed": 7}
    assert await desk.documents.made(outcome.run) == found


async def test_the_next_version_is_written_with_the_current_one_at_hand_unless_told_otherwise(desk: Desk) -> None:
    await desk.write()
    await desk.write("Refine it")
    assert "(2 parts of context)" in (await desk.plan()).content
    await desk.write("Start over", force_new=True)
    assert "(1 parts of context)" in (await desk.plan()).content
    assert await desk.numbers() == [3, 2, 1]


async def test_a_run_that_says_nothing_makes_no_version(desk: Desk) -> None:
    outcome = await desk.write(slug="silent")
    assert (await desk.plan()).document is None
    assert await desk.documents.made(outcome.run) is None


async def test_an_agent_may_ask_before_it_writes_and_a_fence_is_taken_off(desk: Desk) -> None:
    outcome = await desk.write(slug="asker")
    assert (await desk.plan()).document is None
    waiting = await desk.exchange.commands.state(outcome.run.id)

    given = await desk.exchange.give(waiting, ANN, Message("m", (text_part("Ann"),)), None)
    await desk.exchange.settled(given)
    found = await desk.plan()
    assert found.version is not None
    assert (found.content, found.version.format) == ('{"for": "Ann"}', "json")


async def test_a_fork_of_a_run_that_wrote_a_plan_writes_none(desk: Desk) -> None:
    outcome = await desk.write()
    fork = await desk.exchange.fork(Branch(outcome.run.id, ANN))
    assert (await desk.exchange.settled(fork)).status.state is State.COMPLETED
    assert await desk.numbers() == [1]


async def test_a_canceled_run_writes_nothing(desk: Desk) -> None:
    outcome = await desk.write(slug="asker")
    await desk.exchange.cancel(outcome.run.id, ANN)
    assert (await desk.plan()).document is None


async def test_an_edit_is_a_run_that_is_complete_at_once(desk: Desk) -> None:
    await desk.write()
    outcome = await desk.documents.edit(desk.asking("edit"), "plan", "By hand", "why not")
    assert outcome.run.state is State.COMPLETED
    found = await desk.plan()
    assert found.version is not None
    assert (found.content, found.version.id, found.version.provenance) == ("By hand", outcome.run.id, "manual_edit")
    assert msgspec.json.decode(found.version.metadata)["editNotes"] == "why not"


async def test_fifty_edits_at_once_are_all_there_without_gaps(desk: Desk) -> None:
    await desk.write()
    edits = [desk.documents.edit(desk.asking("edit"), "plan", f"edit {number}") for number in range(50)]
    outcomes = await asyncio.gather(*edits)
    assert await desk.numbers() == list(range(51, 0, -1))
    found = await desk.plan()
    assert found.document is not None
    assert found.document.versions == 51
    listed = await desk.exchange.store.library.versions(found.document.id, 100)
    assert {one.id for one in listed} >= {outcome.run.id for outcome in outcomes}
    assert found.document.current == listed[0].id


async def test_a_key_is_answered_with_what_it_led_to_and_other_words_are_refused(desk: Desk) -> None:
    await desk.write()
    asking = desk.asking("edit", key="k", body=b"one")
    first = await desk.documents.edit(asking, "plan", "one")
    again = await desk.documents.edit(asking, "plan", "one")
    assert (again.run.id, again.replayed) == (first.run.id, True)
    assert await desk.numbers() == [2, 1]
    with pytest.raises(KeyReused):
        await desk.documents.edit(desk.asking("edit", key="k", body=b"two"), "plan", "two")


async def test_versions_are_chosen_copied_and_deleted(desk: Desk) -> None:
    first = (await desk.write()).run.id
    second = (await desk.documents.edit(desk.asking("edit"), "plan", "By hand")).run.id
    await desk.documents.point(desk.asking("set_current"), "plan", first)
    await desk.documents.point(desk.asking("set_current"), "plan", first)
    copy = await desk.documents.copy(desk.asking("copy_version"), "plan", second)
    document = (await desk.plan()).document
    assert document is not None
    assert document.current == first
    copied = await desk.plan(copy.run.id)
    assert copied.version is not None
    assert copied.content == "By hand"
    assert msgspec.json.decode(copied.version.metadata) == {"copiedFrom": second, "originalVersionNumber": 2}
    with pytest.raises(CurrentVersion):
        await desk.documents.drop_version(desk.asking("delete_version"), "plan", first)
    await desk.documents.drop_version(desk.asking("delete_version"), "plan", second)
    assert await desk.numbers() == [3, 1]
    await desk.documents.drop(desk.asking("delete"), "plan")
    assert (await desk.plan()).document is None


async def test_versions_are_merged_by_the_agent(desk: Desk) -> None:
    first = (await desk.write("one")).run.id
    second = (await desk.write("two")).run.id
    asking = desk.asking("merge_versions")
    await desk.exchange.settled(await desk.documents.merge(asking, "plan", [first, second], "Join them"))
    found = await desk.plan()
    assert found.version is not None
    assert (found.content, found.version.provenance) == ("# Join them\n\n(3 parts of context)", "merge_operation")
    about = msgspec.json.decode(found.version.metadata)
    assert about == {
        "basedOn": second, "mergedFrom": [first, second], "mergePrompt": "Join them", "llmModel": "echo-1",
        "tokensUsed": 7,
    }  # fmt: skip
    for too_few in ([first], [first, first]):
        with pytest.raises(Invalid):
            await desk.documents.merge(asking, "plan", too_few, "Join them")
    with pytest.raises(DocumentVersionNotFound):
        await desk.documents.merge(asking, "plan", [first, "nobody"], "Join them")


async def test_a_deliverable_is_made_from_the_plan_and_made_again(desk: Desk) -> None:
    documents = desk.documents
    with pytest.raises(Invalid):
        await documents.create(desk.asking(), "deliverable", "")
    plan = (await desk.write("The plan")).run.id
    await desk.exchange.settled(await documents.create(desk.asking(), "deliverable", ""))
    built = await documents.find(ANN, "talk", "deliverable")
    assert built.version is not None
    assert "(2 parts of context)" in built.content
    assert msgspec.json.decode(built.version.metadata)["planVersionId"] == plan
    how = Drawing(model="other", temperature=0.5)
    rerun = await documents.rerun(desk.asking("rerun"), "deliverable", None, how, "Shorter")
    await desk.exchange.settled(rerun)
    again = await documents.find(ANN, "talk", "deliverable")
    assert again.version is not None
    assert "Shorter" in again.content
    about = msgspec.json.decode(again.version.metadata)
    assert about["rerunFrom"] == built.version.id
    assert about["rerunConfig"] == {"model": "other", "temperature": 0.5}


async def test_what_is_not_there_is_not_found(desk: Desk) -> None:
    documents = desk.documents
    with pytest.raises(DocumentNotFound):
        await documents.edit(desk.asking("edit"), "plan", "By hand")
    with pytest.raises(ConversationNotFound):
        await documents.create(desk.asking(conversation="elsewhere"), "plan", "Do it")
    first = (await desk.write()).run.id
    with pytest.raises(DocumentVersionNotFound):
        await documents.point(desk.asking("set_current"), "plan", "nobody")
    with pytest.raises(DocumentNotFound):
        await documents.point(desk.asking("set_current", who=BEN), "plan", first)


async def test_a_run_completes_also_when_its_conversation_was_deleted_meanwhile(desk: Desk) -> None:
    outcome = await desk.documents.create(desk.asking(slug="asker"), "plan", "Do it")
    await desk.exchange.settled(outcome)
    gone = DropConversation(str(ANN), "talk", documents=True, at=9)
    await desk.documents.record(desk.asking("delete_conversation"), {}, (gone,))

    waiting = await desk.exchange.commands.state(outcome.run.id)
    given = await desk.exchange.give(waiting, ANN, Message("m", (text_part("Ann"),)), None)
    assert (await desk.exchange.settled(given)).status.state is State.COMPLETED
    assert await desk.documents.made(outcome.run) is None
