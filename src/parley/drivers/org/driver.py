"""The organisation kernel as a driver: what happens in a workflow, in the vocabulary of a turn (contract 001)."""

import asyncio
import hashlib
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from parley.core.agents import Agent
from parley.core.artifacts import Part, text_of
from parley.core.events import Canceled, Failed
from parley.core.runs import Run
from parley.core.turns import ArtifactChunk, Done, NeedInput, Note, Output, Status, Text
from parley.drivers.levels import Levels, failure_report
from parley.drivers.org.tools import Tools
from parley.drivers.organised import Organised
from parley.engine.ports import Llm
from parley.engine.turns import Turn
from parley.errors import OutsideRoots
from parley.ids import RunId
from parley.orgkernel.card import described
from parley.orgkernel.files import MadeFile, Roots, marks
from parley.orgkernel.happenings import Asked, Ended, Exists, Finished, Happening, Step, Task
from parley.orgkernel.kernel import Kernel
from parley.orgkernel.reading import Places, Reading
from parley.orgkernel.reports import Reports
from parley.orgkernel.salute import Report
from parley.orgkernel.state import State, packed, unpacked
from parley.telemetry import tell

MAX_FILES = 50
OFFLINE = "offline"
MODELLED = "modelled"
"""The note that says that a model has written into the folder of the task."""


class Setup(Struct, frozen=True):
    """Where an organisation lives, and what it may touch."""

    places: Places
    work: Path
    """Each task gets a folder of its own below this one; that folder is its first root."""
    roots: tuple[Path, ...] = ()
    """Folders that all tasks share."""


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
        """As it is defined; where that says nothing, as the active organisation says."""
        return self._agent

    @property
    def setup(self) -> Setup:
        return self._setup

    @property
    def reading(self) -> Reading:
        """The organisation as it was read last, and what is wrong with it."""
        return self._organised.reading

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrgDriver) and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash(self._defined.slug)

    @property
    def _made_of(self) -> tuple[Agent, Setup, Llm]:
        return self._defined, self._setup, self._llm

    def refresh(self) -> bool:
        """Read the folder again if anything in it has changed; whether the agent is another one now."""
        if not self._organised.refresh():
            return False
        before, self._agent = self._agent, described(self._defined, self.reading.organisation)
        return self._agent != before

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        await asyncio.to_thread(self.refresh)
        folder, roots = await asyncio.to_thread(self._opened, turn.run_id)
        kernel = self._kernel(folder, roots)
        # To find a domain for a long message takes a while.
        task, state, since = await asyncio.to_thread(_taken_up, kernel, turn, folder)
        levels = Levels(turn, state.level)
        async with aclosing(kernel.run(task, state)) as happenings:
            async for happening in happenings:
                await self._reported(happening, levels)
                async for output in _said(happening, turn, since, roots):
                    yield output

    async def salvage(self, turn: Turn, ending: Failed | Canceled) -> AsyncGenerator[Output, None]:
        """Deliver the files of an interrupted turn, also those of the step under way, and report why it failed."""
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
        tools = Tools(self._llm, offline=offline, roots=roots, organisation=self._setup.places.folder, closed=closed)
        seen = _seen_from(folder, tools)
        return Kernel(self.reading.organisation, tools, seen, self._agent.model or OFFLINE, shown=roots.shown)

    def run_of(self, report: Report) -> RunId | None:
        """The run that a report is about, by the folder it works in; None for a report of something else."""
        folder = Path(report.location.working_directory)
        return RunId(unquote(folder.name)) if folder.parent in (self._setup.work, self._setup.work.resolve()) else None

    async def left(self) -> list[RunId]:
        return await asyncio.to_thread(_runs_in, self._setup.work)

    async def clear(self, run: Run) -> None:
        """Unless something in it is nowhere else: what is too large to be an artifact, or one too many."""
        if not run.notes.get("left"):
            await asyncio.to_thread(shutil.rmtree, self._folder(run.id), ignore_errors=True)

    def _opened(self, run_id: RunId) -> tuple[Path, Roots]:
        """The folder of a task, and what the task may touch: that folder, and those that are shared on purpose."""
        folder = self._folder(run_id)
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.resolve()
        return folder, Roots([folder, *self._setup.roots], closed=self._setup.work)

    def _folder(self, run_id: RunId) -> Path:
        """The id as one name: callers may choose it, and a slash in it must not lead anywhere."""
        return self._setup.work / quote(run_id, safe=":@+=~")

    async def _reported(self, happening: Happening, levels: Levels) -> None:
        """A report that cannot be written must not end the work."""
        if happening.report is None:
            return
        levels.heard(happening.report)
        if isinstance(happening, Step) and not happening.due:
            return
        try:
            await asyncio.to_thread(Reports(self._setup.places.reports_folder).write, happening.report)
        except OSError as error:
            tell("org.not_reported", agent=self._agent.slug, error=error)


