"""Pages for conversations: their messages, plan, deliverable and exports."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from parley.console.pages.runs import ENTRIES, RunSeen, event_number
from parley.console.request import ConsoleContext, Form, Page, PageRequest
from parley.console.responses import PREFIX, PageReply, path_of, redirect, to
from parley.console.text_diff import counted, difference
from parley.console.timeline import TimelinePiece, pieces_of, read_timeline
from parley.console.uploads import UploadForm
from parley.documents.actions import agent_refusal
from parley.documents.conversations import MESSAGES
from parley.documents.rules import FORMATS, Conversation, Kind, Version
from parley.documents.service import DocumentRequest
from parley.documents.store import FoundDocument
from parley.errors import ConversationNotFound, DocumentNotFound, DocumentVersionNotFound, Invalid
from parley.faces.actions.table import ACTIONS, Action
from parley.http.requests import page_cursor, place_token
from parley.ids import is_id, new_id
from parley.runs.listing import ConversationSummary, newest, place_in_queue, recent_conversations
from parley.runs.log import Outcome
from parley.runs.requests import Branch, Send
from parley.runs.rules.access import Principal
from parley.runs.rules.answers import answer_form
from parley.runs.rules.content import Message, text_of, text_part
from parley.runs.rules.events import InputReceived, content_of
from parley.runs.rules.state import Run
from parley.runs.rules.transcript import TranscriptMessage, shown
from parley.runs.store import Listing, Store

PAGE = 20
VERSIONS = 50
KINDS: tuple[Kind, ...] = ("plan", "deliverable")


class DocumentSheet(Struct, frozen=True):
    """A plan or deliverable on a page: the version shown (the current one by default), and the list of versions."""

    kind: Kind
    found: FoundDocument
    versions: list[Version]

    @property
    def current(self) -> bool:
        document, version = self.found.document, self.found.version
        return document is not None and version is not None and document.current == version.id


class ConversationRow(Struct, frozen=True):
    """A conversation in the list."""

    talk: ConversationSummary
    begins: str
    """Start of the first message."""


class ChatMessage(Struct, frozen=True):
    """A message of a conversation, with previews of its files."""

    said: TranscriptMessage
    pieces: list[TimelinePiece]


MOST_WITH_FILES = 20
"""Runs of a page whose files are shown; the others have them on their own pages."""
FILES = 100
"""Events with files that are read of a run."""
INPUT = "input"
FILE_TYPES = (INPUT, "artifact")


def number_of(message: TranscriptMessage) -> int:
    """The number of the event that a message comes from."""
    return int(message.id.rpartition(".")[2])


async def with_files(store: Store, messages: list[TranscriptMessage]) -> list[ChatMessage]:
    """The messages with previews of their files. Only runs with files are read, and of each only some events."""
    runs = list(dict.fromkeys(one.run for one in messages if b"attachments" in bytes(one.metadata)))
    found: dict[str, list[TimelinePiece]] = {}
    for run in runs[:MOST_WITH_FILES]:
        first = min(number_of(one) for one in messages if one.run == run)
        events = await store.read_types(run, FILE_TYPES, max(0, first - FILES), FILES)
        answers = sorted(number_of(one) for one in messages if one.run == run and one.role == "assistant")
        for event in events:
            asked = event.type == INPUT
            at = event.seq if asked else next((seq for seq in answers if seq >= event.seq), 0)
            pieces = pieces_of(content_of(event.payload), event.seq)
            found.setdefault(f"{run}.{at}", []).extend(pieces)
    return [ChatMessage(one, found.get(one.id, [])) for one in messages]


def message_in(form: UploadForm) -> Message:
    """The message of a form: its text, then its files."""
    text = form.fields.get("text", "").strip()
    if not text and not form.files:
        raise Invalid("Write a message or attach a file first.", field="text")
    return Message(new_id(), (*((text_part(text),) if text else ()), *form.files))


class ConversationPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/conversations", self.list),
            Page("POST", "/conversations", self.begin, "send"),
            Page("POST", "/conversations/{id:path}/say", self.say, "send"),
            Page("POST", "/conversations/{id:path}/resend", self.resend, "send"),
            Page("GET", "/conversations/{id:path}", self.show),
        ]

    async def list(self, visit: PageRequest) -> PageReply:
        after = page_cursor(visit.query.get("after", ""))
        listing = Listing(self._desk.owner(visit.principal), after=after, limit=PAGE)
        talks = await recent_conversations(self._desk.exchange.store, listing)
        return visit.page(
            "conversations.html",
            title="Conversations",
            rows=[await self._row(talk) for talk in talks.talks],
            next=place_token(talks.after),
            first=after is None,
            agents=self._desk.agents(visit.principal),
            key=new_id(),
            own=str(visit.principal),
        )

    async def begin(self, visit: PageRequest) -> PageReply:
        form = await visit.upload()
        agent = self._desk.agent(form.fields.get("agent", ""), visit.principal)
        outcome = await self._send(visit.principal, agent.slug, None, form)
        return redirect(path_of("conversations", outcome.run.conversation))

    async def say(self, visit: PageRequest) -> PageReply:
        form = await visit.upload()
        begun = await self._begun(visit)
        await self._send(visit.principal, begun.agent, begun.id, form)
        return redirect(path_of("conversations", begun.id))

    async def resend(self, visit: PageRequest) -> PageReply:
        """Send a message again with another text: a fork of its run from before it. Its files are sent again too."""
        form, begun = await visit.form(), await self._begun(visit)
        text = form.get("text", "").strip()
        if not text:
            raise Invalid("Write a message first.", field="text")
        run_id, _, number = form.get("message", "").rpartition(".")
        run, seq = await self._desk.exchange.visible(run_id, visit.principal), event_number(number, "message")
        events = await self._desk.exchange.store.read(run.id, seq - 1, 1) if seq > 1 else []
        sent = events[0].payload if events and events[0].seq == seq and run.conversation == begun.id else None
        if not isinstance(sent, InputReceived):
            raise Invalid("There is no such message in this conversation.", field="message")
        files = tuple(part for part in shown(sent.message) if part.text is None or part.filename is not None)
        files = await self._desk.exchange.attachments.loaded(files)
        branch = Branch(
            run.id,
            visit.principal,
            at=seq - 1,
            message=Message(new_id(), (text_part(text), *files)),
            key=form.get("key") or None,
        )
        await self._desk.exchange.fork(branch)
        return redirect(path_of("conversations", begun.id))

    async def show(self, visit: PageRequest) -> PageReply:
        id_, owner = visit.path["id"], owner_of(visit)
        pages = self._desk.beside.conversations
        # Read the live run first: if it ends meanwhile, its messages are in the page read afterwards.
        seen = await self._under_way(owner, id_)
        total = (await pages.page(owner, id_, 1)).total
        offset = _offset(visit.query.get("before", ""), total)
        page = await pages.page(owner, id_, min(MESSAGES, max(total - offset, 1)), offset)
        begun = page.conversation
        sheets = [await self._sheet(owner, id_, kind, visit.query.get(kind, "")) for kind in KINDS]
        return visit.page(
            "conversation.html",
            title=self._desk.name_of(begun.agent),
            crumbs=[("Conversations", "/conversations")],
            conversation=begun,
            messages=await with_files(self._desk.exchange.store, page.messages),
            total=total,
            offset=offset,
            sheets=sheets,
            mine=owner == visit.principal,
            owner=str(owner),
            formats=FORMATS,
            key=new_id(),
            seen=seen,
            exported=visit.query.get("exported", ""),
            exports=await self._exports(owner, id_),
            served=begun.agent in self._desk.exchange.agents,
        )

    async def _begun(self, visit: PageRequest) -> Conversation:
        begun = await self._desk.beside.conversations.exists(visit.principal, visit.path["id"])
        if begun is None:
            raise _missing(visit.path["id"])
        return begun

    async def _send(self, principal: Principal, agent: str, conversation: str | None, form: UploadForm) -> Outcome:
        message, key = message_in(form), form.fields.get("key") or None
        return await self._desk.exchange.send(Send(agent, principal, message, conversation=conversation, key=key))

    async def _row(self, talk: ConversationSummary) -> ConversationRow:
        view = await self._desk.exchange.view(talk.latest.id, told=True)
        said = next((text_of(one.parts) for one in view.history if one.role == "user"), "")
        assignment = talk.latest.assignment
        done = f"{assignment.mode}: {assignment.action.replace('_', ' ')}" if assignment and not said else ""
        return ConversationRow(talk, said[:300] or done)

    async def _sheet(self, owner: Principal, conversation: str, kind: Kind, version: str) -> DocumentSheet:
        documents = self._desk.beside.documents
        wanted = version or None
        if wanted is not None and not is_id(wanted):
            raise DocumentVersionNotFound("There is no such version.", version=wanted)
        found = await documents.find(owner, conversation, kind, wanted)
        if found.document is None:
            return DocumentSheet(kind, FoundDocument(), [])
        if found.version is None:
            raise DocumentVersionNotFound("There is no such version.", version=version)
        return DocumentSheet(kind, found, await documents.library.versions(found.document.id, VERSIONS))

    async def _under_way(self, owner: Principal, conversation: str) -> RunSeen | None:
        """The newest run, if it is still working or waits for input."""
        runs = [run for run in await self._latest(owner, conversation) if not run.ended and run.parent is None]
        if not runs:
            return None
        timeline = await read_timeline(self._desk.exchange, runs[0].id)
        if timeline.run is not None and timeline.run.ended:
            return None
        entries = list(timeline.entries.values())[-ENTRIES:]
        place, form = await place_in_queue(self._desk.exchange, runs[0]), answer_form(timeline.expects)
        return RunSeen(timeline.run or runs[0], entries, 0, place, form, decisions=timeline.decisions)

    async def _exports(self, owner: Principal, conversation: str) -> "list[tuple[str, object]]":
        """Recent export files, with their links."""
        found: list[tuple[str, object]] = []
        for run in await self._latest(owner, conversation):
            if run.ended and run.assignment is not None and run.assignment.action == "export_conversation":
                exported = await self._desk.beside.conversations.exported(run.id)
                found.append((self._desk.beside.link(run.id, exported), exported))
        return found[:5]

    async def _latest(self, owner: Principal, conversation: str) -> "list[Run]":
        asked = Listing(str(owner), conversation=conversation, limit=PAGE)
        return (await newest(self._desk.exchange.store, asked)).runs


def owner_of(visit: PageRequest) -> Principal:
    """The owner of the conversation: the visitor, or the owner that an administrator names in the query."""
    named = visit.query.get("owner", "")
    if named in ("", str(visit.principal)):
        return visit.principal
    if not visit.principal.may("admin"):
        raise _missing(visit.path["id"])
    return Principal.parse(named)


def _missing(conversation: str) -> ConversationNotFound:
    return ConversationNotFound("There is no such conversation.", conversation=conversation)


def _offset(text: str, total: int) -> int:
    """The offset of the page of messages; by default that of the last page."""
    if not text:
        return max(total - MESSAGES, 0)
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Invalid('"before" must be a number.', field="before")
    return max(min(int(text), total) - MESSAGES, 0)


# Actions on plans and deliverables, with the same requests as the actions API (002).

Deed = Callable[[DocumentRequest, Kind, Form], Awaitable[Outcome]]


class VersionPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk
        self._documents = desk.beside.documents

    def pages(self) -> list[Page]:
        at = "/conversations/{id:path}"
        deeds: dict[str, Deed] = {
            "create": self._create,
            "edit": self._edit,
            "set_current": self._point,
            "copy_version": self._copy,
            "delete_version": self._drop,
            "merge_versions": self._merge,
            "rerun": self._rerun,
        }
        return [
            Page("GET", f"{at}/difference", self.difference),
            *(Page("POST", f"{at}/{name}", self._handler(name, deed), "send") for name, deed in deeds.items()),
            Page("POST", f"{at}/export", self.export, "send"),
        ]

    async def difference(self, visit: PageRequest) -> PageReply:
        kind, owner = _kind(visit.query.get("kind", "")), owner_of(visit)
        old, new = visit.query.get("from", ""), visit.query.get("to", "")
        one, two = [await self._version(visit, kind, version) for version in (old, new)]
        lines = await asyncio.to_thread(difference, one.content, two.content)
        document, versions = await self._documents.versions(owner, visit.path["id"], kind, VERSIONS)
        come, gone = counted(lines)
        return visit.page(
            "difference.html",
            title=f"Versions of the {kind}",
            kind=kind,
            lines=lines,
            come=come,
            gone=gone,
            one=one.version,
            two=two.version,
            document=document,
            versions=versions,
            owner=str(owner),
            mine=owner == visit.principal,
            conversation=visit.path["id"],
            crumbs=[("Conversations", "/conversations"), (document.title, _place(visit, owner=str(owner)))],
        )

    async def export(self, visit: PageRequest) -> PageReply:
        form = await visit.form()
        asking = await self._asking(visit, "converse", "export_conversation", form)
        conversations = self._desk.beside.conversations
        outcome = await conversations.export(asking, form.get("format", ""), artifacts="artifacts" in form)
        return redirect(_place(visit, exported=outcome.run.id))

    def _handler(self, name: str, deed: Deed) -> Callable[[PageRequest], Awaitable[PageReply]]:
        async def handle(visit: PageRequest) -> PageReply:
            form = await visit.form()
            kind = _kind(form.get("kind", ""))
            asking = await self._asking(visit, "plan" if kind == "plan" else "build", name, form)
            await deed(asking, kind, form)
            return redirect(_place(visit))

        return handle

    async def _asking(self, visit: PageRequest, mode: str, name: str, form: Form) -> DocumentRequest:
        """The request to the conversation's agent; raises if the conversation is another user's or the agent cannot."""
        begun = await self._desk.beside.conversations.exists(visit.principal, visit.path["id"])
        if begun is None:
            raise ConversationNotFound("There is no such conversation.", conversation=visit.path["id"])
        if refusal := agent_refusal(self._desk.exchange.agents, visit.principal, begun.agent, _row(mode, name)):
            raise refusal
        body = msgspec.json.encode(form, order="sorted")
        return DocumentRequest(visit.principal, begun.id, begun.agent, mode, name, form.get("key") or None, body)

    async def _create(self, asking: DocumentRequest, kind: Kind, form: Form) -> Outcome:
        return await self._documents.create(asking, kind, form.get("text", "").strip())

    async def _edit(self, asking: DocumentRequest, kind: Kind, form: Form) -> Outcome:
        content = form.get("content", "").replace("\r\n", "\n")
        return await self._documents.edit(asking, kind, content, form.get("notes") or None)

    async def _point(self, asking: DocumentRequest, kind: Kind, form: Form) -> Outcome:
        return await self._documents.point(asking, kind, _named(form))

    async def _copy(self, asking: DocumentRequest, kind: Kind, form: Form) -> Outcome:
        return await self._documents.copy(asking, kind, _named(form))

    async def _drop(self, asking: DocumentRequest, kind: Kind, form: Form) -> Outcome:
        return await self._documents.drop_version(asking, kind, _named(form))

    async def _merge(self, asking: DocumentRequest, kind: Kind, form: Form) -> Outcome:
        chosen = [name.removeprefix("merge-") for name in form if name.startswith("merge-")]
        prompt = form.get("text", "").strip() or "Merge them into one."
        return await self._documents.merge(asking, kind, [one for one in chosen if is_id(one)], prompt)

    async def _rerun(self, asking: DocumentRequest, kind: Kind, form: Form) -> Outcome:
        return await self._documents.rerun(asking, kind, _named(form), None, form.get("text", "").strip() or None)

    async def _version(self, visit: PageRequest, kind: Kind, version: str) -> FoundDocument:
        if not is_id(version):
            raise DocumentVersionNotFound("There is no such version.", version=version)
        found = await self._documents.find(owner_of(visit), visit.path["id"], kind, version)
        if found.document is None:
            raise DocumentNotFound(f"This conversation has no {kind}.", kind=kind)
        if found.version is None:
            raise DocumentVersionNotFound("There is no such version.", version=version)
        return found


def _row(mode: str, name: str) -> Action:
    row = next((one for one in ACTIONS if (one.mode, one.name) == (mode, name)), None)
    if row is None:
        raise Invalid("Only a deliverable can be regenerated.", field="kind")
    return row


def _kind(name: str) -> Kind:
    match name:
        case "plan" | "deliverable":
            return name
        case _:
            raise Invalid('"kind" must be plan or deliverable.', field="kind")


def _named(form: Form) -> str:
    version = form.get("version", "")
    if not is_id(version):
        raise DocumentVersionNotFound("There is no such version.", version=version)
    return version


def _place(visit: PageRequest, **query: str) -> str:
    whose = query.get("owner")
    more = {name: value for name, value in query.items() if name != "owner" or whose != str(visit.principal)}
    return to(path_of("conversations", visit.path["id"]), **more).removeprefix(PREFIX)
