"""What is told of requests and tasks where the operator asks for it (contract 001, Logging)."""

from collections.abc import Sequence

from parley.core.conversations import Message
from parley.core.events import Event
from parley.core.runs import Run, State
from parley.core.sanitising import preview
from parley.errors import ParleyError
from parley.faces.a2a.reading import status_of
from parley.faces.a2a.words import Call
from parley.telemetry import tell


class Witness:
    """Told of everything that passes; a server without one spends nothing on it."""

    def asked(self, method: str, call: Call, task: str | None, message: Message | None) -> None:
        """A request, by the name that JSON-RPC 0.3 has for it, whatever binding it came by."""
        about = {"task": task} if task else {}
        if message is not None:
            about["message"] = preview(*(part.text for part in message.parts if part.text))
        tell("request.made", method=method, agent=call.agent or "", principal=str(call.principal), **about)

    def refused(self, error: ParleyError) -> None:
        tell("request.refused", code=error.code)

    def changed(self, run: Run, events: Sequence[Event]) -> None:
        """The states that a run went through; what the agent says on the way is no change."""
        for event in events:
            state = State.SUBMITTED if event.type == "submitted" else _reached(event)
            if state is not None:
                tell("task.state", run=run.id, agent=run.agent, state=state.value, seq=event.seq)


def _reached(event: Event) -> State | None:
    status = status_of(event)
    return status.state if status is not None and event.type != "progress" else None
