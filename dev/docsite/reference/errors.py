"""Every error, with its form on each wire."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import parley
from dev.docsite.reference.writing import code, sentence, table, whole
from parley.errors import ParleyError
from parley.faces.a2a.errors import fault_of
from parley.faces.actions.messages import code_of
from parley.faces.actions.table import STATUSES
from parley.faces.control.face import mapped_of

EXPLAINED = Path(__file__).parents[3] / "docs" / "errors.md"
_INTRODUCTION = """\
What the codes mean, and what to do about them, is told in [errors](../errors.md); this is what each wire makes of
them. *A2A*: the code of JSON-RPC, the status of HTTP+JSON, that of gRPC, and the `reason`, where A2A has a name of
its own for it. *Actions (002)*: the code in the envelope of `/api/agent2agent` and its status. *Control plane
(003)*: the same of `/internal/v1`. An error that a wire has no word for is a defect there, and told as an internal
one; most of those never get that far, because they are how a task ends, or what a command says."""


def page() -> str:
    head = ("code", "A2A", "actions (002)", "control plane (003)", "")
    return whole("Error codes on every wire", _INTRODUCTION, table(head, map(_row, kinds())))


def kinds() -> list[type[ParleyError]]:
    """All error classes; classes that share a code with their parent are listed once."""
    for module in pkgutil.walk_packages(parley.__path__, "parley."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = [kind for kind in _below(ParleyError) if kind.__module__.startswith("parley.")]
    found = {kind.code: kind for kind in sorted(ours, key=lambda kind: (kind.__module__, kind.__name__), reverse=True)}
    return [found[name] for name in sorted(found)]


def _below(kind: type[ParleyError]) -> Iterator[type[ParleyError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _below(child)


def _row(kind: type[ParleyError]) -> tuple[str, ...]:
    error = ParleyError.__new__(kind)
    ParleyError.__init__(error, "")
    answered, refused = code_of(error), mapped_of(error)
    return (
        code(kind.code),
        _on_a2a(error),
        f"{STATUSES[answered]} {code(answered)}" if answered else "",
        f"{refused.status} {code(refused.code)}" if refused else "",
        sentence(kind.__doc__) or _explained()[kind.code],
    )


def _on_a2a(error: ParleyError) -> str:
    fault = fault_of(error)
    if fault.http == 500:
        return ""
    return " ".join(filter(None, [str(fault.rpc), str(fault.http), code(fault.status), code(fault.reason or "")]))


@cache
def _explained() -> dict[str, str]:
    """Descriptions from the errors page, for error classes without a docstring."""
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", EXPLAINED.read_text("utf-8"), re.MULTILINE)
    plain = ((codes, re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words)) for codes, words in rows)
    return {one: f"{words[0].upper()}{words[1:]}." for codes, words in plain for one in re.findall(r"`(\w+)`", codes)}
