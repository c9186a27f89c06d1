"""A seeded event loop: virtual time, no threads, no sockets. Simulated processes take turns in an order that the seed
decides; within a process callbacks run in the order in which they were scheduled, as asyncio promises."""

import asyncio
from array import array
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH_MS = 1_800_000_000_000
"""Time of day at which every simulated world begins."""
MAX_STEPS = 500_000
LATE_S = 0.0005
"""Timers fire up to this much late, so that timers of the same moment fire in an order that the seed decides."""
THREAD_S = 0.002
MAX_FINALLY = 20


class Endless(Exception):
    """Raised when a world never comes to rest: it has run for too many steps."""


class SimulatedProcess:
    """A process of the simulated world. Callbacks belong to the process in whose context they were scheduled. A dead
    process never runs again; not even its `finally` blocks do."""

    __slots__ = ("alive", "context", "countdown", "died", "index", "name", "paused", "queue", "skew_ms")

    def __init__(self, name: str, index: int, died: Callable[[], None]) -> None:
        self.name = name
        self.index = index
        self.alive = True
        self.paused = False
        self.skew_ms = 0
        """Difference between its wall clock and the true time."""
        self.queue: deque[_Scheduled] = deque()
        self.countdown = 0
        """Number of steps until the process dies; 0 for never."""
        self.died = died
        self.context = copy_context()
        self.context.run(PROCESS.set, self)


def _nothing() -> None:
    return


PROCESS: ContextVar["SimulatedProcess | None"] = ContextVar("process", default=None)
"""The simulated process whose code runs."""


class _Scheduled(asyncio.TimerHandle):
    """A callback of a process. asyncio's own handles do more, and take twice the time; here every microsecond counts,
    because a world consists of little else."""

    __slots__ = ("at", "callback", "given", "process", "within")

    def __init__(
        self,
        process: SimulatedProcess,
        at: float,
        callback: Callable[..., object],
        given: tuple[Any, ...],
        within: Context,
    ) -> None:
        self.process = process
        self.at = at
        self.callback: Callable[..., object] | None = callback
        self.given = given
        self.within = within

    def cancel(self) -> None:
        self.callback, self.given = None, ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.at

    def __repr__(self) -> str:
        return f"<{self.callback} of {self.process.name} at {self.at:.3f}>"


