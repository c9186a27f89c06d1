"""The checker finds what it is there to find: each kind of violation is planted once, in what is otherwise whole."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dev.chaos.checking import WAKE_S, Log, Logs, check, shown, stays
from dev.chaos.history import (
    Cancel,
    Edit,
    Frame,
    History,
    Hook,
    Input,
    Mark,
    Pause,
    Post,
    Refusal,
    Stream,
    Version,
)
from parley.ids import ConversationId
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import (
    ArtifactAdded,
    Canceled,
    Completed,
    InputReceived,
    Payload,
    Progress,
    Started,
    Submitted,
)
from parley.testing.logs import LogWriter

LIMIT = 2
HOOK = "http://127.0.0.1:1/hook"
WORDS = "client 1 number 1"


def written(*payloads: Payload) -> Log:
    writer = LogWriter()
    writer.append(*payloads)
    assert writer.run is not None
    return Log(writer.run, writer.events[-1].hash, writer.events)


def said(text: str) -> InputReceived:
    return InputReceived(Message(text, (text_part(text),)))


def begun(text: str = WORDS) -> list[Payload]:
    return [Submitted("steps", ConversationId("c"), "local"), said(text), Started(1, "replica")]


def whole(text: str = WORDS) -> list[Payload]:
    return [
        *begun(text), Progress((text_part("half"),)), ArtifactAdded("response-1", (text_part(text),)), Completed()
    ]  # fmt: skip


class Scene:
    """A task that was sent, streamed, told to a receiver and completed; a visit; an edit; a cancel."""

    def __init__(self) -> None:
        self.log = written(*whole())
        self.canceled = written(*begun("client 2 number 1"), Canceled())
        self.logs: dict[str, Log] = {log.run.id: log for log in (self.log, self.canceled)}
        task = self.log.run.id
        frames = [Frame(seq, frame) for seq, frame in shown(self.log)]
        self.stream = Stream(task, 0, True, "", frames, 3, ended=True)
        self.history = History(
            [Input("k1", "steps", WORDS, task=task), Input("k2", "steps", "never arrived")],
            [self.stream], [Hook(HOOK, task)],
            [Post(HOOK, frame.seq, frame.result, True) for frame in frames if frame.seq > 2],
            [Edit("plan", "text", "v1")], [Cancel(self.canceled.run.id, "TASK_STATE_CANCELED")],
            [Refusal("SendMessage", 200, "store_unavailable")],
            [Mark(1, "a/1", "in", 1.0), Mark(1, "b/1", "in", 2.0), Mark(1, "a/1", "out", 3.0)],
            [Pause(1, 9.0)], [Version("plan", "v1", 1, "text", True)],
        )  # fmt: skip

    def put(self, log: Log) -> None:
        """In place of the log of the task."""
        run = replace(log.run, id=self.log.run.id)
        self.logs[self.log.run.id] = Log(run, log.hash, log.events)

    def rules(self) -> list[str]:
        return sorted({violation.rule for violation in check(self.history, self.logs, LIMIT)})


def test_what_is_whole_is_found_to_be_so() -> None:
    scene = Scene()
    assert check(scene.history, scene.logs, LIMIT) == []


def planted(*rules: str) -> Callable[[Callable[[Scene], None]], Any]:
    def made(plant: Callable[[Scene], None]) -> Any:
        return pytest.param(plant, list(rules), id=plant.__name__)

    return made


@planted("applied once")
def a_doubled_input(scene: Scene) -> None:
    other = written(*whole())
    scene.logs[other.run.id] = other


@planted("applied once")
def an_input_twice_in_one_log(scene: Scene) -> None:
    scene.history.streams, scene.history.hooks = [], []
    scene.put(written(*begun(), said(WORDS), Completed()))


@planted("applied once")
def a_lost_input(scene: Scene) -> None:
    scene.history.inputs.append(Input("k3", "steps", "lost", task=scene.log.run.id))


@planted("applied once")
def an_input_in_another_task(scene: Scene) -> None:
    scene.history.inputs[0].task = scene.canceled.run.id


@planted("gap-free")
def a_gap(scene: Scene) -> None:
    events = list(scene.canceled.events)
    scene.logs[scene.canceled.run.id] = replace(scene.canceled, events=events[:2] + events[3:])


@planted("gap-free")
def a_changed_payload(scene: Scene) -> None:
    events = list(scene.canceled.events)
    events[1] = replace(events[1], body=b'{"type":"input"}')
    scene.logs[scene.canceled.run.id] = replace(scene.canceled, events=events)


@planted("gap-free")
def a_row_that_says_more_than_its_log(scene: Scene) -> None:
    run = replace(scene.canceled.run, version=scene.canceled.run.version + 1)
    scene.logs[scene.canceled.run.id] = replace(scene.canceled, run=run)


@planted("cancel", "one end")
def two_terminal_events(scene: Scene) -> None:
    log = written(*begun("client 2 number 1"), Canceled(), Completed())
    scene.logs[scene.canceled.run.id] = replace(log, run=replace(log.run, id=scene.canceled.run.id))


@planted("cancel", "one end")
def something_after_the_end(scene: Scene) -> None:
    log = written(*begun("client 2 number 1"), Canceled(), Progress((text_part("late"),)))
    scene.logs[scene.canceled.run.id] = replace(log, run=replace(log.run, id=scene.canceled.run.id))


@planted("none left")
def a_run_left_working(scene: Scene) -> None:
    left = written(*begun("client 3 number 1"))
    scene.logs[left.run.id] = left


@planted("prefix")
def a_frame_missing(scene: Scene) -> None:
    del scene.stream.frames[1]


@planted("prefix")
def a_frame_doubled(scene: Scene) -> None:
    scene.stream.frames.insert(1, scene.stream.frames[1])


@planted("prefix")
def a_frame_changed(scene: Scene) -> None:
    scene.stream.frames[1] = Frame(scene.stream.frames[1].seq, {"statusUpdate": {}})


@planted("prefix")
def a_frame_that_is_not_in_the_log(scene: Scene) -> None:
    scene.stream.frames.append(Frame(99, {}))


@planted("prefix")
def an_end_before_the_end(scene: Scene) -> None:
    scene.stream.frames.pop()


@planted("prefix")
def a_reader_who_waits_in_vain(scene: Scene) -> None:
    scene.stream.frames.pop()
    scene.stream.ended, scene.stream.given_up = False, True


@planted("prefix")
def a_task_shown_as_it_was_not(scene: Scene) -> None:
    scene.stream.start, scene.stream.state = 3, "TASK_STATE_COMPLETED"
    scene.stream.frames = [frame for frame in scene.stream.frames if frame.seq > 3]


@planted("prefix")
def a_stream_of_a_task_without_a_log(scene: Scene) -> None:
    scene.history.streams.append(Stream("nowhere"))


@planted("limit")
def one_too_many(scene: Scene) -> None:
    scene.history.marks.append(Mark(2, "c/1", "in", 2.5))


@planted("webhook")
def a_webhook_missing(scene: Scene) -> None:
    scene.history.posts.pop()


@planted("webhook")
def a_webhook_never_taken(scene: Scene) -> None:
    scene.history.posts[-1].taken = False


@planted("webhook")
def a_webhook_out_of_order(scene: Scene) -> None:
    posts = scene.history.posts
    posts[0], posts[1] = posts[1], posts[0]


@planted("webhook")
def a_webhook_changed(scene: Scene) -> None:
    scene.history.posts[0].body = {"statusUpdate": {}}


@planted("edit")
def an_edit_lost(scene: Scene) -> None:
    scene.history.edits.append(Edit("plan", "other", "v2"))


@planted("edit")
def an_edit_doubled(scene: Scene) -> None:
    scene.history.versions.append(Version("plan", "v2", 2, "text", False))


@planted("edit")
def a_version_number_left_out(scene: Scene) -> None:
    scene.history.versions.append(Version("plan", "v3", 3, "other", False))


@planted("edit")
def two_current_versions(scene: Scene) -> None:
    scene.history.versions.append(Version("plan", "v2", 2, "other", True))


@planted("cancel")
def a_cancel_that_did_not_hold(scene: Scene) -> None:
    scene.history.cancels.append(Cancel(scene.log.run.id, "TASK_STATE_CANCELED"))


@planted("refusal")
def an_accident(scene: Scene) -> None:
    scene.history.refusals.append(Refusal("SendMessage", 500, "internal"))


@planted("refusal")
def a_refusal_without_a_code(scene: Scene) -> None:
    scene.history.refusals.append(Refusal("SendMessage", 503, ""))


PLANTED = [value for value in list(globals().values()) if isinstance(value, type(a_gap))]


@pytest.mark.parametrize(("plant", "rules"), PLANTED)
def test_what_is_wrong_is_found(plant: Callable[[Scene], None], rules: list[str]) -> None:
    scene = Scene()
    plant(scene)
    assert scene.rules() == rules


def test_a_stream_may_end_early_and_a_webhook_be_posted_twice() -> None:
    scene = Scene()
    scene.stream.ended = False
    scene.stream.frames.pop()
    scene.history.posts[1:1] = [replace(scene.history.posts[0], taken=False), scene.history.posts[0]]
    assert check(scene.history, scene.logs, LIMIT) == []


def test_who_is_stopped_or_dead_is_not_inside() -> None:
    marks = [Mark(1, "a", "in", 1.0), Mark(1, "b", "in", 2.0), Mark(1, "a", "out", 8.0)]
    woken = 6.0 + WAKE_S
    assert list(stays(marks, [Pause(1, 4.0, 6.0), Pause(1, 9.0)])) == [
        ("a", 1.0, 4.0), ("a", woken, 8.0), ("b", 2.0, 4.0), ("b", woken, 9.0),
    ]  # fmt: skip


def test_no_log_at_all_is_no_excuse() -> None:
    scene = Scene()
    nothing: Logs = {}
    rules = {violation.rule for violation in check(scene.history, nothing, LIMIT)}
    assert rules == {"applied once", "prefix", "webhook", "cancel"}
