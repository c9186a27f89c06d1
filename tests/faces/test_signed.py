"""Requests signed as contract 003 says, at every face but its own."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.clock import now_ms
from parley.security.signatures import Claims, claims_for, sign
from tests.faces.test_identity import Caller, answer_of, calling

SECRET = "dev-runtime-signature-secret"
REQUEST = {
    "jsonrpc": "2.0", "id": 1, "method": "SendMessage",
    "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}},
}  # fmt: skip


def signed(secret: str = SECRET, claims: Claims | None = None, **claimed: Any) -> dict[str, str]:
    """The headers of one request, on behalf of whom it claims."""
    headers = {"X-OA-RUNTIME-SIGNATURE": sign(secret, claims or claims_for(now_ms(), **claimed))}
    if user := claimed.get("user_id"):
        headers["X-OA-User-Id"] = str(user)
    if guest := claimed.get("guest_scope"):
        headers["X-OA-Guest-Scope"] = guest
    return headers


def refusal(reply: httpx2.Response) -> tuple[int, str, str]:
    error = reply.json()["error"]
    return reply.status_code, error["details"][0]["reason"], error["message"]


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Caller]:
    async with calling(tmp_path / "data") as caller:
        yield caller


async def test_a_signed_request_is_made_on_behalf_of_a_user_or_a_guest(local: Caller) -> None:
    assert answer_of(await local.send(signed(user_id=42))) == "user:42: hello"
    assert answer_of(await local.send(signed(guest_scope="visitor"))) == "guest:visitor: hello"
    assert answer_of(await local.send(signed(user_id=42, guest_scope="visitor"))) == "user:42: hello"
    assert answer_of(await local.send({})) == "local: hello"


async def test_it_may_read_and_send_and_sees_its_own(local: Caller) -> None:
    task = (await local.send(signed(user_id=42))).json()["result"]["task"]["id"]
    path = f"/agents/echo/tasks/{task}"
    found = [await local("GET", path, {"A2A-Version": "1.0", **signed(user_id=user)}) for user in (42, 43)]
    assert [reply.status_code for reply in found] == [200, 404]
    who = (await local("GET", "/admin/whoami", signed(user_id=42))).json()
    assert (who["principal"], who["scopes"]) == ("user:42", ["read", "send"])
    assert (await local("GET", "/admin/keys", signed(user_id=42))).status_code == 403


@pytest.mark.parametrize(
    ("claimed", "changed", "expected"),
    [
        ({}, {}, (401, "UNAUTHENTICATED", "missing or invalid principal headers")),
        ({"user_id": 42}, {"X-OA-User-Id": "x"}, (401, "UNAUTHENTICATED", "missing or invalid principal headers")),
        ({"user_id": 42}, {"X-OA-User-Id": "43"}, (403, "CLAIM_MISMATCH", "claim mismatch for user_id")),
        ({}, {"X-OA-User-Id": "42"}, (403, "CLAIM_MISMATCH", "claim mismatch for user_id")),
        ({"guest_scope": "g"}, {"X-OA-Guest-Scope": "h"}, (403, "CLAIM_MISMATCH", "claim mismatch for guest_scope")),
        ({"user_id": 42}, {"X-OA-Guest-Scope": "g"}, (403, "CLAIM_MISMATCH", "claim mismatch for guest_scope")),
        ({"user_id": 42, "run_id": "r"}, {}, (403, "CLAIM_MISMATCH", "claim mismatch for run_id")),
        ({"user_id": 42, "thread_id": "t"}, {}, (403, "CLAIM_MISMATCH", "claim mismatch for thread_id")),
        (
            {"user_id": 42},
            {"X-OA-RUNTIME-SIGNATURE": ""},
            (401, "SIGNATURE_REFUSED", "missing runtime signature"),
        ),
        ({"user_id": 42}, {"X-OA-RUNTIME-SIGNATURE": "v1.x"}, (401, "SIGNATURE_REFUSED", "invalid token encoding")),
        ({"user_id": 42, "secret": "other"}, {}, (401, "SIGNATURE_REFUSED", "invalid token signature")),
        ({"user_id": 42}, {"X-OA-RUNTIME-KEY-ID": "k"}, (401, "SIGNATURE_REFUSED", "invalid token signature")),
        ({"user_id": 42, "ttl_s": 301}, {}, (401, "SIGNATURE_REFUSED", "invalid token claims")),
        ({"claims": Claims(1, 61, "n", user_id=42)}, {}, (401, "SIGNATURE_REFUSED", "token expired")),
        ({"user_id": 42}, {"X-OA-RUNTIME-BODY-SHA256": "0" * 64}, (401, "SIGNATURE_REFUSED", "body hash mismatch")),
    ],
    ids=str,
)
async def test_what_is_refused_and_in_which_words(
    local: Caller, claimed: dict[str, Any], changed: dict[str, str], expected: tuple[int, str, str]
) -> None:
    reply = await local.send({**signed(**claimed), **changed})
    assert refusal(reply) == expected
    assert ("www-authenticate" in reply.headers) == (expected[0] == 401)


async def test_a_token_is_good_for_one_request_and_a_refused_one_is_not_used_up(local: Caller) -> None:
    headers = signed(user_id=42)
    refused = [
        await local.send({**headers, "X-OA-User-Id": "43"}),
        await local.send({**headers, "X-OA-RUNTIME-BODY-SHA256": "0" * 64}),
        await local.send({"X-OA-RUNTIME-SIGNATURE": headers["X-OA-RUNTIME-SIGNATURE"]}),
    ]
    assert [reply.status_code for reply in refused] == [403, 401, 401]
    assert answer_of(await local.send(headers)) == "user:42: hello"
    assert refusal(await local.send(headers)) == (401, "SIGNATURE_REFUSED", "token nonce already used")


@pytest.mark.parametrize("size", [0, 300_000])
async def test_a_body_that_was_checked_is_still_read(local: Caller, size: int) -> None:
    body = json.dumps({**REQUEST, "pad": "x" * size}).encode()
    headers = {"A2A-Version": "1.0", "X-OA-RUNTIME-BODY-SHA256": hashlib.sha256(body).hexdigest().upper()}
    async with httpx2.AsyncClient() as http:
        reply = await http.post(
            f"{local.server.url}/agents/echo", headers={**headers, **signed(user_id=42)}, content=body
        )
    assert answer_of(reply) == "user:42: hello"


async def test_a_body_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    async with calling(tmp_path, max_body_bytes=1000) as ask:
        headers = {"X-OA-RUNTIME-BODY-SHA256": "0" * 64, **signed(user_id=42)}
        assert (await ask.send(headers, "x" * 5000)).status_code == 413


async def test_a_signed_stream(local: Caller) -> None:
    request = {**REQUEST, "method": "SendStreamingMessage"}
    body = json.dumps(request).encode()
    digest = {"X-OA-RUNTIME-BODY-SHA256": hashlib.sha256(body).hexdigest()}
    async with httpx2.AsyncClient() as http:
        reply = await http.post(
            f"{local.server.url}/agents/echo",
            headers={"A2A-Version": "1.0", **digest, **signed(user_id=42)},
            content=body,
        )
    assert "user:42: hello" in reply.text
    assert "TASK_STATE_COMPLETED" in reply.text


async def test_keys_are_the_operators_and_can_be_rotated(tmp_path: Path) -> None:
    async with calling(tmp_path, auth="required", runtime_keys={"old": "first", "new": "second"}) as ask:
        assert answer_of(await ask.send(signed("first", user_id=42))) == "user:42: hello"
        named = {**signed("second", user_id=42), "X-OA-RUNTIME-KEY-ID": "new"}
        assert answer_of(await ask.send(named)) == "user:42: hello"
        assert refusal(await ask.send(signed(user_id=42)))[2] == "invalid token signature"
        assert (await ask.send({"X-OA-User-Id": "42"})).status_code == 401


async def test_without_keys_a_server_that_others_can_reach_believes_no_signature(tmp_path: Path) -> None:
    async with calling(tmp_path, auth="required") as ask:
        assert refusal(await ask.send(signed(user_id=42)))[2] == "invalid token signature"


async def test_the_runtimes_paths_are_left_to_its_face(tmp_path: Path) -> None:
    async with calling(tmp_path / "required", auth="required") as ask:
        assert (await ask("GET", "/internal/v1/nothing")).json()["error"]["code"] != 401
        assert (await ask("GET", "/internal/v1", {"X-API-Key": "wrong"})).json()["error"]["code"] != 401
        for path in ("/internal/v1x", "/internal", "/internal/v2/health", "/x/internal/v1/health"):
            assert (await ask("GET", path)).json()["error"]["code"] == 401
    async with calling(tmp_path / "local") as ask:
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            refused = await ask("GET", "/internal/v1/health", headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "foreign_origin")


async def test_replicas_share_what_was_used(tmp_path: Path, database: str) -> None:
    stored = {"store": "postgres", "postgres_url": database}
    async with calling(tmp_path / "a", **stored) as here, calling(tmp_path / "b", **stored) as there:
        headers = signed(user_id=42)
        assert answer_of(await here.send(headers)) == "user:42: hello"
        assert refusal(await there.send(headers))[2] == "token nonce already used"


async def test_what_was_used_is_known_after_a_restart(tmp_path: Path) -> None:
    headers = signed(user_id=42)
    async with calling(tmp_path) as ask:
        assert answer_of(await ask.send(headers)) == "user:42: hello"
    async with calling(tmp_path) as ask:
        assert refusal(await ask.send(headers))[2] == "token nonce already used"
