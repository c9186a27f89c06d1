"""Nodes in memory, in the SQLite file beside the log, or in PostgreSQL."""

from parley.stores.nodes.memory import MemoryNodes
from parley.stores.nodes.postgres import PostgresNodes
from parley.stores.nodes.sqlite import SqliteNodes

__all__ = ["MemoryNodes", "PostgresNodes", "SqliteNodes"]
