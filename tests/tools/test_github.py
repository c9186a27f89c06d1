"""The pack `coding.v1` against a server that speaks GitHub's REST: what it sends, and what it makes of each answer."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.errors import ConfigurationError
from parley.json_values import Fields
from parley.security.netguard import LOOPBACK, Guard, Outbound
from parley.tools.github import MAX_BYTES, MAX_WORDS, Coding, GitHub, TokenFile, fixed_token
from parley.tools.providers import ToolResult
from parley.tools.rules.packs import CODING, manifest_of
from tests.tools.github import TOKEN, GitHubServer, Reply, github
from tests.tools.rules.test_packs import MANIFEST, REQUEST

FAILED, DENY, EXHAUSTED = (
    "coding_failed.provider_error",
    "policy_denied.explicit_deny",
    "policy_denied.budget_exhausted",
)
ISSUE = {**REQUEST, "repository": "octo/hello", "issue_number": 7}
PULL = {**ISSUE, "operation": "get_pull_request", "pull_number": 8}
COMMENT = {**ISSUE, "operation": "add_issue_comment", "body": "Thank you."}
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.fixture
async def hub() -> AsyncIterator[GitHubServer]:
    async with github() as server:
        yield server


@asynccontextmanager
async def coding(
    api: str, token: str = TOKEN, allow: tuple[str, ...] = LOOPBACK, names: dict[str, list[str]] | None = None
) -> AsyncIterator[Coding]:
    async def resolve(host: str, port: int) -> list[str]:
        if names is None or host not in names:
            return [host]
        if not names[host]:
            raise OSError("no such name")
        return names[host]

    outbound = Outbound(Guard(allow), resolve=resolve, tls=NO_TLS)
    yield Coding(GitHub(outbound, fixed_token(token), api))
    await outbound.close()


async def call(pack: Coding, request: dict[str, Any]) -> ToolResult:
    return await pack.call(request["operation"], request, manifest_of(CODING, MANIFEST))


async def test_an_issue_is_read(hub: GitHubServer) -> None:
    async with coding(hub.url) as pack:
        result = await call(pack, ISSUE)
    assert (result.state, result.effect, result.well) == ("succeeded", "done", True)
    assert result.data["provider_status"] == 200
    data = result.data["data"]
    assert isinstance(data, dict)
    assert data["title"] == "issues 7 of octo/hello"
    (asked,) = hub.asked
    assert (asked.method, asked.path, asked.token) == ("GET", "/repos/octo/hello/issues/7", TOKEN)
    assert asked.headers["accept"] == "application/vnd.github+json"
    assert asked.headers["x-github-api-version"] == "2022-11-28"
    assert asked.headers["user-agent"]


async def test_a_pull_request_is_read_and_a_comment_written(hub: GitHubServer) -> None:
    async with coding(hub.url + "/") as pack:
        pull = await call(pack, {**PULL, "pull_number": "8"})
        comment = await call(pack, COMMENT)
    assert [asked.path for asked in hub.asked] == ["/repos/octo/hello/pulls/8", "/repos/octo/hello/issues/7/comments"]
    assert pull.state == "succeeded"
    assert hub.comments == {"octo/hello#7": ["Thank you."]}
    assert comment.data["comment_id"] == 1
    assert comment.data["comment_url"] == "https://github.com/octo/hello/issues/7#issuecomment-1"


async def test_an_api_below_a_path_is_asked_there(hub: GitHubServer) -> None:
    hub.always = Reply(200, {})
    async with coding(hub.url + "/api/v3") as pack:
        await call(pack, ISSUE)
    assert hub.asked[0].path == "/api/v3/repos/octo/hello/issues/7"


RESET = (("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1"))
STATUSES: list[tuple[Reply, str, str, bool]] = [
    (Reply(400), "manifest_validation.invalid_schema", "none", True),
    (Reply(401), DENY, "none", True),
    (Reply(403), DENY, "none", True),
    (Reply(403, headers=(("x-ratelimit-remaining", "41"),)), DENY, "none", True),
    (Reply(403, headers=RESET), EXHAUSTED, "none", True),
    (Reply(403, headers=(("retry-after", "60"),)), EXHAUSTED, "none", True),
    (Reply(404), FAILED, "none", True),
    (Reply(410), FAILED, "none", True),
    (Reply(418), FAILED, "none", True),
    (Reply(422), "manifest_validation.invalid_schema", "none", True),
    (Reply(429), EXHAUSTED, "none", True),
    (Reply(500), FAILED, "unknown", False),
    (Reply(502), FAILED, "unknown", False),
    (Reply(503), FAILED, "unknown", False),
    (Reply(303, headers=(("location", "/elsewhere"),)), FAILED, "none", True),
]


@pytest.mark.parametrize(
    ("reply", "code", "effect", "well"), STATUSES, ids=lambda one: str(getattr(one, "status", one))
)
async def test_what_each_status_means(hub: GitHubServer, reply: Reply, code: str, effect: str, well: bool) -> None:
    hub.always = reply
    async with coding(hub.url) as pack:
        result = await call(pack, COMMENT)
    assert (result.state, result.code, result.effect, result.well) == ("failed", code, effect, well)
    assert result.data["provider_status"] == reply.status
    assert len(hub.asked) == 1


async def test_a_rate_limit_says_how_long_to_wait(hub: GitHubServer) -> None:
    hub.replies.extend([Reply(429, headers=(("retry-after", "60"),)), Reply(403, headers=RESET), Reply(429)])
    async with coding(hub.url) as pack:
        waits = [(await call(pack, ISSUE)).data.get("retry_after_s") for _ in range(3)]
    assert waits == [60, 0, None]


async def test_what_github_says_about_a_refusal_is_passed_on_in_short(hub: GitHubServer) -> None:
    hub.replies.extend([Reply(404, {"message": "Not Found " + "x" * 999}), Reply(404, b"<html>"), Reply(404, [1])])
    async with coding(hub.url) as pack:
        messages = [(await call(pack, ISSUE)).message for _ in range(3)]
    assert messages[0].startswith("Not Found")
    assert len(messages[0]) == MAX_WORDS
    assert messages[1:] == ["The provider answered 404."] * 2


@pytest.mark.parametrize(
    "body", [b"not json", b'{"a":', b"[" * 50_000, b"\xff\xfe", b'"' + b"x" * MAX_BYTES + b'"', b"1e999"]
)
async def test_an_answer_that_cannot_be_read_was_given_all_the_same(hub: GitHubServer, body: bytes) -> None:
    hub.always = Reply(201, body)
    async with coding(hub.url) as pack:
        result = await call(pack, COMMENT)
    assert (result.state, result.code, result.effect) == ("failed", None, "done")


async def test_a_moved_repository_is_found_also_for_writing(hub: GitHubServer) -> None:
    hub.moved["octo/hello"] = "1296269"
    async with coding(hub.url) as pack:
        read, written = await call(pack, ISSUE), await call(pack, COMMENT)
    assert (read.state, written.state) == ("succeeded", "succeeded")
    assert hub.comments == {"octo/hello#7": ["Thank you."]}
    assert [asked.path for asked in hub.asked][1::2] == [
        "/repositories/1296269/issues/7", "/repositories/1296269/issues/7/comments",
    ]  # fmt: skip
    assert {asked.token for asked in hub.asked} == {TOKEN}


async def test_two_redirects_are_followed_and_not_three(hub: GitHubServer) -> None:
    hop = Reply(302, headers=(("location", "/repos/octo/other/issues/7"),))
    hub.replies.extend([hop, hop])
    async with coding(hub.url) as pack:
        assert (await call(pack, ISSUE)).state == "succeeded"
        hub.always = hop
        result = await call(pack, COMMENT)
    assert (result.code, result.effect) == ("ssrf_block.redirect_limit_exceeded", "none")
    assert result.data["ssrf_block_reason"] == result.code
    assert len(hub.asked) == 6


@pytest.mark.parametrize(
    ("location", "code"),
    [
        (None, "redirect_missing_location"),
        ("", "redirect_missing_location"),
        ("http://x:port/", "redirect_invalid_location"),
        ("ftp://127.0.0.1/x", "redirect_invalid_location"),
        ("https://127.0.0.1/x", "redirect_invalid_location"),
        ("http://user:pass@127.0.0.1/x", "redirect_invalid_location"),
        ("http://evil.example/x", "host_not_allowed"),
        ("//evil.example/x", "host_not_allowed"),
        ("http://169.254.169.254/latest/meta-data", "host_not_allowed"),
        ("http://127.0.0.1:1/x", "host_not_allowed"),
        ("http://localhost/x", "host_not_allowed"),
    ],
)
async def test_a_redirect_leads_nowhere_else(hub: GitHubServer, location: str | None, code: str) -> None:
    hub.always = Reply(301, headers=() if location is None else (("location", location),))
    async with coding(hub.url) as pack:
        result = await call(pack, ISSUE)
    assert (result.code, result.effect, result.well) == (f"ssrf_block.{code}", "none", True)
    assert len(hub.asked) == 1


async def test_another_host_never_sees_the_token(hub: GitHubServer) -> None:
    async with github() as other:
        hub.always = Reply(301, headers=(("location", f"{other.url}/repos/octo/hello/issues/7"),))
        async with coding(hub.url) as pack:
            await call(pack, ISSUE)
        assert other.asked == []


@pytest.mark.parametrize(
    ("api", "names", "code"),
    [
        ("http://10.0.0.1", {}, "ssrf_block.private_address"),
        ("http://api.github.test", {"api.github.test": ["192.168.1.1"]}, "ssrf_block.private_address"),
        ("http://169.254.169.254", {}, "ssrf_block.metadata_endpoint"),
        ("http://api.github.test", {"api.github.test": ["169.254.169.254"]}, "ssrf_block.metadata_endpoint"),
        ("http://api.github.test", {"api.github.test": ["fd00:ec2::254"]}, "ssrf_block.metadata_endpoint"),
        ("http://api.github.test", {"api.github.test": []}, "ssrf_block.dns_resolution_failed"),
    ],
)
async def test_where_the_api_must_not_be(api: str, names: dict[str, list[str]], code: str) -> None:
    async with coding(api, names=names) as pack:
        result = await call(pack, COMMENT)
    assert (result.state, result.code, result.effect) == ("failed", code, "none")


async def test_what_the_operator_allows_may_be_called(hub: GitHubServer) -> None:
    port = hub.url.rpartition(":")[2]
    names = {"github.internal": ["127.0.0.1"]}
    async with coding(f"http://github.internal:{port}", allow=(f"github.internal:{port}",), names=names) as pack:
        assert (await call(pack, ISSUE)).state == "succeeded"
    async with coding(f"http://github.internal:{port}", allow=(), names=names) as pack:
        assert (await call(pack, ISSUE)).code == "ssrf_block.private_address"


async def test_a_connection_that_breaks_leaves_open_whether_it_was_done(hub: GitHubServer) -> None:
    hub.always = Reply(cut=True, done=True)
    async with coding(hub.url) as pack:
        result = await call(pack, COMMENT)
    assert (result.state, result.code, result.effect, result.well) == ("failed", None, "unknown", False)
    assert hub.comments["octo/hello#7"] == ["Thank you."]


async def test_where_nobody_is_nothing_was_done() -> None:
    async with coding("http://127.0.0.1:1") as pack:
        result = await call(pack, COMMENT)
    assert (result.state, result.code, result.effect, result.well) == ("failed", None, "none", False)


async def test_without_a_token_public_things_can_be_read_and_nothing_is_written(hub: GitHubServer) -> None:
    async with coding(hub.url, token="") as pack:
        read, written = await call(pack, ISSUE), await call(pack, COMMENT)
    assert read.state == "succeeded"
    assert (written.state, written.code, written.effect) == ("failed", DENY, "none")
    assert [asked.token for asked in hub.asked] == [""]


async def test_a_server_that_repeats_the_token_does_not_spread_it(hub: GitHubServer) -> None:
    hub.replies.extend([Reply(200, {"echo": f"Bearer {TOKEN}"}), Reply(400, {"message": f"bad {TOKEN}"})])
    async with coding(hub.url) as pack:
        for _ in range(2):
            assert TOKEN not in str(await call(pack, ISSUE))


@pytest.mark.parametrize(
    "api", ["", "api.github.com", "ftp://x", "https://user:pass@x", "https://x?y=1", "https://x#y", "http://x:port/"]
)
def test_an_api_that_is_none_is_refused_at_the_start(api: str) -> None:
    with pytest.raises(ConfigurationError, match="github_api"):
        GitHub(Outbound(), fixed_token(""), api)


def test_a_token_file_is_read_again_and_an_unreadable_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(ConfigurationError, match="cannot be read"):
        TokenFile(path)
    path.write_text("one\n")
    token = TokenFile(path)
    assert token() == "one"
    path.write_text("two\n")
    assert token() == "two"
    path.write_text("")
    assert token() == "two"
    path.unlink()
    assert token() == "two"


@pytest.mark.parametrize("text", ["two words", "ümlaut", "line\nbreak"])
def test_what_cannot_be_a_token_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as found:
        fixed_token(text)
    assert text not in str(found.value)


def test_the_numbers_of_a_path_cannot_lead_elsewhere() -> None:
    request: Fields = {**ISSUE, "issue_number": "7/../../../user"}
    assert CODING.operations["get_issue"].check(request) == ["issue_number must be a positive integer"]
