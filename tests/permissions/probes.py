"""Requests for each id, and the owner's things that it could name. `ids.py` finds the ids; ids that belong to no caller
are listed here with the reason."""

import re
import uuid
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from parley.faces.a2a.jsonrpc import METHODS
from parley.faces.actions.table import ACTIONS, Action
from tests.faces.mcp.wire import call, modern, request
from tests.permissions.belongings import MODES
from tests.permissions.requests import MODERN_ONLY, PLACES, Asked, a2a_for
from tests.permissions.table import rule_for

Json = dict[str, Any]
Own = dict[str, str]

RUNS = (
    "task",
    "hidden task",
    "org task",
    "plan version",
    "execution",
    "orchestration",
    "export",
    "far task",
    "delegation",
    "run",
)
"""Whatever has a log, by whichever face it was made."""

CURSOR = "a place in a list, which is the caller's own list"
INSIDE = "named within what another id of the same request names, which is probed"
CREDENTIAL = "a credential itself; tests/permissions/test_credentials.py"
WORDS = "words, not an id"
PLAIN: dict[str, str] = {
    "messageId": "how the sender calls its message",
    "correlationId": "how the sender calls its request; not looked up",
    "message_id": "how the sender calls its message",
    "frame_id": "how the sender calls its frame",
    "event_id": "how a provider calls its event; nobody's, since providers speak for nobody",
    "integration_id": "kept as it is said; not looked up",
    "source_id": "kept as it is said; not looked up",
    "pageToken": CURSOR,
    "token": CREDENTIAL,
    "pairing_token": CREDENTIAL,
    "lease_id": INSIDE,
    "configId": INSIDE,
    "pushNotificationConfigId": INSIDE,
    "stepId": INSIDE,
    "expectedVersionId": INSIDE,
    "artifact": INSIDE,
    "part": INSIDE,
    "seq": INSIDE,
    "number": INSIDE,
    "kind": WORDS,
    "current_task": WORDS,
    "edition": WORDS,
    "rest": "whatever is not there",
    "user_id": "who the caller says to be, which has to be so",
}
PLAIN_AT: dict[tuple[str, str], str] = {
    ("002 plan.create", "taskId"): INSIDE,
    ("002 build.create", "taskId"): INSIDE,
    ("MCP tasks/result", "taskId"): "waits for the end of a task, which is found as by tasks/get",
    ("POST /agents/{slug}/agui", "id"): "how the sender calls its message",
    ("GET /agents/{slug}/agui/{run}", "slug"): INSIDE,
    ("POST /workspaces/{id}/activity", "target_id"): "kept as it is said; not looked up",
    ("POST /workspaces/{id}/delegate", "task"): WORDS,
    ("POST /workspaces/{id}/delegations/record", "task"): WORDS,
    ("DELETE /admin/sessions/{id:path}", "id"): "a session, which administrators alone see, whosever it is",
    ("GET /console/static/{edition}/{name}", "name"): "a file of ours, for everybody",
    ("GET /agent-runtimes/packages/{filename}", "filename"): "a file of ours, for everybody",
}

APART: dict[tuple[str, str], str] = {
    ("GET /registry/discover/{id}", "id"): "004: 403",
    ("POST /workspaces/{id}/a2a", "id"): "004: 403",
    ("GET /workspaces/{id}/a2a/.well-known/agent-card.json", "id"): "004: 403",
    ("GET /workspaces/{id}/a2a/.well-known/agent.json", "id"): "004: 403",
    ("POST /workspaces/{id}/delegate", "target_id"): "004: 403",
    ("POST /workspaces/{id}/delegations/record", "target_id"): "004: 403",
    ("POST /internal/v1/runs", "run_id"): "003: 409, an id that the caller chooses may be taken",
    ("POST /agents/{slug}/agui", "runId"): "AG-UI: 409, an id that the caller chooses may be taken",
}
"""Where a contract wants what one may not have told apart from what is not there. Each has a test of its own."""

