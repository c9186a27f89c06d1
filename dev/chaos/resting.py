"""After the faults: all tasks end within a bounded time, and the final state is read."""

import time

from dev.chaos.checking import Log, shown
from dev.chaos.clients import Crowd
from dev.chaos.history import Hook
from dev.chaos.reading import logs_of, marks_of, posts_of, unfinished, versions_of
from dev.chaos.world import Logs, Place
from parley.runs.rules.state import WAITING
from parley.testing.processes import until

REST_S = 60.0


async def rested(world: Place, crowd: Crowd) -> bool:
    """Cancel tasks that wait for input, and wait for all others to end; True if they did. If not, the checker reports
    the rest."""
    store = await world.store()
    line = crowd.clients[0].line
    line.until = time.monotonic() + REST_S

    async def ended() -> bool:
        left = await unfinished(store)
        for agent, id_, state in left:
            if state in WAITING or agent == "sleeper":
                await line.rpc("CancelTask", f"/agents/{agent}", {"id": id_})
        return not left

    try:
        await until(ended, REST_S)
        await _told(world, store)
    except TimeoutError:
        return False
    finally:
        await store.close()
    return True


async def _told(world: Place, store: Logs) -> None:
    """Wait until every receiver has accepted the last update of its task."""
    logs = await logs_of(store)
    last = {hook.path: _last(hook, logs) for hook in world.history.hooks if hook.task in logs}

    def told() -> bool:
        taken = {(post.path, post.seq) for post in posts_of(world) if post.taken}
        return last.items() <= taken

    await until(told, REST_S)


def _last(hook: Hook, logs: dict[str, Log]) -> int:
    return shown(logs[hook.task])[-1][0]


async def read(world: Place, crowd: Crowd) -> dict[str, Log]:
    """Read everything that the checker needs."""
    history = world.history
    history.versions = await versions_of(crowd)
    history.posts = posts_of(world)
    history.marks = marks_of(world.folder / "room")
    store = await world.store()
    try:
        return await logs_of(store)
    finally:
        await store.close()
