"""Whether a node has done what it should: the verification types of the workflow library."""

import re
from collections.abc import Callable

from parley.orgkernel.definitions import Node

_YES = re.compile(r"\s*(?:y|yes|ok|okay|approved?|confirm(?:ed)?|correct|done|lgtm|go(?: ahead| on)?|proceed)\b", re.I)
_NO = re.compile(r"\b(?:not?|but|except|however|don'?t|wrong|instead)\b", re.IGNORECASE)


def agreed(text: str) -> bool:
    """A plain yes; whoever adds a condition is taken to give guidance."""
    return _YES.match(text) is not None and _NO.search(text) is None


def refuted(node: Node, output: str, exit_code: int | None, reason: str, exists: Callable[[str], bool]) -> str:
    """Why the node did not succeed; empty when it did."""
    if reason:
        return reason
    if exit_code:
        return f"ended with exit code {exit_code}{_last_line(output)}"
    value = node.verify.value
    match node.verify.type:
        case "output_contains":
            return "" if value.lower() in output.lower() else f"the output does not contain {value!r}"
        case "output_not_contains":
            return f"the output contains {value!r}" if value.lower() in output.lower() else ""
        case "file_exists":
            return "" if exists(value) else f"there is no {value}"
        case "any_output":
            return "" if output.strip() else "there was no output"
        case "exit_code_zero" | "manual":
            return ""


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""
