"""The import rules of the packages are written down for import-linter, and they hold."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from importlinter.api import read_configuration
from importlinter.cli import lint_imports

from tests.shape.code import ROOT, SERVER, modules

CONFIGURATION = str(ROOT / "pyproject.toml")
CAPABILITIES = {
    "audit",
    "budgets",
    "documents",
    "execution",
    "nodes",
    "orchestrations",
    "paired",
    "push",
    "runs",
    "tools",
}
VALUES = {
    "parley.errors", "parley.ids", "parley.json_schema", "parley.json_values", "parley.telemetry.trace", "parley.typed",
}  # fmt: skip
"""Besides rules, what rules may import of Parley: errors, and values without I/O."""
IMPURE = {
    "asyncio", "concurrent", "http", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading",
    "time",
}  # fmt: skip


def contracts() -> dict[str, dict[str, list[str]]]:
    return {one["name"]: one for one in read_configuration(CONFIGURATION)["contracts_options"]}


def named(names: list[str], under: str) -> set[str]:
    """The parts of a package that a contract lists."""
    return {name.removeprefix(under) for name in names if name.startswith(under)}


def test_the_contracts_hold(tmp_path: Path) -> None:
    assert lint_imports(config_filename=CONFIGURATION, no_logo=True, cache_dir=str(tmp_path)) == 0


def test_capabilities_import_no_adapters() -> None:
    contract = contracts()["Capabilities import no adapters"]
    assert contract["type"] == "forbidden"
    assert named(contract["source_modules"], "parley.") == CAPABILITIES
    assert {"console", "drivers", "faces", "stores"} <= named(contract["forbidden_modules"], "parley.")


def test_faces_import_no_faces() -> None:
    contract = contracts()["Faces import no faces"]
    faces = {name.split(".")[2] for name in modules(SERVER) if name.startswith("parley.faces.")}
    assert contract["type"] == "independence"
    assert named(contract["modules"], "parley.faces.") == faces
    assert {one.split(" -> ")[0] for one in contract["ignore_imports"]} == {"parley.faces.registry.proxy"}


def test_every_package_has_its_layer() -> None:
    listed = " ".join(contracts()["Layers"]["layers"])
    packages = {".".join(name.split(".")[:2]) for name in modules(SERVER) if name.count(".") > 1}
    # Tests use whatever they test.
    assert {name for name in packages if name not in listed} == {"parley.testing"}


def is_rules(module: str) -> bool:
    return "rules" in module.split(".")


def imports(tree: ast.Module) -> Iterator[str]:
    """The modules that are imported, in functions and for type checkers too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert not node.level
            yield from ([node.module] if node.module != "parley" else (f"parley.{alias.name}" for alias in node.names))


def allowed(module: str) -> bool:
    top = module.split(".")[0]
    if top == "parley":
        return module in VALUES or is_rules(module)
    return top == "msgspec" or (top in sys.stdlib_module_names and top not in IMPURE)


def test_rules_import_values_and_other_rules_only() -> None:
    rules = {module: set(imports(tree)) for module, tree in modules(SERVER).items() if is_rules(module)}
    assert {module.split(".")[1] for module in rules} == {
        "audit", "budgets", "documents", "execution", "nodes", "orchestrations", "runs", "tools",
    }  # fmt: skip
    assert {module: found for module, names in rules.items() if (found := {n for n in names if not allowed(n)})} == {}


def test_every_value_module_is_used_by_rules() -> None:
    used = {name for module, tree in modules(SERVER).items() if is_rules(module) for name in imports(tree)}
    assert VALUES - used == set()


def test_the_contract_of_rules_names_all_of_them() -> None:
    listed = set(contracts()["Rules are pure"]["source_modules"])
    packages = {module.partition(".rules")[0] + ".rules" for module in modules(SERVER) if is_rules(module)}
    assert packages <= listed
