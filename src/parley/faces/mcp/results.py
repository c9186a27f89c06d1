"""What a call has led to, as the result of a tool."""

from collections.abc import Collection

from parley.core.artifacts import Artifact, text_of
from parley.core.runs import WAITING, State
from parley.core.views import View
from parley.engine.exchange import Exchange
from parley.errors import ParleyError
from parley.faces.mcp.contents import MOST_TEXT, Block, Room, artifact_uri, blocks_of, media_of, text_block, told

_NOTHING_SAID = {
    State.COMPLETED: "Done.",
    State.CANCELED: "The task was canceled.",
    State.INPUT_REQUIRED: "The agent waits for an answer.",
    State.AUTH_REQUIRED: "The agent waits to be authorised.",
}
_WRONG = frozenset((State.FAILED, State.CANCELED, State.REJECTED))


def state_of(view: View) -> str:
    return view.run.state.value.replace("_", "-")


async def result_of(exchange: Exchange, view: View, made: Collection[str] | None) -> Block:
    """`made` names the artifacts that came of this call; None stands for all of them."""
    run, room = view.run, Room()
    fresh = [await told(exchange.attachments, one) for one in view.artifacts if made is None or one.id in made]
    content: list[Block] = []
    for artifact in fresh:
        content += await blocks_of(exchange.attachments, run.id, artifact, room)
    said = await _said(exchange, view)
    if said or not content:
        content.append(text_block(room.cut(said or _NOTHING_SAID.get(run.state, run.state.value))))
    if run.state in WAITING:
        content.append(text_block(f'To answer, call {run.agent} again with "task": "{run.id}".'))
    return {
        "content": content,
        "structuredContent": structured(view, fresh, said),
        "isError": run.state in _WRONG,
    }


def structured(view: View, fresh: Collection[Artifact], said: str) -> Block:
    run = view.run
    words = [text for one in fresh if (text := _text(one))]
    if said and run.state not in WAITING:
        words.append(said)
    shown: Block = {
        "taskId": run.id,
        "conversationId": run.conversation,
        "agent": run.agent,
        "state": state_of(view),
        "text": "\n".join(words)[:MOST_TEXT],
        "artifacts": [_listed(run.id, one) for one in view.artifacts],
    }
    return shown | {"question": said[:MOST_TEXT]} if run.state in WAITING else shown


async def task_of(exchange: Exchange, view: View) -> Block:
    """The same of a task that nobody waits for."""
    made = [await told(exchange.attachments, one) for one in view.artifacts]
    return structured(view, made, await _said(exchange, view))


def refused(error: ParleyError) -> Block:
    """A call that cannot be made like this, for the model that made it: it can do better."""
    return {"content": [text_block(error.message)], "isError": True, "_meta": {"parley/code": error.code}}


async def _said(exchange: Exchange, view: View) -> str:
    said = view.reply or view.status.said
    return text_of(await exchange.attachments.loaded(said.parts)) if said is not None else ""


def _text(artifact: Artifact) -> str:
    return text_of(part for part in artifact.parts if part.filename is None)


def _listed(task: str, artifact: Artifact) -> Block:
    shown: Block = {"artifactId": artifact.id, "uri": artifact_uri(task, artifact)}
    if artifact.name:
        shown["name"] = artifact.name
    media = media_of(artifact.parts[0]) if artifact.parts else None
    return shown | {"mimeType": media} if media else shown
