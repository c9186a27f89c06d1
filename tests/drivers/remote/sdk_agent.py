"""An agent on the official SDK's server, set up as its documentation shows: no event numbers, no idempotency keys."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Role, TaskState
from starlette.applications import Starlette

from parley.testing.servers import hosting

STEPS = 30


class Executor(AgentExecutor):
    """Does what the first word says."""

    def __init__(self) -> None:
        self.begun = 0
        self.requests: list[RequestContext] = []
        self.canceled: list[str] = []

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        text = context.get_user_input()
        self.requests.append(context)
        if text.startswith("reply"):
            await event_queue.enqueue_event(new_text_message("a direct answer", role=Role.ROLE_AGENT))
            return
        task = context.current_task
        if task is None:
            self.begun += 1
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await getattr(self, f"_{text.split()[0]}")(updater)

    async def _count(self, updater: TaskUpdater) -> None:
        for number in range(STEPS):
            await updater.start_work(updater.new_agent_message([new_text_part(f"tick {number}")]))
            await updater.add_artifact(
                [new_text_part(f"{number} ")], artifact_id="ticks", append=number > 0, last_chunk=number == STEPS - 1
            )
            await asyncio.sleep(0.05)
        await updater.complete(updater.new_agent_message([new_text_part("counted")]))

    async def _trace(self, updater: TaskUpdater) -> None:
        said = updater.new_agent_message([new_text_part("traced")], metadata={"tool_trace": [{"tool": "search"}]})
        await updater.update_status(TaskState.TASK_STATE_COMPLETED, said, metadata={"usage": {"input_tokens": 12}})

    async def _ask(self, updater: TaskUpdater) -> None:
        await updater.requires_input(updater.new_agent_message([new_text_part("Which?")]))

    async def _auth(self, updater: TaskUpdater) -> None:
        await updater.requires_auth(updater.new_agent_message([new_text_part("Who?")]))

    async def _answer(self, updater: TaskUpdater) -> None:
        await updater.add_artifact([new_text_part("answered")], artifact_id="answer")
        await updater.complete()

    async def _fail(self, updater: TaskUpdater) -> None:
        await updater.failed(updater.new_agent_message([new_text_part("Out of paper.")]))

    async def _sleep(self, updater: TaskUpdater) -> None:
        await updater.start_work(updater.new_agent_message([new_text_part("asleep")]))
        await asyncio.Event().wait()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        self.canceled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


@asynccontextmanager
async def sdk_server(*, streaming: bool = True) -> AsyncIterator[tuple[str, Executor]]:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    executor = Executor()
    about = card(url, streaming=streaming)
    handler = DefaultRequestHandler(agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=about)
    app = Starlette(
        routes=[
            *create_agent_card_routes(about),
            *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix="/rest", enable_v0_3_compat=True),
        ]
    )
    async with hosting(app, listener):
        yield url, executor


def card(url: str, *, streaming: bool) -> AgentCard:
    return AgentCard(
        name="Counter",
        description="Counts and asks.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(url=f"{url}/{path}", protocol_binding=binding, protocol_version=version)
            for version in ("1.0", "0.3")
            for path, binding in (("rpc", "JSONRPC"), ("rest", "HTTP+JSON"))
        ],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain", "image/*"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="count", name="Count", description="Counts.", tags=["numbers"], examples=["count"])],
    )
