"""A local program as an agent: one process for each turn, started from an argument list, never through a shell."""

import asyncio
import os
import re
import shlex
import shutil
from base64 import b64decode
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator
from contextlib import aclosing
from signal import Signals
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.drivers.kind import Site, blank, folder_at, program_at
from parley.errors import CommandFailed, CommandOutput, Invalid
from parley.execution.rules import ArtifactChunk, Content, Done, NeedAuth, NeedInput, Output, Reply, Status, Text, Usage
from parley.execution.turn import Turn
from parley.processes.programs import Program, Running, running
from parley.processes.sandbox import Sandbox
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Artifact, Part, Parts, text_of
from parley.runs.rules.events import Failed, Rejected
from parley.runs.rules.view import StatusMessage
from parley.telemetry import tell
from parley.telemetry.trace import Trace

# Protocol between the server and a program: one JSON object on standard input, one JSON object per line of output.


class _Spoken(Struct, frozen=True):
    role: str
    text: str
    parts: Parts


class _Given(Struct, frozen=True):
    """The JSON object that a program reads: the new input, and everything before it."""

    text: str
    parts: Parts
    history: list[_Spoken]
    artifacts: list[Artifact]
    turn: int
    attempt: int
    agent: str
    run: str
    conversation: str
    principal: str


async def turn_as_json(turn: Turn) -> bytes:
    new = {message.id for message in turn.inputs}
    parts = tuple(part for message in turn.inputs for part in message.parts)
    history = [await _spoken(turn, said) for said in turn.history if said.id not in new]
    artifacts = [msgspec.structs.replace(one, parts=await turn.loaded(one.parts)) for one in turn.artifacts]
    everything = _Given(
        turn.text,
        await turn.loaded(parts),
        history,
        artifacts,
        turn.number,
        turn.attempt,
        turn.agent.slug,
        turn.run_id,
        turn.conversation,
        str(turn.principal),
    )
    return msgspec.json.encode(everything)


async def _spoken(turn: Turn, said: StatusMessage) -> _Spoken:
    return _Spoken(said.role, text_of(said.parts), await turn.loaded(said.parts))


class _Made(Struct, frozen=True, forbid_unknown_fields=True):
    """An artifact, or a chunk of one. Has exactly one of `text`, `data`, `base64`, `url`."""

    id: str = ""
    text: str | None = None
    data: Raw | UnsetType = UNSET
    base64: str | None = None
    url: str | None = None
    name: str | None = None
    description: str | None = None
    filename: str | None = None
    media_type: str | None = None
    append: bool = False
    last: bool = True


class _Why(Struct, frozen=True, forbid_unknown_fields=True):
    reason: str
    code: str = "command_failed"


Words = str | dict[str, Any]


class _Line(Struct, frozen=True, forbid_unknown_fields=True):
    text: str | UnsetType = UNSET
    status: Words | UnsetType = UNSET
    artifact: _Made | UnsetType = UNSET
    need_input: Words | UnsetType = UNSET
    need_auth: Words | UnsetType = UNSET
    done: Words | UnsetType | None = UNSET
    reply: Words | UnsetType = UNSET
    failed: _Why | UnsetType = UNSET
    rejected: _Why | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    metadata: dict[str, Any] | None = None
    """Metadata of a `text` or a `reply`, for example the model that wrote it."""


_decode = msgspec.json.Decoder(_Line).decode


def read_output(line: bytes, number: int) -> Output:
    """Parse one line of output. Raises CommandOutput for a line that is not a valid output; only the operator sees the
    line itself."""
    try:
        return _said(_decode(line))
    except (msgspec.MsgspecError, ValueError) as error:
        raise CommandOutput(
            f"Line {number} of the program's output is not a valid output of a turn.", said=str(error)
        ) from None


def _said(line: _Line) -> Output:
    words = [name for name in _Line.__struct_fields__ if name != "metadata" and getattr(line, name) is not UNSET]
    if len(words) != 1:
        raise ValueError(f"expected exactly one kind of output, got {', '.join(words) or 'none'}")
    match words[0], getattr(line, words[0]):
        case "text", str(text):
            return Text(text, line.metadata)
        case "reply", content:
            return Reply(content, line.metadata)
        case "artifact", _Made() as made:
            return _artifact(made)
        case "failed", _Why() as why:
            return Failed(why.code, why.reason)
        case "rejected", _Why() as why:
            return Rejected(why.code, why.reason)
        case "usage", Usage() as usage:
            return usage
        case "status", content:
            return Status(content)
        case "need_input", content:
            return NeedInput(content)
        case "need_auth", content:
            return NeedAuth(content)
        case _, content:
            return Done(content or ())


