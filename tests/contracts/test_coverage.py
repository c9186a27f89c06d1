"""Every section of the five contracts is covered, no test stands for none, and the checks find what is wrong."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.literals import assert_contains, assert_like, from_typescript, substituted
from tests.contracts.sections import CONTRACTS, NO_EXAMPLE
from tests.contracts.shapes import Shape, problems_of

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def written_in(file: Path) -> Iterator[str]:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_tests_of_a_contract_are_those_of_its_sections(name: str) -> None:
    written = list(written_in(HERE / f"test_{name}.py"))
    assert len(written) == len(set(written))
    named = {test for covered in CONTRACTS[name].values() if isinstance(covered, tuple) for test in covered}
    assert named == set(written)


@pytest.mark.parametrize("name", CONTRACTS)
def test_sections_that_are_tested_elsewhere_name_a_file(name: str) -> None:
    elsewhere = [covered for covered in CONTRACTS[name].values() if isinstance(covered, str) and covered != NO_EXAMPLE]
    assert [file for file in elsewhere if not (ROOT / file).is_file()] == []


def test_every_module_of_the_suite_is_a_contract() -> None:
    modules = {file.stem.removeprefix("test_") for file in HERE.glob("test_*.py")}
    assert modules == {*CONTRACTS, "coverage"}


SHAPE = """{
  id, versionNumber,     // only named
  status: 'running' | 'failed',
  tags: string[],
  steps: [{ stepId: string }],
  note?: string,
  ...
} | null"""
RIGHT = {"id": "a", "versionNumber": 1, "status": "failed", "tags": ["b"], "steps": [{"stepId": "s", "more": 1}]}


@pytest.mark.parametrize(
    ("changed", "problems"),
    [
        ({}, []),
        ({"note": 1}, ["$.note is 1 and not Name(name='string')"]),
        ({"status": "done"}, ["$.status is 'done' and not Literal(value='running')"]),
        ({"tags": ["b", 2]}, ["$.tags[1] is 2 and not Name(name='string')"]),
        ({"steps": [{}]}, ["$.steps[0].stepId is missing"]),
        ({"versionNumber": True}, ["$.versionNumber is True and not Name(name='number')"]),
    ],
)
def test_a_shape_finds_what_is_missing_or_of_another_type(changed: dict[str, object], problems: list[str]) -> None:
    shape = Shape.parse(SHAPE)
    assert list(problems_of(shape.node, {**RIGHT, **changed})) == problems
    assert list(problems_of(shape.node, None)) == []


def test_examples_are_compared_by_type_and_by_value() -> None:
    example = from_typescript("{ a: 'x', b: [{ c: 1.50 }], d: null, e: true }")
    assert example == {"a": "x", "b": [{"c": 1.5}], "d": None, "e": True}
    assert_like(example, {"a": "y", "b": [{"c": 2}], "d": "anything", "e": False, "f": 1})
    for answer in ({**example, "a": 1}, {"a": "x"}, {**example, "b": [{}]}, {**example, "e": 1}):
        with pytest.raises(AssertionError):
            assert_like(example, answer)
    assert_contains(example, {**example, "f": 1})
    with pytest.raises(AssertionError):
        assert_contains(example, {**example, "a": "y"})
    with pytest.raises(AssertionError, match="is not in the example"):
        substituted("run_123", {"run_124": "x"})
