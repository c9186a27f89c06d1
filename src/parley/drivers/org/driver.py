"""The organisation kernel (001) as a driver: translates what happens in a workflow to outputs of a turn."""

import asyncio
import hashlib
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace
from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]

from parley.drivers.kind import Site
from parley.drivers.org.organisation import Levels, Organised, failure_report
from parley.drivers.org.tools import NodeTools
from parley.errors import Invalid, OutsideRoots
from parley.execution.driver import Driver
from parley.execution.rules import ArtifactChunk, Done, NeedInput, Note, Output, Status, Text
from parley.execution.turn import Turn
from parley.ids import RunId
from parley.models.endpoint import ModelAccess, open_model
from parley.models.llm import Llm
from parley.models.offline import NAME as OFFLINE
from parley.models.offline import OfflineModel
from parley.orgkernel.card import blank_agent, described
from parley.orgkernel.files import MadeFile, Roots, marks
from parley.orgkernel.kernel import Kernel
from parley.orgkernel.loader import LoadedOrganisation, OrganisationPaths
from parley.orgkernel.salute import ReportFolder, SaluteReport
from parley.orgkernel.steps import (
    Exists,
    GuidanceAsked,
    Happening,
    OrgTask,
    WorkflowEnded,
    WorkflowFinished,
    WorkflowState,
    WorkflowStep,
    packed,
    unpacked,
)
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Part, text_of
from parley.runs.rules.events import Canceled, Failed
from parley.runs.rules.state import Run
from parley.telemetry import tell

MAX_FILES = 50
MODELLED = "modelled"
"""Key of the note which records that a model has written files into the task's folder."""


class Setup(Struct, frozen=True):
    """Paths of an organisation, and the folders that its tasks may read and change."""

    places: OrganisationPaths
    work: Path
    """Parent of the task folders. Each task gets its own folder here, which is its first root."""
    roots: tuple[Path, ...] = ()
    """Further folders, shared by all tasks."""


