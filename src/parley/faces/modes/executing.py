"""The actions of the mode tool, handed to the engine's tool calls."""

import msgspec
from msgspec import Raw

from parley.clock import iso
from parley.core.access import Principal
from parley.core.canonical import Fields, Json, fields_of
from parley.core.documents import Assignment
from parley.core.params import ExecuteTool, ListExecutions, ReadExecution
from parley.core.results import Execution as Shown
from parley.core.results import ExecutionRead, Executions, ExecutionSummary, Names, ToolExecuted
from parley.core.runs import Run
from parley.engine.commands import Outcome
from parley.engine.conversations import Conversations
from parley.engine.toolcalls import Execution, Task, ToolCall, ToolCalls
from parley.errors import ConversationNotFound, ExecutionNotFound, ToolNotFound
from parley.faces.modes.reading import Call, decoded
from parley.faces.modes.rows import Offer, Read, Row, of
from parley.ids import is_id

DEFAULT_LIST = 50
SUMMARY = 200
"""So many characters of an input are shown in a list."""

_decode = msgspec.json.Decoder().decode


class ExecutionCalls:
    """Executions belong to a conversation, whichever of its agents they were asked of."""

    def __init__(self, tools: ToolCalls, conversations: Conversations) -> None:
        self._tools = tools
        self._conversations = conversations

    def offers(self) -> dict[Row, Offer]:
        return {
            ("tool", "execute"): Offer(self.execute, self.executed),
            ("tool", "read"): Offer(self.read),
            ("tool", "list"): Offer(self.list),
        }

    async def execute(self, call: Call) -> Outcome:
        await self._check(call)
        params, asking = of(call, ExecuteTool), call.asking
        given = fields_of(decoded(_decode, msgspec.json.encode(params.input)))
        asked = ToolCall(
            call.principal, call.conversation, params.agent_slug, params.tool_name, given, params.timeout_ms, call.key
        )  # fmt: skip
        try:
            return await self._tools.perform(asked, Task(Assignment(asking.mode, asking.action), asking.once))
        except ToolNotFound as error:
            raise ToolNotFound(error.message, tool=params.tool_name[:SUMMARY]) from None

    async def executed(self, run: Run, _: bytes) -> ToolExecuted | None:
        """Nothing if the execution was forgotten since."""
        found = await self._tools.read(Principal.parse(run.principal), run.conversation, run.id)
        if found is None:
            return None
        about = _names({"executionId": found.id, **found.metadata})
        return ToolExecuted(found.tool, _raw(found.output), found.execution_time_ms, about)

    async def read(self, call: Call) -> Read:
        await self._check(call)
        id_ = of(call, ReadExecution).execution_id
        found = await self._tools.read(call.principal, call.conversation, id_) if is_id(id_) else None
        if found is None:
            raise ExecutionNotFound("No tool call of this id has ended in this conversation.", execution=id_[:SUMMARY])
        return Read(ExecutionRead(_shown(found)))

    async def list(self, call: Call) -> Read:
        await self._check(call)
        params = of(call, ListExecutions)
        limit, offset = params.limit or DEFAULT_LIST, params.offset or 0
        found, total = await self._tools.list(call.principal, call.conversation, params.tool_name, limit, offset)
        return Read(Executions([_summary(one) for one in found], total, offset + limit < total))

    async def _check(self, call: Call) -> None:
        if await self._conversations.exists(call.principal, call.conversation) is None:
            raise ConversationNotFound("There is no such conversation.", conversation=call.conversation)


def _shown(one: Execution) -> Shown:
    about: Fields = {"executionTimeMs": one.execution_time_ms, **one.metadata}
    if one.status == "failed":
        about["error"] = {"code": one.code, "message": one.message}
    return Shown(
        one.id, one.tool, _raw(one.input), _raw(one.output), one.status, iso(one.executed_at), _names(about)
    )  # fmt: skip


def _summary(one: Execution) -> ExecutionSummary:
    said = msgspec.json.encode(one.input).decode()
    said = said if len(said) <= SUMMARY else f"{said[: SUMMARY - 1]}…"
    return ExecutionSummary(one.id, one.tool, said, one.status, iso(one.executed_at), one.execution_time_ms)


def _names(fields: Fields) -> Names:
    return {name: _raw(one) for name, one in fields.items()}


def _raw(value: Json) -> Raw:
    return Raw(msgspec.json.encode(value))
