"""The package as npm packs it, used by projects that resolve modules in old and new ways."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from sdk.node import Node
from sdk.package import HOME, compiled

pytestmark = pytest.mark.slow

PROGRAM = """
import { Agent2AgentAPI, type Envelope } from "@parley/agent2agent";

const api = new Agent2AgentAPI({ baseUrl: "http://127.0.0.1:9" });
const read: (id: string) => Promise<Envelope> = (id) => api.readTask(id);
// @ts-expect-error the types are found, and refuse this
const wrong = () => api.readTask(7);
console.log(typeof read, typeof wrong);
"""
RESOLUTIONS = {"node10": "esnext", "node16": "node16", "nodenext": "nodenext", "bundler": "esnext"}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive that would be published."""
    node, folder = compiled(), tmp_path_factory.mktemp("packed")
    said = node.run(*node.npm, "pack", "--json", "--pack-destination", folder, cwd=HOME)
    return folder / json.loads(said)[0]["filename"]


@pytest.fixture(scope="module")
def project(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the package in it; unpacked, as npm would, without asking anything of a registry."""
    home = tmp_path_factory.mktemp("consumer")
    with tarfile.open(packed) as archive:
        for member in archive.getmembers():
            target = home / "node_modules" / "@parley" / "agent2agent" / Path(member.name).relative_to("package")
            target.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(member)
            assert content is not None
            target.write_bytes(content.read())
    (home / "package.json").write_text('{"type": "module", "private": true}')
    (home / "program.ts").write_text(PROGRAM)
    return home


def test_the_package_has_its_licence_and_nothing_of_its_tests(packed: Path) -> None:
    with tarfile.open(packed) as archive:
        names = {name.removeprefix("package/") for name in archive.getnames()}
        licence = archive.extractfile("package/LICENSE")
        assert licence is not None
        assert licence.read() == (HOME.parents[1] / "LICENSE").read_bytes()
    assert {"LICENSE", "README.md", "package.json", "dist/index.js", "dist/index.d.ts"} <= names
    assert not [name for name in names if name.startswith(("test", "build", "node_modules"))]


@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_a_project_finds_the_types_and_runs(project: Path, node: Node, resolution: str) -> None:
    """With TypeScript 5, the last that knows the resolution of old."""
    out = project / resolution
    command = [
        "--strict", "--target", "es2022", "--lib", "es2022,dom", "--module", RESOLUTIONS[resolution],
        "--moduleResolution", resolution, "--outDir", out, project / "program.ts",
    ]  # fmt: skip
    node.run(node.program, HOME / "node_modules" / "typescript-5" / "bin" / "tsc", *command, cwd=project)
    assert node.run(node.program, out / "program.js", cwd=project) == "function function\n"
    shutil.rmtree(out)