class OrgDriver:
    def __init__(self, agent: Agent, setup: Setup, llm: Llm) -> None:
        self._defined = agent
        self._setup = setup
        self._llm = llm
        self._organised = Organised(setup.places, agent.slug)
        self._agent = agent
        self.refresh()

    @property
    def agent(self) -> Agent:
        """The agent. Fields that its definition leaves out are filled from the active organisation."""
        return self._agent

    @property
    def setup(self) -> Setup:
        return self._setup

    @property
    def reading(self) -> LoadedOrganisation:
        """The organisation as last read, and the problems in its files."""
        return self._organised.reading

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrgDriver) and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash(self._defined.slug)

    @property
    def _made_of(self) -> tuple[Agent, Setup, Llm]:
        return self._defined, self._setup, self._llm

    def refresh(self) -> bool:
        """Read the folder again if anything in it has changed. Returns True if the agent changed."""
        if not self._organised.refresh():
            return False
        before, self._agent = self._agent, described(self._defined, self.reading.organisation)
        return self._agent != before

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        await asyncio.to_thread(self.refresh)
        folder, roots = await asyncio.to_thread(self._opened, turn.run_id)
        kernel = self._kernel(folder, roots)
        # In a thread, because classifying a long message takes a while.
        task, state, since = await asyncio.to_thread(_taken_up, kernel, turn, folder)
        levels = Levels(turn, state.level)
        async with aclosing(kernel.run(task, state)) as happenings:
            async for happening in happenings:
                await self._reported(happening, levels)
                async for output in _said(happening, turn, since, roots):
                    yield output

    async def salvage(self, turn: Turn, ending: Failed | Canceled) -> AsyncGenerator[Output, None]:
        """Deliver the files of an interrupted turn, including those of the current step, and report why it failed."""
        folder, roots = await asyncio.to_thread(self._opened, turn.run_id)
        kernel = self._kernel(folder, roots)
        since = int(turn.notes.get("since", turn.offset))
        task = _given(turn, since, folder)
        state = unpacked(turn.notes.get("org", "")) or await asyncio.to_thread(kernel.begin, task)
        written = await asyncio.to_thread(marks, folder)
        state = replace(state, files=tuple(dict.fromkeys((*state.files, *written))))
        if isinstance(ending, Canceled):
            async for chunk in _files(state.files, roots):
                yield chunk
            return
        ended = kernel.stopped(task, state, ending.reason)
        await self._reported(ended, Levels(turn, state.level))
        async for output in _ended(ended, ending.code, roots):
            yield output

    def _kernel(self, folder: Path, roots: Roots) -> Kernel:
        offline = self._agent.model in (None, OFFLINE)
        closed = (self._setup.work, self._setup.places.reports_folder)
        tools = NodeTools(
            self._llm, offline=offline, roots=roots, organisation=self._setup.places.folder, closed=closed
        )
        seen = _seen_from(folder, tools)
        return Kernel(self.reading.organisation, tools, seen, self._agent.model or OFFLINE, shown=roots.shown)

    def run_of(self, report: SaluteReport) -> RunId | None:
        """Return the run that a report is about, found by its working folder; None if it is not about a run."""
        folder = Path(report.location.working_directory)
        return RunId(unquote(folder.name)) if folder.parent in (self._setup.work, self._setup.work.resolve()) else None

    async def left(self) -> list[RunId]:
        return await asyncio.to_thread(_runs_in, self._setup.work)

    async def clear(self, run: Run) -> None:
        """Delete the task's folder, unless it holds files that were not delivered as artifacts because they were too
        large or too many."""
        if not run.notes.get("left"):
            await asyncio.to_thread(shutil.rmtree, self._folder(run.id), ignore_errors=True)

    def _opened(self, run_id: RunId) -> tuple[Path, Roots]:
        """Create the task's folder. Returns it, and the roots that the task may use: it and the shared folders."""
        folder = self._folder(run_id)
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.resolve()
        return folder, Roots([folder, *self._setup.roots], closed=self._setup.work)

    def _folder(self, run_id: RunId) -> Path:
        """Return the folder of a run. The run id is quoted, because callers may choose it and a slash in it must not
        lead to another folder."""
        return self._setup.work / quote(run_id, safe=":@+=~")

    async def _reported(self, happening: Happening, levels: Levels) -> None:
        """Write the report. If that fails, log it and continue: the work must not end because of a report."""
        if happening.report is None:
            return
        levels.heard(happening.report)
        if isinstance(happening, WorkflowStep) and not happening.due:
            return
        try:
            await asyncio.to_thread(ReportFolder(self._setup.places.reports_folder).write, happening.report)
        except OSError as error:
            tell("org.not_reported", agent=self._agent.slug, error=error)


def _runs_in(work: Path) -> list[RunId]:
    return [RunId(unquote(folder.name)) for folder in work.iterdir()] if work.is_dir() else []


def _seen_from(folder: Path, tools: NodeTools) -> Exists:
    return lambda path: tools.exists(str(folder / path))


def _taken_up(kernel: Kernel, turn: Turn, folder: Path) -> tuple[OrgTask, WorkflowState, int]:
    """Return the task and its state: new, resumed after an interruption, or continued with the client's answer."""
    state = unpacked(turn.notes.get("org", ""))
    since = turn.offset if state is None else int(turn.notes.get("since", "0"))
    task = OrgTask(turn.text, folder) if state is None else _given(turn, since, folder)
    if state is None:
        state = kernel.begin(task)
    elif turn.notes.get("turn") != str(turn.number):
        state = kernel.answered(state, turn.text)
    return task, replace(state, modelled=state.modelled or MODELLED in turn.notes), since


def _given(turn: Turn, since: int, folder: Path) -> OrgTask:
    """Return the task: the message that started it, and all messages of the client since then."""
    given = [text_of(said.parts) for said in turn.history if said.role == "user"][since:]
    return OrgTask(given[0] if given else turn.text, folder, (*given, turn.text))


