"""What a message is about: which domain of an organisation, which role takes it, and by which workflow."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from parley.orgkernel.card import Offer, offers
from parley.orgkernel.definitions import PASSTHROUGH, Edge, Graph, Node, Organisation, Role, Workflow

MAX_READ = 20_000
"""What a message is about is said in its first pages."""
MAX_GAP = 2
"""How many words may stand between two of a phrase: "fix the login bug" holds "fix bug"."""
_WORD = re.compile(r"[^\W_]+")


class Assignment(Struct, frozen=True):
    """Who does it, and how. Without a role the message passes through."""

    domain: str
    role: Role | None = None
    workflow: Workflow | None = None


def assign(organisation: Organisation, text: str) -> Assignment:
    """The domain that the message speaks of most, and the role of the lowest authority that can work in it."""
    words = words_of(text[:MAX_READ])
    named = _named(organisation, text[:MAX_READ], words)
    if named is not None:
        role = organisation.roles_for(named.domain)[0]
        workflow = organisation.workflow(named.workflow) or _workflow(organisation, named.domain, role, words)
        return Assignment(named.domain, role, workflow)
    scores = {
        one.id: _score(organisation, one.id, words) for one in organisation.domains
        if one.id != PASSTHROUGH and organisation.roles_for(one.id)
    }  # fmt: skip
    best = max(scores, key=lambda id_: scores[id_], default="")
    if not best or not scores[best]:
        return Assignment(PASSTHROUGH)
    role = organisation.roles_for(best)[0]
    return Assignment(best, role, _workflow(organisation, best, role, words))


def _named(organisation: Organisation, text: str, words: list[str]) -> Offer | None:
    """The skill whose name or id the message begins with. A single word counts only by itself or before a colon:
    "Analysis: the figures" asks for that skill, "Analysis shows a bug in the login" does not."""
    title = words_of(text.partition(":")[0])
    found: dict[int, Offer] = {}
    for offer in offers(organisation):
        for phrase in map(words_of, (offer.skill.name, offer.skill.id)):
            many = len(phrase)
            if phrase and (title == phrase or (many > 1 and words[:many] == phrase)):
                found.setdefault(many, offer)
    return found[max(found)] if found else None


def words_of(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(text.lower())]


def _stem(word: str) -> str:
    """Enough to take "bugs" for "bug" and "files" for "file"."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _score(organisation: Organisation, id_: str, words: Sequence[str]) -> int:
    domain = organisation.domain(id_)
    named = [phrase for phrase in (domain.name, id_) if phrase]
    score = max((_hit(phrase, words) for phrase in named), default=0) + _hits(domain.triggers, words)[1]
    for workflow in organisation.workflows_for(id_):
        count, weight = _hits(_phrases(workflow), words)
        # To be named is enough, however many phrases the workflow asks for.
        named = any(_hit(name, words) for name in _names(workflow))
        score += weight if named or count >= workflow.trigger_threshold else 0
    return score


def _phrases(workflow: Workflow) -> list[str]:
    return [*workflow.triggers, *_names(workflow)]


def _names(workflow: Workflow) -> list[str]:
    """Its name, and its id where that says something else."""
    name, id_ = workflow.name.removesuffix(" Workflow"), workflow.id
    return [name] if words_of(id_)[: len(words_of(name))] == words_of(name) else [name, id_]


def _workflow(organisation: Organisation, domain: str, role: Role, words: Sequence[str]) -> Workflow:
    """The one that fits the words best; among equals one that the role knows; else the work as a single step."""
    found = organisation.workflows_for(domain)
    if not found:
        return _single(organisation, domain, role)
    return max(found, key=lambda one: (_hits(_phrases(one), words)[1], one.id in role.plans))


def _single(organisation: Organisation, domain: str, role: Role) -> Workflow:
    name = organisation.domain(domain).name
    nodes = {
        "start": Node("start", "start", "Begin"),
        "work": Node("work", "task", "Work on the task", max_retries=role.retries),
        "stuck": Node("stuck", "escalate", "Ask for guidance", reason="The attempts brought no result"),
        "done": Node("done", "exit", f"{name} complete"),
    }
    edges = (Edge("start", "work"), Edge("work", "done", "on_success"), Edge("work", "stuck", "on_exhaust"))
    return Workflow(domain, name, domains=(domain,), graph=Graph("start", nodes, edges))


def _hits(phrases: Iterable[str], words: Sequence[str]) -> tuple[int, int]:
    """How many phrases the words hold, and how much that weighs: a longer phrase says more."""
    found = [weight for phrase in phrases if (weight := _hit(phrase, words))]
    return len(found), sum(found)


def _hit(phrase: str, words: Sequence[str]) -> int:
    wanted = words_of(phrase)
    if not wanted:
        return 0
    starts = (place for place, word in enumerate(words) if word == wanted[0])
    return len(wanted) if any(_follows(wanted[1:], words, place + 1) for place in starts) else 0


def _follows(wanted: Sequence[str], words: Sequence[str], place: int) -> bool:
    for word in wanted:
        near = words[place : place + MAX_GAP + 1]
        if word not in near:
            return False
        place += near.index(word) + 1
    return True
