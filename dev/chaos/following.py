"""A reader of streams that is disconnected or leaves, and resumes after its last event."""

import asyncio
import time
from contextlib import aclosing

from dev.chaos.history import Frame, History, Json, Stream
from dev.chaos.wire import BROKEN, Line, Refused

ENDED = frozenset(f"TASK_STATE_{state}" for state in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"))
WAITING = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})


class Reader:
    def __init__(self, line: Line, history: History) -> None:
        self._line = line
        self._history = history

    async def follow(self, method: str, path: str, params: Json, key: str = "", after: int | None = None) -> Stream:
        """Until the task ends, or waits (if it was sent with this), or time is up."""
        stream = Stream(params.get("id", ""), after or 0, begun=after is not None)
        self._history.streams.append(stream)
        while time.monotonic() < self._line.until:
            stream.connections += 1
            try:
                if await self._connection(stream, method, path, params, key):
                    return stream
            except Refused as refused:
                if task := refused.answer.queued:
                    # A node that has no room says where the message waits; from there it can be followed.
                    method, params, stream.task, stream.begun = "SubscribeToTask", {"id": task}, task, True
                elif not refused.answer.passing:
                    return stream
            except BROKEN:
                pass
            await asyncio.sleep(self._line.dice.uniform(0.0, 0.4))
        stream.given_up = True
        return stream

    async def _connection(self, stream: Stream, method: str, path: str, params: Json, key: str) -> bool:
        """Read one connection; True if the reader has seen what it wanted. Some readers leave after a few frames."""
        patience = self._line.dice.choice([1, 3, 10, 1000])
        after = stream.cursor if stream.begun else None
        async with aclosing(self._line.events(method, path, params, key, after)) as replies:
            async for seq, reply in replies:
                if "error" in reply:
                    return False
                if _noted(stream, seq, reply["result"], sent=method == "SendStreamingMessage"):
                    return True
                patience -= 1
                if not patience:
                    return False
        return False


def _noted(stream: Stream, seq: int, result: Json, *, sent: bool) -> bool:
    """Record a frame; True if it is the last one."""
    if "task" in result and not stream.begun:
        stream.begun = True
        stream.task, stream.start = result["task"]["id"], seq
        state = stream.state = result["task"]["status"]["state"]
    else:
        stream.frames.append(Frame(seq, result))
        state = result.get("statusUpdate", {}).get("status", {}).get("state", "")
    stream.ended = state in ENDED
    return stream.ended or (sent and state in WAITING)
