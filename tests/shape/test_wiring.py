"""Objects get their collaborators when they are made: nothing is attached to them from outside afterwards."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.shape.code import EDGE, SERVER, modules

STATE = {
    # What a request, a page, a turn or a job has come to so far.
    "parley.console": {"entry", "use", "visit"},
    "parley.drivers": {"course", "self._watch", "watch"},
    "parley.execution": {"driven", "job", "outbox", "turn"},
    "parley.faces": {"asked", "following", "posted", "streamed"},
    "parley.http": {"face"},
    "parley.models": {"call"},
    "parley.push": {"progress", "watched"},
    "parley.tools": {"called", "life", "self._life"},
    "parley_edge": {"held", "job", "self._leases", "self.jobs[run]"},
    # Mailboxes and appends of the log, watches of its streams, and what a fold has built so far.
    "parley.runs": {
        "append", "box", "building", "entry", "made", "turn", "view", "watch",
    },
    # Agents that were added while the server runs, and the words of a node's heartbeat.
    "parley.definitions": {"agents"},
    "parley.node": {"self.at_work"},
    # Also the simulated processes, connections and rows, and what clients have seen.
    "parley.testing": {
        "append", "appends[7]", "balancer", "database", "given", "link", "log", "process", "reader", "receiver",
        "rival", "row", "statement",
    },
}  # fmt: skip
"""By package: state objects, by the name they go by, whose fields other objects of the package write."""

FOREIGN = {
    # Objects of libraries, which are set up like this.
    "parley.documents": {"_parser", "child", "token"},
    "parley.drivers": {"copied", "generation", "out", "request.configuration"},
    "parley.faces": {"entry"},
    # And functions that the decorator `operation` marks.
    "parley.http": {"cycle", "handler", "self.cycle"},
    "parley.node": {"server"},
    "parley.security": {"response"},
    "parley.stores": {"self._local"},
    "parley.testing": {"config", "server"},
    "parley.tools": {"logging.getLogger('mcp')", "params", "response"},
    # A copy of itself, and an exception on its way up.
    "parley_edge": {"error", "fault", "other"},
}


class Attached(NamedTuple):
    package: str
    base: str
    attribute: str
    place: str


def attached() -> list[Attached]:
    found = {**modules(SERVER), **modules(EDGE)}
    return [one for module, tree in found.items() for one in attachments(module, tree)]


def attachments(module: str, tree: ast.Module) -> Iterator[Attached]:
    """Every assignment to an attribute of something that is not `self`, and every `setattr`."""
    package = ".".join(module.split(".")[:2]) if module.startswith("parley.") else module.split(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            base = ast.unparse(node.value)
            if base not in ("self", "cls"):
                yield Attached(package, base, node.attr, f"{module}:{node.lineno}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "object.__setattr__"):
            yield Attached(package, ast.unparse(node.args[0]), ast.unparse(node.args[1]), f"{module}:{node.lineno}")


def test_nothing_is_attached_to_an_object_after_its_construction() -> None:
    offenders = [
        f"{one.place}: {one.base}.{one.attribute}"
        for one in attached()
        if one.base not in STATE.get(one.package, set()) | FOREIGN.get(one.package, set())
    ]
    assert offenders == []


@pytest.mark.parametrize("exempt", [STATE, FOREIGN], ids=["state", "foreign"])
def test_every_exemption_is_still_needed(exempt: dict[str, set[str]]) -> None:
    used = {(one.package, one.base) for one in attached()}
    assert {(package, base) for package, bases in exempt.items() for base in bases} - used == set()


def test_every_way_to_attach_something_is_found() -> None:
    tree = ast.parse(
        "self.a = cls.b = 1\na.b = 1\nself.a.b: int = 1\na.c, (a.d, *a.e) = x\na.f += 1\nfor a.g in x: pass\n"
        "with x as a.h: pass\nsetattr(a, 'i', 1)\nobject.__setattr__(self, 'j', 1)\na[0].k = 1\nx = a.l"
    )
    found = sorted(f"{one.base}.{one.attribute}" for one in attachments("parley.runs.log", tree))
    assert found == [
        "a.'i'", "a.b", "a.c", "a.d", "a.e", "a.f", "a.g", "a.h", "a[0].k", "self.'j'", "self.a.b",
    ]  # fmt: skip
