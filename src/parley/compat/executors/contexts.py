"""What an executor is told: a turn of ours in the words of the SDK."""

from a2a.auth.user import User
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as pb

from parley.core.access import Principal
from parley.core.artifacts import Artifact
from parley.core.conversations import Message
from parley.core.runs import Run, State
from parley.core.views import Said
from parley.drivers.remote.protos import metadata_out, part_out, state_out
from parley.engine.turns import Turn


class _Caller(User):
    """Whoever asks; our server has made sure of it."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return str(self._principal)


async def context_of(turn: Turn, place: int) -> RequestContext:
    """Of one of the inputs of a turn. A first turn that is taken up again is a first turn: the executor begins anew."""
    message = await _message(turn, turn.inputs[place])
    task = await _task(turn, place) if turn.number > 1 or place else None
    return RequestContext(
        _call(turn.principal, {"run": turn.run_id, "turn": turn.number, "attempt": turn.attempt}),
        pb.SendMessageRequest(message=message), turn.run_id, turn.conversation, task,
    )  # fmt: skip


def cancel_context_of(run: Run) -> RequestContext:
    task = pb.Task(id=run.id, context_id=run.conversation, status=pb.TaskStatus(state=state_out(run.state)))
    return RequestContext(_call(Principal.parse(run.principal), {"run": run.id}), None, run.id, run.conversation, task)


def _call(principal: Principal, about: dict[str, object]) -> ServerCallContext:
    return ServerCallContext(user=_Caller(principal), state={"parley": about})


async def _message(turn: Turn, message: Message) -> pb.Message:
    return pb.Message(
        message_id=message.id, role=pb.Role.ROLE_USER, task_id=turn.run_id, context_id=turn.conversation,
        parts=[part_out(part) for part in await turn.loaded(message.parts)],
        metadata=metadata_out(message.metadata), extensions=message.extensions, reference_task_ids=message.references,
    )  # fmt: skip


async def _task(turn: Turn, place: int) -> pb.Task:
    """The task as it was before this input: it waits with its question, if it asked one."""
    unread = {message.id for message in turn.inputs[place:]}
    before = [said for said in turn.history if said.role != "user" or said.id not in unread]
    asked = turn.question if not place else None
    status = pb.TaskStatus(state=state_out(State(asked) if asked else State.WORKING))
    if asked and before and before[-1].role == "agent":
        status.message.CopyFrom(await _said(turn, before.pop()))
    return pb.Task(
        id=turn.run_id, context_id=turn.conversation, status=status, history=[await _said(turn, one) for one in before],
        artifacts=[await _made(turn, one) for one in turn.artifacts],
    )  # fmt: skip


async def _said(turn: Turn, said: Said) -> pb.Message:
    return pb.Message(
        message_id=said.id, role=pb.Role.ROLE_USER if said.role == "user" else pb.Role.ROLE_AGENT,
        task_id=turn.run_id, context_id=turn.conversation,
        parts=[part_out(part) for part in await turn.loaded(said.parts)],
        metadata=metadata_out(said.metadata), extensions=said.extensions, reference_task_ids=said.references,
    )  # fmt: skip


async def _made(turn: Turn, artifact: Artifact) -> pb.Artifact:
    return pb.Artifact(
        artifact_id=artifact.id, name=artifact.name or "", description=artifact.description or "",
        parts=[part_out(part) for part in await turn.loaded(artifact.parts)],
        metadata=metadata_out(artifact.metadata),
    )  # fmt: skip
