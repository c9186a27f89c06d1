"""The credential of contract 003: the format, the order of the checks, and every message."""

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import ClaimMismatch, Forbidden, SignatureRefused, Unauthenticated
from parley.runs.rules.access import Principal
from parley.security.signatures import Carried, Claims, Signatures, claims_for, principal_of, sign
from parley.stores.memory import MemoryStore

SECRET = "dev-runtime-signature-secret"
IAT = 1771500000
NOW = IAT * 1000
VECTOR = Claims(IAT, IAT + 60, "nonce-1", "run_123", "thread_abc", 42)
TOKEN = (
    "v1.eyJpYXQiOjE3NzE1MDAwMDAsImV4cCI6MTc3MTUwMDA2MCwibm9uY2UiOiJub25jZS0xIiwicnVuX2lkIjoicnVuXzEyMyIsInRocmVhZF9pZCI6"
    "InRocmVhZF9hYmMiLCJ1c2VyX2lkIjo0Mn0.N8wDGmmbeuwZKlGaHOK4KhiGddX22hmN6LMWkVB5VAI"
)


def signatures(now: int = NOW, **keys: str) -> Signatures:
    return Signatures(keys or {"runtime-v1": SECRET}, MemoryStore(), lambda: now)


def base64url(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def signed(content: bytes, secret: str = SECRET) -> str:
    """A token over any bytes at all."""
    segment = base64url(content)
    mac = hmac.new(secret.encode(), segment.encode(), hashlib.sha256).digest()
    return f"v1.{segment}.{base64url(mac)}"


def token_of(**claims: Any) -> str:
    return signed(json.dumps({"iat": IAT, "exp": IAT + 60, "nonce": "n", **claims}).encode())


def refused(check: Callable[[], object]) -> str:
    with pytest.raises(SignatureRefused) as error:
        check()
    assert isinstance(error.value, Unauthenticated)
    return error.value.message


def test_the_contracts_vector() -> None:
    assert sign(SECRET, VECTOR) == TOKEN
    assert signatures().check(TOKEN) == VECTOR
    assert signatures().check(TOKEN, "runtime-v1") == VECTOR


@pytest.mark.parametrize("token", [None, ""])
def test_a_request_without_a_token(token: str | None) -> None:
    assert refused(lambda: signatures().check(token)) == "missing runtime signature"


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "v1",
        "v1.a",
        "v1..",
        "...",
        TOKEN + ".x",
        TOKEN.replace("v1.", "v2.", 1),
        TOKEN.replace("v1.", ".", 1),
        TOKEN + "=",
        TOKEN + "\n",
        " " + TOKEN,
        TOKEN.replace("0Mn0.", "0Mn0=.", 1),
        TOKEN.replace(".N8", ".+8", 1),
        TOKEN.replace(".N8", ".é8", 1),
        # The last character of a MAC has two bits that mean nothing: they must be zero.
        TOKEN[:-1] + "J",
        "v1." + "A" * 10_000 + ".A",
        signed(b""),
        signed(b"{"),
        signed(b'{"iat":1}x'),
        signed(b'"\xff"'),
        signed(b"[" * 3000),
        signed(b'{"nonce":"\\ud800"}'),
    ],
    ids=lambda token: token[:24],
)
def test_what_is_no_token(token: str) -> None:
    assert refused(lambda: signatures().check(token)) == "invalid token encoding"


def test_a_token_is_decoded_before_its_signature_is_checked() -> None:
    assert refused(lambda: signatures().check(signed(b"{", "other"))) == "invalid token encoding"
    assert refused(lambda: signatures().check(signed(b"[]", "other"))) == "invalid token signature"


@pytest.mark.parametrize("token", [sign("other", VECTOR), TOKEN[:-2] + "ZI", TOKEN.rpartition(".")[0] + "."])
def test_a_token_that_we_did_not_sign(token: str) -> None:
    assert refused(lambda: signatures().check(token)) == "invalid token signature"


