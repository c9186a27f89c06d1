"""A local agent that answers with the time of the request, or prints it and the time when the caller disconnects."""

import asyncio
import time

from parley_edge.adapter import Adapter, Task


async def stamp(task: Task) -> str:
    now = time.monotonic()
    if task.text == "hang":
        print(now, flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            print(time.monotonic(), flush=True)
    return str(now)


async def main() -> None:
    async with Adapter(stamp).listening(0) as endpoint:
        print(endpoint, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
