"""Manifests and requests of tool packs: what is wrong with them is said all at once."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import ManifestInvalid, ToolRequestInvalid
from parley.json_values import Fields, Json, stable_hash
from parley.tools.rules.packs import (
    CODING,
    MAX_BODY,
    is_repository,
    manifest_of,
    manifest_problems,
    number_of,
    outcome_data,
    replay_data,
    request_of,
    request_problems,
)
from parley.tools.rules.policy import Figures, Policy, evaluate

MANIFEST: dict[str, Any] = {
    "manifest_version": "coding.integration.v1",
    "integration_id": "github.primary",
    "provider": "github",
    "status": "active",
    "tool_pack": "coding.v1",
    "capabilities": ["get_issue", "get_pull_request", "add_issue_comment"],
    "policy": {"write_operations_mode": "enforce", "default_repository": "OpenAgentsInc/openagents"},
}
REQUEST: dict[str, Any] = {
    "integration_id": "github.primary",
    "operation": "get_issue",
    "repository": "OpenAgentsInc/openagents",
    "issue_number": 1747,
    "run_id": "run_123",
    "tool_call_id": "tool_call_001",
}
ABSENT = object()


def changed(whole: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    name, _, rest = path.partition(".")
    if rest:
        return {**whole, name: changed(whole.get(name, {}), rest, value)}
    return {key: one for key, one in {**whole, name: value}.items() if one is not ABSENT}


def test_the_example_of_the_contract_passes() -> None:
    manifest = manifest_of(CODING, MANIFEST)
    assert (manifest.integration, manifest.active, manifest.enforces_writes, manifest.per_minute) == (
        "github.primary", True, True, None,
    )  # fmt: skip
    assert request_of(CODING, manifest, REQUEST) == REQUEST


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("status", "inactive"),
        ("status", "error"),
        ("capabilities", ["get_pull_request", "get_issue"]),
        ("secrets_ref", {"provider": "laravel", "key_id": "abc"}),
        ("policy.max_requests_per_minute", 1),
        ("policy.max_requests_per_minute", 10_000),
        ("policy.write_operations_mode", "audit_only"),
        ("policy.default_repository", ABSENT),
        ("integration_id", "a:b"),
        ("anything_else", {"is": "ignored"}),
    ],
)
def test_what_a_manifest_may_say(path: str, value: object) -> None:
    assert manifest_problems(CODING, changed(MANIFEST, path, value)) == []


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("manifest_version", "coding.integration.v2", "manifest_version"),
        ("manifest_version", ABSENT, "manifest_version"),
        ("integration_id", "ab", "integration_id"),
        ("integration_id", "a" * 129, "integration_id"),
        ("integration_id", "git hub", "integration_id"),
        ("integration_id", "github\n", "integration_id"),
        ("integration_id", 7, "integration_id"),
        ("provider", "gitlab", "provider"),
        ("status", "on", "status"),
        ("tool_pack", "coding.v2", "tool_pack"),
        ("capabilities", "get_issue", "capabilities"),
        ("capabilities", [], "capabilities"),
        ("capabilities", ["get_issue"], "capabilities"),
        ("capabilities", ["get_issue", "get_pull_request", "delete"], "capabilities[2]"),
        ("capabilities", ["get_issue", "get_pull_request", 7], "capabilities[2]"),
        ("capabilities", ["get_issue", "get_pull_request", {}], "capabilities[2]"),
        ("capabilities", ["get_issue", "get_pull_request", "get_issue"], "capabilities[2]"),
        ("secrets_ref", "abc", "secrets_ref"),
        ("secrets_ref", {"provider": "vault", "key_id": "abc"}, "secrets_ref.provider"),
        ("secrets_ref", {"provider": "laravel", "key_id": "ab"}, "secrets_ref.key_id"),
        ("secrets_ref", {"provider": "laravel", "key_id": "a" * 257}, "secrets_ref.key_id"),
        ("policy", ABSENT, "policy"),
        ("policy", [], "policy"),
        ("policy.write_operations_mode", ABSENT, "policy.write_operations_mode"),
        ("policy.write_operations_mode", "off", "policy.write_operations_mode"),
        ("policy.max_requests_per_minute", 0, "policy.max_requests_per_minute"),
        ("policy.max_requests_per_minute", 10_001, "policy.max_requests_per_minute"),
        ("policy.max_requests_per_minute", True, "policy.max_requests_per_minute"),
        ("policy.default_repository", "nowhere", "policy.default_repository"),
        ("policy.default_repository", "../..", "policy.default_repository"),
    ],
)
def test_what_it_must_not_say(path: str, value: object, where: str) -> None:
    with pytest.raises(ManifestInvalid) as found:
        manifest_of(CODING, changed(MANIFEST, path, value))
    problems = found.value.details["problems"]
    assert isinstance(problems, list)
    (problem,) = problems
    assert (problem["reason_code"], problem["path"]) == ("manifest_validation.invalid_schema", where)
    assert problem["message"]
    assert found.value.message == "tool invocation validation failed"


def test_everything_that_is_wrong_is_told_at_once() -> None:
    assert len(manifest_problems(CODING, {})) == 7
    assert len(request_problems(CODING, manifest_of(CODING, MANIFEST), {"operation": "add_issue_comment"})) == 4


COMMENT = {**REQUEST, "operation": "add_issue_comment", "body": "Thank you."}
PULL = {**REQUEST, "operation": "get_pull_request", "pull_number": 5}


@pytest.mark.parametrize("request_", [REQUEST, COMMENT, PULL, {**PULL, "pull_number": "5"}])
def test_what_can_be_asked(request_: Fields) -> None:
    assert request_problems(CODING, manifest_of(CODING, MANIFEST), request_) == []


@pytest.mark.parametrize(
    ("asked", "path", "value", "problem"),
    [
        (REQUEST, "integration_id", ABSENT, "integration_id is required"),
        (REQUEST, "integration_id", "github.other", "integration_id does not match the manifest"),
        (REQUEST, "operation", ABSENT, "operation is required"),
        (REQUEST, "repository", "nowhere", "repository is required and must be in 'owner/repo' format"),
        (REQUEST, "repository", "a/..", "repository is required and must be in 'owner/repo' format"),
        (REQUEST, "repository", "a/b/c", "repository is required and must be in 'owner/repo' format"),
        (REQUEST, "issue_number", 0, "issue_number must be a positive integer"),
        (REQUEST, "issue_number", True, "issue_number must be a positive integer"),
        (REQUEST, "issue_number", "1/comments", "issue_number must be a positive integer"),
        (PULL, "pull_number", ABSENT, "pull_number must be a positive integer"),
        (COMMENT, "body", ABSENT, "body is required for add_issue_comment"),
        (COMMENT, "body", " \n", "body is required for add_issue_comment"),
        (COMMENT, "body", "x" * (MAX_BODY + 1), f"body must have at most {MAX_BODY} characters"),
        (REQUEST, "tool_call_id", "", "tool_call_id must be a string of 1 to 256 printable characters"),
        (REQUEST, "tool_call_id", 7, "tool_call_id must be a string of 1 to 256 printable characters"),
        (REQUEST, "tool_call_id", "a\x00", "tool_call_id must be a string of 1 to 256 printable characters"),
        (REQUEST, "write_approved", "yes", "write_approved must be true or false"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], path: str, value: object, problem: str) -> None:
    with pytest.raises(ToolRequestInvalid) as found:
        request_of(CODING, manifest_of(CODING, MANIFEST), changed(asked, path, value))
    assert found.value.details["problems"] == [problem]


def test_what_the_manifest_does_not_offer_is_refused() -> None:
    manifest = manifest_of(CODING, {**MANIFEST, "capabilities": ["get_issue", "get_pull_request"]})
    assert request_problems(CODING, manifest, COMMENT) == ["operation is not enabled by manifest capabilities"]
    unknown = request_problems(CODING, manifest, {**REQUEST, "operation": "delete_repository"})
    assert unknown == ["operation is not supported", "operation is not enabled by manifest capabilities"]


def test_the_default_repository_stands_in_for_one_that_is_not_named() -> None:
    manifest = manifest_of(CODING, MANIFEST)
    asked = changed(REQUEST, "repository", ABSENT)
    assert request_of(CODING, manifest, asked)["repository"] == "OpenAgentsInc/openagents"
    assert request_of(CODING, manifest, {**asked, "repository": "a/b"})["repository"] == "a/b"
    bare = manifest_of(CODING, changed(MANIFEST, "policy.default_repository", ABSENT))
    with pytest.raises(ToolRequestInvalid):
        request_of(CODING, bare, asked)


@given(st.text("ab/._-%?#\n ", max_size=12) | st.text(max_size=12))
def test_a_repository_cannot_lead_out_of_its_path(text: str) -> None:
    if is_repository(text):
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", text, re.ASCII)
        assert not {".", ".."} & set(text.split("/"))


@given(st.integers() | st.text("0123456789 +-٣", max_size=20) | st.booleans() | st.floats())
def test_a_number_is_one_or_more(value: Json) -> None:
    number = number_of(value)
    assert number is None or (number >= 1 and str(number) == str(value).lstrip("0"))


anything: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(MANIFEST)) | st.text(max_size=3), anything), st.booleans())
def test_no_manifest_breaks_the_rules(parts: Fields, based: bool) -> None:
    given_ = {**MANIFEST, **parts} if based else parts
    if not manifest_problems(CODING, given_):
        assert manifest_of(CODING, given_).integration == given_["integration_id"]


@given(st.dictionaries(st.sampled_from([*sorted(COMMENT), "write_approved", "pull_number"]), anything), st.booleans())
def test_no_request_breaks_the_rules(parts: Fields, based: bool) -> None:
    request_problems(CODING, manifest_of(CODING, MANIFEST), {**COMMENT, **parts} if based else parts)


def test_a_receipt_proves_what_its_reader_sees() -> None:
    manifest = manifest_of(CODING, MANIFEST)
    policy = Policy({"authorization_id": "a", "authorization_mode": "system"}, CODING.policy_id)
    evaluation = evaluate(policy, Figures(), 0)
    data: dict[str, Any] = outcome_data(
        CODING, manifest, REQUEST, "succeeded", evaluation, {"state": "succeeded", "data": {"title": "x"}}
    )
    receipt = data["receipt"]
    payload = {name: value for name, value in receipt.items() if name not in ("receipt_id", "replay_hash")}
    assert receipt["replay_hash"] == stable_hash(payload)
    assert receipt["receipt_id"] == f"coding_{receipt['replay_hash'][:24]}"
    assert receipt["result_hash"] == stable_hash(data["provider_result"])
    assert data["policy"]["evaluation_hash"] == receipt["evaluation_hash"] == evaluation.hash
    assert {name: data[name] for name in ("state", "decision", "reason_code")} == {
        "state": "succeeded", "decision": "allowed", "reason_code": "policy_allowed.default",
    }  # fmt: skip


def test_a_replay_hash_covers_the_request_without_its_secrets() -> None:
    manifest = manifest_of(CODING, MANIFEST)
    evaluation = evaluate(Policy({}, CODING.policy_id), Figures(), 0)
    one = replay_data(manifest, {**REQUEST, "token": "a"}, evaluation)
    assert one == replay_data(manifest, {**REQUEST, "token": "b"}, evaluation)
    assert one["replay_hash"] != replay_data(manifest, {**REQUEST, "issue_number": 1}, evaluation)["replay_hash"]
    assert sorted(one) == ["decision", "evaluation_hash", "reason_code", "replay_hash"]