BEGINS = (
    r"(RPC (Send|message/)|REST \S+ (send|stream)$|gRPC \S+/Send|MCP tools/call|POST /internal/v1/runs$|POST .*/agui$|"
    rf"POST {MODES}/conversations$|002 ({'|'.join(f'{one.mode}.{one.name}$' for one in ACTIONS if one.begins)}))"
)
"""Requests that start a conversation of the caller, with any id: it must not be one that later probes use."""

WHATS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (BEGINS, "contextId|conversation|conversationId|thread_id|threadId", ("spare",)),
    (rf"POST {MODES}/conversations$", "id", ("spare",)),
    (r"(RPC|REST|gRPC) ", "id|taskId", RUNS),
    (r"(RPC|REST|gRPC) ", "referenceTaskIds", ("referred",)),
    (r".*/agui", "run|interruptId|toolCallId", RUNS),
    (r".*/(runs|inbox)/\{id", "id", RUNS),
    (r".*/conversations/\{id", "id", ("conversation",)),
    (r".*/orchestrations/\{id", "id", ("orchestration", "task")),
    (r".* /task-runs/\{id", "id", ("far task", "task", "delegation")),
    (r".*/delegations/record", "delegation_id", ("twin",)),
    (r".*/delegations", "delegation", ("delegation", "recorded", "task")),
    (r".*/keys/\{id", "id", ("key",)),
    (r".*/(push|dead)/\{task", "id", ("hook",)),
    (r".*/api/exports", "id", ("export", "plan version")),
    (r".*/tokens/\{prefix", "prefix", ("prefix",)),
    (r".* /(workspaces|registry)", "id|workspace_id|caller_id|target_id|parent_id|parent", ("node",)),
    (r"", "task|taskId|run_id|task_run_ids?", RUNS),
    (r"", "conversation|conversationId", ("conversation", "context")),
    (r"", "contextId", ("context", "conversation")),
    (r"", "thread_id", ("thread",)),
    (r"", "versionIds?|sourceVersionId|planVersionId|version", ("plan version", "build version")),
    (r"", "executionId", ("execution",)),
    (r"", "orchestrationId", ("orchestration",)),
    (r"POST /agent-accounts", "agent", ("far agent",)),
    (r"", "slug|agent|agentSlug|name", ("agent",)),
)

_CARD: Json = {"name": "Top", "skills": [], "version": "1.0"}
BODIES: dict[str, Json] = {
    "POST /agents/{slug}/agui": {
        "threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}],
    },
    "POST /registry/register": {"url": "http://127.0.0.1:9001", "agent_card": _CARD},
    "POST /registry/update-card": {"agent_card": _CARD},
    "POST /workspaces": {"name": "new"},
    "PATCH /workspaces/{id}": {"role": "new"},
    "POST /workspaces/{id}/activity": {"activity_type": "task_update"},
    "POST /workspaces/{id}/a2a": {"method": "message/send", "params": {"message": {"role": "user", "parts": []}}},
    "POST /workspaces/{id}/delegations/{delegation}/update": {"status": "completed"},
    f"POST {MODES}/conversations": {"agentSlug": "writer"},
    "POST /internal/v1/runs": {"thread_id": "another", "agent": "echo"},
    "POST /internal/v1/runs/{run_id}/frames": {
        "thread_id": "another", "frame_id": "f", "type": "user.message", "payload": {"text": "hi"}
    },
    "POST /internal/v1/runs/{run_id}/cancel": {"thread_id": "another"},
    "POST /internal/v1/tools/execute": {"tool_pack": "coding.v1", "manifest": {}, "request": {}},
    "POST /task-runs/{id}/progress": {"text": "hi"},
    "POST /task-runs/{id}/artifacts": {"filename": "a.md", "content_text": "a"},
    "POST /task-runs/{id}/complete": {"output": {}},
    "POST /task-runs/{id}/fail": {"output": {}},
    "POST /task-runs/{id}/release": {},
}  # fmt: skip
"""Other members of a valid request."""
FORM = {"text": "hi", "kind": "plan", "content": "# Hi", "format": "markdown", "step": "a"}
QUERIES = {
    "GET /internal/v1/runs/{run_id}/snapshot": "?thread_id=another",
    "GET /internal/v1/runs/{run_id}/stream": "?thread_id=another",
    "GET /console/conversations/{id:path}/difference": f"?kind=plan&from={uuid.uuid4()}&to={uuid.uuid4()}",
    "GET /api/exports/{id}": "?name=a.md&exp=99999999999&sig=x",
}
FORMS: dict[str, str] = {
    "id": "GET /console/runs", "version": "POST …/set_current and the like", "from": "GET …/difference",
    "to": "GET …/difference", "owner": "GET /console/conversations/…", "agent": "POST /console/conversations",
    "other": "GET /console/runs/…/compare", "principal": "GET /console/runs", "conversation": "GET /console/runs",
    "key": "POST /console/conversations", "message": "POST …/resend", "thread_id": "/internal/v1",
    "caller": "for administrators", "target": "for administrators", "parent_id": "for administrators",
    "forwarded_to": "for administrators", "slug": "for administrators", "agents": "for administrators",
    "groups": "for administrators", "session": "for administrators",
}  # fmt: skip
"""The names in forms and queries that could be somebody's, and where they are asked about."""
FORM_WORDS = frozenset((
    "after", "at", "back", "before", "cascade", "content", "credential", "cursor", "days", "dead", "definition",
    "description", "done", "event", "exported", "fork", "format", "kind", "look", "name", "next", "notes", "q", "query",
    "reason", "refused", "removed", "role", "since", "state", "step", "tail_ms", "text", "theme", "type", "until",
    "url",
))  # fmt: skip


