"""A local program as an agent: one process for each turn, by an argument list and never through a shell."""

import asyncio
import os
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator
from contextlib import aclosing
from signal import Signals
from typing import Literal

from msgspec import Struct

from parley.core.agents import Agent
from parley.core.events import Failed, Rejected
from parley.core.turns import Done, NeedAuth, NeedInput, Output, Reply, Text
from parley.drivers import jsonl
from parley.engine.turns import Turn
from parley.errors import CommandFailed, CommandOutput
from parley.processes.programs import Program, Running, running
from parley.telemetry import tell
from parley.telemetry.trace import Trace

MAX_OUTPUT = 10 * 1024 * 1024
MAX_LINE = 1024 * 1024
MIN_SECRET = 4
_ALWAYS = {"PATH": os.defpath, "HOME": "/", "LANG": "C.UTF-8"}
"""What every program gets of the environment, and what it gets where the server has none."""
_FINAL = (Done, NeedInput, NeedAuth, Reply, Failed, Rejected)


class Command(Struct, frozen=True):
    program: Program
    input: Literal["text", "json"] = "text"
    output: Literal["text", "jsonl"] = "text"
    env: tuple[str, ...] = ()
    """The environment variables that are passed on, besides PATH, HOME and LANG."""
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
        given = await jsonl.given(turn) if command.input == "json" else turn.text.encode()
        if command.input == "text" and not any(part.text is not None for one in turn.inputs for part in one.parts):
            yield Rejected("content_not_supported", "This agent reads nothing but text.")
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
        """What it says is the answer, as it comes."""
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
        """Every line is a word of the turn; one that ends the turn waits for the program to end."""
        number = 0
        async with aclosing(_split(self._read(program))) as lines:
            async for line in lines:
                number += 1
                output = jsonl.output(line, number)
                if isinstance(output, _FINAL):
                    await self._wind_up(program, output)
                    yield output
                    return
                yield output
        self._check(await program.ended(), program)

    async def _wind_up(self, program: Running, output: Output) -> None:
        """It has said its last word, and may tidy up for a moment; what it says now is not heard."""
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
        """What it says, and at last an empty piece."""
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
        """A program may say its secrets aloud when it fails."""
        for name in self._command.env:
            secret = os.environ.get(name, "")
            if len(secret) >= MIN_SECRET:
                text = text.replace(secret, f"[{name}]")
        return text


def _traced(trace: Trace) -> dict[str, str]:
    """By the names that OpenTelemetry's own programs read."""
    named = {"TRACEPARENT": trace.traceparent, "TRACESTATE": trace.tracestate, "REQUEST_ID": trace.request_id}
    return {name: value for name, value in named.items() if value}


def _ended(code: int) -> str:
    try:
        return f"The program was ended by {Signals(code - 128).name}."
    except ValueError:
        return f"The program ended with exit code {code}."


async def _split(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Whole lines, those that are blank left out."""
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
