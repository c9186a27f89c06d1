"""`a2a-runtime adapter`: any program as a local agent, one process for each task."""

import asyncio
import json
import os
import shlex
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any, Literal

from parley_edge.adapter import Adapter, Failure, Task
from parley_edge.errors import OK, WrongUse
from parley_edge.http import MAX_BODY
from parley_edge.shapes import Json, read_object

STOP_S = 2.0
MAX_STRING = 96 * 1024
"""What surely fits in one environment variable or argument."""
_NOT_PASSED = ("A2A_HOME", "A2A_API_BASE", "A2A_TASK")


@dataclass(frozen=True, slots=True)
class Wrapped:
    argv: tuple[str, ...]
    task: Literal["env", "argument", "stdin", "none"] = "env"
    output: Literal["auto", "text", "json"] = "auto"
    cwd: str | None = None
    timeout_s: float = 600.0
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8), compare=False)

    @staticmethod
    def of(command: str, task: Any, output: Any, cwd: str | None, timeout_s: float, concurrency: int) -> "Wrapped":
        """Checked before anything is asked of it."""
        try:
            argv = shlex.split(command)
        except ValueError:
            raise WrongUse("The command cannot be read.", "Quotes must be closed.") from None
        if not argv or not (which(argv[0]) or (Path(cwd or ".") / argv[0]).is_file()):
            raise WrongUse(f"There is no program '{argv[0] if argv else ''}'.")
        if cwd is not None and not Path(cwd).is_dir():
            raise WrongUse(f"There is no folder '{cwd}'.")
        return Wrapped(tuple(argv), task, output, cwd, timeout_s, asyncio.Semaphore(concurrency))

    async def __call__(self, task: Task) -> Json:
        async with self.slots:
            try:
                async with asyncio.timeout(self.timeout_s):
                    code, said = await self._run(task)
            except TimeoutError:
                raise Failure(f"The program did not end within {self.timeout_s:g} s.") from None
            except OSError as error:
                raise Failure("The program could not be started.") from error
        return meaning(code, said, self.output)

    async def _run(self, task: Task) -> tuple[int, bytes]:
        payload = json.dumps(task.payload(), ensure_ascii=True)
        process = await asyncio.create_subprocess_exec(
            *self._argv(payload),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=self.cwd,
            env=self._environment(task, payload),
            start_new_session=True,
        )
        given = payload if self.task == "stdin" else task.text
        try:
            return await _heard(process, given.encode("utf-8", "replace"))
        finally:
            await _ended(process)

    def _argv(self, payload: str) -> tuple[str, ...]:
        if self.task != "argument":
            return self.argv
        if len(payload) > MAX_STRING:
            raise Failure("The task is too large for an argument of the program.")
        return (*self.argv, payload)

    def _environment(self, task: Task, payload: str) -> dict[str, str]:
        """All of ours, and what the task is; as JSON only where that fits."""
        passed = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
        told = {
            "A2A_TASK_RUN_ID": task.task_run_id,
            "A2A_CONVERSATION_ID": task.conversation_id,
            "A2A_TASK_TYPE": task.task_type,
        }
        if self.task == "env" and len(payload) <= MAX_STRING:
            told["A2A_TASK"] = payload
        return passed | {name: value.replace("\0", "")[:MAX_STRING] for name, value in told.items()}


def meaning(code: int, said: bytes, output: str) -> Json:
    """What a program wrote: an object that is the answer, or a text. It may fail in its own words."""
    answer = read_object(said) if output != "text" else None
    if code != 0 and not (answer is not None and answer.get("success") is False):
        raise Failure(f"The program ended with exit code {code}." if code > 0 else f"Signal {-code} ended the program.")
    if answer is not None:
        return answer
    if output == "json":
        raise Failure("The program did not write a JSON object.")
    text = said.decode("utf-8", "replace").removesuffix("\n")
    return {"text": text}


def run(wrapped: Wrapped, host: str, port: int, *, exposed: bool) -> int:
    Adapter(wrapped).serve(port, host, i_know_this_is_not_an_authentication_boundary=exposed)
    return OK


async def _heard(process: asyncio.subprocess.Process, given: bytes) -> tuple[int, bytes]:
    """Its exit code, and what it wrote. What it has left running is ended, or that might write for ever."""
    assert process.stdin is not None
    assert process.stdout is not None
    feeding = asyncio.create_task(_feed(process.stdin, given))
    ending = asyncio.create_task(process.wait())
    ending.add_done_callback(lambda _: _signal(process, signal.SIGKILL))
    try:
        said = await _read(process.stdout)
        return await ending, said
    finally:
        feeding.cancel()


async def _feed(stdin: asyncio.StreamWriter, given: bytes) -> None:
    """It need not read what it is given."""
    with suppress(OSError):
        stdin.write(given)
        await stdin.drain()
    stdin.close()


async def _read(stdout: asyncio.StreamReader) -> bytes:
    said = bytearray()
    while chunk := await stdout.read(64 * 1024):
        said += chunk
        if len(said) > MAX_BODY:
            raise Failure(f"The program wrote more than {MAX_BODY} bytes.")
    return bytes(said)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Asked first, then made to; its whole process group."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await process.wait()
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
