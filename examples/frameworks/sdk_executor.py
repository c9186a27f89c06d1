"""An executor of the official A2A SDK at an A2A address: `parley serve sdk_executor.py`."""

from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types import AgentCard

from parley.compat import durable


class Echo(AgentExecutor):
    async def execute(self, context, event_queue):
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.add_artifact([new_text_part(context.get_user_input())], name="echo")
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


app = durable(Echo(), AgentCard(name="Echo", description="Says what you said.", version="1.0.0"))
