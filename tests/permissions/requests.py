"""A line of the walk as a request, and the rule for it."""

import re
from typing import Any

from parley.faces.a2a.grpc import SERVICES
from parley.faces.a2a.jsonrpc import METHODS
from parley.ids import new_id
from tests.faces.mcp.wire import modern, request
from tests.faces.wires import Wire
from tests.permissions.table import OPERATIONS, Rule, rule_for

Asked = tuple[str, str, Any, dict[str, str]]
"""The method, the path, the body and the headers."""

MODERN_ONLY = ("server/discover", "subscriptions/listen", "tasks/update")
PLACES = {
    "slug": "echo",
    "agent": "far",
    "prefix": "nothing",
    "conversationId": "none",
    "seq": "1",
    "number": "0",
    "delegation": "none",
}
"""Values for path parameters; an id that is not listed here is unknown."""


def ruled(asked: str) -> Rule | None:
    """A2A's operations have one rule each, on whichever wire."""
    kind, _, rest = asked.partition(" ")
    if kind == "RPC":
        return Rule(OPERATIONS[METHODS[rest][1]])
    if kind == "REST":
        return Rule(OPERATIONS[rest.rpartition(" ")[2]])
    if kind == "gRPC":
        service, _, method = rest.rpartition("/")
        return Rule(OPERATIONS[SERVICES[service][1][method].operation])
    return rule_for(asked)


def request_for(asked: str, rule: Rule | None, node: str) -> Asked:
    kind, _, rest = asked.partition(" ")
    given = rule.body if rule else None
    match kind:
        case "MCP":
            body = request(rest, **(given or {}))
            plain = {"Accept": "application/json"}
            return ("POST", "/mcp", *modern(body)) if rest in MODERN_ONLY else ("POST", "/mcp", body, plain)
        case "002":
            mode, _, action = rest.partition(".")
            body = {"mode": mode, "action": action, "agentSlug": "echo"}
            return "POST", f"/api/agent2agent/conversations/{new_id()}/tasks", body, {}
        case "RPC":
            dialect, operation = METHODS[rest]
            version = {"A2A-Version": dialect.version}
            return (
                "POST",
                "/agents/echo",
                {**a2a_for("JSON-RPC " + dialect.version, operation)[2], "method": rest},
                version,
            )
        case "REST":
            version, _, operation = rest.partition(" ")
            return (*a2a_for(f"HTTP+JSON {version}", operation), {"A2A-Version": version})
        case _:
            own = rest.startswith(("/workspaces", "/registry"))
            path = re.sub(r"\{(\w+)(:\w+)?\}", lambda found: _place(found[1], node if own else new_id()), rest)
            accept = {"Accept": "text/event-stream"} if kind == "GET" and path.startswith("/mcp") else {}
            return "GET" if kind == "ANY" else kind, path, _filled(given, node), accept


def version_for(asked: str) -> tuple[str, str]:
    """The metadata by which a gRPC call says its version: that of its service."""
    service = asked.removeprefix("gRPC ").partition("/")[0]
    return "a2a-version", SERVICES[service][0].version


def _place(name: str, id_: str) -> str:
    return PLACES.get(name, id_)


def _filled(body: Any, node: str) -> Any:
    return {name: node if value == "{node}" else value for name, value in body.items()} if body else body


def a2a_for(wire: str, operation: str, task: str | None = None) -> tuple[str, str, Any]:
    base, task = "/agents/echo", task if task is not None else "" if operation in ("send", "stream") else new_id()
    if operation == "card":
        if wire.startswith("JSON-RPC"):
            return "POST", base, {"jsonrpc": "2.0", "id": 1}
        return "GET", f"{base}/extendedAgentCard" if wire.endswith("1.0") else f"{base}/v1/card", None
    if operation == "fork":
        return "POST", f"{base}/tasks/{task}:fork", {}
    return Wire(wire).request(operation, task)