class SeededLoop(asyncio.BaseEventLoop):
    """Runs simulated processes in one thread. The same seed leads to the same steps in the same order."""

    def __init__(self, seed: object, max_steps: int = MAX_STEPS) -> None:
        super().__init__()
        self.random = Random(f"{seed}/schedule")
        self._lateness = self.random.random
        self.trace = bytearray()
        """The processes of all steps, and the hashes of all commits, in order."""
        self._moments = array("d")
        self.errors: list[str] = []
        """Exceptions that no code handled."""
        self.steps = 0
        self._max_steps = max_steps
        self._now = 0.0
        self._timers: list[tuple[float, int, _Scheduled]] = []
        self._number = 0
        self._active: list[SimulatedProcess] = []
        """The processes that can run: not paused, with callbacks that wait."""
        self._tasks: list[asyncio.Task[Any]] = []
        """All tasks. Without them the garbage collector would decide when a forgotten task ends."""
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._halted = False
        self._disposed = False
        self._processes = 0
        self.world = self.process("world")

    def digest(self) -> str:
        """Return a hash of everything that happened: equal for equal worlds."""
        return blake2b(self.trace + self._moments.tobytes(), digest_size=16).hexdigest()

    def process(self, name: str, died: Callable[[], None] = _nothing) -> SimulatedProcess:
        """Create a process; `died` is called when it is killed."""
        self._processes += 1
        return SimulatedProcess(name, self._processes % 256, died)

    def time(self) -> float:
        return self._now

    def wall_ms(self, process: SimulatedProcess | None = None) -> int:
        """Return the time of day as a process sees it."""
        seen = process or PROCESS.get() or self.world
        return EPOCH_MS + int(self._now * 1000) + seen.skew_ms

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        if context is None:
            context = copy_context()
        process = context.get(PROCESS) or self.world
        handle = _Scheduled(process, self._now, callback, args, context)
        if process.alive:
            queue = process.queue
            if not queue and not process.paused:
                self._active.append(process)
            queue.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = copy_context()
        handle = _Scheduled(context.get(PROCESS) or self.world, when, callback, args, context)
        self._number = number = self._number + 1
        if when < self._now:
            when = self._now
        heappush(self._timers, (when + self._lateness() * LATE_S, number, handle))
        return handle

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], *, name: object = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":  # fmt: skip
        task = asyncio.Task(coro, loop=self, name=str(name or ""), context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Run a function that would run in a thread: a moment later, at once."""
        future: asyncio.Future[T] = self.create_future()
        self.call_later(self.random.random() * THREAD_S, _call, func, args, future)
        return future

    def kill(self, process: SimulatedProcess) -> None:
        """End a process as a power failure would. None of its code runs again."""
        if process.alive:
            process.alive = False
            process.queue.clear()
            if process in self._active:
                self._active.remove(process)
            process.died()

    def kill_after(self, process: SimulatedProcess, steps: int) -> None:
        """Kill a process after some more steps: in the middle of whatever it does then."""
        process.countdown = steps

    def pause(self, process: SimulatedProcess) -> None:
        process.paused = True
        if process in self._active:
            self._active.remove(process)

    def resume(self, process: SimulatedProcess) -> None:
        process.paused = False
        if process.queue and process.alive and process not in self._active:
            self._active.append(process)

    def stop(self) -> None:
        self._halted = True
        super().stop()

    def dispose(self) -> None:
        """Close the loop, and let nothing run that is left over."""
        self._disposed = True
        for task in self._tasks:
            coro = task.get_coro()
            if not task.done() and isinstance(coro, Coroutine):
                _closed(coro)
            elif task.done() and not task.cancelled():
                task.exception()
        self._tasks.clear()
        self._generators.clear()
        self._timers.clear()
        self._active.clear()
        self.close()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._disposed:
            error = context.get("exception")
            self.errors.append(f"{context.get('message')}: {error!r}")

    def _run_once(self) -> None:
        """Run step after step until the loop is stopped. `BaseEventLoop.run_forever` calls this."""
        active, random, trace = self._active, self.random.random, self.trace
        self._halted = False
        while not self._halted:
            if active:
                place = int(random() * len(active)) if len(active) > 1 else 0
                process = active[place]
                queue = process.queue
                handle = queue.popleft()
                if not queue:
                    active[place] = active[-1]
                    active.pop()
            elif (handle := self._next_timer()) is not None:
                process = handle.process
            else:
                continue
            if handle.callback is None:
                continue
            trace.append(process.index)
            self.steps += 1
            if self.steps > self._max_steps:
                raise Endless(f"The world has not come to rest after {self.steps} steps.")
            try:
                handle.within.run(handle.callback, *handle.given)
            except Exception as error:  # noqa: BLE001 - as asyncio does
                self.errors.append(f"{handle.callback}: {error!r}")
            if process.countdown:
                process.countdown -= 1
                if not process.countdown:
                    self.kill(process)

    def _next_timer(self) -> "_Scheduled | None":
        """Move time on to the next timer and return it, or queue it if its process is paused. Without a timer nothing
        can ever happen again."""
        timers = self._timers
        while timers:
            when, _, timer = heappop(timers)
            process = timer.process
            if timer.callback is None or not process.alive:
                continue
            self._now = when
            self._moments.append(when)
            if not process.paused:
                return timer
            process.queue.append(timer)
            return None
        raise Endless("Nothing is left that could happen, and the world has not come to its end.")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        return

    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        self._generators.append(agen)

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        return


def _closed(coro: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine, however often its `finally` blocks wait for something: the world is over."""
    for _ in range(MAX_FINALLY):
        try:
            return coro.close()
        except BaseException:  # noqa: BLE001 - it may raise anything
            continue
    return None


def _call(func: Callable[..., T], args: tuple[Any, ...], future: "asyncio.Future[T]") -> None:
    if future.done():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:  # noqa: BLE001 - as an executor does
        future.set_exception(error)
