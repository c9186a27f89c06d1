"""The calls of runtimes as a table: their routes and their OpenAPI document are made from it."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from starlette.routing import Route

from parley.faces.edge.files import File
from parley.faces.edge.replies import (
    Attached,
    Beat,
    Detached,
    Ended,
    Progressed,
    Pulled,
    Released,
    RuntimeStatus,
    Stops,
)
from parley.faces.edge.serving import Action, route
from parley.faces.edge.words import (
    ArtifactIn,
    AttachIn,
    ControlIn,
    EndIn,
    HeartbeatIn,
    Nothing,
    ProgressIn,
    PullIn,
    ReleaseIn,
)

DOCUMENT = "/agent-runtimes/openapi.json"


class Operation(Struct, frozen=True):
    """A call. `token`: whether it needs a runtime's token. Statuses are those that not every call can have."""

    name: str
    method: str
    path: str
    summary: str
    body: type | None
    answers: Mapping[int, Any]
    refusals: tuple[int, ...] = ()
    token: bool = True

    def served_by(self, action: Action) -> Route:
        return route(self.method, self.path, action)


_SELF, _RUN = "/agent-runtimes/runtime", "/task-runs/{id}"
_REPORT = (404, 409, 413)

ATTACH = Operation(
    "attach", "POST", f"{_SELF}/attach-via-pairing", "Exchange a pairing code for a runtime's token.",
    AttachIn, {200: Attached}, (413, 429), token=False,
)  # fmt: skip
HEARTBEAT = Operation(
    "heartbeat", "POST", f"{_SELF}/heartbeat", "Renew the leases of the tasks that the runtime works on.",
    HeartbeatIn, {200: Beat}, (413,),
)  # fmt: skip
CONTROL = Operation(
    "control", "POST", f"{_SELF}/control", "Wait until one of these tasks is to be stopped.",
    ControlIn, {200: Stops}, (413,),
)  # fmt: skip
DETACH = Operation(
    "detach", "POST", f"{_SELF}/detach", "Take leave: hand back what this process holds.",
    Nothing, {200: Detached}, (413,),
)  # fmt: skip
STATUS = Operation(
    "status",
    "GET",
    f"{_SELF}/status",
    "Show the runtime and its agent's queue.",
    None,
    {200: RuntimeStatus},
    (404, 409),
)
PULL = Operation(
    "pull", "POST", "/agent-accounts/{agent}/task-runs/pull", "Take tasks, or wait for the first one.",
    PullIn, {200: Pulled}, (403, 404, 409, 413),
)  # fmt: skip
PROGRESS = Operation(
    "progress", "POST", f"{_RUN}/progress", "Tell what the agent is doing, and renew the lease.",
    ProgressIn, {200: Progressed}, _REPORT,
)  # fmt: skip
ARTIFACT = Operation(
    "writeArtifact", "POST", f"{_RUN}/artifacts", "Write a file.", ArtifactIn, {200: File, 201: File}, _REPORT
)
COMPLETE = Operation(
    "complete", "POST", f"{_RUN}/complete", "End the turn with an answer, or with a question.",
    EndIn, {200: Ended}, _REPORT,
)  # fmt: skip
FAIL = Operation(
    "fail", "POST", f"{_RUN}/fail", "End the turn with a failure; also what a canceled task is ended with.",
    EndIn, {200: Ended}, _REPORT,
)  # fmt: skip
RELEASE = Operation(
    "release", "POST", f"{_RUN}/release", "Hand the task back to the queue, which is not counted as an attempt.",
    ReleaseIn, {200: Released}, _REPORT,
)  # fmt: skip

OPERATIONS = (
    ATTACH, HEARTBEAT, CONTROL, DETACH, STATUS, PULL, PROGRESS, ARTIFACT, COMPLETE, FAIL, RELEASE,
)  # fmt: skip
