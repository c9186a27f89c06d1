"""The permission table: which callers may use which operation. `walk.py` finds all operations, and a line here lists
the callers that may use one. All others are refused, in the error format of the face.

A new route needs one line: the failure of `test_everything_has_a_rule` prints it; add the callers that may use it.
"""

from typing import Any

from msgspec import Struct

from parley.faces.actions.table import ACTIONS

Json = dict[str, Any]

COLUMNS = (
    "nobody", "reader", "user", "oidc", "signed", "guest", "runtime", "node", "pair", "operator", "admin", "local",
    "anonymous",
)  # fmt: skip
"""nobody: no credentials, where they are needed. reader, user, operator, admin: API keys with these roles. oidc: a
token of the issuer. signed, guest: signatures of contract 003, for a user and for a guest. runtime: the token of a
paired runtime (000). node, pair: a node's own token and one for a pair (004). local, anonymous: no credentials, where
none are needed (auth = local, auth = none)."""
STRANGERS = frozenset(("nobody", "runtime", "node", "pair"))
"""Whom most faces do not know: 401. Whom they know and refuse: 403."""

KNOWN = frozenset(COLUMNS) - STRANGERS
EVERYONE = frozenset(COLUMNS)
"""Where credentials are not looked at."""
PUBLIC = KNOWN | {"nobody"}
"""Operations without credentials. Invalid credentials are refused there too."""
SENDERS = KNOWN - {"reader"}
ADMINS = frozenset(("admin", "local"))
OPERATORS = ADMINS | {"operator"}
SIGNED = frozenset(("signed", "guest"))
RUNTIMES = frozenset(("runtime",))
NODES = frozenset(("node",))
NO_ONE: frozenset[str] = frozenset()


class Rule(Struct, frozen=True):
    """`body` may hold `{node}`; `refused` is the status for whoever is refused otherwise than with 401 as a stranger
    and 403 as somebody known."""

    who: frozenset[str]
    body: Any = None
    refused: int | None = None
    spends: bool = False
    """True if the node's token may be invalid afterwards."""


def rule_for(asked: str) -> Rule | None:
    found = TABLE.get(asked)
    return found if found is None or isinstance(found, Rule) else Rule(found)


_CARD: Json = {"name": "Top", "skills": [], "version": "1.0"}
_OWN: Json = {"id": "{node}", "url": "http://127.0.0.1:9001", "agent_card": _CARD}
_BEAT: Json = {"workspace_id": "{node}"}

