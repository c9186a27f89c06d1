"""How a node's work is done: by its own declared command, or by the model."""

import asyncio
import os
import re
from contextlib import aclosing
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from parley.core.artifacts import text_part
from parley.drivers.org.proposals import proposed
from parley.engine.ports import Delta, Llm, Sampling, Speech
from parley.errors import CommandRefused, ModelError, ModelNotSetUp, OutsideRoots
from parley.orgkernel.files import MAX_BYTES, Roots, mark_of, marks, without_folder
from parley.orgkernel.happenings import Result, Work
from parley.orgkernel.running import MAX_OUTPUT, MAX_TIMEOUT_S, Given, arguments, paths_in
from parley.processes.programs import Program, Running, running
from parley.processes.sandbox import Sandbox, bubblewrap
from parley.telemetry import tell

MAX_READ = 50_000
MAX_MEMORY = 2 * 1024 * 1024 * 1024
MAX_CPU_S = 120
"""Limits of code that a model wrote, for each process; its files have MAX_BYTES at most."""
MAX_NAMED = 20
"""So many of the files that a message names are looked at for changes."""
_FENCE = re.compile(r"```[\w+-]*\n(.*?)```", re.DOTALL)
_SKIPPED = "Passed over: this step needs a language model, and none is configured."
_NO_MODEL = "this step needs a language model, and none is configured"


class Tools:
    def __init__(
        self, llm: Llm, *, offline: bool, roots: Roots, organisation: Path, closed: tuple[Path, ...] = ()
    ) -> None:
        """`closed` names folders that code of a model must not see, beside what no sandbox shows."""
        self._llm = llm
        self._offline = offline
        self._roots = roots
        self._organisation = organisation
        self._closed = closed

    async def __call__(self, work: Work) -> Result:
        if work.node.needs_model and self._offline:
            return Result(_SKIPPED, skipped=True)
        if work.workflow is not None and not work.node.command and self._offline:
            # The offline model only repeats the message: that must not count as work that was done and verified.
            return Result(reason=_NO_MODEL, hopeless=True)
        try:
            found = await (self._run(work) if work.node.command else self._ask(work))
            return await self._kept(work, found)
        except (CommandRefused, OutsideRoots) as error:
            return Result(reason=error.message)
        except ModelError as error:
            tell("org.model_failed", node=work.node.id, code=error.code, **error.details)
            return Result(reason=error.message, hopeless=isinstance(error, ModelNotSetUp))

    def exists(self, path: str) -> bool:
        try:
            return self._roots.inside(path).is_file()
        except (OutsideRoots, OSError):
            return False

    async def _kept(self, work: Work, result: Result) -> Result:
        """What was said as a file, where the node wants one."""
        if not work.node.output_file or result.reason or result.exit_code:
            return result
        content = _program_text(result.text).encode()
        path = await asyncio.to_thread(self._roots.write, work.folder, work.node.output_file, content)
        modelled = not work.node.command and not self._offline
        return replace(result, files=tuple(dict.fromkeys((*result.files, str(path)))), modelled=modelled)

    async def _run(self, work: Work) -> Result:
        texts = (*reversed(work.guidance), work.task)
        given = Given(texts, work.folder, self._organisation, self._roots)
        argv = await asyncio.to_thread(arguments, work.node.command, given)
        program = Program(argv, str(work.folder))
        if work.modelled and work.node.runs_code:
            proposal = await asyncio.to_thread(proposed, argv, work.folder, self._organisation)
            if proposal.digest != work.approved:
                return Result(proposal=proposal)
            program = await asyncio.to_thread(self._confined, argv, work.folder)
        before = await asyncio.to_thread(self._marks, work)
        try:
            async with asyncio.timeout(min(max(work.node.timeout_s, 0.1), MAX_TIMEOUT_S)):
                result = await _output(program, work)
        except TimeoutError:
            result = Result(reason=f"it took longer than {work.node.timeout_s:g} s")
        except OSError as error:
            tell("org.command_failed", node=work.node.id, error=error)
            result = Result(reason="the program could not be started")
        after = await asyncio.to_thread(self._marks, work)
        changed = tuple(path for path, mark in after.items() if before.get(path) != mark)
        return replace(result, text=self._relative(result, work.folder), files=changed)

    def _confined(self, argv: tuple[str, ...], own: Path) -> Program:
        """A command that runs what a model wrote: within limits, and in bubblewrap where that can be used."""
        program = Program(argv, str(own), MAX_MEMORY, MAX_CPU_S, MAX_BYTES)
        if reason := bubblewrap().reason:
            tell("org.no_sandbox", reason=reason)
            return program
        tools = [_folder_of(Path(one), self._organisation) for one in argv[1:] if self._is_ours(one)]
        seen = [path for path in map(Path, argv[1:]) if path.is_absolute() and self._is_shared(path)]
        read = tuple(str(path) for path in (*tools, *seen) if path.exists())
        sandbox = Sandbox(read, (str(own),), tuple(str(path.resolve()) for path in self._closed))
        return replace(program, sandbox=sandbox)

    def _is_ours(self, argument: str) -> bool:
        """Whether an argument names a file of the organisation."""
        return Path(argument).is_relative_to(self._organisation.resolve())

    def _is_shared(self, path: Path) -> bool:
        return any(path.is_relative_to(root) for root in self._roots.folders[1:])

    def _relative(self, result: Result, own: Path) -> str:
        """The output without the server's own paths; a shared folder's path stays in what went well."""
        text = without_folder(result.text, own)
        failed = bool(result.exit_code or result.reason)
        for folder in (*self._roots.folders, self._organisation) if failed else ():
            text = without_folder(text, folder)
        return text

    def _marks(self, work: Work) -> dict[str, tuple[int, int]]:
        """Of the folder of the task, and of the files that the message names."""
        found = marks(work.folder)
        for name in islice((one for text in (*work.guidance, work.task) for one in paths_in(text)), MAX_NAMED):
            try:
                path = self._roots.inside(name)
            except (OutsideRoots, OSError):
                continue
            if (mark := mark_of(path)) is not None:
                found[str(path)] = mark
        return found

    async def _ask(self, work: Work) -> Result:
        speech = Speech("user", (text_part(_question(work)),))
        async with aclosing(self._llm.stream([speech], Sampling(_instructions(work)))) as outputs:
            said = [output.text async for output in outputs if isinstance(output, Delta)]
        return Result("".join(said))


