"""A local agent that answers with the moment it was asked at; or tells that, and when it was hung up on."""

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
