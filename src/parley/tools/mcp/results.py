"""What a tool said, as a value."""

from typing import Any, cast

import msgspec
from mcp_types import CallToolResult

from parley.core.canonical import Fields, Json
from parley.tools.mcp.faults import Fault, Flooded

MAX_WORDS = 2_000
"""How much of what a tool says about its failure is passed on."""


class Refused(Fault):
    """The tool, or its server, says that it failed. That is no sign of illness."""

    code = "tool_error"
    ill = False


class TooLarge(Flooded):
    ill = False


def output_of(result: CallToolResult, most: int) -> Json:
    """The value that the tool gives; a text that is JSON is taken for what it says."""
    if result.is_error:
        raise Refused(_text(result)[:MAX_WORDS] or "The tool failed and did not say why.")
    value = _value(result)
    if (size := len(msgspec.json.encode(value))) > most:
        raise TooLarge(f"The tool's answer has {size:,} bytes; at most {most:,} are taken.")
    return value


def _value(result: CallToolResult) -> Json:
    if result.structured_content is not None:
        return cast(Json, result.structured_content)
    blocks = [_block(one) for one in result.content]
    if len(blocks) == 1 and isinstance(text := blocks[0].get("text"), str):
        return _parsed(text)
    return cast(Json, blocks)


def _block(content: Any) -> Fields:
    return content.model_dump(mode="json", by_alias=True, exclude_none=True)


def _parsed(text: str) -> Json:
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text


def _text(result: CallToolResult) -> str:
    found = [getattr(one, "text", "") for one in result.content]
    return "\n".join(text for text in found if isinstance(text, str) and text)
