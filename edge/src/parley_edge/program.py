"""`a2a-runtime adapter`: serves any program as a local agent, one process per task."""

import asyncio
import json
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any, Literal, cast

from parley_edge.adapter import Adapter, Failure, Task
from parley_edge.errors import OK, WrongUse
from parley_edge.json_values import Json, read_object
from parley_edge.net.http import MAX_BODY
from parley_edge.system import WINDOWS, split_command

STOP_S = 2.0
MAX_STRING = 96 * 1024
"""Length that safely fits in one environment variable or argument."""
_SILENT: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
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
        """Parse and check the options before the first task."""
        try:
            argv = split_command(command)
        except ValueError:
            raise WrongUse("The command cannot be parsed.", "Check that all quotes are closed.") from None
        if not argv or not (which(argv[0]) or (Path(cwd or ".") / argv[0]).is_file()):
            raise WrongUse(f"The program '{argv[0] if argv else ''}' was not found.")
        if cwd is not None and not Path(cwd).is_dir():
            raise WrongUse(f"The folder '{cwd}' does not exist.")
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
        given = payload if self.task == "stdin" else task.text
        _, running = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Running(given.encode("utf-8", "replace")),
            *self._argv(payload),
            stderr=None,
            cwd=self.cwd,
            env=self._environment(task, payload),
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        try:
            return await running.ended()
        finally:
            await running.stop()

    def _argv(self, payload: str) -> tuple[str, ...]:
        if self.task != "argument":
            return self.argv
        if len(payload) > MAX_STRING:
            raise Failure("The task is too large for an argument of the program.")
        return (*self.argv, payload)

    def _environment(self, task: Task, payload: str) -> dict[str, str]:
        """This process's variables and those of the task; the task as JSON only if it fits."""
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
    """Turn a program's output into an answer: a JSON object or a text. The object may report a failure itself."""
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


class _Running(asyncio.SubprocessProtocol):
    """A running program: its input, its output, and its end, which also ends the processes that it started."""

    def __init__(self, given: bytes) -> None:
        self._given = given
        self._said = bytearray()
        self._over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        stdin.write(self._given)
        stdin.write_eof()

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        self._said += cast(bytes, data)
        if len(self._said) > MAX_BODY:
            self._end(at_once=True)

    def process_exited(self) -> None:
        """End its children, which could hold its output open forever. Not on Windows, where the pid may be reused."""
        if not WINDOWS:
            self._end(at_once=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over.set()

    async def ended(self) -> tuple[int, bytes]:
        """Wait for the end; return the exit code and the output."""
        await self._over.wait()
        if len(self._said) > MAX_BODY:
            raise Failure(f"The program wrote more than {MAX_BODY} bytes.")
        return self._transport.get_returncode() or 0, bytes(self._said)

    async def stop(self) -> None:
        """Terminate the process group; kill it if it does not end in time."""
        if not self._over.is_set():
            self._end(at_once=False)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._over.wait()
            self._end(at_once=True)
        self._transport.close()

    def _end(self, *, at_once: bool) -> None:
        """Kill (`at_once`) or terminate the process group. Windows can only kill, and has no process groups."""
        if not WINDOWS:
            self._signal(signal.SIGKILL if at_once else signal.SIGTERM)
        elif not self._over.is_set():
            try:
                subprocess.Popen(["taskkill", "/F", "/T", "/PID", str(self._transport.get_pid())], **_SILENT)
            except OSError:
                with suppress(ProcessLookupError):
                    self._transport.kill()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)
