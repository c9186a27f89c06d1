"""Agents whose answers are costly to show, as large as they are asked for: `markdown 7000`."""

from parley import Done, Turn, agent

SHAPES = {
    "nested": "[![l](",
    "prose": "**Bold** and `code`, a [link](https://example.com) and a list:\n\n- one\n- two\n\n",
}


@agent("shaped")
async def shaped(turn: Turn):
    """Answers with so many characters of a shape."""
    shape, size = turn.text.split()
    text = SHAPES[shape]
    yield Done((text * (int(size) // len(text) + 1))[: int(size)])


@agent("bench")
async def bench(turn: Turn):
    """Agent whose runs were written beforehand."""
    yield Done("hello")
