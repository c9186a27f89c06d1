"""All definitions that are served, read at one moment."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeGuard

from msgspec import Struct

from parley.core.agents import Agent, check_agent
from parley.definitions.agents import build, drafted
from parley.definitions.documents import Document, fault, read_text, together
from parley.definitions.imports import Imports
from parley.definitions.kind import Kinds, Site
from parley.definitions.kinds import KINDS
from parley.definitions.tomls import parse_toml
from parley.definitions.yamls import parse_yaml
from parley.drivers.function import FunctionDriver
from parley.engine.ports import Driver
from parley.errors import ConfigurationError, Invalid

FOLDER = "agents"
YAML = (".yaml", ".yml")

Mark = tuple[int, ...] | tuple[str, ...] | None
"""What tells a file or folder from what it was before: cheap to take, None when it is not there."""


class Sources(Struct, frozen=True):
    """Where definitions come from."""

    names: tuple[str, ...] = ()
    """Python files, modules, YAML files, and folders with YAML files."""
    tables: Path | None = None
    """A TOML file with `[[agent]]` tables."""
    folder: Path | None = None
    """A folder with YAML files, which may be missing, and be made later."""


class Defined(Struct, frozen=True):
    """An agent, and where it was defined."""

    driver: Driver
    kind: str
    file: str
    line: int


def sources(names: Sequence[str], tables: str) -> Sources:
    """What is named, else the folder `agents`; and the tables of the settings' file, wherever there are any."""
    return Sources(tuple(names), Path(tables), None if names else Path(FOLDER))


def mark(path: Path) -> Mark:
    try:
        if path.is_dir():
            return tuple(one.name for one in definition_files(path))
        found = path.stat()
    except (OSError, ValueError):
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def definition_files(folder: Path) -> list[Path]:
    """Hidden files are an editor's."""
    return sorted(one for one in folder.iterdir() if one.suffix in YAML and not one.name.startswith("."))


def _is_driver(value: object) -> TypeGuard[Driver]:
    """Asked of its class first: what else stands in a module may have any attribute, or make it when it is asked."""
    kind = type(value)
    return hasattr(kind, "run") and hasattr(kind, "agent") and isinstance(getattr(value, "agent", None), Agent)


def _line(fault: ConfigurationError) -> int:
    line = fault.details["line"]
    return line if isinstance(line, int) else 0


class Reading:
    """The agents found, everything that is wrong, and marks of all that was looked at."""

    def __init__(self, where: Sources, before: "Reading | None" = None, kinds: Kinds = KINDS) -> None:
        self._kinds = kinds
        self._places: dict[str, Defined] = {}
        self.faults: list[ConfigurationError] = []
        self.marks: dict[Path, Mark] = {}
        self.imports = Imports(before.imports if before else None, self._note)
        for name in where.names:
            self._name(name)
        if where.folder is not None:
            self._note(where.folder)
            if where.folder.is_dir():
                self._folder(where.folder)
        if where.tables is not None:
            self._toml(where.tables)
        if before is not None and self.faults:
            self.imports.keep_unread(before.imports)

    @property
    def defined(self) -> list[Defined]:
        return list(self._places.values())

    @property
    def drivers(self) -> list[Driver]:
        return [one.driver for one in self.defined]

    @property
    def stale(self) -> bool:
        """Whether anything is no longer as it was read."""
        return any(mark(path) != before for path, before in self.marks.items())

    def check(self) -> None:
        if self.faults:
            raise together(self.faults)

    def is_faulty(self, file: str) -> bool:
        """Whether a file, or the folder or code that it needs, could not be read without a fault."""
        folders = {str(folder) for folder in Path(file).parents}
        return any(fault.details.get("file") == file or fault.details.get("file") in folders for fault in self.faults)

    def _note(self, path: Path) -> None:
        self.marks.setdefault(path, mark(path))

    def _name(self, name: str) -> None:
        path = Path(name)
        if path.is_dir():
            self._folder(path)
        elif path.suffix in YAML:
            self._yaml(path)
        else:
            self._python(name)

    def _folder(self, path: Path) -> None:
        self._note(path)
        try:
            files = definition_files(path)
        except OSError as error:
            self.faults.append(fault(str(path), f"cannot be read: {error.strerror}"))
            return
        for one in files:
            self._yaml(one)

    def _yaml(self, path: Path) -> None:
        self._note(path)
        try:
            document, faults = parse_yaml(str(path), read_text(path))
        except ConfigurationError as error:
            self.faults.append(error)
            return
        self._define(document, path.stem, path.parent, faults)

    def _toml(self, path: Path) -> None:
        self._note(path)
        if not path.is_file():
            return
        try:
            documents = parse_toml(str(path), read_text(path))
        except ConfigurationError as error:
            self.faults.append(error)
            return
        for document in documents:
            self._define(document, None, path.parent, [])

    def _define(
        self, document: Document, slug: str | None, folder: Path, faults: list[ConfigurationError]
    ) -> None:  # fmt: skip
        """Go as far as possible, so that everything that is wrong is told; but serve only what is all right."""
        draft = drafted(document, self._kinds, slug, faults)
        if draft is not None:
            try:
                driver = build(draft, self._kinds[draft.kind], Site(folder, self.imports))
                if not faults:
                    self._add(Defined(driver, draft.kind, document.file, document.line(("slug",))))
            except ConfigurationError as error:
                faults.append(error)
        self.faults.extend(sorted(faults, key=_line))

    def _python(self, name: str) -> None:
        try:
            module = self.imports.file(Path(name)) if name.endswith(".py") else self.imports.named(name)
        except Invalid as error:
            self.faults.append(fault(name, error.message))
            return
        found = [value for value in vars(module).values() if _is_driver(value)]
        if not found:
            self.faults.append(fault(name, "there is no @agent function in it, and no other driver"))
        for driver in {id(one): one for one in found}.values():
            function = driver.function if isinstance(driver, FunctionDriver) else None
            line = getattr(getattr(function, "__code__", None), "co_firstlineno", 1)
            self._add(Defined(driver, "driver" if function is None else "function", name, line))

    def _add(self, new: Defined) -> None:
        slug = new.driver.agent.slug
        try:
            check_agent(new.driver.agent)
        except Invalid as error:
            self.faults.append(fault(new.file, error.message, new.line, str(error.details.get("field"))))
            return
        known = self._places.setdefault(slug, new)
        if known is not new:
            message = f"{slug} is defined in {known.file}:{known.line} already"
            self.faults.append(fault(new.file, message, new.line, "slug"))
