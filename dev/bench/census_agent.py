"""Agents for the memory check: one that answers, and one that counts the objects of its process."""

import gc
import json
import resource
from collections import Counter
from pathlib import Path

from parley import Text, Turn, agent

TYPES = 40


@agent("echo")
async def echo(turn: Turn):
    """Says hello."""
    yield Text("hello")


@agent("census")
async def census(turn: Turn):
    """Counts live objects after a garbage collection, without those loaded at the start, which are frozen."""
    yield Text(json.dumps(counted()))


def counted() -> dict[str, object]:
    gc.collect()
    objects = gc.get_objects()
    types = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in objects)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    resident = pages * resource.getpagesize()
    return {"resident": resident, "objects": len(objects), "types": dict(types.most_common(TYPES))}
