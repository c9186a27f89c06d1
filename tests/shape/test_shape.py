"""The code has a shape: small modules, small functions, and nothing that stands there twice."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shape.code import EDGE, ROOT, SERVER, modules
from tests.shape.lines import equal_runs

CODE = {".py", ".js", ".css", ".html", ".sql", ".typ"}
EQUAL_LINES, MODULE_LINES, FUNCTION_LINES = 10, 600, 60
PYTHON_FILES = 430  # The aim is 300, without merging two concepts to reach it; each capability adds its own.
FOLDER_MODULES = 20
HAND_LAID = 60
"""More `# fmt: skip` than this, and it is no longer for tables only."""
SHARED_NAMES = {
    # Wire types of several versions of A2A.
    "ArtifactOut", "ArtifactUpdate", "Authentication", "Configuration", "HookIn", "HookOut", "HookRefIn", "HooksOut",
    "MessageIn", "MessageOut", "SendParams", "StatusOut", "StatusUpdate", "TaskOut",
    # Wire types of the actions (002) and of the control plane (003), by the names that their documents publish.
    "Fault", "Refusal", "StreamEvent",
}  # fmt: skip


def code_files() -> list[Path]:
    return [file for source in (SERVER, EDGE) for file in source.rglob("*") if file.suffix in CODE]


def test_no_run_of_ten_equal_lines() -> None:
    assert [str(pair) for pair in equal_runs(code_files(), EQUAL_LINES)] == []


def test_no_module_is_longer_than_six_hundred_lines() -> None:
    lengths = {str(file.relative_to(ROOT)): len(file.read_text("utf-8").splitlines()) for file in code_files()}
    assert {name: length for name, length in lengths.items() if length > MODULE_LINES} == {}


def test_there_are_few_enough_modules_to_know_them() -> None:
    files = list((SERVER / "parley").rglob("*.py"))
    assert 100 < len(files) <= PYTHON_FILES
    folders = Counter(file.parent.relative_to(SERVER) for file in files)
    assert {str(folder): count for folder, count in folders.items() if count > FOLDER_MODULES} == {}


@pytest.mark.parametrize("source", [SERVER, EDGE], ids=["parley", "parley_edge"])
def test_a_class_name_means_one_thing(source: Path) -> None:
    """Each distribution for itself: the client behind NAT knows nothing of the server."""
    defined: defaultdict[str, list[str]] = defaultdict(list)
    for module, tree in modules(source).items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(module)
    several = {name: where for name, where in defined.items() if len(where) > 1}
    assert {name: where for name, where in several.items() if name not in SHARED_NAMES} == {}
    if source == SERVER:
        assert SHARED_NAMES - several.keys() == set(), "Take it off the list."
        places = {module for name in several for module in several[name]}
        assert {place.rsplit(".", 1)[0] for place in places} == {
            "parley.faces.a2a", "parley.faces.actions", "parley.faces.control",
        }  # fmt: skip


def test_the_formatter_lays_out_the_code() -> None:
    skips = [file.read_text("utf-8").count("# fmt: skip") for file in code_files() if file.suffix == ".py"]
    assert sum(skips) < HAND_LAID


def functions(file: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{file.relative_to(ROOT)}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1


def test_no_function_is_longer_than_sixty_lines() -> None:
    found = [one for file in code_files() if file.suffix == ".py" for one in functions(file)]
    assert len(found) > 3000
    assert {name: length for name, length in found if length > FUNCTION_LINES} == {}


def written(folder: Path, name: str, *lines: str) -> Path:
    file = folder / name
    file.write_text("\n".join(lines) + "\n")
    return file


STEPS = [f"step_{number} = {number}" for number in range(12)]


def test_a_copy_is_found_across_files_and_within_one(tmp_path: Path) -> None:
    two = written(tmp_path, "two.py", "first = 0", *(f"{line}\n\n# why" for line in STEPS))
    one = written(tmp_path, "one.py", "import os", *STEPS, "end = 1", "if end:", *(f"  {line}" for line in STEPS[2:]))
    found = {(pair.first.file.name, pair.second.file.name, pair.length) for pair in equal_runs([one, two], 10)}
    assert found == {("one.py", "one.py", 10), ("one.py", "two.py", 12), ("one.py", "two.py", 10)}


def test_imports_and_nine_lines_are_no_copy(tmp_path: Path) -> None:
    imports = ["from os import (", *(f"    name_{number}," for number in range(20)), ")"]
    one = written(tmp_path, "one.py", *imports, *STEPS[:9], "one = 1")
    two = written(tmp_path, "two.py", *imports, *STEPS[:9], "two = 2")
    assert equal_runs([one, two], 10) == []


def test_a_line_that_is_repeated_is_a_run_only_where_it_fills_two(tmp_path: Path) -> None:
    assert equal_runs([written(tmp_path, "one.py", *["again()"] * 15)], 10) == []
    assert equal_runs([written(tmp_path, "one.py", *["again()"] * 20)], 10) != []
