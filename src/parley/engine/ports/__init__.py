"""What the engine needs from the outside, as protocols. An adapter is one module that implements one of them."""

from parley.engine.ports.blobs import Blobs, PassingBlobs
from parley.engine.ports.cluster import Cluster, Heard, Signals
from parley.engine.ports.drivers import Approving, Distant, Driver, Forsaken, Gated, Leaving, kind_of
from parley.engine.ports.library import Found, Legible, Library
from parley.engine.ports.logs import (
    LASTING,
    READ_BYTES,
    Append,
    Archive,
    Done,
    Head,
    Key,
    Listing,
    LogStore,
    Nonces,
    Readable,
    Store,
    StoredKey,
    Tally,
    Trim,
)
from parley.engine.ports.models import Answered, Delta, Finish, Llm, Sampling, Speech, Usage
from parley.engine.ports.records import Moment, Place, Record, Records
from parley.engine.ports.tools import ToolPack, ToolResult

__all__ = [
    "LASTING",
    "READ_BYTES",
    "Answered",
    "Append",
    "Approving",
    "Archive",
    "Blobs",
    "Cluster",
    "Delta",
    "Distant",
    "Done",
    "Driver",
    "Finish",
    "Forsaken",
    "Found",
    "Gated",
    "Head",
    "Heard",
    "Key",
    "Leaving",
    "Legible",
    "Library",
    "Listing",
    "Llm",
    "LogStore",
    "Moment",
    "Nonces",
    "PassingBlobs",
    "Place",
    "Readable",
    "Record",
    "Records",
    "Sampling",
    "Signals",
    "Speech",
    "Store",
    "StoredKey",
    "Tally",
    "ToolPack",
    "ToolResult",
    "Trim",
    "Usage",
    "kind_of",
]