def _artifact(made: _Made) -> ArtifactChunk:
    return ArtifactChunk(
        _content(made), made.id, made.name, made.description, made.filename, made.media_type, made.append, made.last
    )


def _content(made: _Made) -> Content:
    forms = [form for form in (made.text, made.data, made.base64, made.url) if form is not None and form is not UNSET]
    if len(forms) != 1:
        raise ValueError("an artifact must have exactly one of text, data, base64, url")
    if made.base64 is not None:
        return b64decode(made.base64, validate=True)
    return Part(text=made.text, data=made.data, url=made.url)


MAX_OUTPUT = 10 * 1024 * 1024
MAX_LINE = 1024 * 1024
MIN_SECRET = 4
_ALWAYS = {"PATH": os.defpath, "HOME": "/", "LANG": "C.UTF-8"}
"""Environment variables that every program gets, with the defaults for variables that the server does not have."""
_FINAL = (Done, NeedInput, NeedAuth, Reply, Failed, Rejected)


class Command(Struct, frozen=True):
    program: Program
    input: Literal["text", "json"] = "text"
    output: Literal["text", "jsonl"] = "text"
    env: tuple[str, ...] = ()
    """Names of environment variables to pass to the program, in addition to PATH, HOME and LANG."""
    max_output_bytes: int = MAX_OUTPUT


class CommandDriver:
    def __init__(self, agent: Agent, command: Command) -> None:
        self._agent = agent
        self._command = command

    @property
    def agent(self) -> Agent:
        return self._agent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommandDriver) and (self._agent, self._command) == (other._agent, other._command)

    def __hash__(self) -> int:
        return hash(self._agent.slug)

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        command = self._command
        given = await turn_as_json(turn) if command.input == "json" else turn.text.encode()
        if command.input == "text" and not any(part.text is not None for one in turn.inputs for part in one.parts):
            yield Rejected("content_not_supported", "This agent accepts only text.")
            return
        try:
            async with running(command.program, self._environment(turn.trace), given) as program:
                said = self._lines(program) if command.output == "jsonl" else self._text(program)
                async with aclosing(said) as outputs:
                    async for output in outputs:
                        yield output
        except OSError as error:
            tell("command.failed", run=turn.run_id, agent=self._agent.slug, error=error)
            raise CommandFailed("The program could not be started.") from None
        except (CommandFailed, CommandOutput) as error:
            tell("command.failed", run=turn.run_id, agent=self._agent.slug, code=error.code, **error.details)
            raise

    def _environment(self, trace: Trace) -> dict[str, str]:
        always = {name: os.environ.get(name, usual) for name, usual in _ALWAYS.items()}
        passed_on = {name: os.environ[name] for name in self._command.env if name in os.environ}
        return always | passed_on | _traced(trace)

    async def _text(self, program: Running) -> AsyncGenerator[Output, None]:
        """Stream the program's output as the answer."""
        decoder = getincrementaldecoder("utf-8")(errors="replace")
        whole: list[str] = []
        async with aclosing(self._read(program)) as chunks:
            async for chunk in chunks:
                text = decoder.decode(chunk, final=not chunk)
                if self._agent.replies == "message":
                    whole.append(text)
                elif text:
                    yield Text(text)
        self._check(await program.ended(), program)
        if self._agent.replies == "message":
            yield Reply("".join(whole))

    async def _lines(self, program: Running) -> AsyncGenerator[Output, None]:
        """Yield each line as an output. An output that ends the turn is held back until the program has ended, or its
        grace period is over."""
        number = 0
        async with aclosing(_split(self._read(program))) as lines:
            async for line in lines:
                number += 1
                output = read_output(line, number)
                if isinstance(output, _FINAL):
                    await self._end_program(program, output)
                    yield output
                    return
                yield output
        self._check(await program.ended(), program)

    async def _end_program(self, program: Running, output: Output) -> None:
        """Give the program a moment to clean up after its last output. Further output is ignored."""
        try:
            async with asyncio.timeout(self._command.program.grace_s):
                while await program.read():
                    pass
                code = await program.ended()
        except TimeoutError:
            return
        if not isinstance(output, Failed | Rejected):
            self._check(code, program)

    async def _read(self, program: Running) -> AsyncGenerator[bytes, None]:
        """Yield the program's output in chunks, then an empty chunk."""
        left = self._command.max_output_bytes
        while chunk := await program.read():
            left -= len(chunk)
            if left < 0:
                raise CommandOutput(f"The program wrote more than {self._command.max_output_bytes:,} bytes.")
            yield chunk
        yield b""

    def _check(self, code: int, program: Running) -> None:
        if code:
            raise CommandFailed(_ended(code), exit=code, stderr=self._redacted(program.stderr))

    def _redacted(self, text: str) -> str:
        """Remove secrets from the text: a program that fails may print them."""
        for name in self._command.env:
            secret = os.environ.get(name, "")
            if len(secret) >= MIN_SECRET:
                text = text.replace(secret, f"[{name}]")
        return text


