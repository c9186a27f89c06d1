"""The actions of the modes plan and build, handed to the engine's documents."""

import msgspec
from msgspec import Struct

from parley.clock import iso
from parley.core.documents import Document, Kind
from parley.core.params import (
    CopyVersion,
    CreateDeliverable,
    CreatePlan,
    DeleteVersion,
    EditDocument,
    ListVersions,
    LlmConfig,
    MergeVersions,
    ReadDocument,
    RerunConfig,
    RerunDeliverable,
    SetCurrent,
)
from parley.core.results import (
    DeliverableCreated,
    DeliverableDeleted,
    DeliverablePointed,
    DeliverableRead,
    DeliverableVersions,
    PlanCreated,
    PlanDeleted,
    PlanPointed,
    PlanRead,
    PlanVersions,
    Pointed,
    VersionDeleted,
    VersionMade,
)
from parley.core.runs import Run
from parley.engine.commands import Outcome
from parley.engine.documents import Documents, Drawing
from parley.engine.ports import Found
from parley.errors import DocumentVersionNotFound
from parley.faces.modes.reading import Call
from parley.faces.modes.rows import Offer, Read, Row, of
from parley.faces.modes.showing import shown_deliverable, shown_plan, shown_version, summary
from parley.ids import is_id

DEFAULT_LIST = 50
_NOBODY = "-"
"""Is the id of nothing."""


class DocumentCalls:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def offers(self) -> dict[Row, Offer]:
        """What is offered of both modes."""
        shared = {
            "read": Offer(self.read),
            "list": Offer(self.versions),
            "edit": Offer(self.edit, self.made),
            "set_current": Offer(self.set_current, pointed),
            "delete_version": Offer(self.delete_version, version_deleted),
            "merge_versions": Offer(self.merge_versions, self.made),
            "copy_version": Offer(self.copy_version, self.made),
            "delete": Offer(self.delete, deleted),
        }
        plan = {**shared, "create": Offer(self.create_plan, self.created)}
        build = {
            **shared,
            "create": Offer(self.create_deliverable, self.created),
            "rerun": Offer(self.rerun, self.made),
        }
        return {("plan", name): one for name, one in plan.items()} | {
            ("build", name): one for name, one in build.items()
        }

    async def create_plan(self, call: Call) -> Outcome:
        params = of(call, CreatePlan)
        return await self._documents.create(
            call.asking, "plan", params.message, force_new=bool(params.force_new)
        )  # fmt: skip

    async def create_deliverable(self, call: Call) -> Outcome:
        params = of(call, CreateDeliverable)
        return await self._documents.create(
            call.asking, "deliverable", params.message or "", force_new=bool(params.force_new),
            plan=_id(params.plan_version_id) if params.plan_version_id is not None else None,
        )  # fmt: skip

    async def read(self, call: Call) -> Read:
        version = of(call, ReadDocument).version_id
        kind = call.action.kind
        found = await self._documents.find(
            call.principal, call.conversation, kind, None if version is None else _id(version)
        )  # fmt: skip
        if found.version is None and version is not None:
            found = await self._documents.outliving(call.principal, kind, _id(version)) or found
        if found.document is not None and found.version is not None:
            return Read(_shown(found, found.document, kind))
        if version is not None:
            raise DocumentVersionNotFound("There is no such version.", version=version)
        return Read(None)

    async def versions(self, call: Call) -> Read:
        params = of(call, ListVersions)
        limit, offset = params.limit or DEFAULT_LIST, params.offset or 0
        document, versions = await self._documents.versions(
            call.principal, call.conversation, call.action.kind, limit, offset
        )
        made = PlanVersions if call.action.kind == "plan" else DeliverableVersions
        shown = [summary(document, one) for one in versions]
        return Read(made(document.id, shown, document.versions, offset + len(shown) < document.versions))

    async def edit(self, call: Call) -> Outcome:
        params = of(call, EditDocument)
        return await self._documents.edit(call.asking, call.action.kind, params.edited_content, params.edit_notes)

    async def set_current(self, call: Call) -> Outcome:
        return await self._documents.point(call.asking, call.action.kind, _id(of(call, SetCurrent).version_id))

    async def delete_version(self, call: Call) -> Outcome:
        return await self._documents.drop_version(
            call.asking, call.action.kind, _id(of(call, DeleteVersion).version_id)
        )

    async def merge_versions(self, call: Call) -> Outcome:
        params = of(call, MergeVersions)
        versions = [_id(one) for one in params.version_ids]
        return await self._documents.merge(
            call.asking, call.action.kind, versions, params.merge_prompt, _drawing(params.llm_config)
        )

    async def rerun(self, call: Call) -> Outcome:
        params = of(call, RerunDeliverable)
        source = None if params.source_version_id is None else _id(params.source_version_id)
        return await self._documents.rerun(
            call.asking, "deliverable", source, _drawing(params.rerun_config), params.message
        )

    async def copy_version(self, call: Call) -> Outcome:
        params = of(call, CopyVersion)
        return await self._documents.copy(
            call.asking, call.action.kind, _id(params.version_id), current=bool(params.set_current)
        )

    async def delete(self, call: Call) -> Outcome:
        return await self._documents.drop(call.asking, call.action.kind)

    async def made(self, run: Run, _: bytes) -> VersionMade | None:
        """The version that a run made; nothing if it was deleted since."""
        found = await self._documents.made(run)
        if found is None or found.document is None or found.version is None:
            return None
        return VersionMade(shown_version(found.document, found.version, found.content))

    async def created(self, run: Run, _: bytes) -> PlanCreated | DeliverableCreated | None:
        found = await self._documents.made(run)
        if found is None or found.document is None or found.version is None:
            return None
        version = shown_version(found.document, found.version, found.content)
        if found.document.kind == "plan":
            return PlanCreated(shown_plan(found.document), version)
        return DeliverableCreated(shown_deliverable(found.document), version)


class _Pointed(Struct, frozen=True):
    document: str
    previous: str
    version: str
    at: int


class _VersionGone(Struct, frozen=True):
    version: str
    remaining: int


class _Gone(Struct, frozen=True):
    document: str
    versions: int


async def pointed(run: Run, said: bytes) -> PlanPointed | DeliverablePointed:
    told = msgspec.json.decode(said, type=_Pointed)
    document = Pointed(told.document, told.version, iso(told.at))
    return (PlanPointed if _is_plan(run) else DeliverablePointed)(document, told.previous, told.version)


async def version_deleted(run: Run, said: bytes) -> VersionDeleted:
    told = msgspec.json.decode(said, type=_VersionGone)
    return VersionDeleted(True, told.version, told.remaining)


async def deleted(run: Run, said: bytes) -> PlanDeleted | DeliverableDeleted:
    told = msgspec.json.decode(said, type=_Gone)
    return (PlanDeleted if _is_plan(run) else DeliverableDeleted)(True, told.document, told.versions)


def _is_plan(run: Run) -> bool:
    return run.assignment is not None and run.assignment.mode == "plan"


def _shown(found: Found, document: Document, kind: Kind) -> PlanRead | DeliverableRead:
    assert found.version is not None
    version = shown_version(document, found.version, found.content)
    if kind == "plan":
        return PlanRead(shown_plan(document), version)
    return DeliverableRead(shown_deliverable(document), version)


def _drawing(config: LlmConfig | None) -> Drawing | None:
    if config is None:
        return None
    most = config.max_tokens if isinstance(config, RerunConfig) else None
    return Drawing(config.model, config.temperature, most)


def _id(given: str) -> str:
    """An id that a store can be asked for."""
    return given if is_id(given) else _NOBODY
