"""Contract suite of document stores. Subclass it and give it a `store` fixture:

class TestMyLibrary(LibraryContract):
    @pytest.fixture
    async def store(self):
        ...
"""

import asyncio

import pytest
from msgspec import Raw

from parley.documents.rules import (
    AddVersion,
    Change,
    Conversation,
    Document,
    DocumentChange,
    DropConversation,
    DropDocument,
    DropVersion,
    Kind,
    PointTo,
)
from parley.errors import Outdated
from parley.ids import ConversationId, RunId
from parley.runs.store import LogStore
from parley.testing.logs import LogWriter, put

__all__ = ["LibraryContract"]

ANN = "user:ann"
TALK = Conversation(ANN, ConversationId("talk"), "writer", 5)


class Drafts:
    """Makes changes to the documents of one conversation, each with a run of its own."""

    def __init__(self, store: LogStore, conversation: str = "talk") -> None:
        self.store = store
        self.conversation = conversation

    async def change(self, change: Change, log: LogWriter | None = None) -> None:
        append = (log or LogWriter()).start()
        append.changes = (change,)
        await put(self.store, append)

    async def add(
        self,
        content: str = "words",
        *,
        kind: Kind = "plan",
        made: str = "",
        current: bool = True,
        retitle: str = "",
        expected: str = "",
    ) -> RunId:
        """Add a version; `made` names the document if this is its first."""
        log = LogWriter()
        version = AddVersion(
            ANN,
            self.conversation,
            kind,
            "writer",
            "A title",
            "document",
            log.run_id,
            content,
            "markdown",
            "manual_edit",
            b'{"why": 1}',
            7,
            current,
            made,
            retitle,
            expected,
        )
        await self.change(version, log)
        return log.run_id

    async def document(self, kind: Kind = "plan") -> Document:
        found = await self.store.library.find(ANN, self.conversation, kind)
        assert found is not None
        assert found.document is not None
        return found.document


@pytest.fixture
async def drafts(store: LogStore) -> Drafts:
    await store.library.begin(TALK)
    return Drafts(store)