async def _said(happening: Happening, turn: Turn, since: int, roots: Roots) -> AsyncGenerator[Output, None]:
    yield _noted(happening, turn, since)
    match happening:
        case WorkflowStep(text, _, report):
            yield Status(Part(text=text, metadata=_about(report)))
        case GuidanceAsked(question, state, report):
            async for chunk in _files(state.files, roots):
                yield chunk
            yield NeedInput(Part(text=question.text, metadata=_about(report, guidance=question)))
        case WorkflowFinished(text, state, context):
            async for chunk in _files(state.files, roots):
                yield chunk
            yield Text(text)
            yield Done(context) if context else Done()
        case WorkflowEnded():
            async for output in _ended(happening, "pace_emergency", roots):
                yield output


async def _ended(ended: WorkflowEnded, code: str, roots: Roots) -> AsyncGenerator[Output, None]:
    """Yield the files so far, the failure report as an artifact, and the failure with the report as its text."""
    async for chunk in _files(ended.state.files, roots):
        yield chunk
    yield failure_report(ended.report_of)
    yield Failed(code, ended.report_of.text)


def _noted(happening: Happening, turn: Turn, since: int) -> Note:
    """Return a note of the workflow's state. A finished workflow leaves no state, because later input starts a new
    task."""
    state = "" if isinstance(happening, WorkflowFinished) else packed(happening.state)
    # A separate key: it stays true as long as the folder exists, while a long state is shortened.
    modelled = {MODELLED: "yes"} if happening.state.modelled else {}
    return Note({"org": state, "turn": str(turn.number), "since": str(since), **modelled})


def _about(report: SaluteReport, **more: object) -> Raw:
    activity, status = report.activity, report.status
    about: dict[str, object] = {
        "workflow": activity.htn_plan,
        "step": activity.htn_step,
        "totalSteps": activity.htn_total_steps,
        "progress": status.progress,
        "domain": activity.bst_domain,
        "role": report.unit.role_id,
        "tool": activity.current_tool,
        "paceLevel": status.pace_level,
    }
    return Raw(msgspec.json.encode({**about, **more}))


async def _files(paths: Sequence[str], roots: Roots) -> AsyncGenerator[ArtifactChunk | Note, None]:
    """Yield each file as an artifact. Its id depends only on its path, so that new content replaces older content."""
    whole = len(paths) <= MAX_FILES
    for path in paths[:MAX_FILES]:
        made = await asyncio.to_thread(_made, path, roots)
        if made is not None:
            whole = whole and made.content is not None
            id_ = f"file-{hashlib.sha256(path.encode()).hexdigest()[:12]}"
            yield ArtifactChunk(made.part, id_, made.name, metadata=made.metadata)
    if not whole:
        yield Note({"left": "yes"})


def _made(path: str, roots: Roots) -> MadeFile | None:
    """Read a file; None if it no longer exists or lies outside the roots."""
    try:
        return roots.read(path)
    except (OutsideRoots, OSError) as error:
        tell("org.file_refused", error=error)
        return None


# Organisations follow their folders: the agent card changes when the organisation's files change.

STEP_MS = 50
LOOK_MS = 1_000
"""Interval for checking the files without a change notification: not every file system sends notifications."""