class Probe(Struct, frozen=True):
    """`ask` makes the request about an id, by somebody with these things of their own."""

    asked: str
    name: str
    whats: tuple[str, ...]
    ask: Callable[[str, Own], Asked]


def probe_for(asked: str, name: str) -> Probe | str | None:
    """The probe, or the reason why there is none; None for what nobody has thought about."""
    reason = PLAIN_AT.get((asked, name)) or PLAIN.get(name) or APART.get((asked, name))
    if reason is not None:
        return reason
    for place, names, whats in WHATS:
        if re.match(place, asked) and re.fullmatch(names, name):
            return Probe(asked, name, whats, lambda id_, own: _asking(asked, name, id_, own))
    return None


def _asking(asked: str, name: str, id_: str, own: Own) -> Asked:
    kind, _, rest = asked.partition(" ")
    match kind:
        case "RPC":
            dialect, operation = METHODS[rest]
            method, path, body = about(f"JSON-RPC {dialect.version}", operation, name, id_, own)
            return method, path, {**body, "method": rest}, {"A2A-Version": dialect.version}
        case "REST":
            version, _, operation = rest.partition(" ")
            return (*about(f"HTTP+JSON {version}", operation, name, id_, own), {"A2A-Version": version})
        case "002":
            return _acting(rest, name, id_, own)
        case "MCP":
            body = _mcp(rest, name, id_, own)
            return "POST", "/mcp", *(modern(body) if rest in MODERN_ONLY else (body, {"Accept": "application/json"}))
        case _:
            return _plainly(asked, name, id_, own)


def about(wire: str, operation: str, name: str, id_: str, own: Own) -> tuple[str, str, Any]:
    """A2A's: the task of a request, or another member of its message."""
    if name in ("id", "taskId"):
        return a2a_for(wire, operation, id_)
    task = "" if operation in ("send", "stream") else own.get("task") or str(uuid.uuid4())
    method, path, body = a2a_for(wire, operation, task)
    if name == "slug":
        return method, path.replace("/agents/echo", f"/agents/{id_}"), body
    if operation == "list":
        given = {"params": {**body["params"], name: id_}} if wire.startswith("JSON-RPC") else {}
        return method, path if given else f"{path}?{name}={id_}", {**body, **given} if given else body
    if operation == "fork":
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        return method, path, {**body, "message": message | {name: [id_] if name.endswith("s") else id_}}
    message = (body.get("params") or body)["message"]
    message[name] = [id_] if name.endswith("s") else id_
    return method, path, body


