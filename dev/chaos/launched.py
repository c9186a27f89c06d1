"""`python -m dev.chaos.launched CONTROL serve …`: `parley` as it is, in a process whose wall clock and disk can be
changed from outside while it runs. The file CONTROL holds two numbers: by how many nanoseconds the clock is wrong, and
how many pages an SQLite file may have (0: as many as it likes)."""

import mmap
import sqlite3
import struct
import sys
import time
from pathlib import Path
from typing import Any

LAYOUT = struct.Struct("<qq")


class Control:
    """The two numbers, written by the fault injector."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(LAYOUT.pack(0, 0))
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), LAYOUT.size)

    @property
    def clock_ns(self) -> int:
        return LAYOUT.unpack_from(self._memory)[0]

    @property
    def pages(self) -> int:
        return LAYOUT.unpack_from(self._memory)[1]

    def set(self, *, clock_s: float = 0.0, pages: int = 0) -> None:
        LAYOUT.pack_into(self._memory, 0, int(clock_s * 1e9), pages)


def step_clock(control: Control) -> None:
    """Make this process read the wrong wall clock; the monotonic clock is not changed."""
    time_ns, time_s = time.time_ns, time.time
    time.time_ns = lambda: time_ns() + control.clock_ns
    time.time = lambda: time_s() + control.clock_ns / 1e9


def limit_pages(control: Control) -> None:
    """SQLite keeps this limit per connection, so each connection looks before it does something."""

    class Limited(sqlite3.Connection):
        _pages = 0

        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            if self._pages != control.pages:
                self._pages = control.pages
                super().execute(f"PRAGMA max_page_count = {self._pages or 2**30}")
            return super().execute(*arguments)

    connect = sqlite3.connect
    sqlite3.connect = lambda *given, **named: connect(*given, **{"factory": Limited, **named})  # type: ignore[assignment]


if __name__ == "__main__":
    control = Control(Path(sys.argv.pop(1)))
    step_clock(control)
    limit_pages(control)
    from parley.cli import main

    main()
