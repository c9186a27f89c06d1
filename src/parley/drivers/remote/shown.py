"""From what a remote says to what our turn yields. Pure: what was shown once is not shown again."""

import hashlib
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from parley.core.artifacts import Artifact, BlobRef, Part, Parts, merged
from parley.core.runs import TERMINAL, WAITING
from parley.core.turns import ArtifactChunk, Output, Status
from parley.drivers.remote.words import Made, Snapshot, Words

_SAID = "said:"
"""Begins the mark of a status message from a remote that does not number its events."""


class Shown:
    """What our log has of a remote task."""

    def __init__(self, artifacts: Iterable[Artifact], marks: Iterable[str] = (), task: str = "") -> None:
        self._artifacts = {artifact.id: [_print(part) for part in artifact.parts] for artifact in artifacts}
        # A Parley names the messages of its agents after the task and the number of the event.
        self._said = {mark.removeprefix(_SAID) if mark.startswith(_SAID) else f"{task}.{mark}" for mark in marks}

    def said(self, words: Words | None) -> list[Output]:
        """What the agent says it is doing, unless that was shown."""
        if words is None or not words.parts or words.id in self._said:
            return []
        self._said.add(words.id)
        return [Status(words.parts, f"{_SAID}{words.id}")]

    def made(self, made: Made) -> list[Output]:
        prints = [_print(part) for part in made.parts]
        if made.append and made.artifact in self._artifacts:
            self._artifacts[made.artifact].extend(prints)
        else:
            self._artifacts[made.artifact] = prints
        return [
            ArtifactChunk(
                made.parts, made.artifact, made.name, made.description, append=made.append, last=made.last,
                metadata=made.metadata,
            )
        ]  # fmt: skip

    def caught_up(self, now: Snapshot, message: str) -> list[Output]:
        """What the task holds and we have not shown: words since our `message`, and artifacts."""
        outputs: list[Output] = []
        for words in _since(now.history, message):
            outputs += self.said(words)
        if now.state not in TERMINAL and now.state not in WAITING:
            outputs += self.said(now.said)
        for artifact in now.artifacts:
            outputs += self._rest(artifact, last=now.state in TERMINAL)
        return outputs

    def _rest(self, artifact: Artifact, *, last: bool) -> list[Output]:
        known = merged(self._artifacts.get(artifact.id, ()))
        append = artifact.id in self._artifacts
        rest = _missing(known, artifact.parts) if append else artifact.parts
        if rest is None:
            append, rest = False, artifact.parts
        if not rest:
            return []
        return self.made(Made(artifact.id, rest, artifact.name, artifact.description, append, last, artifact.metadata))


def marked(outputs: list[Output], cursor: int | None) -> list[Output]:
    """The last output carries the number of the event: only when all of them are in the log was it shown."""
    if cursor is None or not outputs:
        return outputs
    last = outputs[-1]
    before = [replace(one, mark="") if isinstance(one, Status) else one for one in outputs[:-1]]
    return [*before, replace(last, mark=str(cursor)) if isinstance(last, Status | ArtifactChunk) else last]


def _since(history: Sequence[Words], message: str) -> list[Words]:
    """What the agent said after our message; nothing when that is no longer in the history."""
    places = [place for place, words in enumerate(history) if words.role == "user" and words.id == message]
    return [words for words in history[places[-1] + 1 :] if words.role == "agent"] if places else []


def _missing(known: Parts, whole: Parts) -> Parts | None:
    """What follows in `whole` after what is known; None when it does not begin with that."""
    prints = [_print(part) for part in merged(whole)]
    whole = merged(whole)
    if len(known) > len(prints):
        return None
    for place, part in enumerate(known):
        other = prints[place]
        if part == other or (part.blob is not None and part == _filed(other)):
            continue
        if place < len(known) - 1 or part.text is None or other.text is None:
            return None
        if not other.text.startswith(part.text) or replace(other, text=part.text) != part:
            return None
        return (replace(whole[place], text=other.text[len(part.text) :]), *whole[place + 1 :])
    return whole[len(known) :]


def _print(part: Part) -> Part:
    """A part that can be compared and costs little to keep: bytes by their digest."""
    if part.raw is None:
        return part
    return replace(part, raw=None, blob=BlobRef(hashlib.sha256(part.raw).hexdigest(), len(part.raw)))


def _filed(part: Part) -> Part:
    """A file of text as it is kept when it is large."""
    content = (part.text or "").encode()
    return replace(part, text=None, blob=BlobRef(hashlib.sha256(content).hexdigest(), len(content), text=True))