def params_for(action: Action, id_: str) -> Json:
    """A good request in which every id is this one."""
    given: Json = {
        "message": "Hi", "editedContent": "# Hi", "confirm": True, "deleteArtifacts": True,
        "toolName": "wild/echo", "input": {"text": "hi"},
        "format": "markdown", "mergePrompt": "Both", "config": {}, "versionId": id_, "sourceVersionId": id_,
        "versionIds": [id_, str(uuid.uuid4())], "executionId": id_, "orchestrationId": id_, "stepId": id_,
        "planVersionId": id_,
    }  # fmt: skip
    known = set(action.params.__struct_encode_fields__)
    return {name: value for name, value in given.items() if name in known}


def _acting(rest: str, name: str, id_: str, own: Own) -> Asked:
    action = next(one for one in ACTIONS if f"{one.mode}.{one.name}" == rest)
    agent = {"tool": "caller", "orchestrate": "two"}.get(action.mode, "writer")
    inside = name not in ("conversationId", "agentSlug")
    body = {"mode": action.mode, "action": action.name, "agentSlug": id_ if name == "agentSlug" else agent}
    body |= params_for(action, id_ if inside else str(uuid.uuid4()))
    conversation = id_ if name == "conversationId" else own.get("conversation") or str(uuid.uuid4())
    return "POST", f"{MODES}/conversations/{conversation}/tasks", body, {}


def _mcp(method: str, name: str, id_: str, own: Own) -> Json:
    if method == "tools/call":
        return call(id_, "hi") if name == "name" else call("echo", "hi", **{name: id_})
    if method.startswith("tasks/"):
        return request(method, taskId=id_, inputResponses={f"{id_}#0": {"action": "cancel"}})
    mine = own.get("conversation") or str(uuid.uuid4())
    uri = {
        "task": f"parley://tasks/{id_}", "conversation": f"parley://conversations/{id_}/plan",
        "version": f"parley://conversations/{mine}/plan/versions/{id_}",
    }[name]  # fmt: skip
    return request(method, uri=uri)


def _plainly(asked: str, name: str, id_: str, own: Own) -> Asked:
    method, _, path = asked.partition(" ")
    mine = own.get("node") or str(uuid.uuid4())
    nodes = path.startswith(("/workspaces", "/registry"))

    def placed(found: re.Match[str]) -> str:
        return id_ if found[1] == name else PLACES.get(found[1], mine if nodes else str(uuid.uuid4()))

    inside = f"{{{name}" in path
    at = re.sub(r"\{(\w+)(:\w+)?\}", placed, path) + QUERIES.get(asked, "")
    if method == "GET":
        return "GET", at if inside else f"{at}?{name}={id_}", None, {}
    if path.startswith("/console"):
        return method, at, {**FORM, "version": str(uuid.uuid4())}, {}
    return method, at, {**_told(asked, own), **({} if inside else _said(asked, name, id_, own))}, {}


def _told(asked: str, own: Own) -> Json:
    """The body without the id in question; whose body is never read has none."""
    rule = rule_for(asked)
    lease = {"lease_id": own["lease"]} if asked.startswith("POST /task-runs/") else {}
    return {**((rule.body if rule else None) or {}), **BODIES.get(asked, {}), **lease}


def _said(asked: str, name: str, id_: str, own: Own) -> Json:
    match asked, name:
        case "POST /registry/check-access", _:
            mine = own.get("node") or str(uuid.uuid4())
            return {"caller_id": mine, "target_id": mine, name: id_}
        case "POST /workspaces/{id}/delegations/record", "delegation_id":
            return {"target_id": own.get("near") or str(uuid.uuid4()), "task": "Sum", "delegation_id": id_}
        case "POST /agents/{slug}/agui", "interruptId":
            return {"runId": str(uuid.uuid4()), "resume": [{name: f"{id_}#3", "status": "resolved", "payload": "hi"}]}
        case "POST /agents/{slug}/agui", "toolCallId":
            result = {"id": "m", "role": "tool", name: f"{id_}#3", "content": "hi"}
            return {"runId": str(uuid.uuid4()), "messages": [result]}
        case "POST /agents/{slug}/agui", _:
            return {"runId": str(uuid.uuid4()), name: id_}
        case "POST /agent-runtimes/runtime/heartbeat", _:
            return {"task_runs": [{"task_run_id": id_, "lease_id": own["lease"]}]}
        case _:
            return {name: [id_] if name.endswith("ids") else id_}
