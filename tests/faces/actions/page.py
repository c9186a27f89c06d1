"""The tables of docs/documents.md, made from the code: `python -m tests.faces.actions.page` prints them."""

import msgspec
from msgspec import NODEFAULT

from parley.faces.actions.table import ACTIONS, COMMON, STATUSES, Action

OFFERED = ("plan", "build", "converse", "tool", "orchestrate")


def action_rows() -> list[str]:
    return [_row(action) for action in ACTIONS]


def code_rows() -> list[str]:
    return [f"| `{code}` | {status} |" for code, status in STATUSES.items()]


def _row(action: Action) -> str:
    named = [
        f"`{field.encode_name}`" if field.default is NODEFAULT else f"`{field.encode_name}?`"
        for field in msgspec.structs.fields(action.params)
        if field.name not in ("agent_slug", "metadata")
    ]
    own = [f"`{code}`" for code in action.errors if code not in COMMON]
    done = "" if action.mode not in OFFERED else "the agent" if action.model else "Parley"
    cells = (f"`{action.mode}`", f"`{action.name}`", f"`{action.capability}`", done, ", ".join(named), ", ".join(own))
    return f"| {' | '.join(cells)} |".replace("  ", " ")


if __name__ == "__main__":
    print("\n".join([*action_rows(), "", *code_rows()]))
