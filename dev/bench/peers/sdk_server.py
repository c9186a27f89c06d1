"""The official A2A SDK serving a trivial agent, set up the way its documentation shows."""

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# No spans are collected here. The SDK reads this switch at import, and tracing costs it time.
os.environ["OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"] = "false"

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry
from starlette.applications import Starlette


class Hello(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        await updater.add_artifact([new_text_part("hello")])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(port: int) -> AgentCard:
    return AgentCard(
        name="hello",
        description="Answers hello.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="hello", name="Hello", description="Says hello.", tags=["hello"])],
    )


def sqlite_engine(path: str) -> AsyncEngine:
    """SQLite with a write-ahead log, and every commit on disk before it is answered.

    Two connections, because more were no faster: they wait for each other's write
    lock, which only lengthens the tail.
    """
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{path}",
        pool_size=2,
        max_overflow=0,
        connect_args={"timeout": 30},
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    return engine


def task_store(kind: str, path: str) -> TaskStore:
    if kind == "memory":
        return InMemoryTaskStore()
    if kind == "postgres":
        return DatabaseTaskStore(create_async_engine(path))
    return DatabaseTaskStore(sqlite_engine(path))


def application(store: TaskStore, port: int) -> Starlette:
    handler = DefaultRequestHandler(agent_executor=Hello(), task_store=store, agent_card=card(port))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        # Otherwise the first requests would all create the table at once.
        if isinstance(store, DatabaseTaskStore):
            await store.initialize()
        yield
        await handler.aclose()
        if isinstance(store, DatabaseTaskStore):
            await store.engine.dispose()

    routes = create_agent_card_routes(card(port)) + create_jsonrpc_routes(handler, rpc_url="/")
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--store", choices=["memory", "sqlite", "postgres"], default="memory")
    parser.add_argument("--path", help="the SQLite file, or the address of the PostgreSQL database")
    given = parser.parse_args()
    if given.store != "memory" and not given.path:
        parser.error(f"--store {given.store} needs --path")
    app = application(task_store(given.store, given.path), given.port)
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
