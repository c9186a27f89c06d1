"""Runs one program, and makes sure that nothing of it outlives its turn. A script of its own: it imports no Parley.

    python -I -S launcher.py LIFELINE MEMORY_BYTES CPU_SECONDS FILE_BYTES PROGRAM [ARGUMENT …]

LIFELINE is the reading end of a pipe. A byte in it asks the program to stop. Its end, which also comes when the server
is killed, stops the program at once. Everything that the program has started ends with it, also processes that moved to
another process group, if the system can adopt orphans (Linux).
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path

SET_PDEATHSIG = 1
SET_CHILD_SUBREAPER = 36
REAP_S = 5.0
NOT_STARTED = 127


# Why: docs/decisions/drivers.md#run-programs-under-a-launcher
def main(lifeline: int, memory: int, cpu: int, file: int, program: list[str]) -> int:
    prctl(SET_CHILD_SUBREAPER, 1)
    waking, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, noticed)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    child = os.fork()
    if child == 0:
        become(program, lifeline, memory, cpu, file)
    for inherited in (0, 1, 2):
        os.close(inherited)
    watch(child, lifeline, waking)
    kill_group(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    end_orphans()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def noticed(number: int, frame: object) -> None:
    """Does nothing; a handler must exist, so that the signal wakes `watch`."""


def become(program: list[str], lifeline: int, memory: int, cpu: int, file: int) -> None:
    """Become the program: set its limits and execute it. Never returns."""
    try:
        os.setpgid(0, 0)
        prctl(SET_PDEATHSIG, signal.SIGKILL)
        os.close(lifeline)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(ignored, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        if cpu:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        if file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
        os.execv(program[0], program)
    except BaseException as error:  # noqa: BLE001 - two processes must never continue from here
        os.write(2, f"{program[0]}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(NOT_STARTED)


def watch(child: int, lifeline: int, waking: int) -> None:
    """Wait until the program has ended, or the server closes the lifeline."""
    while True:
        ready, _, _ = select.select([lifeline, waking], [], [])
        if waking in ready:
            os.read(waking, 4096)
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
        if lifeline in ready:
            if not os.read(lifeline, 1):
                return
            kill_group(child, signal.SIGTERM)


def kill_group(child: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, how)
    with contextlib.suppress(ProcessLookupError):
        # The program may not have created its process group yet.
        os.kill(child, how)


def end_orphans() -> None:
    """Kill the processes that this one has adopted, and then those that it adopts from them."""
    until = time.monotonic() + REAP_S
    while time.monotonic() < until:
        for orphan in children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.005)
        except ChildProcessError:
            return


def children() -> list[int]:
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    except OSError:
        return []


def prctl(option: int, value: int) -> None:
    """Call prctl, on systems that have it."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    lifeline, memory, cpu, file = map(int, sys.argv[1:5])
    os._exit(main(lifeline, memory, cpu, file, sys.argv[5:]))
