"""Agents as MCP tools (name, input, output), and tasks and documents as MCP resources."""

from datetime import UTC, datetime
from typing import Annotated, get_args
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec
from msgspec import Meta, Struct

from parley.documents.rules import Document, Kind
from parley.errors import Invalid, NotFound
from parley.faces.mcp.contents import Block, artifact_uri, media_of, resource_of, task_of, told
from parley.ids import is_id
from parley.runs.rules.access import Principal, demand, may_use
from parley.runs.rules.agents import Agent, Skill
from parley.runs.rules.state import Run
from parley.runs.service import Exchange
from parley.runs.store import Listing

_STATES = [
    "submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected",
]  # fmt: skip
_TEXT = {"type": "string"}
INPUT: dict[str, object] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "minLength": 1, "description": "Message to the agent."},
        "conversation": {
            "type": "string",
            "description": "The conversationId of an earlier result, to continue that conversation.",
        },
        "task": {
            "type": "string",
            "description": "The taskId of an earlier result with a question, to answer it.",
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}
OUTPUT: dict[str, object] = {
    "type": "object",
    "properties": {
        "taskId": _TEXT,
        "conversationId": _TEXT,
        "agent": _TEXT,
        "state": {"type": "string", "enum": _STATES},
        "text": {"type": "string", "description": "Answer of the agent."},
        "question": {"type": "string", "description": "Question of the agent, when the state is input-required."},
        "artifacts": {
            "type": "array",
            "description": "Artifacts of the task; each can be read as a resource.",
            "items": {
                "type": "object",
                "properties": {"artifactId": _TEXT, "name": _TEXT, "uri": _TEXT, "mimeType": _TEXT},
                "required": ["artifactId", "uri"],
            },
        },
    },
    "required": ["taskId", "conversationId", "agent", "state", "text", "artifacts"],
}


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    message: Annotated[str, Meta(min_length=1)]
    conversation: str | None = None
    task: str | None = None


def usable(exchange: Exchange, principal: Principal) -> list[Agent]:
    """Return the agents that a principal may use through MCP: all except those that require an A2A extension."""
    return [agent for agent in exchange.agents.values() if may_use(principal, agent) and not _needs_more(agent)]


def agent_of(exchange: Exchange, principal: Principal, name: str) -> Agent:
    agent = exchange.agents.get(name)
    if agent is None or not may_use(principal, agent) or _needs_more(agent):
        raise Invalid(f"Unknown tool: {name[:80]}", field="name")
    return agent


def tool_of(agent: Agent, *, tasks: bool = False) -> dict[str, object]:
    """Return an agent as a tool; with `tasks`, it says that its calls can be tasks."""
    shown: dict[str, object] = {
        "name": agent.slug,
        "title": agent.name,
        "description": _description(agent),
        "inputSchema": INPUT,
        "outputSchema": OUTPUT,
    }
    return shown | {"execution": {"taskSupport": "optional"}} if tasks else shown


def _needs_more(agent: Agent) -> bool:
    return any(extension.required for extension in agent.extensions)


def _description(agent: Agent) -> str:
    """Return the agent's description and its skills; skip skills whose description the agent's already contains."""
    skills = [_skill(one) for one in agent.skills if one.description not in agent.description]
    return "\n".join((agent.description, "", "Skills:", *skills)) if skills else agent.description


def _skill(skill: Skill) -> str:
    example = f" (for example: {skill.examples[0]})" if skill.examples else ""
    return f"- {skill.name}: {skill.description}{example}"


# Resources: documents of conversations and artifacts of tasks. Each principal can read only its own.

RECENT = 20
"""Number of documents, and of tasks whose artifacts are listed."""

TEMPLATES: list[Block] = [
    {
        "uriTemplate": "parley://tasks/{task}",
        "name": "task",
        "description": "A task: its state, the agent's answer, and its artifacts.",
        "mimeType": "application/json",
    },
    {
        "uriTemplate": "parley://tasks/{task}/artifacts/{artifact}{?part}",
        "name": "artifact",
        "description": "An artifact of a task: all its parts, or the part with this number, from 0.",
    },
    {
        "uriTemplate": "parley://conversations/{conversation}/{kind}",
        "name": "document",
        "description": "The current version of a conversation's plan or deliverable.",
    },
    {
        "uriTemplate": "parley://conversations/{conversation}/{kind}/versions/{version}",
        "name": "version",
        "description": "A version of a conversation's plan or deliverable.",
    },
]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_MEDIA = {
    "markdown": "text/markdown", "json": "application/json", "yaml": "application/yaml", "html": "text/html",
    "css": "text/css", "javascript": "text/javascript", "typescript": "text/x-typescript", "python": "text/x-python",
}  # fmt: skip


