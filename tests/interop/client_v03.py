"""A program for a2a-sdk 0.3: talks to our agents with the client's defaults and prints what it got, as JSON.

Runs in an environment of its own, so it imports nothing of ours. Arguments: the server's address, the transport.
"""

import asyncio
import base64
import json
import sys
import uuid

from a2a.client import ClientConfig, ClientFactory
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)

PATIENCE_S = 40.0
ALL_BYTES = base64.b64encode(bytes(range(256))).decode()


class Asker:
    def __init__(self, url, transport):
        self.url, self.transport = url, transport

    async def client(self, agent, **config):
        settings = ClientConfig(supported_transports=[self.transport], **config)
        return await ClientFactory.connect(f"{self.url}/agents/{agent}", settings)

    async def send(self):
        client = await self.client("echo", streaming=False)
        ((task, _),) = [event async for event in client.send_message(said("hello"))]
        return {"state": task.status.state.value, "text": text_of(task.artifacts[0].parts)}

    async def stream(self):
        client = await self.client("writer")
        kinds, final, text = [], [], ""
        async for _, update in client.send_message(said("begin")):
            kinds.append(update.kind if update else "task")
            if kinds[-1] == "status-update":
                final.append(update.final)
            elif kinds[-1] == "artifact-update":
                # Read at once: the client adds later chunks to the object that it gave out for the first.
                text += text_of(update.artifact.parts)
        return {"first": kinds[0], "others": sorted(set(kinds[1:])), "final": final, "text": text}

    async def question(self):
        client = await self.client("writer")
        asked = [task async for task, _ in client.send_message(said("begin"))][-1]
        answered = [task async for task, _ in client.send_message(said("Ada", asked.id))][-1]
        found = await client.get_task(TaskQueryParams(id=asked.id))
        return {
            "asked": asked.status.state.value,
            "question": text_of(asked.status.message.parts),
            "answered": answered.status.state.value,
            "data": found.artifacts[1].parts[0].root.data,
            "contexts": len({asked.context_id, answered.context_id, *(one.context_id for one in found.history)}),
        }

    async def message(self):
        client = await self.client("greeter")
        (reply,) = [event async for event in client.send_message(said("Ada"))]
        return {"kind": reply.kind, "text": text_of(reply.parts)}

    async def polling(self):
        client = await self.client("sleeper", streaming=False, polling=True)
        ((task, _),) = [event async for event in client.send_message(said("zzz"))]
        return {"state": task.status.state.value}

    async def cancel(self):
        client = await self.client("sleeper")
        task = await begun(client)
        subscription = client.resubscribe(TaskIdParams(id=task))
        first = (await anext(subscription))[0]
        canceled = await client.cancel_task(TaskIdParams(id=task))
        rest = [task async for task, _ in subscription]
        return {
            "subscribed": first.id == task,
            "canceled": canceled.status.state.value,
            "seen": rest[-1].status.state.value,
        }

    async def silence(self):
        client = await self.client("quiet")
        streamed = [task async for task, _ in client.send_message(said("hush"))][-1]
        return {"text": text_of(streamed.status.message.parts)}

    async def silence_resubscribed(self):
        client = await self.client("quiet")
        task = await begun(client)
        followed = [task async for task, _ in client.resubscribe(TaskIdParams(id=task))][-1]
        return {"text": text_of(followed.status.message.parts)}

    async def push(self):
        client = await self.client("sleeper")
        task = await begun(client)
        authentication = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="secret")
        config = PushNotificationConfig(
            id="mine", url="http://127.0.0.1:9/hook", token="t", authentication=authentication
        )
        made = await client.set_task_callback(TaskPushNotificationConfig(task_id=task, push_notification_config=config))
        which = GetTaskPushNotificationConfigParams(id=task, push_notification_config_id="mine")
        found = await client.get_task_callback(which)
        return {
            "same": made == found,
            "task": found.task_id == task,
            "config": found.push_notification_config.model_dump(exclude_none=True),
        }

    async def files(self):
        client = await self.client("file")
        file = FileWithBytes(bytes=ALL_BYTES, mime_type="application/octet-stream", name="all.bin")
        sent = Message(message_id=str(uuid.uuid4()), role=Role.user, parts=[Part(root=FilePart(file=file))])
        streamed = [task async for task, _ in client.send_message(sent)][-1]
        found = await client.get_task(TaskQueryParams(id=streamed.id))
        back = [artifact.parts[0].root.file for artifact in (*streamed.artifacts, *found.artifacts)]
        return {
            "sent_back": [file.bytes == ALL_BYTES for file in back],
            "name": back[0].name,
            "media": back[0].mime_type,
            "history": found.history[0].parts[0].root.file.bytes == ALL_BYTES,
            "sizes": [len(base64.b64decode(file.bytes)) for file in back],
        }

    async def data(self):
        client = await self.client("file")
        sent = Message(
            message_id=str(uuid.uuid4()), role=Role.user, parts=[Part(root=DataPart(data={"deep": {"n": 1.5}}))]
        )
        task = [task async for task, _ in client.send_message(sent)][-1]
        return {"data": task.artifacts[0].parts[0].root.data}

    async def unknown(self):
        client = await self.client("echo")
        return await refused(client.get_task(TaskQueryParams(id=str(uuid.uuid4()))))

    async def ended(self):
        client = await self.client("echo")
        task = [task async for task, _ in client.send_message(said("hello"))][-1]
        return await refused(client.cancel_task(TaskIdParams(id=task.id)))


def said(text, task=None):
    parts = [Part(root=TextPart(text=text))]
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=parts, task_id=task)


def text_of(parts):
    return "".join(part.root.text for part in parts)


async def begun(client):
    steps = client.send_message(said("go"))
    task = (await anext(steps))[0].id
    await steps.aclose()
    return task


async def refused(call):
    try:
        await call
    except Exception as error:  # noqa: BLE001 - which one it is, is the result
        code = getattr(getattr(error, "error", None), "code", None) or getattr(error, "status_code", None)
        return {"error": type(error).__name__, "code": code}
    return {"error": None}


async def main(url, transport):
    asker = Asker(url, transport)
    scenarios = (
        asker.send, asker.stream, asker.question, asker.message, asker.polling, asker.cancel, asker.silence,
        asker.silence_resubscribed, asker.push, asker.files, asker.data, asker.unknown, asker.ended,
    )  # fmt: skip
    # One that does not end is then known by its name.
    begun = (asyncio.wait_for(scenario(), PATIENCE_S) for scenario in scenarios)
    results = await asyncio.gather(*begun, return_exceptions=True)
    told = {
        scenario.__name__: {"raised": repr(result)} if isinstance(result, BaseException) else result
        for scenario, result in zip(scenarios, results, strict=True)
    }
    print(json.dumps(told))


asyncio.run(main(*sys.argv[1:]))
