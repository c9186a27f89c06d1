"""Interpret a local agent's answer by the rules of the paired-runtime contract (000). Pure functions."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from parley_edge.json_values import Json, as_list, as_object

MAX_CONTENT = 1024 * 1024
MAX_ERROR = 16 * 1024
_WRITES = ("artifacts", "artifact_writes")
_REF = ("artifact_id", "filename", "title", "mime_type", "artifact_type", "summary")
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True, slots=True)
class Write:
    """Request to store one file on the platform, in wire format."""

    request: Json


@dataclass(frozen=True, slots=True)
class Completed:
    output: Json
    writes: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    error: str
    code: str = ""

    @property
    def output(self) -> Json:
        return {"error": self.error} | ({"code": self.code} if self.code else {})


Result = Completed | Failed

ARTIFACT_WRITE_FAILED = "ARTIFACT_WRITE_FAILED"
NOT_JSON = Failed("The local agent did not answer with JSON.", "ADAPTER_NOT_JSON")
NOT_AN_OBJECT = Failed("The local agent did not answer with a JSON object.", "ADAPTER_NOT_AN_OBJECT")


def invalid(what: str) -> Failed:
    return Failed(f"invalid adapter response: {what}", "INVALID_ADAPTER_RESPONSE")


class _Unfit(Exception):
    """An artifact that cannot be written."""


def read(status: int, body: bytes) -> Result:
    """Interpret a complete answer of the local agent."""
    if not 200 <= status < 300:
        return Failed(f"The local agent answered with status {status}.", "ADAPTER_HTTP_STATUS")
    try:
        answer = json.loads(body, parse_constant=_no_constant)
        said = as_object(answer)
        return NOT_AN_OBJECT if said is None else meaning(said)
    except (ValueError, RecursionError):
        return NOT_JSON


def meaning(answer: Json) -> Result:
    """Interpret an envelope, or the direct form: an object without `success`."""
    if "success" not in answer:
        return _completed(answer)
    match answer["success"]:
        case True:
            output = as_object(answer.get("output"))
            return invalid("success without an output") if output is None else _completed(output)
        case False:
            return Failed(_reason(answer.get("error")))
        case _:
            return invalid("success is neither true nor false")


def _reason(error: object) -> str:
    """The agent's error text; any other value as JSON."""
    if error is None or error == "":
        return "The local agent failed and gave no reason."
    return (error if isinstance(error, str) else json.dumps(error, ensure_ascii=False))[:MAX_ERROR]


def _completed(output: Json) -> Result:
    if as_list(output.get("parts", [])) is None:
        return invalid("parts is not a list")
    try:
        writes = tuple(_write(one) for one in _requests(output))
    except _Unfit as unfit:
        return Failed(f"{ARTIFACT_WRITE_FAILED}: {unfit}", ARTIFACT_WRITE_FAILED)
    return Completed(cast(Json, _stripped({key: value for key, value in output.items() if key not in _WRITES})), writes)


def _requests(output: Json) -> list[Any]:
    found: list[Any] = []
    for name in _WRITES:
        given = as_list([] if output.get(name) is None else output[name])
        if given is None:
            raise _Unfit(f"{name} is not a list")
        found.extend(given)
    return found


def _write(given: Any) -> Write:
    """The request that the contract specifies, with defaults for fields that the agent left out."""
    one = as_object(given)
    if one is None:
        raise _Unfit("an artifact is not an object")
    filename, content = checked_filename(one.get("filename")), one.get("content_text")
    if not isinstance(content, str):
        raise _Unfit(f"{filename} has no content_text")
    if len(content.encode("utf-8", "replace")) > MAX_CONTENT:
        raise _Unfit(f"{filename} is larger than {MAX_CONTENT} bytes")
    return Write(
        {
            "artifact_type": _text(one, "artifact_type", "file"),
            "filename": filename,
            "title": _text(one, "title", filename.rpartition("/")[2]),
            "summary": _text(one, "summary", ""),
            "keywords": _keywords(one.get("keywords"), filename),
            "mime_type": _text(one, "mime_type", "") or _guessed(filename),
            "content_text": content,
        }
    )


def _text(one: Json, name: str, usual: str) -> str:
    value = one.get(name)
    if value is not None and not isinstance(value, str):
        raise _Unfit(f"{name} of an artifact is not a text")
    return value or usual


def _keywords(value: Any, filename: str) -> list[str]:
    words = as_list([] if value is None else value)
    if words is None or not all(isinstance(word, str) for word in words):
        raise _Unfit(f"keywords of {filename} are not a list of texts")
    return words


def _guessed(filename: str) -> str:
    from mimetypes import guess_type

    return guess_type(filename, strict=False)[0] or "text/plain"


def checked_filename(name: object) -> str:
    """Check a file name: relative, inside its folder, and valid on every system."""
    if not isinstance(name, str) or not name or len(name) > 1024:
        raise _Unfit("an artifact has no filename, or one that is too long")
    steps = name.split("/")
    if "\\" in name or _DRIVE.match(name) or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        raise _Unfit("a filename contains characters that are not allowed")
    if any(step in ("", ".", "..") for step in steps):
        raise _Unfit("a filename must be relative, without '..'")
    return name


def _stripped(value: Any) -> Any:
    """A copy without any `content_text` at any depth: the contract forbids it in results."""
    if (said := as_object(value)) is not None:
        return {key: _stripped(one) for key, one in said.items() if key != "content_text"}
    if (listed := as_list(value)) is not None:
        return [_stripped(one) for one in listed]
    return value


def with_refs(output: Json, written: Sequence[Json]) -> Json:
    """The output with references to its stored files, as `parts` and as `artifact_refs`: readers look at either."""
    if not written:
        return output
    refs = [{name: one[name] for name in _REF if name in one} for one in written]
    parts = [*output.get("parts", []), *({"type": "artifact_ref", **ref} for ref in refs)]
    return {**output, "parts": parts, "artifact_refs": [*(as_list(output.get("artifact_refs")) or []), *refs]}


def write_failed(filename: str, reason: str) -> Failed:
    return Failed(f"{ARTIFACT_WRITE_FAILED}: {filename} could not be written: {reason}", ARTIFACT_WRITE_FAILED)


def _no_constant(name: str) -> None:
    """Refuse NaN and infinities, which Python accepts but JSON does not have."""
    raise ValueError(name)
