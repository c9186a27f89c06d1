"""Show rows as they come in, and keep them as JSON."""

import dataclasses
import json
import os
import platform
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import rich.table
from rich.console import Console
from rich.status import Status
from rich.text import Text

from dev.bench.rows import Row

COLUMNS = (
    ("row", 20, "left"),
    ("ours", 10, "right"),
    ("unit", 9, "left"),
    ("beside", 10, "right"),
    ("what", 22, "left"),
    ("ratio", 7, "right"),
    ("must be", 7, "left"),
    ("", 4, "left"),
    ("note", 45, "left"),
)
WIDTH = 159


class Table:
    """One table, printed line by line: columns of fixed width let a row appear before the next one is known."""

    def __init__(self) -> None:
        self._console = Console(width=WIDTH, highlight=False)
        self._begun = False

    def print(self, row: Row) -> None:
        table = rich.table.Table(box=None, show_header=not self._begun, pad_edge=False)
        for title, width, justify in COLUMNS:
            table.add_column(title, width=width, justify=justify)
        table.add_row(*cells(row))
        self._console.print(table)
        self._begun = True


def cells(row: Row) -> list[Text]:
    verdict = "" if row.ok and row.floor is None else "ok" if row.ok else "MISS"
    sign = "≤" if row.bound == "max" else "≥"
    return [
        Text(row.name),
        Text(figure(row.value)),
        Text(row.unit),
        Text(figure(row.beside_value)),
        Text(row.beside),
        Text(figure(row.ratio)),
        Text(f"{sign} {row.floor:g}" if row.floor is not None else ""),
        Text(verdict, style="green" if row.ok else "bold red"),
        Text(row.note or ""),
    ]


def figure(value: float | None) -> str:
    """Three digits that mean something."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


class Progress:
    """Prints the current measurement to stderr: one changing line on a terminal, otherwise one line per step."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._status: Status | None = self._console.status("") if self._console.is_terminal else None

    def show(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)
        else:
            self._console.print(text, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()


def save(rows: list[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine(), "rows": [dataclasses.asdict(row) for row in rows]}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")


def machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        # What else ran meanwhile: a figure taken on a busy machine says less.
        "load_average": os.getloadavg()[0],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
