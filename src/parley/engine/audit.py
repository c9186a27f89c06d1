"""Prove that a log is what it was: walk its chain from the floor to the head."""

from collections.abc import AsyncIterator

from parley.core.events import verify
from parley.engine.ports import Readable
from parley.errors import BrokenChain, RunNotFound
from parley.ids import RunId

_PAGE = 1000


async def all_runs(store: Readable) -> AsyncIterator[RunId]:
    after = ""
    while page := await store.run_ids(after, _PAGE):
        for run_id in page:
            yield run_id
        after = page[-1]


async def verify_run(store: Readable, run_id: RunId) -> int:
    """Check one run's chain; the number of its last event. BrokenChain names the first event that lies."""
    head = await store.head(run_id)
    if head is None:
        raise RunNotFound(f"There is no run {run_id}.")
    seq, hash_ = head.floor, head.floor_hash
    while page := await store.read(run_id, seq, _PAGE):
        seq, hash_ = verify(page, seq, hash_)
    if seq < head.run.version or (seq == head.run.version and hash_ != head.hash):
        raise BrokenChain(f"The log ends at {seq}, but its head says {head.run.version}.", run=run_id, seq=seq)
    return seq
