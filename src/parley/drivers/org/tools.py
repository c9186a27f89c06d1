"""Work of workflow nodes: run the command that the node declares, or ask the model."""

import asyncio
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import aclosing
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from parley.errors import CommandRefused, ModelError, ModelNotSetUp, OutsideRoots
from parley.models.calls import called
from parley.models.llm import Delta, Llm, Sampling, Speech
from parley.orgkernel.commands import MAX_OUTPUT, MAX_TIMEOUT_S, CommandInput, arguments, paths_in
from parley.orgkernel.files import MAX_BYTES, Roots, mark_of, marks, without_folder
from parley.orgkernel.steps import NodeResult, Proposal, Work
from parley.processes.programs import Program, Running, running
from parley.processes.sandbox import Sandbox, bubblewrap
from parley.runs.rules.content import text_part
from parley.telemetry import tell

# Proposals: the command line and every file of the task, shown to the client for approval before the command runs.

MAX_SHOWN = 60_000
"""Maximum number of characters of files to show. Larger files are listed with their digest, and are attached."""
_CHUNK = 1024 * 1024


def proposed(argv: tuple[str, ...], folder: Path, organisation: Path) -> Proposal:
    """Return the proposal for a command. Its digest covers everything that could run, so that an approval is valid only
    for what was shown."""
    command = " ".join(_shown_argument(one, folder, organisation) for one in (Path(argv[0]).name, *argv[1:]))
    whole = hashlib.sha256("\0".join(argv).encode())
    blocks = [f"Command: {command}"]
    left = MAX_SHOWN
    for path in _files(folder):
        name = str(path.relative_to(folder))
        digest = _digest(path)
        whole.update(f"\0{name}\0{digest}".encode())
        block = _block(path, name, digest, left)
        left -= len(block)
        blocks.append(block)
    return Proposal(whole.hexdigest(), "\n".join(blocks))


def _shown_argument(argument: str, folder: Path, organisation: Path) -> str:
    shown = without_folder(without_folder(argument, folder), organisation.resolve())
    return _plain(shown) if shown and " " not in shown else repr(shown)


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files, including hidden files and links."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(where, name) for name in sorted(names))
        yield from (Path(where, name) for name in folders if Path(where, name).is_symlink())


def _digest(path: Path) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    if not path.is_file():
        return "not a file"
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _block(path: Path, name: str, digest: str, left: int) -> str:
    size = path.lstat().st_size
    text = _text(path) if size <= left and path.is_file() and not path.is_symlink() else None
    if text is None:
        return f"--- {_plain(name)} ({size:,} bytes, sha256 {_plain(digest)}): not shown here"
    lines = "\n".join(f"    {line}" for line in text.split("\n"))
    return f"--- {_plain(name)} ({size:,} bytes)\n{lines}"