class LibraryContract:
    """Tests that every document store passes."""

    async def test_a_conversation_is_begun_once_and_is_its_owners(self, store: LogStore) -> None:
        library = store.library
        assert await library.conversation(ANN, "talk") is None
        assert await library.find(ANN, "talk", "plan") is None
        assert await library.begin(TALK) == (TALK, True)
        assert await library.begin(Conversation(ANN, TALK.id, "other", 9)) == (TALK, False)
        assert await library.conversation(ANN, "talk") == TALK
        assert await library.conversation("user:ben", "talk") is None

    async def test_a_version_is_found_with_its_document(self, store: LogStore, drafts: Drafts) -> None:
        first = await drafts.add("one", made="doc")
        second = await drafts.add("two\n✓")
        found = await store.library.find(ANN, "talk", "plan")
        assert found is not None
        assert found.document == Document(
            "doc", ANN, "talk", "plan", "writer", "A title", "document", second, 2, 2, 7, 7
        )
        assert found.content == "two\n✓"
        assert found.version is not None
        assert (found.version.number, found.version.metadata) == (2, Raw(b'{"why": 1}'))
        older = await store.library.find(ANN, "talk", "plan", first)
        assert older is not None
        assert older.content == "one"
        assert await store.library.version(first) == older

    async def test_documents_are_told_apart_by_owner_conversation_and_kind(
        self, store: LogStore, drafts: Drafts
    ) -> None:
        plan = await drafts.add(made="doc")
        library = store.library
        nothing = await library.find(ANN, "talk", "deliverable")
        assert nothing is not None
        assert nothing.document is None
        await drafts.add("built", kind="deliverable", made="other")
        foreign = await library.find(ANN, "talk", "deliverable", plan)
        assert foreign is not None
        assert (foreign.document is not None, foreign.version) == (True, None)
        assert await library.find("user:ben", "talk", "plan") is None
        assert await library.version("nobody") is None

    async def test_a_version_that_is_not_to_hold_changes_nothing_else(self, drafts: Drafts) -> None:
        first = await drafts.add(made="doc")
        await drafts.add(current=False)
        document = await drafts.document()
        assert (document.current, document.versions) == (first, 2)

    async def test_a_document_that_is_not_there_gets_no_version(self, store: LogStore, drafts: Drafts) -> None:
        with pytest.raises(Outdated):
            await drafts.add()
        with pytest.raises(Outdated):
            await Drafts(store, "unknown").add(made="doc")
        found = await store.library.find(ANN, "talk", "plan")
        assert found is not None
        assert found.document is None

    async def test_an_append_that_does_not_fit_leaves_no_run(self, store: LogStore, drafts: Drafts) -> None:
        log = LogWriter()
        with pytest.raises(Outdated):
            await drafts.change(PointTo("doc", 1, "nobody", 9), log)
        assert await store.head(log.run_id) is None

    async def test_versions_are_listed_newest_first_by_pages_with_previews(
        self, store: LogStore, drafts: Drafts
    ) -> None:
        await drafts.add("x" * 500, made="doc")
        for number in range(2, 6):
            await drafts.add(f"version {number}")
        listed = await store.library.versions("doc", 2, 1)
        assert [(one.number, one.preview) for one in listed] == [(4, "version 4"), (3, "version 3")]
        assert [one.preview for one in await store.library.versions("doc", 10, 4)] == ["x" * 200]

    async def test_the_documents_of_a_principal_are_listed_latest_change_first(
        self, store: LogStore, drafts: Drafts
    ) -> None:
        library = store.library
        await library.begin(Conversation(ANN, ConversationId("other"), "writer", 6))
        await library.begin(Conversation("user:ben", ConversationId("talk"), "writer", 6))
        await drafts.add(made="doc")
        await drafts.add(kind="deliverable", made="late")
        await Drafts(store, "other").add(made="elsewhere")
        revision = (await drafts.document()).revision
        await drafts.change(PointTo("doc", revision, (await drafts.document()).current, 9))
        listed = await library.documents(ANN, 10)
        assert [one.id for one in listed] == ["doc", "late", "elsewhere"]
        assert listed[0] == await drafts.document()
        assert await library.documents(ANN, 1) == listed[:1]
        assert await library.documents("user:ben", 10) == []
        await drafts.change(DropConversation(ANN, "talk", False, 11))
        assert [one.id for one in await library.documents(ANN, 10)] == ["elsewhere"]

    async def test_many_who_add_at_once_get_all_numbers_in_one_row(self, store: LogStore, drafts: Drafts) -> None:
        added = await asyncio.gather(*(drafts.add(f"{number}", made=f"doc-{number}") for number in range(40)))
        document = await drafts.document()
        listed = await store.library.versions(document.id, 100)
        assert [one.number for one in listed] == list(range(40, 0, -1))
        assert {one.id for one in listed} == set(added)
        assert document.current == listed[0].id
        assert (document.versions, document.revision) == (40, 40)

    async def test_a_document_takes_the_title_of_the_version_that_becomes_current(self, drafts: Drafts) -> None:
        first = await drafts.add(made="doc", retitle="Not of a new document")
        titles = [(await drafts.document()).title]
        for add in (
            drafts.add(retitle="Edited"),
            drafts.add(),
            drafts.add(current=False, retitle="Copied"),
            drafts.add(made="other", retitle="Written"),
            drafts.add(made="other"),
        ):
            await add
            titles.append((await drafts.document()).title)
        assert titles == ["A title", "Edited", "Edited", "Edited", "Written", "Written"]
        for chosen in ("Chosen", ""):
            await drafts.change(PointTo("doc", (await drafts.document()).revision, first, 9, chosen))
            assert (await drafts.document()).title == "Chosen"

    async def test_a_version_that_expects_another_current_one_is_refused(self, drafts: Drafts) -> None:
        with pytest.raises(Outdated):
            await drafts.add(made="doc", expected="nobody")
        first = await drafts.add(made="doc")
        second = await drafts.add(made="other", expected=first)
        for made in ("", "other"):
            with pytest.raises(Outdated):
                await drafts.add(made=made, expected=first)
        document = await drafts.document()
        assert (document.id, document.current, document.versions) == ("doc", second, 2)

    async def test_of_many_that_expect_the_same_version_one_is_added(self, store: LogStore, drafts: Drafts) -> None:
        first = await drafts.add(made="doc")
        rivals = (drafts.add(f"{number}", expected=first) for number in range(20))
        added = await asyncio.gather(*rivals, return_exceptions=True)
        (winner,) = [one for one in added if isinstance(one, str)]
        assert [type(one) for one in added if one != winner] == [Outdated] * 19
        assert [one.id for one in await store.library.versions("doc", 10)] == [winner, first]

    async def test_one_who_decided_on_an_older_state_is_refused(self, drafts: Drafts) -> None:
        first = await drafts.add(made="doc")
        second = await drafts.add()
        document = await drafts.document()
        await drafts.change(PointTo("doc", document.revision, first, 9))
        assert (await drafts.document()).current == first
        for late in (
            PointTo("doc", document.revision, second, 9),
            DropVersion("doc", document.revision, second, 9),
            DropDocument("doc", document.revision),
        ):
            with pytest.raises(Outdated):
                await drafts.change(late)

    async def test_the_version_that_holds_stays_and_numbers_are_not_used_again(
        self, store: LogStore, drafts: Drafts
    ) -> None:
        first = await drafts.add(made="doc")
        second = await drafts.add()
        revision = (await drafts.document()).revision
        with pytest.raises(Outdated):
            await drafts.change(DropVersion("doc", revision, second, 9))
        await drafts.change(PointTo("doc", revision, first, 9))
        await drafts.change(DropVersion("doc", revision + 1, second, 10))
        assert await store.library.version(second) is None
        await drafts.add()
        assert [one.number for one in await store.library.versions("doc", 10)] == [3, 1]
        assert (await drafts.document()).versions == 2

    async def test_a_document_goes_with_all_its_versions(self, store: LogStore, drafts: Drafts) -> None:
        first = await drafts.add(made="doc")
        await drafts.change(DropDocument("doc", 1))
        assert await store.library.version(first) is None
        await drafts.add(made="new")
        listed = await store.library.versions((await drafts.document()).id, 10)
        assert [one.number for one in listed] == [1]

    @pytest.mark.parametrize("documents", [True, False])
    async def test_a_conversation_goes_with_or_without_its_documents(
        self, store: LogStore, drafts: Drafts, documents: bool
    ) -> None:
        version = await drafts.add(made="doc")
        await drafts.change(DropConversation(ANN, "talk", documents, 11))
        assert await store.library.conversation(ANN, "talk") is None
        with pytest.raises(Outdated):
            await drafts.change(DropConversation(ANN, "talk", documents, 11))
        kept = await store.library.version(version)
        assert (kept is None) is documents
        if kept is not None:
            assert kept.document is not None
            assert kept.document.conversation == ""
        again = Conversation(ANN, TALK.id, "writer", 20)
        assert await store.library.begin(again) == (again, True)
        found = await store.library.find(ANN, "talk", "plan")
        assert found is not None
        assert found.document is None

    async def test_what_was_asked_without_a_run_is_kept_until_it_is_old(self, store: LogStore) -> None:
        noted = [
            DocumentChange(f"op-{number}", ANN, "talk", "writer", "plan", "read", "", "", number, number + 1)
            for number in range(5)
        ]
        await store.library.note(noted)
        assert await store.library.operation("op-3") == noted[3]
        assert await store.library.forget_operations(3) == 2
        assert await store.library.operation("op-1") is None
        assert await store.library.operation("op-2") == noted[2]
