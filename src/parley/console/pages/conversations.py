"""Conversations: what was said, and the plan and the deliverable beside it."""

from msgspec import Struct

from parley.console.desk import Desk
from parley.console.live import read_timeline
from parley.console.pages.page import Page
from parley.console.pages.run import ENTRIES, Seen
from parley.console.replies import Reply, path_of, redirect
from parley.console.visits import Visit
from parley.core.access import Principal
from parley.core.artifacts import text_of, text_part
from parley.core.conversations import Message
from parley.core.documents import FORMATS, Kind, Version
from parley.core.runs import Run
from parley.engine.conversations import MESSAGES
from parley.engine.newest import newest
from parley.engine.ports import Found, Listing
from parley.engine.queues import place_in_queue
from parley.engine.requests import Send
from parley.engine.talks import Talk, recent_talks
from parley.errors import ConversationNotFound, DocumentVersionNotFound, Invalid
from parley.faces.paging import page_cursor, place_token
from parley.ids import is_id, new_conversation_id, new_id

PAGE = 20
VERSIONS = 50
KINDS: tuple[Kind, ...] = ("plan", "deliverable")


class Sheet(Struct, frozen=True):
    """A plan or deliverable as it is shown: the version that holds or another, and all the others."""

    kind: Kind
    found: Found
    versions: list[Version]

    @property
    def current(self) -> bool:
        document, version = self.found.document, self.found.version
        return document is not None and version is not None and document.current == version.id


class Row(Struct, frozen=True):
    """A conversation in the list."""

    talk: Talk
    begins: str
    """How it begins."""


class ConversationPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/conversations", self.list),
            Page("POST", "/conversations", self.begin, "send"),
            Page("POST", "/conversations/{id:path}/say", self.say, "send"),
            Page("GET", "/conversations/{id:path}", self.show),
        ]

    async def list(self, visit: Visit) -> Reply:
        after = page_cursor(visit.query.get("after", ""))
        listing = Listing(self._desk.owner(visit.principal), after=after, limit=PAGE)
        talks = await recent_talks(self._desk.exchange.store, listing)
        return visit.page(
            "conversations.html", title="Conversations", rows=[await self._row(talk) for talk in talks.talks],
            next=place_token(talks.after), first=after is None, agents=self._desk.agents(visit.principal),
            own=str(visit.principal),
        )  # fmt: skip

    async def begin(self, visit: Visit) -> Reply:
        form = await visit.form()
        agent = self._desk.agent(form.get("agent", ""), visit.principal)
        id_ = new_conversation_id()
        await self._send(visit.principal, agent.slug, id_, form)
        return redirect(path_of("conversations", id_))

    async def say(self, visit: Visit) -> Reply:
        form = await visit.form()
        begun = await self._desk.beside.conversations.exists(visit.principal, visit.path["id"])
        if begun is None:
            raise _missing(visit.path["id"])
        await self._send(visit.principal, begun.agent, begun.id, form)
        return redirect(path_of("conversations", begun.id))

    async def show(self, visit: Visit) -> Reply:
        id_, owner = visit.path["id"], owner_of(visit)
        pages = self._desk.beside.conversations
        # First, so that what ends meanwhile is among the messages: what is under way is followed, the rest is not.
        seen = await self._under_way(owner, id_)
        total = (await pages.page(owner, id_, 1)).total
        offset = _offset(visit.query.get("before", ""), total)
        page = await pages.page(owner, id_, min(MESSAGES, max(total - offset, 1)), offset)
        begun = page.conversation
        sheets = [await self._sheet(owner, id_, kind, visit.query.get(kind, "")) for kind in KINDS]
        return visit.page(
            "conversation.html", title=self._desk.name_of(begun.agent), crumbs=[("Conversations", "/conversations")],
            conversation=begun, messages=page.messages, total=total, offset=offset, sheets=sheets,
            mine=owner == visit.principal, owner=str(owner), formats=FORMATS, key=new_id(),
            seen=seen, exported=visit.query.get("exported", ""),
            exports=await self._exports(owner, id_), served=begun.agent in self._desk.exchange.agents,
        )  # fmt: skip

    async def _send(self, principal: Principal, agent: str, conversation: str, form: dict[str, str]) -> None:
        text = form.get("text", "").strip()
        if not text:
            raise Invalid("Write a message first.", field="text")
        message = Message(new_id(), (text_part(text),))
        key = form.get("key") or None
        await self._desk.exchange.send(Send(agent, principal, message, conversation=conversation, key=key))

    async def _row(self, talk: Talk) -> Row:
        view = await self._desk.exchange.view(talk.latest.id, told=True)
        said = next((text_of(one.parts) for one in view.history if one.role == "user"), "")
        assignment = talk.latest.assignment
        done = f"{assignment.mode}: {assignment.action.replace('_', ' ')}" if assignment and not said else ""
        return Row(talk, said[:300] or done)

    async def _sheet(self, owner: Principal, conversation: str, kind: Kind, version: str) -> Sheet:
        documents = self._desk.beside.documents
        wanted = version or None
        if wanted is not None and not is_id(wanted):
            raise DocumentVersionNotFound("There is no such version.", version=wanted)
        found = await documents.find(owner, conversation, kind, wanted)
        if found.document is None:
            return Sheet(kind, Found(), [])
        if found.version is None:
            raise DocumentVersionNotFound("There is no such version.", version=version)
        return Sheet(kind, found, await documents.library.versions(found.document.id, VERSIONS))

    async def _under_way(self, owner: Principal, conversation: str) -> Seen | None:
        """The newest run, while it is at work or asks something."""
        runs = [run for run in await self._latest(owner, conversation) if not run.ended and run.parent is None]
        if not runs:
            return None
        timeline = await read_timeline(self._desk.exchange, runs[0].id)
        if timeline.run is not None and timeline.run.ended:
            return None
        entries = list(timeline.entries.values())[-ENTRIES:]
        return Seen(timeline.run or runs[0], entries, 0, await place_in_queue(self._desk.exchange, runs[0]))

    async def _exports(self, owner: Principal, conversation: str) -> "list[tuple[str, object]]":
        """The files that were made lately, with their links."""
        found: list[tuple[str, object]] = []
        for run in await self._latest(owner, conversation):
            if run.ended and run.assignment is not None and run.assignment.action == "export_conversation":
                exported = await self._desk.beside.conversations.exported(run.id)
                found.append((self._desk.beside.link(run.id, exported), exported))
        return found[:5]

    async def _latest(self, owner: Principal, conversation: str) -> "list[Run]":
        asked = Listing(str(owner), conversation=conversation, limit=PAGE)
        return (await newest(self._desk.exchange.store, asked)).runs


def owner_of(visit: Visit) -> Principal:
    """Whose conversation it is: one's own, unless an administrator looks at another's."""
    named = visit.query.get("owner", "")
    if named in ("", str(visit.principal)):
        return visit.principal
    if not visit.principal.may("admin"):
        raise _missing(visit.path["id"])
    return Principal.parse(named)


def _missing(conversation: str) -> ConversationNotFound:
    return ConversationNotFound("There is no such conversation.", conversation=conversation)


def _offset(text: str, total: int) -> int:
    """Where the page of messages begins: the last ones, unless others are asked for."""
    if not text:
        return max(total - MESSAGES, 0)
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Invalid("A place among messages is a number.", field="before")
    return max(min(int(text), total) - MESSAGES, 0)
