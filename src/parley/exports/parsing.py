"""Markdown parsers that stop when a text costs too much.

CommonMark's links nest, so a few thousand characters such as `[![a](` can take any parser seconds. The parser calls a
rule before each piece of a text; ours looks how much processor time is left, and lets other threads run.
"""

import time
from typing import Any

from markdown_it import MarkdownIt

MAX_TEXT = 500_000
"""Characters of one text that are parsed; a longer one is shown as it was written."""
MAX_CPU_S = 2.0
"""Processor time for one text of an export."""
NOTE = "Too long or too complex to be formatted, so it is shown as it was written."

_YIELD_S = 0.001


class OverBudget(Exception):
    """A text is longer than is parsed, or its time is used up."""


class Budget:
    """Processor time of the thread that makes this, for one text or for all texts of a page."""

    def __init__(self, cpu_s: float | None = None) -> None:
        self._yielded = time.thread_time()
        self._end = self._yielded + (MAX_CPU_S if cpu_s is None else cpu_s)

    def check(self) -> None:
        now = time.thread_time()
        if now >= self._end:
            raise OverBudget
        if now - self._yielded >= _YIELD_S:
            # Otherwise the event loop would wait five milliseconds for its turn, each time that it has something to do.
            time.sleep(0)
            self._yielded = now


def budgeted(parser: MarkdownIt) -> MarkdownIt:
    """Make a parser check the `budget` of its environment before each block and each piece of a line."""

    def before_inline(state: Any, silent: bool) -> bool:
        state.env["budget"].check()
        return False

    def before_block(state: Any, start: int, end: int, silent: bool) -> bool:
        state.env["budget"].check()
        return False

    parser.inline.ruler.before("text", "budget", before_inline)
    parser.block.ruler.before("table", "budget", before_block)
    return parser


def environment(text: str, budget: Budget | None = None, most: int = MAX_TEXT) -> dict[str, Any]:
    """Return what a budgeted parser needs for a text; raises OverBudget for one that is too long."""
    if len(text) > most:
        raise OverBudget
    budget = budget or Budget()
    budget.check()
    return {"budget": budget}
