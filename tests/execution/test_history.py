"""An agent's memory of a conversation."""

from parley import Text, Turn, agent
from parley.execution.history import earlier_rounds
from parley.ids import new_id
from parley.runs.attachments import Attachments
from parley.runs.requests import Opening, Send
from parley.runs.rules.access import LOCAL, Principal
from parley.runs.rules.content import Message, text_part
from parley.runs.service import Exchange
from parley.runs.store import LogStore
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo

OTHER = Principal.parse("user:eve")


@agent("elephant")
async def elephant(turn: Turn):
    """Says what it remembers."""
    rounds = await turn.recall(2)
    yield Text(", ".join(one.asked[0].parts[0].text or "" for one in rounds) or "nothing")


@agent("goldfish")
async def goldfish(turn: Turn):
    """Remembers nothing."""
    assert await turn.recall(0) == []
    yield Text("nothing")


async def test_the_latest_rounds_of_ones_own_conversation_with_one_agent(store: LogStore) -> None:
    exchange = Exchange(store, open_blobs("memory:"), Solo(store), NoSignals())
    for driver in (elephant, goldfish):
        exchange.add(driver)
    await exchange.start()

    async def say(text: str, slug: str = "elephant", who: Principal = LOCAL, conversation: str = "c") -> str:
        message = Message(new_id(), (text_part(text),))
        view = await exchange.settled(await exchange.send(Send(slug, who, message, conversation=conversation)))
        return view.artifacts[0].parts[0].text or ""

    assert await say("one") == "nothing"
    assert await say("two") == "one"
    assert await say("three") == "one, two"
    assert await say("four") == "two, three"
    for _ in range(5):
        silent = await exchange.open(Opening("elephant", LOCAL, "c"))
        await exchange.close_run(silent.run, LOCAL)
    assert await say("five") == "three, four"
    assert await say("aside", conversation="d") == "nothing"
    assert await say("other agent", slug="goldfish") == "nothing"
    assert await say("other principal", who=OTHER) == "nothing"
    await exchange.execution.close()


async def test_what_was_forgotten_is_not_remembered(store: LogStore) -> None:
    exchange = Exchange(store, open_blobs("memory:"), Solo(store), NoSignals())
    exchange.add(goldfish)
    await exchange.start()
    runs = []
    for text in ("one", "two", "three"):
        message = Message(new_id(), (text_part(text),))
        outcome = await exchange.send(Send("goldfish", LOCAL, message, conversation="c"))
        runs.append((await exchange.settled(outcome)).run)
    await store.trim(runs[0].id, runs[0].version)
    (remembered,) = await earlier_rounds(store, runs[2], 5, Attachments(open_blobs("memory:")).told)
    assert remembered.asked[0].parts[0].text == "two"
    await exchange.execution.close()
