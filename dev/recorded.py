"""`python -m dev.recorded CONTROL serve …`: run `parley` as it is and record the calls of its functions.

The Unix socket CONTROL takes one client. "start" begins a recording, "stop" ends it and returns its call chains: each
chain once, in the order of first entry, as names (module, function) from the outermost caller to the called function.
"""

import runpy
import sys
import threading
from multiprocessing.connection import Listener
from types import FrameType

Chain = tuple[tuple[str, str], ...]
PACKAGE = "parley"


class Recorder:
    """A profile function for every thread. It is set before the server starts and notes calls only while it is on."""

    def __init__(self) -> None:
        self._on = False
        self._chains: dict[Chain, None] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        # Resuming a coroutine is a call event too, for each frame that awaits.
        if self._on and event == "call" and _module(frame) is not None:
            self._chains.setdefault(_chain(frame))

    def obey(self, command: str) -> list[Chain]:
        chains, self._chains = list(self._chains), {}
        self._on = command == "start"
        return chains


def _module(frame: FrameType) -> str | None:
    """Name of the frame's module if it is one of Parley's."""
    name: str | None = frame.f_globals.get("__name__")
    return name if name is not None and (name == PACKAGE or name.startswith(f"{PACKAGE}.")) else None


def _chain(frame: FrameType | None) -> Chain:
    calls: list[tuple[str, str]] = []
    while frame is not None:
        if (module := _module(frame)) is not None:
            calls.append((module, frame.f_code.co_qualname))
        frame = frame.f_back
    return tuple(reversed(calls))


def _listen(address: str, recorder: Recorder) -> None:
    with Listener(address) as listener, listener.accept() as control:
        while True:
            try:
                command = control.recv()
            except EOFError:
                return
            control.send(recorder.obey(command))


if __name__ == "__main__":
    recorder = Recorder()
    threading.Thread(target=_listen, args=(sys.argv.pop(1), recorder), daemon=True).start()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    runpy.run_module(PACKAGE, run_name="__main__", alter_sys=True)