class Resources:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def recent(self, principal: Principal) -> list[Block]:
        demand(principal, "read")
        store = self._exchange.store
        documents = await store.library.documents(str(principal), RECENT)
        runs, _ = await store.list_runs(Listing(str(principal), limit=RECENT))
        return [*map(_document, documents), *[shown for run in runs for shown in await self._made(run)]]

    async def read(self, principal: Principal, uri: str) -> list[Block]:
        demand(principal, "read")
        try:
            contents = await self._read(principal, uri)
        except (NotFound, ValueError):
            # Do not reveal which part of the address is wrong to callers without access to the rest.
            contents = None
        if contents is None:
            raise NotFound("Resource not found.", uri=uri[:500])
        return contents

    async def _read(self, principal: Principal, uri: str) -> list[Block] | None:
        match _steps(uri):
            case ["tasks", task]:
                run = await self._exchange.visible(task, principal)
                shown = await task_of(self._exchange, await self._exchange.view(run.id))
                return [{"uri": uri, "mimeType": "application/json", "text": msgspec.json.encode(shown).decode()}]
            case ["tasks", task, "artifacts", artifact]:
                run = await self._exchange.visible(task, principal)
                return await self._artifact(run, artifact, uri)
            case ["conversations", conversation, kind] if kind in _KINDS:
                return await self._version(principal, conversation, kind, None, uri)
            case ["conversations", conversation, kind, "versions", version] if kind in _KINDS:
                return await self._version(principal, conversation, kind, version, uri)
            case _:
                return None

    async def _artifact(self, run: Run, id_: str, uri: str) -> list[Block] | None:
        made = next((one for one in (await self._exchange.view(run.id)).artifacts if one.id == id_), None)
        if made is None:
            return None
        made = await told(self._exchange.attachments, made)
        asked = parse_qs(urlsplit(uri).query).get("part")
        numbers = range(len(made.parts)) if asked is None else [int(asked[0])]
        parts = {number: made.parts[number] for number in numbers if 0 <= number < len(made.parts)}
        loaded = await self._exchange.attachments.loaded(tuple(parts.values()))
        shown = zip(parts, loaded, strict=True)
        return [resource_of(artifact_uri(run.id, made, number), part) for number, part in shown] or None

    async def _version(
        self, principal: Principal, conversation: str, kind: Kind, version: str | None, uri: str
    ) -> list[Block] | None:
        if not is_id(conversation) or not (version is None or is_id(version)):
            return None
        found = await self._exchange.store.library.find(str(principal), conversation, kind, version)
        if found is None or found.version is None:
            return None
        return [{"uri": uri, "mimeType": _MEDIA.get(found.version.format, "text/plain"), "text": found.content}]

    async def _made(self, run: Run) -> list[Block]:
        made = (await self._exchange.view(run.id)).artifacts
        shown: list[Block] = []
        for one in made:
            entry: Block = {
                "uri": artifact_uri(run.id, one),
                "name": one.name or one.id,
                "description": one.description or f"Made by {run.agent} in task {run.id}.",
                "annotations": _changed(run.updated_at),
            }
            media = media_of(one.parts[0]) if one.parts else None
            shown.append(entry | {"mimeType": media} if media else entry)
        return shown


def _steps(uri: str) -> list[str]:
    """Split an address into its unescaped segments; a slash in an id is escaped."""
    place = urlsplit(uri)
    if place.scheme != "parley" or not uri.startswith("parley://"):
        return []
    return [unquote(step) for step in (place.netloc, *place.path.split("/")[1:])]


def _document(document: Document) -> Block:
    return {
        "uri": f"parley://conversations/{quote(document.conversation, safe='')}/{document.kind}",
        "name": document.title or document.kind,
        "description": f"The {document.kind} of conversation {document.conversation}, "
        f"by {document.agent}; versions: {document.versions}.",
        "annotations": _changed(document.updated_at),
    }


def _changed(at: int) -> Block:
    return {"lastModified": datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds")}