@asynccontextmanager
async def following_organisations(drivers: Mapping[str, Driver]) -> AsyncGenerator[None, None]:
    """Keep the organisations among `drivers` up to date until the block ends, including organisations added later."""
    stop = asyncio.Event()
    task = asyncio.get_running_loop().create_task(_follow(drivers, stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def _follow(drivers: Mapping[str, Driver], stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            await _watch(drivers, stop)
        except Exception as error:  # noqa: BLE001 - a watcher that stops without notice would be worse
            tell("org.unwatched", error=error)
            await _pause(stop)


async def _watch(drivers: Mapping[str, Driver], stop: asyncio.Event) -> None:
    """Watch until `stop` is set or the set of folders changes."""
    folders = _folders(drivers)
    if not folders:
        return await _pause(stop)
    changes = awatch(
        *folders, stop_event=stop, recursive=False, step=STEP_MS, rust_timeout=LOOK_MS, yield_on_timeout=True
    )
    async with aclosing(changes) as heard:
        async for _ in heard:
            await asyncio.to_thread(_refresh, drivers)
            if _folders(drivers) != folders:
                return None
    return None


def _refresh(drivers: Mapping[str, Driver]) -> None:
    for driver in _organisations(drivers):
        if driver.refresh():
            tell("org.changed", agent=driver.agent.slug, name=driver.agent.name, skills=len(driver.agent.skills))


def _organisations(drivers: Mapping[str, Driver]) -> list[OrgDriver]:
    return [driver for driver in list(drivers.values()) if isinstance(driver, OrgDriver)]


def _folders(drivers: Mapping[str, Driver]) -> list[Path]:
    """Return the folders to watch. Files are not watched themselves, because an editor may replace them with new
    files."""
    places = [driver.setup.places for driver in _organisations(drivers)]
    wanted = {folder for one in places for folder in (one.folder, one.roles_folder, one.folder / "workflows")}
    wanted |= {path.parent for one in places for path in (*one.library(), *one.taxonomy())}
    return sorted(folder for folder in wanted if folder.is_dir())


async def _pause(stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), LOOK_MS / 1000)
    except TimeoutError:
        return


# The driver `org` in a definition: the folder of the organisation, and the folders that its tasks may use.

SAMPLE = "software_dev"


class OrgOptions(Struct, frozen=True):
    folder: str | None = None
    """Folder with `active.json`, relative to the definition. Defaults to the sample organisation of this package."""
    work: str = "org"
    """Parent of the task folders, relative to the definition; it is created if it does not exist. A task's own folder
    is always a root."""
    roots: tuple[str, ...] = ()
    """Further folders whose files tasks may read, change and deliver. The folders must exist."""
    roles: str | None = None
    workflows: str | None = None
    domains: str | None = None
    reports: str | None = None
    """Paths of the roles, workflows, domains and reports, if they are not below `folder` under their usual names."""
    base_url: str | None = None
    key_from: str | None = None
    """`base_url` and `key_from` have the same meaning as for the driver `llm`."""


def sample_folder() -> Path:
    """Return the folder of the sample organisation in this package."""
    return Path(str(files("parley.orgkernel") / "sample" / SAMPLE))


def start_organisation(slug: str, options: OrgOptions, site: Site) -> Agent:
    return blank_agent(slug)


def build_organisation(agent: Agent, options: OrgOptions, site: Site) -> OrgDriver:
    folder = _folder(site, options.folder, "folder") if options.folder is not None else sample_folder()
    work = (site.folder / options.work).absolute()
    reports = _optional(site, options.reports) or (work / "reports" if options.folder is None else None)
    places = OrganisationPaths(
        folder,
        _optional(site, options.roles),
        _optional(site, options.workflows),
        _optional(site, options.domains),
        reports,
    )
    roots = tuple(_folder(site, one, "roots") for one in options.roots)
    return OrgDriver(agent, Setup(places, work / "tasks", roots), _model(agent, options))


def _model(agent: Agent, options: OrgOptions) -> Llm:
    """Open the agent's model. The default is the offline model, here without its pauses."""
    if agent.model in (None, OFFLINE):
        return OfflineModel(0)
    return open_model(agent.model, ModelAccess(options.base_url, options.key_from))


def _folder(site: Site, name: str, field: str) -> Path:
    path = (site.folder / name).absolute()
    if not path.is_dir():
        raise Invalid(f"the folder does not exist: {path}", field=field)
    return path


def _optional(site: Site, name: str | None) -> Path | None:
    return None if name is None else (site.folder / name).absolute()
