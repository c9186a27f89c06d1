"""No secret passes, whatever it is called and wherever it stands; and no text takes long."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parley.errors import Invalid
from parley.json_values import Json
from parley.tools.rules.redaction import REDACTED, is_secret, sanitised, sanitised_error, sanitised_text

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.c2lnbmF0dXJl"
SECRETS = [
    "sk-proj-abcdefgh12345678", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "github_pat_11ABC_def", JWT,
    "Bearer abc", "bearer  x.y.z", "gho_abc123", "eyJa..c",
]  # fmt: skip
SECRET_NAMES = [
    "authorization", "Authorization", "cookie", "Set-Cookie", "password", "PASSWORD", "secret", "api_key", "api-key",
    "apiKey", "token", "access_token", "Access-Token", "accessToken", "client_secret", "db_password", "X-API-Key",
    "proxy-authorization",
]  # fmt: skip
PLAIN_NAMES = [
    "authorization_id",
    "authorization_mode",
    "tokens",
    "max_tokens",
    "secretary",
    "passwords",
    "key",
    "monkey",
]
ORDINARY = [
    "2026-02-19T18:00:00Z", "+00:00", "https://api.github.com/repos/a/b/issues/1747", "npm@1.2.3", "a task-force",
    "risk-assessment-today", "1234567890", "192.168.100.1000", "www.example.com", "v1.2.3-rc.1", "the bearers of it",
    "0a1b2c3d4e5f67890123456789abcdef01234567", "@mention", "1771500060000",
]  # fmt: skip

values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_secret_is_taken_out_of_any_text(secret: str) -> None:
    assert sanitised_text(secret) == REDACTED
    for text in (f"use {secret} now", f"({secret})", f"token={secret}\n", f'{{"a":"{secret}"}}'):
        shown = sanitised_text(text, personal=False)
        assert REDACTED in shown
        assert secret.split()[-1] not in shown


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_what_is_called_a_secret_is_one(name: str) -> None:
    assert is_secret(name)
    assert sanitised({"a": [{name: {"deep": 1}}]}) == {"a": [{name: REDACTED}]}


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_what_only_sounds_like_one_is_not(name: str) -> None:
    assert sanitised({name: "x"}) == {name: "x"}


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert sanitised_text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("write to a.b+c@mail.example.co.uk.", "write to [REDACTED_EMAIL]."),
        ("<x_y@example.org>", "<[REDACTED_EMAIL]>"),
        (f"{'a' * 200}@example.org", "[REDACTED_EMAIL]"),
        ("call +1 (555) 123-4567 or +4930123456789", "call [REDACTED_PHONE] or [REDACTED_PHONE]"),
        ("(555) 123-4567, 555.123.4567", "[REDACTED_PHONE], [REDACTED_PHONE]"),
    ],
)
def test_addresses_and_numbers_of_people_are_taken_out_where_asked(text: str, shown: str) -> None:
    assert sanitised_text(text) == shown
    assert sanitised_text(text, personal=False) == text


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("login failed: password=hunter2, user=ann", f"login failed: password={REDACTED}, user=ann"),
        ("{'api_key': 'abc', \"dbPassword\": \"a b\"}", f"{{'api_key': {REDACTED}, \"dbPassword\": {REDACTED}}}"),
        ("Incorrect API key provided: abc-123.", f"Incorrect API key provided: {REDACTED}"),
        ("postgres://ann:hunter2@host:5432/x", f"postgres://{REDACTED}@host:5432/x"),
        ("GET https://host:443/v1?key=abc&page=2", f"GET https://host:443/v1?key={REDACTED}&page=2"),
        ("Authorization: Basic YW5uOmFubg==", f"Authorization: {REDACTED}"),
        ("Authorization: Bearer abc", f"Authorization: {REDACTED}"),
        (f"gsk_{'a' * 40} hf_{'b' * 30} AIza{'c' * 35}", f"{REDACTED} {REDACTED} {REDACTED}"),
        ("said:password=hunter2", f"said:password={REDACTED}"),
        ("KeyError: 'monkey: banana', 18 tokens: fine", "KeyError: 'monkey: banana', 18 tokens: fine"),
    ],
)
def test_errors_lose_the_secrets_that_they_name(error: str, shown: str) -> None:
    assert sanitised_error(error) == shown
    assert sanitised_error(shown) == shown


@pytest.mark.parametrize("piece", ["key=", "password:", "://", "://a:", "token ", 'key="', "AIza", "secret=' "])
def test_an_error_of_a_megabyte_is_searched_once(piece: str) -> None:
    sanitised_error(piece * (1_000_000 // len(piece)))


def test_names_of_members_are_texts_too() -> None:
    assert sanitised({"ghp_abc": 1, "x@example.org": 2}) == {REDACTED: 1, "[REDACTED_EMAIL]": 2}


@given(values, st.booleans())
def test_twice_is_the_same_as_once(value: Json, personal: bool) -> None:
    once = sanitised(value, personal=personal)
    assert sanitised(once, personal=personal) == once


@given(
    st.lists(
        st.sampled_from(["Bearer ", "sk-", "ghp_", "eyJ", ".", "@", "a.co", "+1", "555-123-4567", " ", "x" * 9, "-"])
    ),
    st.booleans(),
)
@example(["sk-", "@", "a.co", "sk-", "@", "a.co"], True)
@settings(max_examples=500)
def test_twice_is_the_same_as_once_also_where_patterns_meet(pieces: list[str], personal: bool) -> None:
    once = sanitised_text("".join(pieces), personal=personal)
    assert sanitised_text(once, personal=personal) == once


PIECES = ["a", "a@", "a.", "@a.", "-", "+1", "1-", "eyJ", "eyJ.", "sk-", "Bearer ", "bearer\t", "(555) ", "+ ", "x@a-"]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4))
@settings(max_examples=25)
def test_a_long_text_is_done_whatever_is_in_it(pieces: list[str]) -> None:
    """A backtracking search would take quadratic time, which is hours here."""
    sanitised_text("".join(pieces) * (100_000 // len(pieces)))


def test_a_value_without_end_is_refused() -> None:
    deep: Json = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(Invalid, match="deeper"):
        sanitised(deep)
