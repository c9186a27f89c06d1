"""Fair queues: the waiting runs of an agent with a limit are taken in turn, one principal after another."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from parley.ids import RunId


class QueueHead(Struct, frozen=True):
    """The run of a principal that has waited longest, and the number of the last turn that the principal had; 0 if it
    had none."""

    principal: str
    run: RunId
    arrival: int
    served: int = 0


class AgentQueue(Struct, frozen=True):
    """The waiting runs of an agent, of each principal the first one; `last` is the number of its last turn."""

    heads: tuple[QueueHead, ...] = ()
    last: int = 0


class Served(Struct, frozen=True):
    """A turn that a principal gets from the queue of an agent. It is stored together with the start of the turn."""

    agent: str
    principal: str
    number: int


# Why: docs/decisions/execution.md#take-turns-by-the-number-of-the-last-one
def next_served(queue: AgentQueue, agent: str, beginning: Iterable[Served]) -> tuple[QueueHead, Served] | None:
    """Return the run to begin next: of the principal whose last turn is the longest ago, so that no principal waits
    for more than one turn of each other. `beginning` are turns that this process is about to begin."""
    known: Mapping[str, int] = {}
    last = queue.last
    for one in beginning:
        known = {**known, one.principal: max(one.number, known.get(one.principal, 0))}
        last = max(last, one.number)
    heads = [replace(head, served=max(head.served, known.get(head.principal, 0))) for head in queue.heads]
    if not heads:
        return None
    first = min(heads, key=lambda head: (head.served, head.arrival))
    return first, Served(agent, first.principal, last + 1)
