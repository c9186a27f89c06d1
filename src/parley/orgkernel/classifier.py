"""Classify a message: choose the domain of an organisation, the role and the workflow for it."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from parley.orgkernel.card import SkillOffer, offers
from parley.orgkernel.definitions import (
    PASSTHROUGH,
    Organisation,
    Role,
    Workflow,
    WorkflowEdge,
    WorkflowGraph,
    WorkflowNode,
)

MAX_READ = 20_000
"""Number of characters that are classified: the first pages of a message show what it is about."""
MAX_GAP = 2
"""Maximum number of other words between two words of a phrase: "fix the login bug" contains "fix bug"."""
_WORD = re.compile(r"[^\W_]+")


class RoleAssignment(Struct, frozen=True):
    """The domain, role and workflow for a message. A message without a role is answered directly."""

    domain: str
    role: Role | None = None
    workflow: Workflow | None = None


def assign(organisation: Organisation, text: str) -> RoleAssignment:
    """Return the best matching domain, and the role with the lowest authority that can work in it."""
    words = words_of(text[:MAX_READ])
    named = _named(organisation, text[:MAX_READ], words)
    if named is not None:
        role = organisation.roles_for(named.domain)[0]
        workflow = organisation.workflow(named.workflow) or _workflow(organisation, named.domain, role, words)
        return RoleAssignment(named.domain, role, workflow)
    scores = {
        one.id: _score(organisation, one.id, words)
        for one in organisation.domains
        if one.id != PASSTHROUGH and organisation.roles_for(one.id)
    }
    best = max(scores, key=lambda id_: scores[id_], default="")
    if not best or not scores[best]:
        return RoleAssignment(PASSTHROUGH)
    role = organisation.roles_for(best)[0]
    return RoleAssignment(best, role, _workflow(organisation, best, role, words))


def _named(organisation: Organisation, text: str, words: list[str]) -> SkillOffer | None:
    """Return the skill whose name or id starts the message. A single word counts only if it stands alone or before a
    colon: "Analysis: the figures" requests that skill, "Analysis shows a bug in the login" does not."""
    title = words_of(text.partition(":")[0])
    found: dict[int, SkillOffer] = {}
    for offer in offers(organisation):
        for phrase in map(words_of, (offer.skill.name, offer.skill.id)):
            many = len(phrase)
            if phrase and (title == phrase or (many > 1 and words[:many] == phrase)):
                found.setdefault(many, offer)
    return found[max(found)] if found else None


def words_of(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(text.lower())]


def _stem(word: str) -> str:
    """Return a simple stem, so that "bugs" matches "bug" and "files" matches "file"."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _score(organisation: Organisation, id_: str, words: Sequence[str]) -> int:
    domain = organisation.domain(id_)
    named = [phrase for phrase in (domain.name, id_) if phrase]
    score = max((_hit(phrase, words) for phrase in named), default=0) + _hits(domain.triggers, words)[1]
    for workflow in organisation.workflows_for(id_):
        count, weight = _hits(_phrases(workflow), words)
        # A workflow that is named matches, even if it requires several phrases.
        named = any(_hit(name, words) for name in _names(workflow))
        score += weight if named or count >= workflow.trigger_threshold else 0
    return score


def _phrases(workflow: Workflow) -> list[str]:
    return [*workflow.triggers, *_names(workflow)]


def _names(workflow: Workflow) -> list[str]:
    """Return the workflow's name, and its id unless the id begins with the name."""
    name, id_ = workflow.name.removesuffix(" Workflow"), workflow.id
    return [name] if words_of(id_)[: len(words_of(name))] == words_of(name) else [name, id_]


def _workflow(organisation: Organisation, domain: str, role: Role, words: Sequence[str]) -> Workflow:
    """Return the domain's workflow that matches the words best; among equals one that the role lists. A domain without
    workflows gets one with a single step."""
    found = organisation.workflows_for(domain)
    if not found:
        return _single(organisation, domain, role)
    return max(found, key=lambda one: (_hits(_phrases(one), words)[1], one.id in role.plans))


def _single(organisation: Organisation, domain: str, role: Role) -> Workflow:
    name = organisation.domain(domain).name
    nodes = {
        "start": WorkflowNode("start", "start", "Begin"),
        "work": WorkflowNode("work", "task", "Work on the task", max_retries=role.retries),
        "stuck": WorkflowNode("stuck", "escalate", "Ask for guidance", reason="The attempts brought no result"),
        "done": WorkflowNode("done", "exit", f"{name} complete"),
    }
    edges = (
        WorkflowEdge("start", "work"),
        WorkflowEdge("work", "done", "on_success"),
        WorkflowEdge("work", "stuck", "on_exhaust"),
    )
    return Workflow(domain, name, domains=(domain,), graph=WorkflowGraph("start", nodes, edges))


def _hits(phrases: Iterable[str], words: Sequence[str]) -> tuple[int, int]:
    """Return how many phrases occur in the words, and their weight: longer phrases weigh more."""
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
