"""What a fork is made of: the entries of another run, up to one of them."""

from parley.core.agents import Agent, check_content
from parley.core.artifacts import check_parts
from parley.core.commands import Fork
from parley.core.events import Origin
from parley.core.runs import Run
from parley.engine.attachments import Attachments
from parley.engine.ports import LogStore
from parley.engine.requests import Branch
from parley.engine.streams import entries_upto
from parley.telemetry.trace import sent


async def fork_of(store: LogStore, attachments: Attachments, agent: Agent, run: Run, branch: Branch) -> Fork:
    message = branch.message
    if message is not None:
        check_parts(message.parts)
        check_content(agent, message.parts)
        message = await attachments.stored_message(message)
    entries = await entries_upto(store, run.id, branch.at)
    last = entries[-1]
    origin = Origin(run.id, last.seq, last.hash.hex())
    payloads = tuple(entry.payload for entry in entries if entry.payload is not None)
    return Fork(
        origin, payloads, str(branch.principal), message, trace=sent(), continues=branch.continues,
        steered=branch.steered, reach=branch.principal.reach,
    )  # fmt: skip
