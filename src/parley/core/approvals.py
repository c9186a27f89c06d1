"""Tool calls that a person approves: which need it, what the person is shown, and what the approval is good for."""

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec
from msgspec import Struct

from parley.core.canonical import Fields, Json
from parley.errors import ApprovalRequired


class Approval(Struct, frozen=True):
    """A person's yes to one call: good for the tool and the input that have this digest, and for no others.

    `salt` is in memory only. It is used where the input holds a secret, which could be guessed from a digest without.
    """

    digest: str
    salt: str = ""


def needs_approval(patterns: Sequence[str], tool: str) -> bool:
    """Whether a tool (`server/tool`) is named by a pattern: as `server/tool`, `server` or `tool`, or by `*`."""
    return any(fnmatchcase(tool, one) or one in tool.split("/", 1) for one in patterns)


def approval_digest(tool: str, given: Json, salt: str = "") -> str:
    """Identifies a call by its tool and its exact input."""
    return hashlib.sha256(msgspec.json.encode([salt, tool, given], order="deterministic")).hexdigest()


def check_approval(approval: Approval | None, tool: str, given: Fields) -> None:
    """Refuse a call that nobody approved, or one that is not the call that was approved."""
    if approval is None or not approval.digest:
        raise ApprovalRequired(
            f"A person must approve each call of {tool}: ask its agent, and answer the agent's question.", tool=tool
        )
    if approval_digest(tool, given, approval.salt) != approval.digest:
        raise ApprovalRequired(f"The call of {tool} is not the one that was approved; ask for it again.", tool=tool)


def masked(given: Json, shown: Json, at: str = "") -> list[str]:
    """The places in an input whose values are shown otherwise than they are."""
    if isinstance(given, dict) and isinstance(shown, dict) and given.keys() == shown.keys():
        return [place for name in given for place in masked(given[name], shown[name], f"{at}.{name}" if at else name)]
    if isinstance(given, list) and isinstance(shown, list) and len(given) == len(shown):
        return [place for number, one in enumerate(given) for place in masked(one, shown[number], f"{at}[{number}]")]
    return [] if given == shown else [at or "input"]
