"""Signatures of public names, as their authors wrote them."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import NamedTuple, TypeGuard

from dev.docsite.reference.writing import sentence

_WIDTH = 100
_INTERNAL = {
    "Turn": (
        "__init__", "assignment", "epoch", "offset", "orchestration", "question", "answers", "record", "take_recorded",
        "remember",
    ),
    "Parley": ("exchange", "start"),
    "Settings": ("__init__", "settings_customise_sources"),
    "NodeSettings": ("settings_customise_sources",),
    "Adapter": ("do_POST",),
    "Balancer": ("connected",),
    "Receiver": ("serve",),
    "Kernel": ("failure_reason", "reported"),
    "Server": ("__init__",),
    "ServerProcess": ("__init__",),
    "StartServer": ("__init__",),
}  # fmt: skip
"""Methods of public classes that only the server itself, or a function beside them, calls."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Method(NamedTuple):
    call: str
    about: str


def signature(found: object, name: str) -> str:
    """Return the call of a function, or of a class; empty for constants, and for classes that only the server makes."""
    function = inspect.unwrap(found) if callable(found) else found
    if inspect.isfunction(function):
        return _call(_function(_parsed(function)), name)
    if not inspect.isclass(found):
        return ""
    body = _body(found)
    made = next((one for one in body if _is_function(one) and one.name == "__init__"), None)
    if made is not None:
        return "" if _internal(found, made) else _call(made, name, returns=False)
    fields = [] if "__init__" in _INTERNAL.get(name, ()) else list(_fields(body))
    return _wrapped(name, fields, "") if fields else ""


def methods(found: object) -> list[Method]:
    """Public methods and properties of a class, without those that it inherits."""
    if not inspect.isclass(found):
        return []
    return [
        Method(_call(one, one.name, wrap=False), sentence(ast.get_docstring(one)))
        for one in _body(found)
        if _is_function(one)
        and not one.name.startswith(("_", "test_"))
        and not _internal(found, one)
        and not {"overload", f"{one.name}.setter"} & _decorators(one)
    ]


def _parsed(found: object) -> ast.stmt:
    return ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]  # pyright: ignore[reportArgumentType]


def _function(node: ast.stmt) -> _Function:
    assert _is_function(node)
    return node


def _body(found: type) -> list[ast.stmt]:
    node = _parsed(found)
    assert isinstance(node, ast.ClassDef)
    return node.body


def _is_function(node: ast.AST) -> TypeGuard[_Function]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _internal(found: type, method: _Function) -> bool:
    return method.name in _INTERNAL.get(found.__name__, ())


def _fields(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            if not ast.unparse(node.annotation).startswith("ClassVar"):
                yield ast.unparse(node)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).isupper():
            yield ast.unparse(node)


def _call(node: _Function, name: str, *, wrap: bool = True, returns: bool = True) -> str:
    decorators = _decorators(node)
    after = f" -> {ast.unparse(node.returns)}" if returns and node.returns is not None else ""
    if decorators & {"property", "cached_property", "functools.cached_property"}:
        return f"{name}{after}"
    before = (
        "await "
        if isinstance(node, ast.AsyncFunctionDef) and "Iterator" not in after and "Generator" not in after
        else ""
    )
    if decorators & {"asynccontextmanager", "contextmanager"}:
        before, after = "async with " if "asynccontextmanager" in decorators else "with ", ""
    arguments = list(_arguments(node.args))
    return before + (_wrapped(name, arguments, after) if wrap else f"{name}({', '.join(arguments)}){after}")


def _decorators(node: _Function) -> set[str]:
    return {ast.unparse(one).split("(")[0] for one in node.decorator_list}


def _arguments(given: ast.arguments) -> Iterator[str]:
    """Without `self`, each with its type and default."""
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    for one, default in zip(positional, defaults, strict=True):
        if one.arg not in ("self", "cls"):
            yield _argument(one, default)
    if given.vararg is not None:
        yield f"*{ast.unparse(given.vararg)}"
    elif given.kwonlyargs:
        yield "*"
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _argument(one, default)
    if given.kwarg is not None:
        yield f"**{ast.unparse(given.kwarg)}"


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(one) + (f" = {ast.unparse(default)}" if default is not None else "")


def _wrapped(name: str, arguments: list[str], after: str) -> str:
    line = f"{name}({', '.join(arguments)}){after}"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in arguments) + f"){after}"
