"""A program on the official SDK, as its documentation shows it, that is served by the SDK or by Parley.

    python -m tests.compat.program sdk|parley PORT

The two differ in one line.
"""

import asyncio
import os
import socket
import sys
import time
from pathlib import Path

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Role, TaskState
from starlette.applications import Starlette

from parley.compat import durable

STEPS = 6


class Clerk(AgentExecutor):
    """Does what the first word says; `GATE` names a file without which the slow ones do not go on."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        text = context.get_user_input()
        if text == "reply":
            return await event_queue.enqueue_event(new_text_message("a direct answer", role=Role.ROLE_AGENT))
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        self._context = context
        work = getattr(self, f"_{text.split()[0]}")
        return await work(TaskUpdater(event_queue, task.id, task.context_id), text)

    async def _count(self, updater: TaskUpdater, _: str) -> None:
        for number in range(STEPS):
            await updater.start_work(_said(updater, f"tick {number}"))
            await updater.add_artifact(
                [new_text_part(f"{number} ")], "ticks", "ticks", append=number > 0, last_chunk=number == STEPS - 1
            )
        await updater.complete(_said(updater, "counted"))

    async def _files(self, updater: TaskUpdater, _: str) -> None:
        """Artifacts without ids of their own: the SDK makes random ones."""
        await updater.add_artifact([Part(raw=b"\x00\x01", media_type="image/png", filename="dot.png")], name="dot")
        data = Part(media_type="application/json")
        data.data.struct_value.update({"answer": 42, "list": [1, "two"]})
        await updater.add_artifact([data, Part(url="https://example.org/a.pdf")], name="facts", metadata={"seen": True})
        await updater.complete()

    async def _ask(self, updater: TaskUpdater, _: str) -> None:
        await updater.requires_input(_said(updater, "Which?"))

    async def _auth(self, updater: TaskUpdater, _: str) -> None:
        await updater.requires_auth(_said(updater, "Who?"))

    async def _answer(self, updater: TaskUpdater, text: str) -> None:
        """Tells what it was told of its task: its state, its question and what was said before."""
        task = self._context.current_task
        assert task is not None
        state = TaskState.Name(task.status.state)
        told = f"{text} to {state} {task.status.message.parts[0].text} after {task.history[0].parts[0].text}"
        await updater.add_artifact([new_text_part(told)], name="answer")
        await updater.complete()

    async def _fail(self, updater: TaskUpdater, _: str) -> None:
        await updater.failed(_said(updater, "Out of paper."))

    async def _reject(self, updater: TaskUpdater, _: str) -> None:
        await updater.reject(_said(updater, "Not my desk."))

    async def _raise(self, updater: TaskUpdater, _: str) -> None:
        await updater.start_work()
        raise RuntimeError("the ink is dry")

    async def _sleep(self, updater: TaskUpdater, _: str) -> None:
        await updater.start_work(_said(updater, "asleep"))
        await asyncio.Event().wait()

    async def _slow(self, updater: TaskUpdater, _: str) -> None:
        """One file whole, another half, under random ids, and then it waits at the gate."""
        await updater.add_artifact([new_text_part("whole")], name="first")
        await updater.add_artifact([new_text_part("half, ")], "second", "second")
        _note("waits")
        await asyncio.to_thread(_pass_gate)
        await updater.add_artifact([new_text_part("and half")], "second", append=True, last_chunk=True)
        await updater.complete(_said(updater, "done"))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()
        _note(f"canceled {context.task_id}")


def _pass_gate() -> None:
    while not Path(os.environ["GATE"]).exists():
        time.sleep(0.02)


def _said(updater: TaskUpdater, text: str):
    return updater.new_agent_message([new_text_part(text)])


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def card_at(url: str) -> AgentCard:
    return AgentCard(
        name="Clerk of Works",
        description="Does what the first word says.",
        version="2.1.0",
        supported_interfaces=[AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="work", name="Work", description="All kinds of work.", tags=["desk"])],
    )


def build(server: str, card: AgentCard):
    executor = Clerk()
    handler = DefaultRequestHandler(agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=card)
    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/"), *create_rest_routes(handler)]
    return Starlette(routes=routes) if server == "sdk" else durable(executor, card)


def main(server: str, port: str) -> None:
    listener = socket.create_server(("127.0.0.1", int(port)))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    _note(f"listens on {url}")
    config = uvicorn.Config(build(server, card_at(url)), log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
