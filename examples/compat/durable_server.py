"""The same agent, served by Parley: `python durable_server.py`, or `parley serve durable_server.py`."""

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill

from parley.compat import durable


class Greeter(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        if context.current_task is None:
            await updater.requires_input(updater.new_agent_message([new_text_part("Whom shall I greet?")]))
            return
        await updater.add_artifact([new_text_part(f"Hello, {context.get_user_input()}!")], name="greeting")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="Greeter",
    description="Asks for a name and greets it.",
    version="1.0.0",
    supported_interfaces=[
        AgentInterface(url="http://127.0.0.1:9999/", protocol_binding="JSONRPC", protocol_version="1.0")
    ],
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="greet", name="Greet", description="Greets whom you name.", tags=["hello"])],
)
executor = Greeter()
app = durable(executor, card)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=9999)
