"""The public names of the Python packages: an import that is not on this page may change in any release."""

import ast
import importlib
import inspect
import re
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from dev.docsite.reference.signatures import methods, signature
from dev.docsite.reference.writing import code, sentence, table, whole

PUBLIC: dict[str, tuple[str, ...]] = {
    "parley": (
        "AgentError", "Answer", "ArtifactChunk", "Done", "Failed", "NeedAuth", "NeedInput", "Note", "Parley", "Part",
        "Rejected", "Reply", "Settings", "Skill", "State", "Status", "StepFailed", "Text", "Turn", "Usage", "agent",
        "ask_caller", "emit",
    ),
    "parley.drivers.graph": ("graph",),
    "parley.drivers.openai_agents": ("openai_agent",),
    "parley.drivers.pydantic_ai": ("pydantic_agent",),
    "parley.compat": ("durable",),
    "parley.node": ("A2A", "Node", "Peer", "PeerAnswer"),
    "parley.node.settings": ("NodeSettings", "load"),
    "parley.node.verifying": ("CALLER", "PairGuarded", "PairVerifier"),
    "parley.client": (
        "UNSUPPORTED", "Client", "Content", "Json", "OnRetry", "Owner", "RemoteError", "RuntimeClient",
        "RuntimeRefused", "RuntimeUnreachable", "SendAnswer", "Unreachable", "UnreadableAnswer", "message",
    ),
    "parley.telemetry": ("attach", "span", "tell"),
    "parley.telemetry.trace": ("Trace", "current", "headers_for"),
    "parley.security.secrets": ("new_key",),
    "parley.security.signatures": ("Claims", "claims_for", "sign"),
    "parley.testing": ("AgentRun", "run", "run_async"),
    "parley.testing.fixtures": ("StartServer", "parley_server"),
    "parley.testing.servers": ("Server", "ServerThread", "hosting", "serving"),
    "parley.testing.processes": ("ServerProcess", "replicas"),
    "parley.testing.waiting": ("until",),
    "parley.testing.balancers": ("Balancer", "balancing"),
    "parley.testing.receivers": ("Post", "Receiver", "receiving"),
    "parley.testing.openapi_changes": ("taken_away",),
    "parley.testing.stores": ("StoreContract",),
    "parley.testing.records": ("AuditContract", "RecordsContract"),
    "parley.testing.blobs": ("BlobsContract",),
    "parley.testing.libraries": ("LibraryContract",),
    "parley.testing.nodes": ("NodesContract",),
    "parley.testing.simulation": ("Simulation", "SimulationFailed", "Violation", "simulate"),
    "parley.orgkernel.loader": ("OrganisationLoader", "OrganisationPaths"),
    "parley.orgkernel.kernel": ("Kernel",),
    "parley.orgkernel.salute": ("ReportFolder", "SaluteReport", "read_report"),
    "parley.orgkernel.pace": ("held", "shown"),
    "a2a_server.run": ("main",),
    "parley_edge.adapter": ("Adapter", "Artifact", "Failure", "Output", "Task", "adapter", "serve"),
}  # fmt: skip
"""By module. A test compares them with the `__all__` of each."""
_SAID = {
    # Types that are also stored or on a wire, where their own words are read by others than the authors of agents.
    "Failed": "Ends the run as failed, with a message for the caller.",
    "Rejected": "Ends the run as rejected: the agent does not take it on.",
    "Skill": "A skill on the card of an agent.",
    "Trace": "The trace that a request is part of, in the words of W3C Trace Context; empty if it names none.",
}
EXAMPLES = Path(__file__).with_name("python_examples.md")
"""Examples by module. They are part of the page, and tests carry them out there."""
_INTRODUCTION = """\
The names that programs may import, with their signatures. Each module lists the same names in `__all__`. Everything
else is private: it may be renamed, moved or removed in any release ([stability](../stability.md)). `parley` and
`a2a_server` come with `parley-a2a`, `parley_edge` with `parley-edge`. The examples run as they are."""


def page() -> str:
    return whole("Python API", _INTRODUCTION, *(part for name in PUBLIC for part in _module(name)))


def _module(name: str) -> list[str]:
    module = importlib.import_module(name)
    rows = ((code(public), described(module, public)) for public in PUBLIC[name])
    about = re.sub(r":$", ".", sentence(module.__doc__))  # an example follows there
    listed = [f"## {code(name)}", about, *examples().get(name, ()), table(("name", ""), rows)]
    return [*listed, *(part for public in PUBLIC[name] for part in _details(getattr(module, public), public))]


def _details(found: object, public: str) -> list[str]:
    """The signature of a name in a block, and the methods of a class as a table."""
    shown, rows = signature(found, public), [(code(one.call), one.about) for one in methods(found)]
    if not (shown or rows):
        return []
    block = [f"```text\n{shown}\n```"] if shown else []
    return [f"### {code(public)}", *block, *([table(("method", ""), rows)] if rows else [])]


def examples() -> dict[str, tuple[str, ...]]:
    """By module: the text below its heading in the file of examples."""
    found = re.split(r"^## `([\w.]+)`\n", EXAMPLES.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {module: (text.strip(),) for module, text in zip(found[::2], found[1::2], strict=True)}


def described(module: ModuleType, name: str) -> str:
    """The first paragraph of a docstring; of a constant or an alias, of the text below it."""
    if name in _SAID:
        return _SAID[name]
    found = getattr(module, name)
    if inspect.isclass(found):
        return sentence(vars(found).get("__doc__"))
    function = inspect.unwrap(found) if callable(found) else found  # a fixture wraps its function
    return sentence(inspect.getdoc(function)) if inspect.isfunction(function) else _below(module, name)


def _below(module: ModuleType, name: str) -> str:
    """Read where the name is assigned, which may be another module than the one that offers it."""
    body = ast.parse(inspect.getsource(module)).body
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            return _below(importlib.import_module(node.module), name)
    assigned = {target: below for node, below in pairwise(body) for target in _targets(node)}
    return sentence(getattr(getattr(assigned.get(name), "value", None), "value", None))


def _targets(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets]
    return [ast.unparse(node.target)] if isinstance(node, ast.AnnAssign) else []