def _runs_in(work: Path) -> list[RunId]:
    return [RunId(unquote(folder.name)) for folder in work.iterdir()] if work.is_dir() else []


def _seen_from(folder: Path, tools: Tools) -> Exists:
    return lambda path: tools.exists(str(folder / path))


def _taken_up(kernel: Kernel, turn: Turn, folder: Path) -> tuple[Task, State, int]:
    """Where the task stands: at its beginning, where it was broken off, or before the client's answer."""
    state = unpacked(turn.notes.get("org", ""))
    since = turn.offset if state is None else int(turn.notes.get("since", "0"))
    task = Task(turn.text, folder) if state is None else _given(turn, since, folder)
    if state is None:
        state = kernel.begin(task)
    elif turn.notes.get("turn") != str(turn.number):
        state = kernel.answered(state, turn.text)
    return task, replace(state, modelled=state.modelled or MODELLED in turn.notes), since


def _given(turn: Turn, since: int, folder: Path) -> Task:
    """The message that began the task, and all that the client has said since."""
    given = [text_of(said.parts) for said in turn.history if said.role == "user"][since:]
    return Task(given[0] if given else turn.text, folder, (*given, turn.text))


async def _said(happening: Happening, turn: Turn, since: int, roots: Roots) -> AsyncGenerator[Output, None]:
    yield _noted(happening, turn, since)
    match happening:
        case Step(text, _, report):
            yield Status(Part(text=text, metadata=_about(report)))
        case Asked(question, state, report):
            async for chunk in _files(state.files, roots):
                yield chunk
            yield NeedInput(Part(text=question.text, metadata=_about(report, guidance=question)))
        case Finished(text, state, context):
            async for chunk in _files(state.files, roots):
                yield chunk
            yield Text(text)
            yield Done(context) if context else Done()
        case Ended():
            async for output in _ended(happening, "pace_emergency", roots):
                yield output


async def _ended(ended: Ended, code: str, roots: Roots) -> AsyncGenerator[Output, None]:
    """The files so far, the failure report as an artifact, and the failure with the report as its text."""
    async for chunk in _files(ended.state.files, roots):
        yield chunk
    yield failure_report(ended.report_of)
    yield Failed(code, ended.report_of.text)


def _noted(happening: Happening, turn: Turn, since: int) -> Note:
    """What is finished is not taken up again: input that comes later is another task."""
    state = "" if isinstance(happening, Finished) else packed(happening.state)
    # By itself, since it holds as long as the folder is there, and a long state is cut.
    modelled = {MODELLED: "yes"} if happening.state.modelled else {}
    return Note({"org": state, "turn": str(turn.number), "since": str(since), **modelled})


def _about(report: Report, **more: object) -> Raw:
    activity, status = report.activity, report.status
    about: dict[str, object] = {
        "workflow": activity.htn_plan, "step": activity.htn_step, "totalSteps": activity.htn_total_steps,
        "progress": status.progress, "domain": activity.bst_domain, "role": report.unit.role_id,
        "tool": activity.current_tool, "paceLevel": status.pace_level,
    }  # fmt: skip
    return Raw(msgspec.json.encode({**about, **more}))


async def _files(paths: Sequence[str], roots: Roots) -> AsyncGenerator[ArtifactChunk | Note, None]:
    """Each under an id that is the same whenever it is shown, so that a later content takes the place of an earlier."""
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
    """What is gone meanwhile, or was put where nobody may look, is no artifact."""
    try:
        return roots.read(path)
    except (OutsideRoots, OSError) as error:
        tell("org.file_refused", error=error)
        return None
