"""A2A 1.1 as JSON: 1.0 with the generation of a task, by which clients order updates, long-poll and guard sends.

Written after branch `dev-1.1` of the public repository a2aproject/A2A, commit 28491879.
"""

from typing import Any, ClassVar

from msgspec.structs import replace

from parley.faces.a2a import messages
from parley.faces.a2a.dialect import Operation
from parley.faces.a2a.messages import Ask, PollParams, TaskShown, UpdateShown
from parley.faces.a2a.protobuf_json import StreamResponse, TaskOut
from parley.faces.a2a.v1 import V1, Configuration, HookIn, SendParams
from parley.push.hooks import Hook
from parley.runs.rules.view import RunStatus, spoken


class GuardedConfiguration(Configuration, frozen=True, kw_only=True):
    if_generation_match: int | str | None = None


class GuardedSendParams(SendParams, frozen=True, kw_only=True):
    configuration: GuardedConfiguration | None = None


class V11(V1):
    version: ClassVar[str] = "1.1"
    params: ClassVar[dict[Operation, type[Any]]] = {
        **V1.params,
        "send": GuardedSendParams,
        "stream": GuardedSendParams,
        "get": PollParams,
    }

    def ask(self, params: SendParams) -> Ask:
        ask, asked = super().ask(params), params.configuration
        if not isinstance(asked, GuardedConfiguration):
            return ask
        field = "configuration.ifGenerationMatch"
        return replace(ask, generation=messages.int64(asked.if_generation_match, field))

    def hook(self, params: HookIn) -> Hook:
        """Return a hook that a server without 1.1 posts to as to one of 1.0, during a rolling upgrade."""
        return replace(super().hook(params), version=V1.version, generations=True)

    # Why: docs/decisions/faces.md#write-generations-as-numbers
    def task(self, shown: TaskShown) -> TaskOut:
        return replace(super().task(shown), generation=shown.run.generation)

    def update_out(self, shown: UpdateShown, last: bool) -> StreamResponse | None:
        if not shown.generation:
            return None
        written = super().update_out(shown, last)
        if written is None:
            return None
        if (status := written.status_update) is not None:
            return StreamResponse(status_update=replace(status, generation=shown.generation))
        assert written.artifact_update is not None
        return StreamResponse(artifact_update=replace(written.artifact_update, generation=shown.generation))

    def status_after(self, shown: UpdateShown) -> RunStatus | None:
        """Return the status after any update. 1.0 shows no status for a further input or a direct reply."""
        event, payload = shown.event, shown.event.payload
        if payload is None:
            return None
        return super().status_after(shown) or RunStatus(shown.run.state, event.at, spoken(event, payload))
