"""A server of a2a-sdk 0.3 with an agent that counts as far as it is told to, for clients that lose it on the way.

Runs in an environment of its own, so it imports nothing of ours. Argument: the port. `POST /steps/N` lets the agent
make N more steps and answers when it has made them; at the last step it completes the task. `GET /calls` answers how
often it was called by A2A. Asked to count `bare`, it
sends no task before its updates, as many agents do.
"""

import asyncio
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task
from starlette.responses import PlainTextResponse
from starlette.routing import Route

STEPS = 25


class Counter(AgentExecutor):
    def __init__(self):
        self.allowed = asyncio.Semaphore(0)
        self.made = asyncio.Queue()
        self.started = 0
        self.calls = 0

    async def execute(self, context, event_queue):
        task = context.current_task or new_task(context.message)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        if context.get_user_input() == "ask":
            await event_queue.enqueue_event(task)
            await updater.requires_input(updater.new_agent_message([Part(TextPart(text="How far?"))]), final=True)
            return
        self.started += 1
        if context.current_task is None and context.get_user_input() != "bare":
            await event_queue.enqueue_event(task)
        for number in range(STEPS):
            await self.allowed.acquire()
            await updater.start_work(updater.new_agent_message([Part(TextPart(text=f"tick {number}"))]))
            await updater.add_artifact(
                [Part(TextPart(text=f"{number} "))], artifact_id="ticks", append=number > 0,
                last_chunk=number == STEPS - 1,
            )  # fmt: skip
            self.made.put_nowait(number)
        await updater.complete(updater.new_agent_message([Part(TextPart(text="counted"))]))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def application(url):
    counter = Counter()
    card = AgentCard(
        name="Counter", description="Counts.", version="1.0.0", url=url, capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"], default_output_modes=["text/plain"],
        skills=[AgentSkill(id="count", name="Count", description="Counts.", tags=["numbers"])],
    )  # fmt: skip
    handler = DefaultRequestHandler(agent_executor=counter, task_store=InMemoryTaskStore())

    async def calls(request):
        return PlainTextResponse(str(counter.calls))

    async def steps(request):
        number = int(request.path_params["number"])
        for _ in range(number):
            counter.allowed.release()
        for _ in range(number):
            await counter.made.get()
        return PlainTextResponse(str(counter.started))

    app = A2AStarletteApplication(agent_card=card, http_handler=handler).build(
        routes=[Route("/steps/{number:int}", steps, methods=["POST"]), Route("/calls", calls)]
    )

    async def counted(scope, receive, send):
        counter.calls += scope.get("path") == "/" and scope["method"] == "POST"
        await app(scope, receive, send)

    return counted


if __name__ == "__main__":
    port = int(sys.argv[1])
    uvicorn.run(application(f"http://127.0.0.1:{port}/"), host="127.0.0.1", port=port, log_level="warning")
