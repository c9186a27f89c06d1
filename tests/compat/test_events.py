"""Translation of an executor's events into outputs: values in, values out."""

import pytest
from a2a.types import a2a_pb2 as pb
from msgspec.structs import replace

from parley.compat.executor_app import agent_of, origin_of, slug_of
from parley.compat.executor_driver import Ids, Telling
from parley.errors import AgentError, ConfigurationError
from parley.execution.rules import ArtifactChunk, Done, Output, Reply, Status
from parley.runs.rules.agents import Limits
from parley.runs.rules.content import text_part
from parley.runs.rules.events import Failed
from tests.compat.program import card_at


def artifact(id_: str, text: str, *, append: bool = False) -> pb.TaskArtifactUpdateEvent:
    made = pb.Artifact(artifact_id=id_, parts=[pb.Part(text=text)])
    return pb.TaskArtifactUpdateEvent(artifact=made, append=append)


def status(state: str, text: str = "") -> pb.TaskStatusUpdateEvent:
    said = pb.TaskStatus(state=pb.TaskState.Value(f"TASK_STATE_{state}"))
    if text:
        said.message.parts.add(text=text)
    return pb.TaskStatusUpdateEvent(status=said)


def places(outputs: list[Output]) -> list[tuple[str, bool]]:
    return [(one.id, one.append) for one in outputs if isinstance(one, ArtifactChunk)]


def test_artifacts_of_a_second_attempt_take_the_places_of_the_first() -> None:
    first, marks = Telling(Ids(2, [], ["older"])), list[str]()
    for event in (artifact("random-1", "a"), artifact("report", "b"), artifact("report", "c", append=True)):
        marks += [one.mark for one in first.outputs(event) if isinstance(one, ArtifactChunk) and one.mark]
    second = Telling(Ids(2, ["1:older", *marks], ["older", "random-1", "report"]))
    assert places(second.outputs(artifact("random-2", "a"))) == [("random-1", False)]
    assert places(second.outputs(artifact("report", "b", append=True))) == [("report", False)]
    assert places(second.outputs(artifact("report", "c", append=True))) == [("report", True)]
    assert places(second.outputs(artifact("older", "d", append=True))) == [("older", True)]
    assert places(second.outputs(artifact("random-3", "new"))) == [("random-3", False)]


def test_a_task_that_says_nothing_yet_tells_that_there_is_one() -> None:
    telling = Telling(Ids(1, [], []))
    assert telling.outputs(pb.Task(id="t")) == [Status(())]
    assert telling.outputs(status("WORKING")) == []
    assert telling.outputs(status("WORKING", "busy")) == [Status((text_part("busy"),))]
    assert telling.outputs(status("COMPLETED")) == [Done(())]


def test_a_whole_task_at_once_is_its_artifacts_and_its_end() -> None:
    task = pb.Task(id="t", status=status("COMPLETED").status)
    task.artifacts.add(artifact_id="a", parts=[pb.Part(text="all")])
    made, end = Telling(Ids(1, [], [])).outputs(task)
    assert isinstance(made, ArtifactChunk)
    assert (made.id, made.last, end) == ("a", True, Done(()))


def test_a_task_that_was_there_before_is_not_taken_for_news() -> None:
    task = pb.Task(id="t", status=status("INPUT_REQUIRED", "Which?").status)
    assert Telling(Ids(2, [], []), begun=True).outputs(task) == [Status(())]


def test_a_message_is_a_reply_and_only_before_a_task() -> None:
    message = pb.Message(parts=[pb.Part(text="hi")])
    message.metadata.update({"mood": "good"})
    telling = Telling(Ids(1, [], []))
    assert telling.outputs(message) == [Reply((text_part("hi"),), {"mood": "good"})]
    telling.outputs(status("WORKING"))
    with pytest.raises(AgentError):
        telling.outputs(message)


def test_a_failure_keeps_its_words_and_its_code() -> None:
    failed = status("FAILED", "Out of paper.")
    assert Telling(Ids(1, [], [])).outputs(failed) == [Failed("agent_failed", "Out of paper.")]
    failed.status.message.metadata.update({"code": "no_paper"})
    assert Telling(Ids(1, [], [])).outputs(failed) == [Failed("no_paper", "Out of paper.")]
    canceled = Telling(Ids(1, [], [])).outputs(status("CANCELED"))
    assert canceled == [Failed("agent_canceled", "The agent canceled the task by itself.")]


def test_the_card_tells_what_the_agent_is() -> None:
    card = card_at("https://works.example:8443/a")
    agent = agent_of(card, None, "fail", Limits(max_concurrent=2))
    assert (agent.slug, agent.name, agent.version, agent.rescue) == (
        "clerk-of-works",
        "Clerk of Works",
        "2.1.0",
        "fail",
    )
    assert agent.skills[0].tags == ("desk",)
    assert agent.limits.max_concurrent == 2
    assert origin_of(card) == "https://works.example:8443"
    assert replace(agent, slug="desk") == agent_of(card, "desk", "fail", Limits(max_concurrent=2))
    with pytest.raises(ConfigurationError):
        slug_of("…")