def _traced(trace: Trace) -> dict[str, str]:
    """Return the trace as environment variables, under the names that OpenTelemetry programs read."""
    named = {"TRACEPARENT": trace.traceparent, "TRACESTATE": trace.tracestate, "REQUEST_ID": trace.request_id}
    return {name: value for name, value in named.items() if value}


def _ended(code: int) -> str:
    try:
        return f"The program was stopped by {Signals(code - 128).name}."
    except ValueError:
        return f"The program ended with exit code {code}."


async def _split(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Join chunks into whole lines, without blank lines."""
    rest = b""
    async with aclosing(chunks):
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    yield line
            if len(rest) > MAX_LINE:
                raise CommandOutput(f"The program wrote a line of more than {MAX_LINE:,} bytes.")
    if rest.strip():
        yield rest


# The driver `command` in a definition: which program to run, and the format of its input and output.

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MEGABYTE = 1024 * 1024


class SandboxOptions(Struct, frozen=True):
    """Folders and network that the program may use in its sandbox, in addition to the system and `cwd`. Folders are
    relative to the definition."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = False


class CommandOptions(Struct, frozen=True):
    run: tuple[str, ...]
    """The program and its arguments. A path is relative to the definition. A bare name is searched next to the Python
    that runs the server, then on the PATH."""
    input: Literal["text", "json"] = "text"
    output: Literal["text", "jsonl"] = "text"
    env: tuple[str, ...] = ()
    cwd: str = "."
    """Working directory of the program, relative to the definition."""
    max_output_bytes: int = MAX_OUTPUT
    memory_mb: int | None = None
    cpu_s: int | None = None
    file_mb: int | None = None
    grace_s: float = 2.0
    sandbox: bool | SandboxOptions = False
    """Run the program in bubblewrap. `true` means a sandbox without further folders and without network."""


def short_command(line: str) -> dict[str, Any]:
    """Read a command line: words and quotes as in a shell, but no shell runs it."""
    try:
        return {"run": shlex.split(line)}
    except ValueError as error:
        raise Invalid(f"is not a valid command line: {error}") from None


def start_command(slug: str, options: CommandOptions, site: Site) -> Agent:
    modes = ("*/*",) if options.input == "json" else ("text/*",)
    return replace(blank(slug, options, site), input_modes=modes)


def build_command(agent: Agent, options: CommandOptions, site: Site) -> CommandDriver:
    _check(options)
    program = Program(
        (program_at(options.run[0], site.folder), *options.run[1:]),
        folder_at(options.cwd, site.folder),
        (options.memory_mb or 0) * _MEGABYTE,
        options.cpu_s or 0,
        (options.file_mb or 0) * _MEGABYTE,
        options.grace_s,
        _sandbox(options, site),
    )
    return CommandDriver(agent, Command(program, options.input, options.output, options.env, options.max_output_bytes))


def _sandbox(options: CommandOptions, site: Site) -> Sandbox | None:
    if options.sandbox is False:
        return None
    if shutil.which("bwrap") is None:
        raise Invalid("the program bwrap is not installed; install the package bubblewrap", field="sandbox")
    asked = SandboxOptions() if options.sandbox is True else options.sandbox
    read, write = ([folder_at(one, site.folder, "sandbox") for one in names] for names in (asked.read, asked.write))
    return Sandbox((folder_at(options.cwd, site.folder), *read), tuple(write), network=asked.network)


def _check(options: CommandOptions) -> None:
    if os.name != "posix":
        raise Invalid("programs can run only on Linux, macOS and other POSIX systems", field="run")
    if not options.run or not options.run[0]:
        raise Invalid("must list the program and its arguments", field="run")
    if any("\0" in argument for argument in options.run):
        raise Invalid("must not contain NUL characters", field="run")
    for name in options.env:
        if _VARIABLE.fullmatch(name) is None:
            raise Invalid("must list names of environment variables, not their values", field="env")
    for name, least, most in (
        ("max_output_bytes", 1, 1 << 40),
        ("memory_mb", 1, 1 << 24),
        ("cpu_s", 1, 1 << 24),
        ("file_mb", 1, 1 << 24),
        ("grace_s", 0, 3600),
    ):
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise Invalid(f"must be between {least} and {most:,}", field=name)
