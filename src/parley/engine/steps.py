"""Steps that are sent to their agents as messages: whatever drives an agent, here or elsewhere, it can be a step."""

from parley.core.access import Principal, may_use
from parley.core.agents import check_content
from parley.core.artifacts import merged, text_of
from parley.core.commands import Start
from parley.core.conversations import Message, hops_metadata
from parley.core.plans import Step
from parley.core.runs import State
from parley.core.steps import Result
from parley.core.views import View
from parley.engine.exchange import Exchange
from parley.engine.planning import Order
from parley.errors import AgentNotFound, Invalid
from parley.ids import ConversationId

CONVERSE = ("", "converse")
_BUSY = "queue_full"


class AgentSteps:
    """A step is a run of its agent, in a conversation of its own."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def refusal(self, step: Step, principal: Principal) -> str | None:
        agent = self._exchange.agents.get(step.agent)
        if agent is None or not may_use(principal, agent):
            return f"there is no agent {step.agent} here."
        if step.mode not in CONVERSE or step.action:
            return f"{step.mode} {step.action}".strip() + " is nothing that can be asked of an agent here."
        return None

    async def carry_out(self, order: Order) -> Result:
        try:
            start = await self._start(order)
        except (AgentNotFound, Invalid) as error:
            return Result("failed", (), error.code, error.message, retryable=False)
        outcome = await self._exchange.begin(order.run, start)
        return await self.result(await self._exchange.settled(outcome, ended=True))

    async def _start(self, order: Order) -> Start:
        agent = self._exchange.usable(order.step.agent, order.principal)
        check_content(agent, order.parts)
        given = Message(f"{order.run}.0", order.parts, hops_metadata(order.hops))
        message = await self._exchange.attachments.stored_message(given)
        conversation = ConversationId(order.run)
        return Start(
            agent.slug, conversation, str(order.principal), message, order.parent, trace=order.trace,
            reach=order.principal.reach,
        )  # fmt: skip

    async def result(self, view: View) -> Result:
        """What came of a run that has ended."""
        said = view.status.said
        words = said.parts if said else ()
        match view.run.state:
            case State.COMPLETED:
                made = tuple(part for artifact in view.artifacts for part in artifact.parts)
                return Result("completed", await self._exchange.attachments.kept(merged(made or words)))
            case State.CANCELED:
                return Result("failed", (), "canceled", text_of(words) or "Its task was canceled.", retryable=False)
            case state:
                code = view.code or state.value
                return Result("failed", (), code, text_of(words), state is State.FAILED or code == _BUSY)
