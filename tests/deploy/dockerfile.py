"""A Dockerfile as a list of instructions, by stage."""

import re
from pathlib import Path
from typing import NamedTuple


class Step(NamedTuple):
    word: str
    rest: str


class Stage(NamedTuple):
    image: str
    name: str
    steps: list[Step]

    def of(self, word: str) -> list[str]:
        return [step.rest for step in self.steps if step.word == word]

    @property
    def environment(self) -> dict[str, str]:
        pairs = [pair for rest in self.of("ENV") for pair in rest.split()]
        return dict(pair.split("=", 1) for pair in pairs)


def stages(path: Path) -> list[Stage]:
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    found: list[Stage] = []
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            found.append(Stage(image, name, []))
        elif word and found:  # an ARG before the first stage belongs to none
            found[-1].steps.append(Step(word, rest.strip()))
    return found