def _text(path: Path) -> str | None:
    try:
        return _plain(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return None


def _plain(text: str) -> str:
    """Escape characters that could hide or reorder other characters."""
    return "".join(one if one.isprintable() or one in "\n\t" else f"\\u{{{ord(one):x}}}" for one in text)


MAX_READ = 50_000
MAX_MEMORY = 2 * 1024 * 1024 * 1024
MAX_CPU_S = 120
"""Memory and CPU time for each process that runs code written by a model. Its files are limited to MAX_BYTES."""
MAX_NAMED = 20
"""Maximum number of files named in a message that are checked for changes."""
_FENCE = re.compile(r"```[\w+-]*\n(.*?)```", re.DOTALL)
_SKIPPED = "Passed over: this step needs a language model, and none is configured."
_NO_MODEL = "this step needs a language model, and none is configured"


class NodeTools:
    def __init__(
        self, llm: Llm, *, offline: bool, roots: Roots, organisation: Path, closed: tuple[Path, ...] = ()
    ) -> None:
        """`closed` lists folders to hide from code written by a model, beside those that every sandbox hides."""
        self._llm = llm
        self._offline = offline
        self._roots = roots
        self._organisation = organisation
        self._closed = closed

    async def __call__(self, work: Work) -> NodeResult:
        if work.node.needs_model and self._offline:
            return NodeResult(_SKIPPED, skipped=True)
        if work.workflow is not None and not work.node.command and self._offline:
            # The offline model only repeats the message, which must not count as verified work.
            return NodeResult(reason=_NO_MODEL, hopeless=True)
        try:
            found = await (self._run(work) if work.node.command else self._ask(work))
            return await self._kept(work, found)
        except (CommandRefused, OutsideRoots) as error:
            return NodeResult(reason=error.message)
        except ModelError as error:
            tell("org.model_failed", node=work.node.id, code=error.code, **error.details)
            return NodeResult(reason=error.message, hopeless=isinstance(error, ModelNotSetUp))

    def exists(self, path: str) -> bool:
        try:
            return self._roots.inside(path).is_file()
        except (OutsideRoots, OSError):
            return False

    async def _kept(self, work: Work, result: NodeResult) -> NodeResult:
        """Save the output as a file, if the node declares an output file."""
        if not work.node.output_file or result.reason or result.exit_code:
            return result
        content = _program_text(result.text).encode()
        path = await asyncio.to_thread(self._roots.write, work.folder, work.node.output_file, content)
        modelled = not work.node.command and not self._offline
        return replace(result, files=tuple(dict.fromkeys((*result.files, str(path)))), modelled=modelled)

    async def _run(self, work: Work) -> NodeResult:
        texts = (*reversed(work.guidance), work.task)
        given = CommandInput(texts, work.folder, self._organisation, self._roots)
        argv = await asyncio.to_thread(arguments, work.node.command, given)
        program = Program(argv, str(work.folder))
        if work.modelled and work.node.runs_code:
            proposal = await asyncio.to_thread(proposed, argv, work.folder, self._organisation)
            if proposal.digest != work.approved:
                return NodeResult(proposal=proposal)
            program = await asyncio.to_thread(self._confined, argv, work.folder)
        before = await asyncio.to_thread(self._marks, work)
        try:
            async with asyncio.timeout(min(max(work.node.timeout_s, 0.1), MAX_TIMEOUT_S)):
                result = await _output(program, work)
        except TimeoutError:
            result = NodeResult(reason=f"it took longer than {work.node.timeout_s:g} s")
        except OSError as error:
            tell("org.command_failed", node=work.node.id, error=error)
            result = NodeResult(reason="the program could not be started")
        after = await asyncio.to_thread(self._marks, work)
        changed = tuple(path for path, mark in after.items() if before.get(path) != mark)
        return replace(result, text=self._relative(result, work.folder), files=changed)

    def _confined(self, argv: tuple[str, ...], own: Path) -> Program:
        """Limit a command that runs code written by a model, and run it in bubblewrap where available."""
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
        """Tell whether an argument names a file of the organisation."""
        return Path(argument).is_relative_to(self._organisation.resolve())

    def _is_shared(self, path: Path) -> bool:
        return any(path.is_relative_to(root) for root in self._roots.folders[1:])

    def _relative(self, result: NodeResult, own: Path) -> str:
        """Return the output with the server's paths removed. Paths of shared folders stay if the command succeeded."""
        text = without_folder(result.text, own)
        failed = bool(result.exit_code or result.reason)
        for folder in (*self._roots.folders, self._organisation) if failed else ():
            text = without_folder(text, folder)
        return text

    def _marks(self, work: Work) -> dict[str, tuple[int, int]]:
        """Return the marks of the files in the task's folder and of the files that the message names."""
        found = marks(work.folder)
        for name in islice((one for text in (*work.guidance, work.task) for one in paths_in(text)), MAX_NAMED):
            try:
                path = self._roots.inside(name)
            except (OutsideRoots, OSError):
                continue
            if (mark := mark_of(path)) is not None:
                found[str(path)] = mark
        return found

    async def _ask(self, work: Work) -> NodeResult:
        speech = Speech("user", (text_part(_question(work)),))
        async with aclosing(called(self._llm, [speech], Sampling(_instructions(work)))) as outputs:
            said = [output.text async for output in outputs if isinstance(output, Delta)]
        return NodeResult("".join(said))


async def _output(program: Program, work: Work) -> NodeResult:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(work.folder),
        "LANG": "C.UTF-8",
        # Any compiled file that a run leaves behind would need approval before the next run.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    message = work.guidance[-1] if work.guidance else work.task
    async with running(program, environment, message.encode()) as under_way:
        said, whole = await _read(under_way)
        if not whole:
            return NodeResult(said, reason=f"it wrote more than {MAX_OUTPUT:,} bytes")
        code = await under_way.ended()
        # Programs write errors to standard error and results to standard output.
        return NodeResult(said if not code else f"{said}\n{under_way.stderr}".strip(), code)


def _folder_of(path: Path, organisation: Path) -> Path:
    """Return the folder of a tool, which also holds the modules that it imports. Never the organisation's own folder,
    which may contain secrets."""
    return path if path.parent == organisation.resolve() or path.is_dir() else path.parent


async def _read(program: Running) -> tuple[str, bool]:
    """Return the program's output, and True if it is complete."""
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
    ]
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
    """Return the content of the first code block if there is one: models often wrap file contents in a code fence."""
    fenced = _FENCE.search(said)
    return fenced[1] if fenced else said
