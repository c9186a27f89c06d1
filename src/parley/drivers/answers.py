"""What has come of a model's answer so far, over all the rounds of a turn."""

from collections.abc import Iterable, Iterator

from parley.core.functions import Wanted
from parley.core.turns import Text
from parley.engine.ports import Answered, Delta, Finish, Usage

BETWEEN = "\n\n"
"""Stands between what was said before tools were called and after."""


class Answer:
    def __init__(self, model: str) -> None:
        self.said: list[str] = []
        self.reason = "interrupted"
        self.wanted: list[Wanted] = []
        self._round: list[str] = []
        self._usage = Usage(model)
        self._before: list[Usage] = []

    @property
    def about(self) -> dict[str, object]:
        """What the log keeps of it: the model, what it took as far as the vendor told, and why it ended."""
        return {**self._maker, "finish": self.reason}

    @property
    def model(self) -> str:
        return self._usage.model

    @property
    def tokens(self) -> int | None:
        """Tokens read and written in all rounds, as far as the vendor told."""
        asked = [*self._before, self._usage]
        return _sum(count for one in asked for count in (one.input_tokens, one.output_tokens))

    @property
    def text_of_round(self) -> str:
        return "".join(self._round)

    @property
    def _maker(self) -> dict[str, object]:
        asked = [*self._before, self._usage]
        counted = {
            "inputTokens": _sum(one.input_tokens for one in asked),
            "outputTokens": _sum(one.output_tokens for one in asked),
        }
        return {"model": self._usage.model, "usage": counted}

    def again(self, texts: Iterable[str]) -> Iterator[Text]:
        """What was said in a turn that is taken up again: it is shown from its beginning."""
        if said := BETWEEN.join(text for text in texts if text):
            self.said.append(said)
            yield Text(said, self._maker)

    def begin_round(self) -> None:
        """The model is asked once more."""
        if self._usage.input_tokens is not None or self._usage.output_tokens is not None:
            self._before.append(self._usage)
            self._usage = Usage(self._usage.model)
        self._round, self.wanted = [], []

    def heard(self, output: Answered) -> Iterator[Text]:
        match output:
            case Delta(text):
                between = BETWEEN if self.said and not self._round else ""
                # The first piece names the model: also an answer that is canceled says who gave it.
                yield Text(between + text, None if self.said else self._maker)
                self.said.append(between + text)
                self._round.append(text)
            case Wanted():
                self.wanted.append(output)
            case Usage():
                self._usage = output
            case Finish(reason):
                self.reason = reason


def _sum(counts: Iterable[int | None]) -> int | None:
    told = [one for one in counts if one is not None]
    return sum(told) if told else None
