"""From what an executor enqueues to what our turn yields. Pure; it knows what a broken attempt has left in the log."""

from collections.abc import Iterable

import msgspec
from a2a.server.events import Event
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format

from parley.core.turns import ArtifactChunk, Output, Reply, Status
from parley.drivers.remote.endings import EXECUTOR, ending
from parley.drivers.remote.protos import artifact_of, parts_in, state_of, words_of
from parley.drivers.remote.words import Made
from parley.errors import AgentError


class Ids:
    """An executor gives its artifacts random ids by default. One that runs again after a crash makes the same artifacts
    under other names: they take the places of those that the broken attempt made, in order, and do not stand beside."""

    def __init__(self, turn: int, marks: Iterable[str], known: Iterable[str]) -> None:
        """`marks`: of this run so far; `known`: the artifacts that it has."""
        self._prefix = f"{turn}:"
        self._left = list(
            dict.fromkeys(one.removeprefix(self._prefix) for one in marks if one.startswith(self._prefix))
        )
        self._earlier = set(known) - set(self._left)
        self._named: dict[str, str] = {}

    def placed(self, made: Made) -> Made:
        """The chunk under the id that it has in our log; the first of an artifact begins it, whatever it says."""
        known = made.artifact in self._named or made.artifact in self._earlier
        id_ = self._named.setdefault(made.artifact, self._id(made.artifact))
        return msgspec.structs.replace(made, artifact=id_, append=made.append and known)

    def mark(self, id_: str) -> str:
        return self._prefix + id_

    def _id(self, given: str) -> str:
        if given in self._left:
            self._left.remove(given)
        elif self._left and given not in self._earlier:
            return self._left.pop(0)
        return given


class Telling:
    """What one call of `execute` has come to."""

    def __init__(self, ids: Ids, *, begun: bool = False) -> None:
        """`begun`: there was a task before this call."""
        self._ids = ids
        self._begun = begun
        self._marked: set[str] = set()
        self.is_task = False

    def outputs(self, event: Event) -> list[Output]:
        match event:
            case pb.Message():
                return [self._reply(event)]
            case pb.Task() if self._begun or self.is_task:
                # Many enqueue the task that they were given; it is as they know it, and not what became of it.
                return self._task([])
            case pb.Task():
                status, found = event.status, [output for one in event.artifacts for output in self._made(one)]
            case pb.TaskStatusUpdateEvent():
                status, found = event.status, list[Output]()
            case pb.TaskArtifactUpdateEvent():
                return self._task(self._made(event.artifact, append=event.append, last=event.last_chunk))
        words = words_of(status.message) if status.HasField("message") else None
        end = ending(state_of(status.state), words, EXECUTOR)
        said = [Status(words.parts)] if words and words.parts else []
        return self._task([*found, *([end] if end else said)])

    def _task(self, outputs: list[Output]) -> list[Output]:
        """Who waits for a task or a message learns from the first event which of them it will be."""
        first, self.is_task = not self.is_task, True
        return outputs or ([Status(())] if first else [])

    def _reply(self, message: pb.Message) -> Reply:
        if self.is_task:
            raise AgentError("The executor enqueued a Message after it had begun a Task.")
        metadata = json_format.MessageToDict(message.metadata) if message.HasField("metadata") else None
        return Reply(parts_in(message.parts), metadata)

    def _made(self, artifact: pb.Artifact, *, append: bool = False, last: bool = True) -> list[Output]:
        given = artifact_of(artifact)
        chunk = Made(given.id, given.parts, given.name, given.description, append, last, given.metadata)
        made = self._ids.placed(chunk)
        mark = "" if made.artifact in self._marked else self._ids.mark(made.artifact)
        self._marked.add(made.artifact)
        return [
            ArtifactChunk(
                made.parts, made.artifact, made.name, made.description, append=made.append, last=made.last,
                metadata=made.metadata, mark=mark,
            )
        ]  # fmt: skip
