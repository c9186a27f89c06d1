"""An MCP server over stdio with one tool, `supabase-query`: reads tables of an SQLite database.

    python sqlite_query.py [DATABASE]

Without a database it makes one in memory with a sample table, `financial_transactions`.
"""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

MOST_ROWS = 1_000
COMPARISONS = {"gte": ">=", "lte": "<=", "gt": ">", "lt": "<", "ne": "<>", "like": "LIKE"}
SAMPLE = [
    ("2025-01-14", 1200.0, "Revenue"), ("2025-01-20", -340.5, "Travel"), ("2025-02-03", -89.9, "Software"),
    ("2025-02-17", 2100.0, "Revenue"), ("2025-03-09", -410.0, "Travel"), ("2025-03-31", 1500.0, "Revenue"),
    ("2024-12-30", 990.0, "Revenue"),
]  # fmt: skip


class Query(BaseModel):
    table: str
    select: list[str] | None = Field(None, description="Columns; all of them if left out.")
    where: dict[str, str | int | float | bool | None] = Field(
        {}, description="Column and value; `_gte`, `_lte`, `_gt`, `_lt`, `_ne`, `_like` behind a column compare."
    )
    orderBy: str | None = Field(None, description="`column`, `column ASC` or `column DESC`.")  # noqa: N815
    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 100


class Found(TypedDict):
    rows: list[dict[str, Any]]
    count: int


def opened() -> sqlite3.Connection:
    """Open the database read-only, so that no query can change it."""
    if len(sys.argv) > 1:
        return sqlite3.connect(f"{Path(sys.argv[1]).absolute().as_uri()}?mode=ro", uri=True)
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE financial_transactions (date TEXT, amount REAL, category TEXT)")
    database.executemany("INSERT INTO financial_transactions VALUES (?, ?, ?)", SAMPLE)
    database.execute("PRAGMA query_only = ON")
    return database


def select(database: sqlite3.Connection, query: Query) -> Found:
    """Build a SELECT. Names come from the schema and values are parameters: no input becomes SQL."""
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")]
    if query.table not in tables:
        raise ToolError(f"There is no table {query.table!r}; there is {', '.join(tables)}.")
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{query.table}")')]
    chosen = [_column(name, columns) for name in query.select or columns]
    conditions, values = _conditions(query.where, columns)
    text = f'SELECT {", ".join(chosen)} FROM "{query.table}"{conditions}{_order(query.orderBy, columns)} LIMIT ?'
    with closing(database.execute(text, [*values, query.limit])) as found:
        names = [one[0] for one in found.description]
        rows = [dict(zip(names, row, strict=True)) for row in found]
    return Found(rows=rows, count=len(rows))


def _conditions(where: dict[str, Any], columns: list[str]) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    for name, value in where.items():
        column, _, suffix = name.rpartition("_")
        if name in columns or suffix not in COMPARISONS:
            parts.append(f"{_column(name, columns)} IS ?")
        else:
            parts.append(f"{_column(column, columns)} {COMPARISONS[suffix]} ?")
        values.append(value)
    return (f" WHERE {' AND '.join(parts)}" if parts else ""), values


def _order(text: str | None, columns: list[str]) -> str:
    if text is None:
        return ""
    name, _, direction = text.strip().partition(" ")
    if direction.strip().upper() not in ("", "ASC", "DESC"):
        raise ToolError("orderBy is a column, and ASC or DESC.")
    return f" ORDER BY {_column(name, columns)} {direction.strip().upper()}"


def _column(name: str, columns: list[str]) -> str:
    if name not in columns:
        raise ToolError(f"There is no column {name!r}; there is {', '.join(columns)}.")
    return f'"{name}"'


server = MCPServer("supabase-mcp")
database = opened()


@server.tool("supabase-query", annotations=ToolAnnotations(read_only_hint=True))
async def query(query: Query) -> Found:
    """Read rows of a table."""
    return select(database, query)


if __name__ == "__main__":
    server.run("stdio")
