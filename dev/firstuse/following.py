"""Executes the README step by step, like a user with two or three terminals."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dev.firstuse.browsing import look_at
from dev.firstuse.comparing import Difference, Names
from dev.firstuse.readme import Opened, Step, Typed, Written

START_S, COMMAND_S, STOP_S = 900.0, 120.0, 30.0
INTERRUPTED = (0, -signal.SIGINT, 128 + signal.SIGINT)
"""Exit codes of a command that Ctrl-C has stopped, or that had ended well before."""
"""The first start installs everything."""
_KEPT = re.compile(r"^(?:\. |source |export |cd )")
"""Commands that change the shell's state, and so affect all later commands in it."""
_DEFINED = re.compile(r"agents/(\w+)\.yaml")


class Program:
    """A command that keeps running in its own terminal."""

    def __init__(self, line: str, place: Path, env: Mapping[str, str]) -> None:
        self.line = line
        self.began = time.monotonic()
        self._lines: list[str] = []
        self._grown = threading.Condition()
        self._process = subprocess.Popen(
            ["bash", "-c", line], cwd=place, env=dict(env), text=True, errors="replace", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._grown:
                self._lines.append(line.rstrip())
                self._grown.notify_all()

    @property
    def lines(self) -> list[str]:
        with self._grown:
            return list(self._lines)

    def until(self, condition: Callable[[list[str]], bool], within_s: float, what: str) -> None:
        """Wait until its output fulfils the condition."""
        deadline = time.monotonic() + within_s
        with self._grown:
            while not condition(self._lines):
                left = deadline - time.monotonic()
                if left <= 0 or (self._process.poll() is not None and not self._reader.is_alive()):
                    raise Difference(
                        f"{self.line}: {what}\n  It said:\n" + "\n".join(f"    {one}" for one in self._lines)
                    )
                self._grown.wait(min(left, 0.5))

    def stop(self) -> None:
        """Ctrl-C, which reaches all that runs in the terminal. One that has ended by itself has to have ended well."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            ended = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            raise Difference(f"{self.line}: it does not stop") from None
        finally:
            self._reader.join(STOP_S)
            if self._process.stdout is not None:
                self._process.stdout.close()
        if ended not in INTERRUPTED:
            raise Difference(f"{self.line}: ended with {ended}\n" + "\n".join(f"    {one}" for one in self.lines))


class Follower:
    def __init__(self, place: Path, env: Mapping[str, str]) -> None:
        self._place = place
        self._env = env
        self._names = Names()
        self._before: list[str] = []
        self.programs: list[Program] = []

    def follow(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Written():
                    self._write(step)
                case Opened():
                    look_at(step.url, [self._names.filled(one) for one in step.seen])
                case Typed() if step.stays:
                    self._start(step)
                case Typed():
                    self._type(step)

    def stop(self) -> None:
        """The last that was started first."""
        while self.programs:
            self.programs.pop().stop()

    def _write(self, step: Written) -> None:
        path = self._place / step.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step.text)
        defined = _DEFINED.fullmatch(step.path)
        if defined and self.programs:
            # A person takes longer for the next step than the server to see the file.
            served = re.compile(rf"agents\.reloaded.*'{defined[1]}'")
            self.programs[0].until(lambda lines: any(map(served.search, lines)), 15, f"does not serve {step.path}")

    def _start(self, step: Typed) -> None:
        program = Program(self._line(step), self._place, self._env)
        self.programs.append(program)
        shown = step.shown[:-1]
        what = "does not say what the README shows:\n" + "\n".join(f"    {one}" for one in shown)
        program.until(lambda lines: self._names.begins(shown, lines), START_S, what)

    def _type(self, step: Typed) -> None:
        if _KEPT.match(step.line):
            self._before.append(step.line)
        result = subprocess.run(
            ["bash", "-c", self._line(step)], cwd=self._place, env=dict(self._env), text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=COMMAND_S,
        )  # fmt: skip
        seen = [line.rstrip() for line in result.stdout.rstrip().splitlines()]
        try:
            self._names.compare(step.shown, seen)
        except Difference as error:
            raise Difference(f"{step.place}: $ {step.line}\n  {error}") from None

    def _line(self, step: Typed) -> str:
        return "\n".join([*self._before, self._names.filled(step.line)])
