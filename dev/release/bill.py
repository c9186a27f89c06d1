"""Bill of materials (CycloneDX 1.6) of a wheel: the packages that it installs, their licences and dependencies."""

import hashlib
import json
import re
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

from msgspec import Struct
from packaging.requirements import Requirement

from dev.audit.licences import Rules, licence_of
from dev.audit.words import Package, plain

Json = dict[str, Any]
DEVELOPMENT = frozenset(("dev", "docs"))
"""Extras that change no installation of a user."""
_SPDX = re.compile(r"[(\w.+-]+(?: (?:AND|OR|WITH) [(\w.+)-]+)*")


class Bill(Struct, frozen=True):
    wheel: Path
    metadata: Message
    needed: Mapping[str, Package]
    """Installed by default."""
    optional: Mapping[str, Package]
    """Installed only with an extra."""

    @property
    def packages(self) -> list[Package]:
        return sorted({**self.optional, **self.needed}.values(), key=str)


def bill_of(wheel: Path, installed: Mapping[str, Package]) -> Bill:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    needed = _closure(metadata, frozenset(), installed)
    extras = frozenset(metadata.get_all("Provides-Extra") or ()) - DEVELOPMENT
    everything = _closure(metadata, extras, installed)
    optional = {name: package for name, package in everything.items() if name not in needed}
    return Bill(wheel, metadata, needed, optional)


def requirements(metadata: Message, extras: Iterable[str]) -> Iterator[Requirement]:
    """Requirements that apply on this platform with these extras."""
    for line in metadata.get_all("Requires-Dist") or ():
        one = Requirement(line)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield one


def _closure(metadata: Message, extras: Iterable[str], installed: Mapping[str, Package]) -> dict[str, Package]:
    own, found, seen = plain(str(metadata["Name"])), dict[str, Package](), set[tuple[str, frozenset[str]]]()
    open_ = [(metadata, frozenset(extras))]
    while open_:
        for one in requirements(*open_.pop()):
            name, wanted = plain(one.name), frozenset(one.extras)
            if name == own or (name, wanted) in seen:
                continue
            seen.add((name, wanted))
            if name not in installed:
                raise LookupError(f"{name} is required and not installed here, so its version is not known.")
            found[name] = installed[name]
            open_.append((installed[name].metadata, wanted))
    return found


def document(bill: Bill, rules: Rules, at: int) -> Json:
    """The bill as CycloneDX JSON. Everything in it follows from the wheel and the commit, so it can be made again."""
    digest = hashlib.sha256(bill.wheel.read_bytes()).hexdigest()
    name, version = plain(str(bill.metadata["Name"])), str(bill.metadata["Version"])
    subject = _component(name, version, str(bill.metadata["License-Expression"]))
    known = {package.name: _purl(package.name, package.version) for package in bill.packages}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{_purl(name, version)}#{digest}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {**subject, "hashes": [{"alg": "SHA-256", "content": digest}]},
        },
        "components": [
            _component(package.name, package.version, licence_of(package, rules))
            | {"scope": "required" if package.name in bill.needed else "optional"}
            for package in bill.packages
        ],
        "dependencies": [
            {"ref": subject["bom-ref"], "dependsOn": _direct(bill.metadata, known, DEVELOPMENT)},
            *(
                {"ref": known[package.name], "dependsOn": _direct(package.metadata, known, frozenset())}
                for package in bill.packages
            ),
        ],
    }


def _direct(metadata: Message, known: Mapping[str, str], without: frozenset[str]) -> list[str]:
    extras = frozenset(metadata.get_all("Provides-Extra") or ()) - without if without else frozenset[str]()
    own = plain(str(metadata["Name"]))
    names = {plain(one.name) for one in requirements(metadata, extras)} - {own}
    return sorted(known[name] for name in names if name in known)


def _component(name: str, version: str, licence: str) -> Json:
    licence = re.sub(r"^\(([^()]*)\)$", r"\1", licence)
    shown: Json = {"expression": licence} if _SPDX.fullmatch(licence) else {"license": {"name": licence}}
    purl = _purl(name, version)
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "licenses": [shown],
    }  # fmt: skip


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def written(made: Json) -> str:
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"
