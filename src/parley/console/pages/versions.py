"""What is done with plans and deliverables: the engine's documents, asked as contract 002 asks them."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from parley.console.desk import Desk
from parley.console.differences import counted, difference
from parley.console.pages.conversations import VERSIONS, owner_of
from parley.console.pages.page import Page
from parley.console.rendering import to
from parley.console.replies import PREFIX, Reply, path_of, redirect
from parley.console.visits import Form, Visit
from parley.core.actions import ACTIONS, Action
from parley.core.documents import Kind
from parley.engine.commands import Outcome
from parley.engine.documents import Asking
from parley.engine.ports import Found
from parley.errors import ConversationNotFound, DocumentNotFound, DocumentVersionNotFound, Invalid
from parley.faces.modes.able import unable
from parley.ids import is_id

Deed = Callable[[Asking, Kind, Form], Awaitable[Outcome]]


class VersionPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._documents = desk.beside.documents

    def pages(self) -> list[Page]:
        at = "/conversations/{id:path}"
        deeds: dict[str, Deed] = {
            "create": self._create, "edit": self._edit, "set_current": self._point, "copy_version": self._copy,
            "delete_version": self._drop, "merge_versions": self._merge, "rerun": self._rerun,
        }  # fmt: skip
        return [
            Page("GET", f"{at}/difference", self.difference),
            *(Page("POST", f"{at}/{name}", self._handler(name, deed), "send") for name, deed in deeds.items()),
            Page("POST", f"{at}/export", self.export, "send"),
        ]

    async def difference(self, visit: Visit) -> Reply:
        kind, owner = _kind(visit.query.get("kind", "")), owner_of(visit)
        old, new = visit.query.get("from", ""), visit.query.get("to", "")
        one, two = [await self._version(visit, kind, version) for version in (old, new)]
        lines = await asyncio.to_thread(difference, one.content, two.content)
        document, versions = await self._documents.versions(owner, visit.path["id"], kind, VERSIONS)
        come, gone = counted(lines)
        return visit.page(
            "difference.html", title=f"Versions of the {kind}", kind=kind, lines=lines, come=come, gone=gone,
            one=one.version, two=two.version, document=document, versions=versions, owner=str(owner),
            mine=owner == visit.principal, conversation=visit.path["id"],
            crumbs=[("Conversations", "/conversations"), (document.title, _place(visit, owner=str(owner)))],
        )  # fmt: skip

    async def export(self, visit: Visit) -> Reply:
        form = await visit.form()
        asking = await self._asking(visit, "converse", "export_conversation", form)
        conversations = self._desk.beside.conversations
        outcome = await conversations.export(asking, form.get("format", ""), artifacts="artifacts" in form)
        return redirect(_place(visit, exported=outcome.run.id))

    def _handler(self, name: str, deed: Deed) -> Callable[[Visit], Awaitable[Reply]]:
        async def handle(visit: Visit) -> Reply:
            form = await visit.form()
            kind = _kind(form.get("kind", ""))
            asking = await self._asking(visit, "plan" if kind == "plan" else "build", name, form)
            await deed(asking, kind, form)
            return redirect(_place(visit))

        return handle

    async def _asking(self, visit: Visit, mode: str, name: str, form: Form) -> Asking:
        """What the agent of the conversation is asked, if it can be; in a conversation of one's own."""
        begun = await self._desk.beside.conversations.exists(visit.principal, visit.path["id"])
        if begun is None:
            raise ConversationNotFound("There is no such conversation of yours.", conversation=visit.path["id"])
        if why := unable(self._desk.exchange.agents, visit.principal, begun.agent, _row(mode, name)):
            raise why
        body = msgspec.json.encode(form, order="sorted")
        return Asking(visit.principal, begun.id, begun.agent, mode, name, form.get("key") or None, body)

    async def _create(self, asking: Asking, kind: Kind, form: Form) -> Outcome:
        return await self._documents.create(asking, kind, form.get("text", "").strip())

    async def _edit(self, asking: Asking, kind: Kind, form: Form) -> Outcome:
        content = form.get("content", "").replace("\r\n", "\n")
        return await self._documents.edit(asking, kind, content, form.get("notes") or None)

    async def _point(self, asking: Asking, kind: Kind, form: Form) -> Outcome:
        return await self._documents.point(asking, kind, _named(form))

    async def _copy(self, asking: Asking, kind: Kind, form: Form) -> Outcome:
        return await self._documents.copy(asking, kind, _named(form))

    async def _drop(self, asking: Asking, kind: Kind, form: Form) -> Outcome:
        return await self._documents.drop_version(asking, kind, _named(form))

    async def _merge(self, asking: Asking, kind: Kind, form: Form) -> Outcome:
        chosen = [name.removeprefix("merge-") for name in form if name.startswith("merge-")]
        prompt = form.get("text", "").strip() or "Merge them into one."
        return await self._documents.merge(asking, kind, [one for one in chosen if is_id(one)], prompt)

    async def _rerun(self, asking: Asking, kind: Kind, form: Form) -> Outcome:
        return await self._documents.rerun(asking, kind, _named(form), None, form.get("text", "").strip() or None)

    async def _version(self, visit: Visit, kind: Kind, version: str) -> Found:
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
        raise Invalid("Only a deliverable can be made again.", field="kind")
    return row


def _kind(name: str) -> Kind:
    match name:
        case "plan" | "deliverable":
            return name
        case _:
            raise Invalid("It is a plan or a deliverable.", field="kind")


def _named(form: Form) -> str:
    version = form.get("version", "")
    if not is_id(version):
        raise DocumentVersionNotFound("There is no such version.", version=version)
    return version


def _place(visit: Visit, **query: str) -> str:
    whose = query.get("owner")
    more = {name: value for name, value in query.items() if name != "owner" or whose != str(visit.principal)}
    return to(path_of("conversations", visit.path["id"]), **more).removeprefix(PREFIX)