TABLE: dict[str, Rule | frozenset[str]] = {
    # The server itself
    "GET /": PUBLIC,
    "GET /docs": PUBLIC,
    "GET /healthz": PUBLIC,
    "GET /readyz": PUBLIC,
    "GET /metrics": OPERATORS,
    "GET /.well-known/ai-catalog.json": PUBLIC,
    "GET /.well-known/jwks.json": PUBLIC,
    "GET /.well-known/parley-sign-in": PUBLIC,
    "GET /.well-known/agent-card.json": PUBLIC,
    "GET /.well-known/agent.json": PUBLIC,
    "GET /agents/{slug}": PUBLIC,
    "GET /agents/{slug}/.well-known/agent-card.json": PUBLIC,
    "GET /agents/{slug}/.well-known/agent.json": PUBLIC,
    "GET /agents/{slug}/tasks/{task}/artifacts/{artifact}": KNOWN,
    # AG-UI
    "POST /agents/{slug}/agui": Rule(SENDERS, {}),
    "GET /agents/{slug}/agui/{run}": KNOWN,
    # For operators
    "GET /admin/whoami": KNOWN,
    "GET /admin/keys": ADMINS,
    "POST /admin/keys": Rule(ADMINS, {}),
    "DELETE /admin/keys/{id}": ADMINS,
    "GET /admin/sessions": ADMINS,
    "DELETE /admin/sessions/{id:path}": ADMINS,
    "POST /admin/signing/rotate": ADMINS,
    "GET /admin/agents": OPERATORS,
    "GET /admin/push": OPERATORS,
    "POST /admin/push/{task}/{id:path}/redrive": OPERATORS,
    "GET /admin/deliveries": OPERATORS,
    "GET /admin/runs": OPERATORS,
    "GET /admin/usage": OPERATORS,
    "GET /admin/groups": OPERATORS,
    "GET /admin/audit": ADMINS,
    "GET /admin/stops": OPERATORS,
    "POST /admin/stops": Rule(OPERATORS, {}),
    "DELETE /admin/stops/{kind}/{name:path}": OPERATORS,
    "GET /admin/limits": KNOWN,
    "PUT /admin/limits/{kind}/{name:path}": Rule(ADMINS, {}),
    "DELETE /admin/limits/{kind}/{name:path}": ADMINS,
    "POST /admin/audit/erase": Rule(ADMINS, {}),
    "POST /admin/agents/{slug}/pairing": ADMINS,
    "GET /admin/agents/{slug}/runtime": ADMINS,
    "DELETE /admin/agents/{slug}/runtime": ADMINS,
    # 000: paired runtimes; the code of a pairing is a credential itself
    "POST /agent-runtimes/runtime/attach-via-pairing": Rule(NO_ONE, {"pairing_token": "0000-0000"}, 401),
    "POST /agent-runtimes/runtime/heartbeat": Rule(RUNTIMES, {}, 401),
    "POST /agent-runtimes/runtime/control": Rule(RUNTIMES, {}, 401),
    "POST /agent-runtimes/runtime/detach": Rule(RUNTIMES, {}, 401),
    "GET /agent-runtimes/runtime/status": Rule(RUNTIMES, None, 401),
    "POST /agent-accounts/{agent}/task-runs/pull": Rule(RUNTIMES, {}, 401),
    "POST /task-runs/{id}/progress": Rule(RUNTIMES, {}, 401),
    "POST /task-runs/{id}/artifacts": Rule(RUNTIMES, {}, 401),
    "POST /task-runs/{id}/complete": Rule(RUNTIMES, {}, 401),
    "POST /task-runs/{id}/fail": Rule(RUNTIMES, {}, 401),
    "POST /task-runs/{id}/release": Rule(RUNTIMES, {}, 401),
    "GET /agent-runtimes/openapi.json": EVERYONE,
    "GET /agent-runtimes/packages/simple/": EVERYONE,
    "GET /agent-runtimes/packages/simple/parley-edge/": EVERYONE,
    "GET /agent-runtimes/packages/{filename}": EVERYONE,
    # 002: modes and actions; a link to an export is a credential itself
    "POST /api/agent2agent/conversations": Rule(SENDERS, {"agentSlug": "echo"}),
    "GET /api/agent2agent/tasks/{taskId}": KNOWN,
    "GET /api/agent2agent/tasks/{taskId}/stream": KNOWN,
    "GET /api/agent2agent/openapi.json": KNOWN,
    "GET /api/exports/{id}": NO_ONE,
    # 003: the control plane
    "GET /internal/v1/health": Rule(SIGNED, None, 401),
    "GET /internal/v1/openapi.json": Rule(SIGNED, None, 401),
    "POST /internal/v1/runs": Rule(SIGNED, {}, 401),
    "GET /internal/v1/runs/{run_id}/snapshot": Rule(SIGNED, None, 401),
    "POST /internal/v1/runs/{run_id}/frames": Rule(SIGNED, {}, 401),
    "GET /internal/v1/runs/{run_id}/stream": Rule(SIGNED, None, 401),
    "POST /internal/v1/runs/{run_id}/cancel": Rule(SIGNED, {}, 401),
    "POST /internal/v1/comms/delivery-events": Rule(SIGNED, {}, 401),
    "POST /internal/v1/tools/execute": Rule(SIGNED, {}, 401),
    # 004: nodes. Who may register and beat is decided by the node's token alone.
    "POST /registry/register": Rule(NODES, _OWN, 401),
    "POST /registry/heartbeat": Rule(NODES, _BEAT, 401),
    "POST /registry/update-card": Rule(NODES | ADMINS, {**_BEAT, "agent_card": _CARD}),
    "GET /registry/discover/{id}": KNOWN | NODES,
    "GET /registry/{id}/peers": KNOWN | NODES,
    "POST /registry/check-access": Rule(KNOWN | NODES, {"caller_id": "{node}", "target_id": "{node}"}),
    "POST /registry/introspect": Rule(KNOWN | NODES, {"token": "x"}),
    "POST /workspaces": Rule(ADMINS, {}),
    "GET /workspaces": ADMINS,
    "GET /workspaces/{id}": KNOWN | NODES,
    "PATCH /workspaces/{id}": Rule(ADMINS, {}),
    "DELETE /workspaces/{id}": ADMINS,
    "GET /workspaces/{id}/hierarchy": NODES | ADMINS,
    "GET /workspaces/{id}/tokens": NODES | ADMINS,
    "POST /workspaces/{id}/tokens": ADMINS,
    "DELETE /workspaces/{id}/tokens": Rule(NODES | ADMINS, spends=True),
    "DELETE /workspaces/{id}/tokens/{prefix}": NODES | ADMINS,
    "GET /workspaces/{id}/activity": NODES | ADMINS,
    "POST /workspaces/{id}/activity": Rule(NODES | ADMINS, {}),
    "GET /workspaces/events/stream": NODES | ADMINS,
    "GET /workspaces/{id}/events/stream": NODES | ADMINS,
    "POST /workspaces/{id}/a2a": Rule(SENDERS | NODES, {}),
    "GET /workspaces/{id}/a2a/.well-known/agent-card.json": KNOWN | NODES,
    "GET /workspaces/{id}/a2a/.well-known/agent.json": KNOWN | NODES,
    "POST /workspaces/{id}/delegate": Rule(NODES | ADMINS, {}),
    "GET /workspaces/{id}/delegations": NODES | ADMINS,
    "POST /workspaces/{id}/delegations/record": Rule(NODES | ADMINS, {}),
    "GET /workspaces/{id}/delegations/{delegation}": NODES | ADMINS,
    "POST /workspaces/{id}/delegations/{delegation}/update": Rule(NODES | ADMINS, {}),
    "POST /workspaces/{id}/delegations/{delegation}/cancel": NODES | ADMINS,
    # The console, which leads whoever is not known to its login
    "GET /console/static/{edition}/{name}": PUBLIC,
    "GET /console": PUBLIC,
    "GET /console/": PUBLIC,
    "GET /console/login": PUBLIC,
    "POST /console/login": PUBLIC,
    "GET /console/login/provider": PUBLIC,
    "GET /console/login/callback": PUBLIC,
    "POST /console/logout": PUBLIC,
    "POST /console/theme": PUBLIC,
    "ANY /console/{rest:path}": PUBLIC,
    "GET /console/docs": PUBLIC,
    "GET /console/docs/actions": KNOWN,
    "GET /console/docs/runtime": KNOWN,
    "GET /console/docs/runtimes": PUBLIC,
    "GET /console/inbox": KNOWN,
    "GET /console/inbox/live": KNOWN,
    "GET /console/inbox/count": KNOWN,
    "GET /console/inbox/{id:path}/outcome": KNOWN,
    "GET /console/runs": KNOWN,
    "GET /console/runs/live": KNOWN,
    "POST /console/runs/cancel": SENDERS,
    "POST /console/runs/retry": SENDERS,
    "GET /console/runs/{id:path}/events": KNOWN,
    "GET /console/runs/{id:path}/raw": KNOWN,
    "GET /console/runs/{id:path}/timeline": KNOWN,
    "GET /console/runs/{id:path}/parts/{seq:int}/{number:int}": KNOWN,
    "GET /console/runs/{id:path}/text/{artifact:path}": KNOWN,
    "POST /console/runs/{id:path}/answer": SENDERS,
    "POST /console/runs/{id:path}/cancel": SENDERS,
    "POST /console/runs/{id:path}/fork": SENDERS,
    "POST /console/runs/{id:path}/retry": SENDERS,
    "GET /console/runs/{id:path}/bars": KNOWN,
    "GET /console/runs/{id:path}/compare": KNOWN,
    "GET /console/runs/{id:path}": KNOWN,
    "GET /console/usage": KNOWN,
    "GET /console/usage.csv": KNOWN,
    "GET /console/agents": KNOWN,
    "GET /console/agents/new": ADMINS,
    "POST /console/agents/new/card": ADMINS,
    "POST /console/agents/new/definition": ADMINS,
    "POST /console/agents/new/pairing": ADMINS,
    "POST /console/agents/{slug}/remove": ADMINS,
    "GET /console/agents/{slug}/pairing": ADMINS,
    "POST /console/agents/{slug}/pairing": ADMINS,
    "GET /console/agents/{slug}/pairing/state": ADMINS,
    "POST /console/agents/{slug}/pairing/revoke": ADMINS,
    "POST /console/agents/{slug}/try": SENDERS,
    "GET /console/agents/{slug}": KNOWN,
    "GET /console/conversations": KNOWN,
    "POST /console/conversations": SENDERS,
    "GET /console/conversations/{id:path}/difference": KNOWN,
    "POST /console/conversations/{id:path}/create": SENDERS,
    "POST /console/conversations/{id:path}/edit": SENDERS,
    "POST /console/conversations/{id:path}/set_current": SENDERS,
    "POST /console/conversations/{id:path}/copy_version": SENDERS,
    "POST /console/conversations/{id:path}/delete_version": SENDERS,
    "POST /console/conversations/{id:path}/merge_versions": SENDERS,
    "POST /console/conversations/{id:path}/rerun": SENDERS,
    "POST /console/conversations/{id:path}/export": SENDERS,
    "POST /console/conversations/{id:path}/say": SENDERS,
    "POST /console/conversations/{id:path}/resend": SENDERS,
    "GET /console/conversations/{id:path}": KNOWN,
    "GET /console/orchestrations": KNOWN,
    "POST /console/orchestrations": SENDERS,
    "GET /console/orchestrations/{id:path}/events": KNOWN,
    "POST /console/orchestrations/{id:path}/rerun": SENDERS,
    "POST /console/orchestrations/{id:path}/pause": SENDERS,
    "POST /console/orchestrations/{id:path}/resume": SENDERS,
    "POST /console/orchestrations/{id:path}/cancel": SENDERS,
    "POST /console/orchestrations/{id:path}/retry": SENDERS,
    "GET /console/orchestrations/{id:path}": KNOWN,
    "GET /console/organisation": KNOWN,
    "GET /console/organisation/{slug}/now": KNOWN,
    "GET /console/organisation/{slug}": KNOWN,
    "GET /console/limits": KNOWN,
    "POST /console/limits": ADMINS,
    "POST /console/limits/remove": ADMINS,
    "POST /console/stops": OPERATORS,
    "POST /console/stops/remove": OPERATORS,
    "GET /console/topology": ADMINS,
    "GET /console/topology/tree": ADMINS,
    "GET /console/topology/access": ADMINS,
    "GET /console/topology/events": ADMINS,
    "GET /console/operations": ADMINS,
    "GET /console/operations/dead": ADMINS,
    "GET /console/operations/audit": ADMINS,
    "GET /console/operations/sessions": ADMINS,
    "POST /console/operations/sessions/revoke": ADMINS,
    "GET /console/operations/keys": ADMINS,
    "GET /console/operations/settings": ADMINS,
    "POST /console/operations/dead/{task}/{id:path}/redrive": ADMINS,
    "POST /console/operations/keys": ADMINS,
    "POST /console/operations/keys/{id}/revoke": ADMINS,
    # MCP
    "GET /mcp": KNOWN,
    "GET /mcp/": KNOWN,
    "DELETE /mcp": KNOWN,
    "DELETE /mcp/": KNOWN,
    "POST /mcp": Rule(KNOWN, {}),
    "POST /mcp/": Rule(KNOWN, {}),
    "MCP initialize": Rule(KNOWN, {"protocolVersion": "2025-11-25"}),
    "MCP ping": Rule(KNOWN, {}),
    "MCP server/discover": Rule(KNOWN, {}),
    "MCP tools/list": Rule(KNOWN, {}),
    "MCP tasks/get": Rule(KNOWN, {"taskId": "none"}),
    "MCP tasks/result": Rule(KNOWN, {"taskId": "none"}),
    "MCP tasks/list": KNOWN,
    "MCP tasks/cancel": Rule(SENDERS, {"taskId": "none"}),
    "MCP tasks/update": Rule(SENDERS, {"taskId": "none", "inputResponses": {}}),
    "MCP tools/call": Rule(SENDERS, {"name": "echo", "arguments": {"message": "hi"}}),
    "MCP resources/list": Rule(KNOWN, {}),
    "MCP resources/templates/list": Rule(KNOWN, {}),
    "MCP resources/read": Rule(KNOWN, {"uri": "parley://tasks/none"}),
    "MCP subscriptions/listen": Rule(KNOWN, {}),
    # 002's actions: the right to send for what changes something
    **{f"002 {one.mode}.{one.name}": SENDERS if one.changes else KNOWN for one in ACTIONS},
}

OPERATIONS: dict[str, frozenset[str]] = {
    "send": SENDERS, "stream": SENDERS, "get": KNOWN, "list": KNOWN, "cancel": SENDERS, "subscribe": KNOWN,
    "set_hook": SENDERS, "get_hook": KNOWN, "list_hooks": KNOWN, "delete_hook": SENDERS, "card": KNOWN,
    "fork": SENDERS,
}  # fmt: skip
"""A2A's, on every wire."""