async def _output(program: Program, work: Work) -> Result:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath), "HOME": str(work.folder), "LANG": "C.UTF-8",
        # What a run leaves behind would have to be approved before the next one.
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    message = work.guidance[-1] if work.guidance else work.task
    async with running(program, environment, message.encode()) as under_way:
        said, whole = await _read(under_way)
        if not whole:
            return Result(said, reason=f"it wrote more than {MAX_OUTPUT:,} bytes")
        code = await under_way.ended()
        # What went wrong is said on the other stream; what went well, on this one.
        return Result(said if not code else f"{said}\n{under_way.stderr}".strip(), code)


def _folder_of(path: Path, organisation: Path) -> Path:
    """The folder of a tool, with what the tool imports; not that of the whole organisation, where secrets may lie."""
    return path if path.parent == organisation.resolve() or path.is_dir() else path.parent


async def _read(program: Running) -> tuple[str, bool]:
    """What it said, and whether that is all of it."""
    found = b""
    while chunk := await program.read():
        found += chunk
        if len(found) > MAX_OUTPUT:
            return found[:MAX_OUTPUT].decode(errors="replace"), False
    return found.decode(errors="replace"), True


def _instructions(work: Work) -> str | None:
    if work.role is None or work.workflow is None:
        return None
    node = work.node
    lines = [
        f"You are the {work.role.name} of an organisation, and follow the workflow {work.workflow.name!r}.",
        f"This step: {node.name}. {node.action}".strip(),
        node.tool_hint,
        f"Answer with {node.output_file or 'the result of this step'} alone.",
        "An earlier attempt did not succeed: take another approach." if work.alternative else "",
    ]  # fmt: skip
    return "\n".join(line for line in lines if line)


def _question(work: Work) -> str:
    blocks = [
        work.task[:MAX_READ],
        *(f"Guidance: {said[:MAX_READ]}" for said in work.guidance),
        *(f"Result of {name}: {said}" for name, said in work.before.items()),
        *(f"Did not succeed: {why}" for why in work.failed),
    ]
    return "\n\n".join(blocks)


def _program_text(said: str) -> str:
    """Models wrap what belongs in a file."""
    fenced = _FENCE.search(said)
    return fenced[1] if fenced else said
