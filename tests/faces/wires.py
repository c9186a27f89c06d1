"""The four ways to ask an agent in JSON, so that what must hold for all of them is written once."""

from typing import Any

import httpx2
from msgspec import Struct

Json = dict[str, Any]
HOOK = {"url": "http://127.0.0.1:9/hook", "id": "cfg"}


class Wire(Struct, frozen=True):
    """One binding of one version. `base` is the agent's path."""

    name: str
    base: str = "/agents/echo"

    async def ask(
        self, http: httpx2.AsyncClient, operation: str, task: str = "", headers: Json | None = None, **more: Any
    ) -> httpx2.Response:
        method, path, body = self.request(operation, task, **more)
        version = {"A2A-Version": "1.0"} if self.name.endswith("1.0") else {}
        return await http.request(method, path, json=body, headers={**version, **(headers or {})})

    def request(self, operation: str, task: str, text: str = "hello", id_: str = "m-1") -> tuple[str, str, Json | None]:
        match self.name:
            case "JSON-RPC 1.0":
                return self._rpc(*_new(operation, task, text, id_))
            case "JSON-RPC 0.3":
                return self._rpc(*_old(operation, task, text, id_))
            case "HTTP+JSON 1.0":
                return self._rest("", operation, task, {"message": _message(task, text, id_, "parts")}, HOOK)
            case _:
                given = {"config": {"pushNotificationConfig": HOOK}}
                return self._rest("/v1", operation, task, {"message": _message(task, text, id_, "content")}, given)

    def result(self, reply: httpx2.Response) -> Any:
        """Result of an operation, without the binding's envelope."""
        return reply.json()["result"] if self.name.startswith("JSON-RPC") else reply.json()

    def _rpc(self, method: str, params: Json) -> tuple[str, str, Json]:
        return "POST", self.base, {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}

    def _rest(self, prefix: str, operation: str, task: str, sent: Json, hook: Json) -> tuple[str, str, Json | None]:
        at = f"{self.base}{prefix}"
        hooks = f"{at}/tasks/{task}/pushNotificationConfigs"
        return {
            "send": ("POST", f"{at}/message:send", sent),
            "stream": ("POST", f"{at}/message:stream", sent),
            "get": ("GET", f"{at}/tasks/{task}", None),
            "list": ("GET", f"{at}/tasks", None),
            "cancel": ("POST", f"{at}/tasks/{task}:cancel", {}),
            "subscribe": ("POST", f"{at}/tasks/{task}:subscribe", None),
            "set_hook": ("POST", hooks, hook),
            "get_hook": ("GET", f"{hooks}/cfg", None),
            "list_hooks": ("GET", hooks, None),
            "delete_hook": ("DELETE", f"{hooks}/cfg", None),
        }[operation]


WIRES = [Wire(name) for name in ("JSON-RPC 1.0", "HTTP+JSON 1.0", "JSON-RPC 0.3", "HTTP+JSON 0.3")]
TASK_OPERATIONS = [
    "send", "stream", "get", "cancel", "subscribe", "set_hook", "get_hook", "list_hooks", "delete_hook",
]  # fmt: skip


def _message(task: str, text: str, id_: str, parts: str, **more: Any) -> Json:
    about = {"taskId": task} if task else {}
    return {"messageId": id_, "role": "ROLE_USER", parts: [{"text": text}], **about, **more}


def _new(operation: str, task: str, text: str, id_: str) -> tuple[str, Json]:
    ref: Json = {"taskId": task, "id": "cfg"}
    return {
        "send": ("SendMessage", {"message": _message(task, text, id_, "parts")}),
        "stream": ("SendStreamingMessage", {"message": _message(task, text, id_, "parts")}),
        "get": ("GetTask", {"id": task}),
        "list": ("ListTasks", {}),
        "cancel": ("CancelTask", {"id": task}),
        "subscribe": ("SubscribeToTask", {"id": task}),
        "set_hook": ("CreateTaskPushNotificationConfig", {"taskId": task, **HOOK}),
        "get_hook": ("GetTaskPushNotificationConfig", ref),
        "list_hooks": ("ListTaskPushNotificationConfigs", {"taskId": task}),
        "delete_hook": ("DeleteTaskPushNotificationConfig", ref),
    }[operation]


def _old(operation: str, task: str, text: str, id_: str) -> tuple[str, Json]:
    about = {"taskId": task} if task else {}
    part = {"kind": "text", "text": text}
    sent: Json = {"message": {"kind": "message", "messageId": id_, "role": "user", "parts": [part], **about}}
    ref: Json = {"id": task, "pushNotificationConfigId": "cfg"}
    config = "tasks/pushNotificationConfig"
    return {
        "send": ("message/send", sent),
        "stream": ("message/stream", sent),
        "get": ("tasks/get", {"id": task}),
        "cancel": ("tasks/cancel", {"id": task}),
        "subscribe": ("tasks/resubscribe", {"id": task}),
        "set_hook": (f"{config}/set", {"taskId": task, "pushNotificationConfig": HOOK}),
        "get_hook": (f"{config}/get", ref),
        "list_hooks": (f"{config}/list", {"id": task}),
        "delete_hook": (f"{config}/delete", ref),
    }[operation]
