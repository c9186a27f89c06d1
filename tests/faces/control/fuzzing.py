"""Hooks of schemathesis for the control plane (003): how to sign, and existing runs."""

import os
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import requests
import schemathesis

from parley.security.signatures import guest_scope_of, sign, user_id_of
from tests.faces.control.test_tools import example
from tests.faces.control.wire import SECRET, THREAD, claims_of

PREFIX = "/internal/v1"
USER = 42
RUNS = ("run_ended", "run_canceled", *(f"run_{number}" for number in range(6)))
"""Some of which have ended, the others wait for input."""
TAIL_MS = "5"
REACHED = "PARLEY_TEST_REACHED"
"""In the environment: a file for a line with each answer."""

_calls = count()


class Signed(requests.auth.AuthBase):
    """Signs what is really sent."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        body = request.body.encode() if isinstance(request.body, str) else request.body or b""
        user, guest = (_text(request.headers.get(name)) for name in ("x-oa-user-id", "x-oa-guest-scope"))
        path = (request.path_url or "").removeprefix(PREFIX)
        claims = claims_of(path, _object(body), user_id_of(user), guest_scope_of(guest))
        request.headers["X-OA-RUNTIME-SIGNATURE"] = sign(SECRET, claims)
        return request


def _text(value: str | bytes | None) -> str | None:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _object(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
    """Two of three requests are about a run that exists, on behalf of its owner."""
    number = next(_calls)
    if number % 3:
        about(case, RUNS[number // 2 % len(RUNS)])
    kwargs["auth"] = Signed()


def about(case: schemathesis.Case, run: str) -> None:
    if "run_id" in (case.path_parameters or {}):
        case.path_parameters["run_id"] = run
    if "thread_id" in (case.query or {}):
        case.query["thread_id"] = THREAD
    if isinstance(case.body, dict) and isinstance(case.body.get("thread_id"), str):
        case.body["thread_id"] = THREAD
    if isinstance(case.body, dict) and isinstance(case.body.get("manifest"), dict):
        case.body.update(example(mode="replay", run_id=run))
        case.body["request"]["run_id"] = run
    case.headers["x-oa-user-id"] = str(USER)
    if case.operation.path.endswith("/stream") and str(case.query.get("tail_ms", 1)).isdigit():
        case.query["tail_ms"] = TAIL_MS


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: schemathesis.Case, response: schemathesis.Response) -> None:
    if place := os.environ.get(REACHED):
        with Path(place).open("a") as reached:
            reached.write(f"{case.operation.definition.raw['operationId']} {response.status_code}\n")
