"""`/api/agent2agent`: one endpoint for every action, and what has become of a task. Every answer is an envelope."""

from collections.abc import Callable

import msgspec
from starlette.types import Receive, Scope, Send

from parley.clock import iso, now_ms
from parley.core.params import NewConversation
from parley.core.results import ConversationBegun
from parley.engine.conversations import Conversations
from parley.errors import MethodNotAllowed, NotFound, ParamInvalid
from parley.faces.http import ClientGone, Headers, answer, header, read_json
from parley.faces.identity import demanded
from parley.faces.modes.calls import Calls, Reply
from parley.faces.modes.faults import headers_of, refusal_of
from parley.faces.modes.reading import check_media, decoded
from parley.faces.modes.showing import shown_conversation
from parley.faces.modes.stream import Streaming
from parley.faces.modes.tasks import Tasks
from parley.faces.modes.words import PREFIX, Envelope
from parley.faces.tracing import OTHER, ROUTE
from parley.ids import is_id, new_id

TASKS, BEGIN = "/conversations/{conversationId}/tasks", "/conversations"
TASK, STREAM, DOCUMENT = "/tasks/{taskId}", "/tasks/{taskId}/stream", "/openapi.json"
METHODS = {TASKS: "POST", BEGIN: "POST", TASK: "GET", STREAM: "GET", DOCUMENT: "GET"}

_new_conversation = msgspec.json.Decoder(NewConversation).decode


class Modes:
    def __init__(
        self, calls: Calls, conversations: Conversations, tasks: Tasks, streaming: Streaming,
        document: Callable[[], bytes], max_body: int,
    ) -> None:  # fmt: skip
        self._calls = calls
        self._conversations = conversations
        self._tasks = tasks
        self._streaming = streaming
        self._document = document
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        template, id_ = found(scope["path"].removeprefix(PREFIX))
        scope[ROUTE] = PREFIX + template if template else OTHER
        try:
            await self._answer(template, id_, scope, receive, send)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - the contract has an envelope for this too
            await refuse(send, error, headers_of(error), id_ if template in (TASK, STREAM) and is_id(id_) else "")

    async def _answer(self, template: str, id_: str, scope: Scope, receive: Receive, send: Send) -> None:
        check_method(template, scope["method"])
        if template == TASKS:
            reply = await self._calls.answer(scope, receive, id_)
        elif template == BEGIN:
            reply = await self._begin(scope, receive)
        elif template == TASK:
            reply = Reply(200, await self._tasks.read(demanded(scope, "read"), id_))
        elif template == STREAM:
            task = await self._tasks.find(demanded(scope, "read"), id_)
            stream = await self._streaming.open(task, header(scope, b"last-event-id"))
            return await stream.write(receive, send)
        else:
            return await answer(send, 200, self._document())
        return await answer(send, reply.status, reply.envelope, reply.headers)

    async def _begin(self, scope: Scope, receive: Receive) -> Reply:
        """A conversation that its owner names is begun once; asking again finds it."""
        principal = demanded(scope, "send")
        body = await read_json(receive, self._max_body)
        check_media(scope, body)
        asked = decoded(_new_conversation, body)
        if asked.id is not None and not is_id(asked.id):
            raise ParamInvalid("A conversation id has 1 to 128 letters, digits or ._:@/+=~-", field="id")
        if unable := self._calls.unable(principal, asked.agent_slug):
            raise unable
        before = await self._conversations.exists(principal, asked.id) if asked.id is not None else None
        begun = before or await self._conversations.begin(principal, asked.agent_slug, asked.id)
        shown, at = ConversationBegun(shown_conversation(begun)), iso(begun.started_at)
        return Reply(
            200 if before else 201, Envelope(new_id(), begun.id, "completed", at, result=shown, completed_at=at)
        )


def found(path: str) -> tuple[str, str]:
    """Which of our paths this is, and the id in it; ids may hold slashes. Two empty words if it is none."""
    if path.startswith("/conversations/") and path.endswith("/tasks") and len(path) > len("/conversations//tasks"):
        return TASKS, path[len("/conversations/") : -len("/tasks")]
    if path.startswith("/tasks/") and len(path) > len("/tasks/"):
        id_ = path[len("/tasks/") :]
        return (STREAM, id_[: -len("/stream")]) if id_.endswith("/stream") else (TASK, id_)
    return (path, "") if path in METHODS and "{" not in path else ("", "")


def check_method(template: str, method: str) -> None:
    if not template:
        raise NotFound("There is nothing at this path.")
    if method != METHODS[template]:
        raise MethodNotAllowed("This path takes other methods.", allow=METHODS[template])


async def refuse(send: Send, error: Exception, headers: Headers | None = None, task: str = "") -> None:
    """The envelope of something that was never begun, so that nothing is kept of it."""
    refusal, at = refusal_of(error), iso(now_ms())
    envelope = Envelope(task or new_id(), "", "failed", at, error=refusal.fault, completed_at=at)
    await answer(send, refusal.status, envelope, headers)
