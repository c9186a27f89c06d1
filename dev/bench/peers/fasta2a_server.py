"""fasta2a with its in-memory storage and broker, serving a trivial agent."""

import argparse
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage

# A worker runs one task at a time and waits for each reader of its events. Eight gave
# better rates than one; 32 gave about the same as eight.
WORKERS = 8


class Hello(Worker[list[Message]]):
    async def run_task(self, params: TaskSendParams) -> None:
        task_id, context_id = params["id"], params["context_id"]
        await self.storage.update_task(task_id, state="working")
        await self.publish_status(task_id, context_id, "working")
        artifacts = self.build_artifacts("hello")
        await self.publish_artifact(task_id, context_id, artifacts[0])
        # The worker loop reads this state back, publishes it and ends the stream.
        await self.storage.update_task(task_id, state="completed", new_artifacts=artifacts)

    async def cancel_task(self, params: TaskIdParams) -> None:
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return list(history)

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return [Artifact(artifact_id=str(uuid.uuid4()), parts=[Part(text=result)])]


def application(port: int) -> FastA2A:
    storage: InMemoryStorage[list[Message]] = InMemoryStorage()
    broker = InMemoryBroker()

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, AsyncExitStack() as stack:
            for _ in range(WORKERS):
                await stack.enter_async_context(Hello(broker=broker, storage=storage).run())
            yield

    return FastA2A(
        storage=storage,
        broker=broker,
        name="hello",
        url=f"http://127.0.0.1:{port}/",
        lifespan=lifespan,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    uvicorn.run(
        application(given.port),
        host="127.0.0.1",
        port=given.port,
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
