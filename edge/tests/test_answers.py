"""What an answer means, as values: the contract's rules."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley_edge.runtime import answers
from parley_edge.runtime.answers import Completed, Failed

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
members = st.sampled_from(
    ["success", "output", "error", "text", "parts", "artifacts", "artifact_writes", "content_text"]
)


def test_success_is_true_or_false_and_nothing_else() -> None:
    for other in (1, 0, "true", None, [], {}):
        assert answers.meaning({"success": other, "output": {"text": "x"}}) == answers.invalid(
            "success is neither true nor false"
        )


@pytest.mark.parametrize("output", [None, "text", [], 3])
def test_success_needs_an_output(output: Any) -> None:
    result = answers.meaning({"success": True, "output": output})
    assert result == answers.invalid("success without an output")
    assert result.error.startswith("invalid adapter response")


def test_an_object_without_success_is_the_output_whatever_else_it_has() -> None:
    assert answers.meaning({"output": {"text": "x"}, "error": "y"}) == Completed(
        {"output": {"text": "x"}, "error": "y"}
    )
    assert answers.meaning({}) == Completed({})


@pytest.mark.parametrize(
    ("error", "said"),
    [("no ink", "no ink"), (None, "The local agent failed and gave no reason."), ({"n": 1}, '{"n": 1}')],
)
def test_the_reason_of_a_failure_is_a_text(error: Any, said: str) -> None:
    assert answers.meaning({"success": False, "error": error}) == Failed(said)
    assert Failed(said).output == {"error": said}


@pytest.mark.parametrize(
    "filename",
    ["../up.md", "/etc/passwd", "a/../../b", "C:\\x", "C:x", "a\\b", "", "a//b", "./a", "a/", "a\nb", "..", 7, None],
)
def test_a_filename_stays_below_where_it_is_written(filename: Any) -> None:
    result = answers.meaning({"text": "x", "artifacts": [{"filename": filename, "content_text": "x"}]})
    assert isinstance(result, Failed)
    assert result.code == "ARTIFACT_WRITE_FAILED"


@pytest.mark.parametrize("filename", ["a", "reports/result.md", "…/ü.md", "a..b/c...", ".hidden"])
def test_other_filenames_are_taken_as_they_are(filename: str) -> None:
    result = answers.meaning({"text": "x", "artifacts": [{"filename": filename, "content_text": ""}]})
    assert isinstance(result, Completed)
    assert result.writes[0].request["filename"] == filename


@pytest.mark.parametrize(
    "artifacts",
    ["x", {"filename": "a"}, ["x"], [{"filename": "a"}], [{"filename": "a", "content_text": 1}],
     [{"filename": "a", "content_text": "x", "keywords": "k"}], [{"filename": "a", "content_text": "x", "title": 1}],
     [{"filename": "a", "content_text": "ü" * 600_000}]],
)  # fmt: skip
def test_what_is_no_artifact_fails_the_task(artifacts: Any) -> None:
    result = answers.meaning({"text": "x", "artifacts": artifacts})
    assert isinstance(result, Failed)
    assert result.code == "ARTIFACT_WRITE_FAILED"


def test_both_names_of_the_list_count() -> None:
    one, two = ({"filename": name, "content_text": name} for name in "ab")
    result = answers.meaning({"artifacts": [one], "artifact_writes": [two]})
    assert isinstance(result, Completed)
    assert [write.request["filename"] for write in result.writes] == ["a", "b"]
    assert result.output == {}


def test_refs_the_agent_gave_are_kept() -> None:
    output = answers.with_refs({"artifact_refs": [{"artifact_id": "old"}]}, [{"artifact_id": "new", "url": "/x"}])
    assert output == {
        "artifact_refs": [{"artifact_id": "old"}, {"artifact_id": "new"}],
        "parts": [{"type": "artifact_ref", "artifact_id": "new"}],
    }


def test_parts_are_a_list() -> None:
    assert answers.meaning({"parts": {"text": "x"}}) == answers.invalid("parts is not a list")


@settings(max_examples=40)
@given(st.dictionaries(members | st.text(max_size=5), json_values, max_size=6))
def test_every_object_means_something_and_no_content_gets_through(answer: dict[str, Any]) -> None:
    result = answers.read(200, json.dumps(answer).encode())
    if isinstance(result, Completed):
        assert '"content_text":' not in json.dumps(result.output, separators=(",", ":"))
        assert not {"artifacts", "artifact_writes"} & result.output.keys()
    else:
        assert result.error


@given(st.binary(max_size=60), st.integers(100, 599))
def test_every_answer_means_something(body: bytes, status: int) -> None:
    result = answers.read(status, body)
    if not 200 <= status < 300:
        assert isinstance(result, Failed)
        assert str(status) in result.error