@pytest.mark.parametrize(
    "token",
    [
        signed(b"[]"),
        signed(b"null"),
        signed(b"1"),
        signed(b'"x"'),
        signed(b"{}"),
        token_of(iat="1"),
        token_of(iat=None),
        token_of(iat=True),
        token_of(iat=float(IAT)),
        token_of(exp=float(IAT + 60)),
        token_of(exp="x"),
        token_of(nonce=""),
        token_of(nonce=None),
        token_of(nonce=7),
        token_of(nonce="n" * 257),
        token_of(exp=IAT),
        token_of(exp=IAT - 1),
        token_of(exp=IAT + 301),
        token_of(iat=-(10**40), exp=10**40),
        token_of(run_id=1),
        token_of(thread_id=[]),
        token_of(user_id="42"),
        token_of(user_id=True),
        token_of(guest_scope={}),
    ],
)
def test_claims_that_cannot_be(token: str) -> None:
    assert refused(lambda: signatures().check(token)) == "invalid token claims"


def test_claims_that_just_can_be() -> None:
    check = signatures().check
    assert check(token_of(nonce="n" * 256)).nonce == "n" * 256
    assert check(token_of(exp=IAT + 300)).exp == IAT + 300
    assert check(token_of(run_id=None, user_id=None)).run_id is None
    assert check(token_of(iss="somebody", nbf=1)).nonce == "n"


@pytest.mark.parametrize(("at", "held"), [(59_999, True), (60_000, False), (10**12, False)])
def test_a_token_expires(at: int, held: bool) -> None:
    checks = signatures(NOW + at)
    if held:
        assert checks.check(TOKEN) == VECTOR
    else:
        assert refused(lambda: checks.check(TOKEN)) == "token expired"


def test_a_token_of_the_future() -> None:
    assert signatures(NOW - 30_000).check(TOKEN) == VECTOR
    assert refused(lambda: signatures(NOW - 30_001).check(TOKEN)) == "token issued in the future"


def test_how_long_a_token_may_live_is_up_to_the_server() -> None:
    strict = Signatures({"k": SECRET}, MemoryStore(), lambda: NOW, max_ttl_s=59)
    assert refused(lambda: strict.check(TOKEN)) == "invalid token claims"


def test_keys_are_rotated_by_accepting_several() -> None:
    checks = signatures(old=SECRET, new="other")
    for secret, key_id in ((SECRET, "old"), ("other", "new"), (SECRET, None), ("other", None)):
        assert checks.check(sign(secret, VECTOR), key_id) == VECTOR
    for secret, key_id in ((SECRET, "new"), ("other", "old"), (SECRET, "runtime-v1"), (SECRET, "")):
        assert refused(lambda s=secret, k=key_id: checks.check(sign(s, VECTOR), k)) == "invalid token signature"


def test_without_keys_nothing_verifies() -> None:
    checks = Signatures({}, MemoryStore(), lambda: NOW)
    for secret in (SECRET, ""):
        assert refused(lambda s=secret: checks.check(sign(s, VECTOR))) == "invalid token signature"


def test_a_secret_may_be_bytes() -> None:
    assert Signatures({"k": b"\xff\x00"}, MemoryStore(), lambda: NOW).check(sign(b"\xff\x00", VECTOR)) == VECTOR


def test_a_digest_that_is_sent_must_be_the_bodys() -> None:
    checks, digest = signatures(), hashlib.sha256(b"body").hexdigest()
    for sent in (None, digest, digest.upper(), f" {digest} "):
        checks.check_body(sent, b"body")
    for sent in ("", "x", "é", digest[:-1], hashlib.sha256(b"other").hexdigest()):
        assert refused(lambda s=sent: checks.check_body(s, b"body")) == "body hash mismatch"


@pytest.mark.parametrize(
    ("carried", "claim"),
    [
        (Carried(run_ids=("other",)), "run_id"),
        (Carried(run_ids=("run_123", "other")), "run_id"),
        (Carried(run_ids=("run_123",), thread_ids=("thread_abc", "other")), "thread_id"),
        (Carried(run_ids=("run_123",), thread_ids=("other",), user_id=7), "thread_id"),
        (Carried(user_id=7), "user_id"),
        (Carried(user_id=0), "user_id"),
        (Carried(user_id=42, guest_scope="guest"), "guest_scope"),
        (Carried(guest_scope=""), "guest_scope"),
    ],
)
def test_what_is_carried_must_be_claimed(carried: Carried, claim: str) -> None:
    with pytest.raises(ClaimMismatch) as error:
        signatures().bind(VECTOR, carried)
    assert isinstance(error.value, Forbidden)
    assert error.value.message == f"claim mismatch for {claim}"


def test_what_is_carried_and_not_claimed_is_a_mismatch_too() -> None:
    bare = Claims(IAT, IAT + 60, "n")
    for carried in (Carried(("r",)), Carried((), ("t",)), Carried(user_id=1), Carried(guest_scope="g")):
        with pytest.raises(ClaimMismatch):
            signatures().bind(bare, carried)
    signatures().bind(bare, Carried())


