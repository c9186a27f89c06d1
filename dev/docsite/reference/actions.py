"""The 33 actions of `/api/agent2agent`, from their one table."""

from typing import Any

import msgspec

from dev.docsite.reference.types import of_schema
from dev.docsite.reference.writing import code, sentence, table, whole
from parley.faces.actions.table import ACTIONS, COMMON, MODES, STATUSES, Action

_INTRODUCTION = f"""\
Modes, tasks, streams and what the codes mean are told in [plans and deliverables](../documents.md); this is every
action with what it takes and gives. Each is asked for by `POST
/api/agent2agent/conversations/{{conversationId}}/tasks` with `mode`, `action` and `agentSlug` beside its own
members; `metadata` may always be there. Any of them can answer {", ".join(code(one) for one in COMMON)}."""
_SHARED = ("agentSlug", "metadata")
_ANCHORS = "openapi.md"


def page() -> str:
    parts = [_INTRODUCTION]
    for mode in MODES:
        parts += [f"## {mode}", *(_action(action) for action in ACTIONS if action.mode == mode)]
    return whole(f"The {len(ACTIONS)} actions", *parts)


def _action(action: Action) -> str:
    facts = [
        f"Needs the agent's capability {code(action.capability)} and the scope {code(_scope(action))}.",
        "The agent works on it." if action.model else "Parley does it by itself.",
        "Starts the conversation if it does not exist." if action.begins else "",
    ]
    own = [f"{code(one)} ({STATUSES[one]})" for one in action.errors if one not in COMMON]
    codes = f"Codes of its own: {', '.join(own)}." if own else ""
    return "\n\n".join(
        filter(
            None,
            [
                f"### `{action.mode}` `{action.name}`",
                " ".join(filter(None, facts)),
                _params(action),
                _result(action),
                codes,
            ],
        )
    )


def _scope(action: Action) -> str:
    return "send" if action.changes else "read"


def _params(action: Action) -> str:
    schema = msgspec.json.schema(action.params, ref_template="#/{name}")
    own: dict[str, Any] = schema["$defs"][action.params.__name__] if "$defs" in schema else schema
    rows = [
        (
            code(name if name in own.get("required", ()) else f"{name}?"),
            _linked(of_schema(one)),
            sentence(one.get("description")),
        )
        for name, one in own["properties"].items()
        if name not in _SHARED
    ]
    return table(("parameter", "type", ""), rows) if rows else "It takes no parameters."


def _result(action: Action) -> str:
    name = action.result.__name__
    fields = ", ".join(code(one.encode_name) for one in msgspec.structs.fields(action.result))
    return f"`result` is a [{name}]({_ANCHORS}#{name.lower()}) ({fields}){', or null' if action.absent else ''}."


def _linked(words: str) -> str:
    return words.replace("](#", f"]({_ANCHORS}#")
