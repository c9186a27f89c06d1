"""A running program: its input, its output, and its end, which also ends everything it started."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from parley.processes.sandbox import Sandbox, bubblewrap, sandboxed

LAUNCHER = Path(__file__).with_name("launcher.py")
CHUNK = 64 * 1024
KEPT_STDERR = 4096


class Program(Struct, frozen=True):
    """A program, its folder and its limits; 0 means no limit."""

    run: tuple[str, ...]
    """The program's absolute path, and its arguments."""
    cwd: str
    memory_bytes: int = 0
    cpu_s: int = 0
    file_bytes: int = 0
    """Size limit of a file that it writes."""
    grace_s: float = 2.0
    """Seconds that it may take to stop when it is asked to."""
    sandbox: Sandbox | None = None
    """Run it in bubblewrap; raises OSError if that cannot be used."""


class Running:
    def __init__(self, process: asyncio.subprocess.Process, lifeline: int, given: bytes | None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._lifeline = lifeline
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = b""
        loop = asyncio.get_running_loop()
        self._feeding = None if given is None else loop.create_task(_feed(process.stdin, given))
        self._listening = loop.create_task(self._listen(process.stderr))

    @property
    def stderr(self) -> str:
        """The end of its standard error."""
        return self._stderr.decode(errors="replace")

    async def read(self) -> bytes:
        """Return the next output as soon as there is some; empty at the end."""
        return await self._stdout.read(CHUNK)

    def say(self, content: bytes, most: int) -> bool:
        """Write more to its standard input without waiting; False if `most` bytes are waiting that it has not read."""
        transport = self._stdin.transport
        if transport.is_closing() or transport.get_write_buffer_size() + len(content) > most:
            return False
        self._stdin.write(content)
        return True

    async def ended(self) -> int:
        """Wait for its end and return its exit code, 128 or more for a signal."""
        code = await self._process.wait()
        await self._listening
        return code

    async def stop(self, grace_s: float) -> None:
        """Ask it to stop, then kill it. Nothing of it continues, even if this call is cancelled."""
        try:
            if self._process.returncode is None:
                await self._ask_to_stop(grace_s)
        finally:
            os.close(self._lifeline)
            if self._feeding is not None:
                self._feeding.cancel()
                await asyncio.gather(self._feeding, return_exceptions=True)
            self._stdin.close()
            await asyncio.gather(self._drained(), self._listening, return_exceptions=True)
            await self._process.wait()

    async def _ask_to_stop(self, grace_s: float) -> None:
        with suppress(OSError):
            os.write(self._lifeline, b"t")
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._drained()
                await self._process.wait()

    async def _drained(self) -> None:
        while await self.read():
            pass

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        while said := await stderr.read(CHUNK):
            self._stderr = (self._stderr + said)[-KEPT_STDERR:]


@asynccontextmanager
async def running(program: Program, env: Mapping[str, str], given: bytes | None) -> AsyncGenerator[Running, None]:
    """Run a program with `given` on its standard input, or (None) with one that stays open. It has ended when the block
    ends."""
    run = program.run
    if program.sandbox is not None:
        run = sandboxed(await asyncio.to_thread(bubblewrap), program.sandbox, run, program.cwd)
    lifeline, ours = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(LAUNCHER),
            str(lifeline),
            str(program.memory_bytes),
            str(program.cpu_s),
            str(program.file_bytes),
            *run,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=program.cwd,
            env=env,
            start_new_session=True,
            pass_fds=(lifeline,),
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(lifeline)
    under_way = Running(process, ours, given)
    try:
        yield under_way
    finally:
        await under_way.stop(program.grace_s)


async def _feed(stdin: asyncio.StreamWriter, given: bytes) -> None:
    """Write the input; the program need not read it."""
    with suppress(ConnectionError):
        stdin.write(given)
        await stdin.drain()
    stdin.close()
    with suppress(ConnectionError):
        await stdin.wait_closed()