def test_what_is_claimed_need_not_be_carried() -> None:
    signatures().bind(VECTOR, Carried())
    signatures().bind(VECTOR, Carried(("run_123", "run_123"), ("thread_abc",), 42))


async def test_a_nonce_is_good_once_and_kept_until_the_token_expires() -> None:
    nonces = MemoryStore()
    checks = Signatures({"k": SECRET}, nonces, lambda: NOW)
    await checks.claim_nonce(VECTOR)
    with pytest.raises(SignatureRefused, match=r"^token nonce already used$"):
        await checks.claim_nonce(VECTOR)
    assert await nonces.forget_nonces(VECTOR.exp * 1000) == 0
    assert await nonces.forget_nonces(VECTOR.exp * 1000 + 1) == 1


def test_claims_for_one_request() -> None:
    one, other = (claims_for(NOW + 999, run_id="r", user_id=7) for _ in range(2))
    assert (one.iat, one.exp, one.run_id, one.user_id, one.thread_id) == (IAT, IAT + 60, "r", 7, None)
    assert one.nonce.startswith("nonce-")
    assert one.nonce != other.nonce
    assert claims_for(NOW, 10, thread_id="t", guest_scope="g").exp == IAT + 10
    assert signatures().check(sign(SECRET, one)) == one


@pytest.mark.parametrize(
    ("user", "guest", "principal"),
    [
        ("42", None, "user:42"),
        (" 042 ", None, "user:42"),
        ("42", "scope", "user:42"),
        ("0", "scope", "user:0"),
        ("x", "scope", "guest:scope"),
        ("4 2", "scope", "guest:scope"),
        ("4_2", "scope", "guest:scope"),
        ("٤", "scope", "guest:scope"),
        ("9" * 19, "scope", "guest:scope"),
        ("", "scope", "guest:scope"),
        (None, "scope", "guest:scope"),
        ("x", None, None),
        (None, "", None),
        (None, " ", None),
        (None, None, None),
    ],
)
def test_on_whose_behalf(user: str | None, guest: str | None, principal: str | None) -> None:
    found = principal_of(user, guest)
    assert found == (Principal.parse(principal) if principal else None)


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
CLAIMS = st.builds(
    Claims,
    st.integers(IAT - 200, IAT + 30),
    st.just(IAT + 90),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=256),
    st.none() | TEXT,
    st.none() | TEXT,
    st.none() | st.integers(),
    st.none() | TEXT,
)


@given(claims=CLAIMS, secret=st.binary(min_size=1))
def test_what_was_signed_is_what_is_read(claims: Claims, secret: bytes) -> None:
    assert Signatures({"k": secret}, MemoryStore(), lambda: NOW).check(sign(secret, claims)) == claims


@given(place=st.integers(0, len(TOKEN) - 1), put=st.characters(codec="latin-1"), data=st.data())
def test_no_character_can_be_changed_removed_or_added(place: int, put: str, data: st.DataObject) -> None:
    tampered = data.draw(
        st.sampled_from(
            [
                TOKEN[:place] + put + TOKEN[place + 1 :],
                TOKEN[:place] + put + TOKEN[place:],
                TOKEN[:place] + TOKEN[place + 1 :],
                TOKEN[:place],
                TOKEN[place:],
            ]
        )
    )
    if tampered != TOKEN:
        assert refused(lambda: signatures().check(tampered)) in (
            "invalid token encoding",
            "invalid token signature",
            "missing runtime signature",
        )


@given(claims=CLAIMS, other=CLAIMS)
def test_a_signature_holds_for_its_own_claims_only(claims: Claims, other: Claims) -> None:
    (_, segment, mac), (_, another, _) = sign(SECRET, claims).split("."), sign(SECRET, other).split(".")
    if segment != another:
        assert refused(lambda: signatures().check(f"v1.{another}.{mac}")) == "invalid token signature"


@given(st.text(st.characters(codec="latin-1")) | st.text("v1.AZaz09_-=", min_size=1))
def test_no_header_breaks_the_check(token: str) -> None:
    refused(lambda: signatures().check(token))


@given(st.binary())
def test_no_signed_payload_breaks_the_check(content: bytes) -> None:
    assert refused(lambda: signatures().check(signed(content))) in ("invalid token encoding", "invalid token claims")
